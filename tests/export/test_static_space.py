"""A static Space beside the model: the proved bytes in one commit, made once, and never more public than the model."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from export.push import PushOptions
from export.to_web import PARITY_FOLDER
from tests.support.export_fixtures import Exported
from tests.support.hub_commands import MODEL, SPACE, Client
from tests.support.hub_driver import stand_in_report
from tests.support.hub_server import HubServer
from tests.support.web_checkout import add_web
from tiny_transformer.bundle import CARD, DECODER_ONNX, DECODER_WEB, PARITY, WEIGHTS, WEIGHTS_INT8, Bundle
from tiny_transformer.errors import TinyTransformerError
from tiny_transformer.parity.report import write_report

STATIC = ("--static-space", SPACE)


@pytest.fixture(autouse=True)
def _web(checkout: Path) -> None:
    add_web(checkout)


def test_a_static_space_holds_the_published_bytes_and_is_not_made_twice(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    done = client.push(model.folder, *STATIC)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [f"{hub.endpoint}/{MODEL}", f"{hub.endpoint}/spaces/{SPACE}"]
    published, space = hub.files(MODEL), hub.files(SPACE, "space")
    copied = {path.rsplit("/", 1)[-1]: data for path, data in space.items() if path.startswith("models/model/")}
    assert {WEIGHTS, DECODER_ONNX, PARITY} <= copied.keys()
    assert copied.pop(PARITY_FOLDER) == published[PARITY]
    proof = json.loads(copied.pop(PARITY))
    assert (proof["verdict"], proof["candidates"]) == ("verified", ["web"])
    assert all(published[name] == data for name, data in copied.items())
    front = yaml.safe_load(space[CARD].decode().split("---\n")[1])
    assert (front["sdk"], front["app_file"], front["models"]) == ("static", "index.html", [MODEL])
    assert front["app_file"] in space
    commit = hub.repos["model", MODEL].branches["main"]
    assert f"tree/{commit}" in space[CARD].decode()
    assert f"[{SPACE}]({hub.endpoint}/spaces/{SPACE})" in published[CARD].decode()  # the model's card links to it
    again = client.push(model.folder, *STATIC)
    assert again.code == 0, again.err
    assert "nothing to commit" in again.err
    assert len(hub.repos["space", SPACE].commits) == 2


@pytest.mark.slow
def test_a_new_version_replaces_the_old_one_in_one_commit_and_leaves_others_files(
    hub: HubServer, client: Client, model: Bundle, checkout: Path
) -> None:
    client.push(model.folder, *STATIC)
    space = hub.repos["space", SPACE]
    space.commits[space.branches["main"]]["LICENSE"] = b"somebody's own file"
    (checkout / "web" / "icon.svg").unlink()
    done = client.push(model.folder, *STATIC)
    assert done.code == 0, done.err
    assert len(space.commits) == 3
    assert "icon.svg" not in hub.files(SPACE, "space")
    assert hub.files(SPACE, "space")["LICENSE"] == b"somebody's own file"


@pytest.mark.slow  # it exports
def test_in_8_bits_the_space_holds_the_small_weights_and_is_gated_and_made_once_in_the_same_way(
    hub: HubServer, client: Client, exported: Exported, tmp_path: Path
) -> None:
    folder = shutil.copytree(exported("decoder-only-rotary").folder, tmp_path / "chat")
    write_report(Bundle.open(folder), stand_in_report(Bundle.open(folder)))
    refused = client.push(folder, *STATIC, "--int8", STAND_IN_FAILS="web-int8")
    assert (refused.code, hub.seen) == (1, [])
    assert "Parity failed in 1 of 1 cases: web-int8" in refused.err
    done = client.push(folder, *STATIC, "--int8")
    assert done.code == 0, done.err
    published, space = hub.files(MODEL), hub.files(SPACE, "space")
    copied = {path.removeprefix("models/model/"): data for path, data in space.items() if path.startswith("models/")}
    assert copied[WEIGHTS_INT8] == published[WEIGHTS_INT8]
    assert WEIGHTS not in copied
    proof = json.loads(copied[PARITY])
    assert (proof["verdict"], proof["candidates"]) == ("verified", ["web-int8"])
    assert proof["files"][DECODER_WEB] == sha256(copied[DECODER_WEB]).hexdigest()
    assert DECODER_WEB not in published  # only a page has it
    assert "in 8 bits" in space[CARD].decode()
    again = client.push(folder, *STATIC, "--int8")
    assert again.code == 0, again.err
    assert len(hub.repos["space", SPACE].commits) == 2


def test_nothing_unproved_is_published(hub: HubServer, client: Client, model: Bundle) -> None:
    done = client.push(model.folder, *STATIC, STAND_IN_FAILS="web")
    assert done.code == 1
    assert "Parity failed in 1 of 1 cases: web" in done.err
    assert hub.seen == []


@pytest.mark.slow
def test_a_space_of_somebody_else_is_left_alone_and_the_model_stands(
    hub: HubServer, client: Client, model: Bundle
) -> None:
    hub.create(SPACE, "space", files={"index.html": b"another page"})
    done = client.push(model.folder, *STATIC)
    assert done.code == 2
    assert f"The model is published at {hub.endpoint}/{MODEL}, but its Space is not" in done.err
    assert hub.files(SPACE, "space") == {"index.html": b"another page"}
    assert WEIGHTS in hub.files(MODEL)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["private", "gated"])
def test_a_space_is_never_more_public_than_its_model(hub: HubServer, client: Client, model: Bundle, how: str) -> None:
    hub.create(MODEL, **{how: True})
    done = client.push(model.folder, *STATIC)
    assert done.code == 0, done.err
    assert hub.repos["space", SPACE].private
    hub.repos["space", SPACE].private = False
    done = client.push(model.folder, *STATIC)
    assert done.code == 2
    assert "would hand a model to everyone that is not" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("endpoint", ["POST /api/repos/create", "POST .*/preupload/", "POST .*/commit/"])
def test_killed_between_the_tag_and_the_space_a_rerun_finishes(
    hub: HubServer, client: Client, model: Bundle, endpoint: str
) -> None:
    client.push(model.folder)
    client.killed(model.folder, hub.fail(endpoint, "hold"), *STATIC)
    done = client.push(model.folder, *STATIC)
    assert done.code == 0, done.err
    assert {"index.html", "site.json", CARD} <= set(hub.files(SPACE, "space"))
    assert len(hub.repos["space", SPACE].commits) == 2


def test_what_cannot_be_is_refused_before_any_work(model: Bundle, checkout: Path) -> None:
    def refuse(words: str, **options: Any) -> None:
        given = {"folder": model.folder, "repo_id": MODEL, "static_space": SPACE, "checkout": checkout} | options
        with pytest.raises(TinyTransformerError, match=words):
            PushOptions(**given).check()

    refuse("cannot be both Spaces", space=SPACE)
    refuse("merge the pull request first", create_pr=True)
    refuse("is no name for a Hub repo", static_space="nobody")
    refuse("--int8 is for a static Space", static_space="", int8=True)
    (checkout / "web" / "index.html").unlink()
    refuse("is made from a checkout")
