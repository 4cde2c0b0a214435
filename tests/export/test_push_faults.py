"""A push meets every fault there is: the repo holds the old state or the new one, and the user gets one sentence."""

import os
import time
from pathlib import Path

import pytest

from tests.support.hub_commands import MODEL, READER, SPACE, Client, with_graphs
from tests.support.hub_server import HubServer
from tiny_transformer.atomic import locked_folder
from tiny_transformer.bundle import CARD, DECODER_ONNX, WEIGHTS, Bundle

ENDPOINTS = (
    "GET /api/whoami",
    "GET /api/models/ada/model$",
    "POST /api/repos/create",
    "GET /api/models/ada/model/revision/",
    "GET /api/models/.*/tree/",
    "POST /api/validate-yaml",
    "POST /api/models/.*/preupload/",
    "POST .*/info/lfs/objects/batch",
    "PUT /objects/",
    "POST /api/models/.*/commit/",
    "GET /api/models/.*/refs",
    "POST /api/models/.*/tag/",
)
LONGER_WAYS = (  # a branch of its own, files in parts, checked uploads, a card that is there
    "POST /api/models/.*/branch/",
    "HEAD /ada/model/resolve/",
    "GET /ada/model/resolve/",
    "PUT /objects/.*part=2",
    "POST /complete/",
    "POST /verify/",
)
OLD = {"generation.json": b"{}", "model.safetensors": b"old weights"}


def sentence(err: str) -> str:
    """The one line that a failure may print besides the plan."""
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]


def published(hub: HubServer, model: Bundle) -> bool:
    """Whether main holds the folder, every file of it; a mixture is neither this nor the old state."""
    files = hub.files(MODEL)
    files.pop(CARD, None)
    return files == {name: (model.folder / name).read_bytes() for name in model.files()}


@pytest.mark.long
def test_each_endpoint_may_be_down_once(hub: HubServer, client: Client, model: Bundle) -> None:
    faults = [hub.fail(endpoint) for endpoint in ENDPOINTS]
    done = client.push(model.folder)
    assert done.code == 0, done.err
    assert [fault.match for fault in faults if fault.times] == []
    assert published(hub, model)
    assert len(hub.repos["model", MODEL].commits) == 2


@pytest.mark.slow
def test_each_endpoint_of_the_longer_ways_may_be_down_once(hub: HubServer, client: Client, model: Bundle) -> None:
    hub.create(MODEL, files={CARD: b"---\n---\n# Theirs\n"})
    hub.multipart_over, hub.verify_uploads = 4096, True
    faults = [hub.fail(endpoint) for endpoint in LONGER_WAYS]
    done = client.push(model.folder, "--revision", "next")
    assert done.code == 0, done.err
    assert [fault.match for fault in faults if fault.times] == []
    assert hub.files(MODEL, revision="next")[WEIGHTS] == (model.folder / WEIGHTS).read_bytes()


def test_an_answer_that_is_no_json_is_a_busy_server_too(hub: HubServer, client: Client, model: Bundle) -> None:
    hub.fail("POST /api/validate-yaml", body=b"<html>busy</html>")
    assert client.push(model.folder).code == 0
    assert published(hub, model)


@pytest.mark.parametrize("endpoint", ["GET /api/whoami", "POST /api/models/.*/commit/"])
def test_a_request_to_slow_down_is_obeyed(hub: HubServer, client: Client, model: Bundle, endpoint: str) -> None:
    hub.fail(endpoint, status=429, headers={"Retry-After": "2"})
    assert client.push(model.folder).code == 0
    first, second = hub.requests(endpoint)
    assert second.at - first.at > 2
    assert published(hub, model)


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (429, {"Retry-After": "3600"}, "fewer requests (429)"),
        (503, {}, "cannot answer about ada/model (503)"),
    ],
)
@pytest.mark.slow
def test_patience_has_an_end(
    hub: HubServer, client: Client, model: Bundle, status: int, headers: dict[str, str], words: str
) -> None:
    hub.create(MODEL, files=OLD)
    hub.fail("POST .*/commit/", times=99, status=status, headers=headers)
    done = client.push(model.folder, PATIENCE="1")
    assert done.code == 2
    assert words in sentence(done.err)
    assert hub.files(MODEL) == OLD


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("hf_wrong", "does not accept the token (401)"),
        (None, "There is no Hugging Face token here"),
        (READER, "no right to do this with ada/model (403)"),
    ],
)
def test_a_token_that_does_not_do_is_named(
    hub: HubServer, client: Client, model: Bundle, token: str | None, words: str
) -> None:
    done = client.push(model.folder, token=token)
    assert done.code == 2
    assert words in sentence(done.err)
    assert hub.repos == {}


