"""The token stays between the client and its endpoint: not on screen, not on disk, not with another host."""

from pathlib import Path

import pytest

from tests.support.hub_commands import MODEL, SPACE, WRITER, Client
from tests.support.hub_server import HubServer, Repo
from tiny_transformer.bundle import WEIGHTS, Bundle


def test_only_the_endpoint_ever_gets_the_token(hub: HubServer, client: Client, model: Bundle) -> None:
    hub.multipart_over = 4096
    assert client.push(model.folder, "--private", "--space", SPACE).code == 0
    assert client.pull(token=WRITER).code == 0
    here = [seen for seen in hub.seen if seen.port == hub.port]
    elsewhere = [seen for seen in hub.seen if seen.port == hub.storage_port]
    assert {seen.method for seen in elsewhere} == {"PUT", "POST", "GET"}
    assert all("authorization" not in seen.headers for seen in elsewhere)
    assert all(WRITER not in str(seen.headers) for seen in elsewhere)
    assert all(seen.headers.get("authorization") == f"Bearer {WRITER}" for seen in here)


@pytest.mark.parametrize("pattern", ["GET /api/whoami", "GET /api/models/ada/model$", "POST .*/commit/"])
def test_a_redirect_to_another_port_does_not_get_the_token(
    hub: HubServer, client: Client, model: Bundle, pattern: str
) -> None:
    hub.create(MODEL)
    hub.fail(pattern, status=307, headers={"Location": f"{hub.storage}/elsewhere"})
    client.push(model.folder, PATIENCE="0")
    (followed,) = hub.requests("/elsewhere")
    assert "authorization" not in followed.headers


@pytest.mark.parametrize("pattern", ["HEAD .*/config.json", "GET .*/config.json", "HEAD .*/parity.json"])
def test_a_redirect_of_a_download_does_not_get_the_token(
    hub: HubServer, client: Client, repo: Repo, pattern: str
) -> None:
    hub.fail(pattern, status=307, headers={"Location": f"{hub.storage}/elsewhere"})
    client.pull(token=WRITER, env={"PATIENCE": "0"})
    assert all("authorization" not in seen.headers for seen in hub.seen if seen.port == hub.storage_port)


def test_a_verification_that_points_elsewhere_does_not_get_the_token(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    # The client sends its headers to whatever address the answer names for this step.
    hub.verify_uploads = True
    assert client.push(model.folder).code == 0
    checks = hub.requests("POST /verify/")
    assert checks
    assert all("authorization" not in seen.headers for seen in checks)


@pytest.mark.parametrize("fault", ["none", "status", "lost"])
def test_the_token_is_neither_printed_nor_written(
    hub: HubServer, client: Client, model: Bundle, fault: str, tmp_path: Path
) -> None:
    if fault != "none":
        hub.fail("POST .*/commit/", fault, times=99, status=400, body=f'{{"error": "{WRITER} is odd"}}'.encode())
    done = client.push(model.folder, "--space", SPACE, PATIENCE="0", HF_DEBUG="1" if fault == "none" else "")
    assert (done.code == 0) == (fault != "status"), done.err
    assert WRITER not in done.out + done.err
    for repo in hub.repos.values():
        assert all(WRITER.encode() not in data for files in repo.commits.values() for data in files.values())
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or WRITER.encode() not in path.read_bytes(), path


def test_a_token_from_the_clients_own_store_will_do(hub: HubServer, client: Client, model: Bundle) -> None:
    client.home.mkdir()
    (client.home / "token").write_text(WRITER)
    assert client.push(model.folder, token=None).code == 0
    assert WEIGHTS in hub.files(MODEL)
