"""A Space beside the model: hardware, secrets and variables, and that nothing half-told is left behind."""

import pytest

from tests.support.hub_commands import MODEL, SPACE, WRITER, Client
from tests.support.hub_server import HubServer
from tiny_transformer.bundle import CARD, WEIGHTS, Bundle

READ_ONLY = "hf_for_the_space"
TOKEN = ("--space-token", "SPACE_TOKEN")
VARIABLE = "TINY_TRANSFORMER_MODEL"

ENDPOINTS = (
    "GET /api/spaces/ada/page$",
    "POST /api/repos/create",
    "GET /api/spaces/ada/page/revision/",
    "GET /api/spaces/ada/page/tree/",
    "POST /api/spaces/ada/page/preupload/",
    "POST /api/spaces/ada/page/commit/",
    "GET /api/spaces/ada/page/variables",
)
LATER = (
    "GET /api/spaces/ada/page/runtime",
    "POST /api/spaces/ada/page/secrets",
    "POST /api/spaces/ada/page/hardware",
    "POST /api/spaces/ada/page/variables",
)


def test_a_space_serves_the_tagged_commit_and_is_not_made_twice(hub: HubServer, client: Client, model: Bundle) -> None:
    done = client.push(model.folder, "--space", SPACE)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [f"{hub.endpoint}/{MODEL}", f"{hub.endpoint}/spaces/{SPACE}"]
    commit = hub.repos["model", MODEL].branches["main"]
    space = hub.files(SPACE, "space")
    assert f"{MODEL}@{commit}" in space["space.py"].decode()
    # A new card moves the branch; the Space stays with the commit that was verified and tagged.
    (model.folder / CARD).write_text("# Mine\n\n<!-- by hand -->\n", encoding="utf-8")
    again = client.push(model.folder, "--space", SPACE, "--license", "mit")
    assert again.code == 0, again.err
    assert hub.repos["model", MODEL].branches["main"] != commit
    assert len(hub.repos["space", SPACE].commits) == 2
    assert "nothing to commit" in again.err