def test_a_foreign_namespace_is_refused(hub: HubServer, client: Client, model: Bundle) -> None:
    done = client.push(model.folder, repo="bob/model")
    assert done.code == 2
    assert "(403)" in sentence(done.err)
    assert hub.repos == {}


def test_without_a_network_the_endpoint_is_named(client: Client, model: Bundle) -> None:
    done = client.push(model.folder, HF_ENDPOINT="http://127.0.0.1:9", PATIENCE="0.2")
    assert done.code == 2
    assert "http://127.0.0.1:9 cannot be reached" in sentence(done.err)


def test_somebody_elses_commit_in_between_is_not_overwritten(hub: HubServer, client: Client, model: Bundle) -> None:
    repo = hub.create(MODEL, files=OLD)
    theirs = {**OLD, "model.safetensors": b"theirs"}
    hub.fail("POST .*/commit/", "race", action=lambda: repo.add("main", theirs, "theirs"))
    done = client.push(model.folder)
    assert done.code == 2
    assert "changed by somebody else meanwhile (412)" in sentence(done.err)
    assert hub.files(MODEL) == theirs
    assert not repo.tags


def test_a_reset_in_the_middle_of_an_upload_is_survived(hub: HubServer, client: Client, model: Bundle) -> None:
    hub.fail("PUT /objects/", "reset", times=2)
    done = client.push(model.folder)
    assert done.code == 0, done.err
    assert published(hub, model)


@pytest.mark.parametrize("endpoint", ["POST /api/repos/create", "POST .*/commit/", "POST .*/tag/"])
def test_a_lost_reply_is_settled_by_looking(hub: HubServer, client: Client, model: Bundle, endpoint: str) -> None:
    fault = hub.fail(endpoint, "lost")
    done = client.push(model.folder)
    assert done.code == 0, done.err
    assert fault.times == 0
    assert published(hub, model)
    repo = hub.repos["model", MODEL]
    assert len(repo.commits) == 2  # not committed again
    assert len(repo.tags) == 1


def test_a_lost_reply_about_a_pull_request_makes_no_second_one(hub: HubServer, client: Client, model: Bundle) -> None:
    hub.create(MODEL)
    hub.fail("POST .*/commit/", "lost")
    done = client.push(model.folder, "--create-pr")
    assert done.out == f"{hub.endpoint}/{MODEL}/discussions/1\n", done.err
    assert len(hub.repos["model", MODEL].pull_requests) == 1


def test_bytes_that_arrive_damaged_are_reported_and_never_tagged(hub: HubServer, client: Client, model: Bundle) -> None:
    hub.create(MODEL, files=OLD)

    def damage() -> None:
        for name in hub.objects:
            hub.objects[name] = b"x" + hub.objects[name][1:]

    hub.fail("POST .*/commit/", "damage", action=damage)
    done = client.push(model.folder)
    assert done.code == 2
    assert "does not hold what was sent" in sentence(done.err)
    assert not hub.repos["model", MODEL].tags


@pytest.mark.parametrize(
    "endpoint", ["POST /api/models/.*/preupload/", "PUT /objects/", "POST .*/commit/", "POST .*/tag/"]
)
@pytest.mark.slow
def test_killed_anywhere_the_repo_is_whole_and_a_rerun_finishes(
    hub: HubServer, client: Client, model: Bundle, endpoint: str
) -> None:
    hub.create(MODEL, files=OLD)
    client.killed(model.folder, hub.fail(endpoint, "hold"))
    assert hub.files(MODEL) == OLD or published(hub, model)
    assert "tag" not in endpoint or published(hub, model)
    done = client.push(model.folder)
    assert done.code == 0, done.err
    assert published(hub, model)
    assert len(hub.repos["model", MODEL].commits) == 2
    assert len(hub.repos["model", MODEL].tags) == 1


def test_what_a_killed_push_left_on_the_disk_goes_with_the_next(hub: HubServer, client: Client, model: Bundle) -> None:
    client.killed(model.folder, hub.fail("GET /api/whoami", "hold"))
    (leftover,) = client.temporary.iterdir()
    client.push(model.folder, "--dry-run")
    assert list(client.temporary.iterdir()) == [leftover]  # another push may be about to lock it
    a_while_ago = time.time() - 120
    os.utime(leftover, (a_while_ago, a_while_ago))
    with locked_folder(leftover):
        client.push(model.folder, "--dry-run")
        assert list(client.temporary.iterdir()) == [leftover]  # it is at work
    client.push(model.folder, "--dry-run")
    assert list(client.temporary.iterdir()) == []


def test_a_token_is_looked_for_before_the_proof(hub: HubServer, client: Client, model: Bundle) -> None:
    done = client.push(model.folder, token=None, STAND_IN_FAILS="1")
    assert "There is no Hugging Face token here" in sentence(done.err)
    assert hub.seen == []


@pytest.mark.parametrize(
    ("status", "words"),
    [(402, "wants a paid plan for a Gradio Space"), (403, "(403)"), (409, "is taken on the Hub (409)")],
)
@pytest.mark.slow
def test_a_space_that_is_refused_leaves_the_model_published(
    hub: HubServer, client: Client, model: Bundle, status: int, words: str
) -> None:
    hub.create(MODEL)
    hub.fail("POST /api/repos/create", times=99, status=status)
    done = client.push(model.folder, "--space", SPACE)
    assert done.code == 2
    assert sentence(done.err).startswith(
        f"error: The model is published at {hub.endpoint}/{MODEL}, but its Space is not"
    )
    assert words in done.err
    assert done.out == f"{hub.endpoint}/{MODEL}\n"
    assert published(hub, model)
    assert len(hub.repos["model", MODEL].tags) == 1
    hub.faults.clear()
    again = client.push(model.folder, "--space", SPACE)
    assert again.code == 0, again.err
    assert len(hub.repos["model", MODEL].commits) == 2
    assert "space.py" in hub.files(SPACE, "space")


def test_a_file_that_changes_while_it_is_pushed_is_sent_as_it_was_verified(
    hub: HubServer, client: Client, model: Bundle, tmp_path: Path
) -> None:
    verified = {name: (model.folder / name).read_bytes() for name in (WEIGHTS, DECODER_ONNX)}
    hub.fail(
        "GET /api/whoami",
        "meanwhile",
        action=lambda: [(model.folder / n).write_bytes(b"new") for n in verified] and None,
    )
    assert client.push(model.folder).code == 0
    assert {name: hub.files(MODEL)[name] for name in verified} == verified


def test_new_weights_replace_the_old_ones_together_with_their_graphs(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    client.push(model.folder)
    first = dict(hub.files(MODEL))
    (model.folder / WEIGHTS).write_bytes((model.folder / WEIGHTS).read_bytes()[:-4] + b"\0\0\0\0")
    with_graphs(model)
    hub.fail("PUT /objects/", times=99, status=400)
    failed = client.push(model.folder)
    assert failed.code == 2
    assert "malformed" in sentence(failed.err)
    assert hub.files(MODEL) == first
    hub.faults.clear()
    assert client.push(model.folder).code == 0
    assert published(hub, model)
    assert len(hub.repos["model", MODEL].tags) == 2