@pytest.mark.long
@pytest.mark.slow
def test_hardware_is_asked_for_at_creation_when_it_changes_and_kept_otherwise(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    def required() -> list[str]:
        return hub.files(SPACE, "space")["requirements.txt"].decode().split()

    client.push(model.folder, "--space", SPACE)
    space = hub.repos["space", SPACE]
    assert (space.hardware, required()) == ("cpu-basic", ["numpy==2.4.6"])
    done = client.push(model.folder, "--space", SPACE, "--space-hardware", "t4-small")
    assert done.code == 0, done.err
    assert (space.hardware, required()) == ("t4-small", ["numpy==2.4.6", "torch==2.13.0"])
    kept = client.push(model.folder, "--space", SPACE)
    assert "nothing to commit" in kept.err
    assert space.hardware == "t4-small"
    del hub.repos["space", SPACE]
    client.push(model.folder, "--space", SPACE, "--space-hardware", "zero-a10g")
    assert hub.repos["space", SPACE].hardware == "zero-a10g"
    assert not hub.requests("POST /api/spaces/.*/hardware")[1:]  # it came with the creation
    assert required() == ["numpy==2.4.6", "torch", "spaces"]


def test_a_space_of_somebody_else_is_left_alone_and_the_model_stands(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    hub.create(SPACE, "space", files={"app.py": b"another page"})
    done = client.push(model.folder, "--private", "--space", SPACE, *TOKEN, SPACE_TOKEN=READ_ONLY)
    assert done.code == 2
    assert f"The model is published at {hub.endpoint}/{MODEL}, but its Space is not" in done.err
    assert hub.files(SPACE, "space") == {"app.py": b"another page"}
    assert hub.repos["space", SPACE].secrets == {}
    assert WEIGHTS in hub.files(MODEL)


def test_a_token_is_given_to_a_space_only_when_told_and_only_that_one(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    done = client.push(model.folder, "--private", "--space", SPACE)
    assert done.code == 0, done.err
    assert "the model is private: give the Space a read token of its own" in done.err
    space = hub.repos["space", SPACE]
    assert space.private
    assert space.secrets == {}
    for _ in ("for a Space that is there", "for a new one"):
        done = client.push(model.folder, "--space", SPACE, *TOKEN, SPACE_TOKEN=READ_ONLY)
        assert done.code == 0, done.err
        assert hub.repos["space", SPACE].secrets == {"HF_TOKEN": READ_ONLY}
        assert "its secret HF_TOKEN is set" in done.err
        assert "read token of its own" not in done.err
        assert READ_ONLY not in done.out + done.err
        del hub.repos["space", SPACE]
    assert all(READ_ONLY not in str(seen.headers) for seen in hub.seen)
    assert len(hub.requests("POST /api/spaces/.*/secrets")) == 1  # the other came with the creation


def test_a_gated_model_needs_a_token_too_and_a_public_one_gets_none(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    hub.create(MODEL, gated=True)
    assert "the model is gated: give the Space a read token" in client.push(model.folder, "--space", SPACE).err
    hub.repos["model", MODEL].gated = False
    done = client.push(model.folder, "--space", SPACE, *TOKEN, SPACE_TOKEN=READ_ONLY)
    assert done.code == 2
    assert "ada/model is public, so its Space needs no token" in done.err
    assert hub.repos["space", SPACE].secrets == {}


@pytest.mark.parametrize("existed", [False, True])
def test_a_token_that_an_answer_repeats_is_not_printed(
    hub: HubServer, client: Client, model: Bundle, existed: bool
) -> None:
    client.push(model.folder, "--private", *(("--space", SPACE) if existed else ()))
    answer = f'{{"error": "{READ_ONLY} will not do"}}'.encode()
    hub.fail("POST /api/repos/create|POST .*/secrets", status=400, body=answer)
    done = client.push(model.folder, "--space", SPACE, *TOKEN, SPACE_TOKEN=READ_ONLY)
    assert done.code == 2
    assert "*** will not do" in done.err
    assert READ_ONLY not in done.err
    assert WRITER not in done.err


@pytest.mark.slow
def test_a_variable_that_names_another_model_is_brought_up_to_date_and_said(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    client.push(model.folder, "--space", SPACE)
    served = f"{MODEL}@{hub.repos['model', MODEL].branches['main']}"
    variables = hub.repos["space", SPACE].variables
    assert variables == {}  # the Space's own files name the model
    variables |= {VARIABLE: "ada/older@main", "THEIRS": "stays"}
    done = client.push(model.folder, "--space", SPACE)
    assert done.code == 0, done.err
    assert f"its variable {VARIABLE} named ada/older@main and now names {served}" in done.err
    assert variables == {VARIABLE: served, "THEIRS": "stays"}
    assert "nothing to commit" in client.push(model.folder, "--space", SPACE).err


@pytest.mark.long
def test_each_endpoint_of_a_space_may_be_down_once(hub: HubServer, client: Client, model: Bundle) -> None:
    hub.create(MODEL, private=True)
    faults = [hub.fail(endpoint) for endpoint in ENDPOINTS]
    done = client.push(model.folder, "--space", SPACE)
    assert done.code == 0, done.err
    space = hub.repos["space", SPACE]
    space.variables[VARIABLE] = "ada/older@main"
    faults += [hub.fail(endpoint) for endpoint in LATER]
    hardware = ("--space-hardware", "t4-small")
    done = client.push(model.folder, "--space", SPACE, *hardware, *TOKEN, SPACE_TOKEN=READ_ONLY)
    assert done.code == 0, done.err
    assert [fault.match for fault in faults if fault.times] == []
    assert len(space.commits) == 3
    assert space.hardware == "t4-small"
    assert space.secrets == {"HF_TOKEN": READ_ONLY}
    assert space.variables[VARIABLE] != "ada/older@main"


@pytest.mark.long
@pytest.mark.parametrize("endpoint", ["POST /api/repos/create", "POST .*/preupload/", "POST .*/commit/"])
@pytest.mark.slow
def test_killed_between_the_tag_and_the_space_a_rerun_finishes(
    hub: HubServer, client: Client, model: Bundle, endpoint: str
) -> None:
    client.push(model.folder)
    client.killed(model.folder, hub.fail(endpoint, "hold"), "--space", SPACE)
    assert ("space", SPACE) not in hub.repos or hub.files(SPACE, "space") == {}
    done = client.push(model.folder, "--space", SPACE)
    assert done.code == 0, done.err
    assert len(hub.repos["model", MODEL].commits) == len(hub.repos["space", SPACE].commits) == 2
    assert {"app.py", "space.py", "README.md"} <= set(hub.files(SPACE, "space"))
