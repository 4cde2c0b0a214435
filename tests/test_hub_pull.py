"""Pulling over real HTTP: every byte checked, cuts survived, a cache that works without a network."""

import errno
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.hub_commands import MODEL, READER, WRITER, Client, downloaded, stand_in_report
from tests.support.hub_server import HubServer, Repo
from tiny_transformer.bundle import (
    CONFIG,
    DECODER_ONNX,
    PARITY,
    TORCHSCRIPT,
    WEIGHTS,
    Bundle,
    sha256,
)
from tiny_transformer.hub import _link
from tiny_transformer.parity.report import write_report

CHUNK = 10 * 1024 * 1024  # how much the client writes at once
DOWN = {"HF_ENDPOINT": "http://127.0.0.1:9", "PATIENCE": "0"}


def test_a_second_pull_downloads_nothing_and_works_without_a_network(
    hub: HubServer, client: Client, repo: Repo
) -> None:
    first = client.pull()
    hub.seen.clear()
    again = client.pull()
    assert again.out == first.out
    assert downloaded(hub) == set()
    for env in ({"HF_HUB_OFFLINE": "1"}, DOWN):
        offline = client.pull(env=env)
        assert offline.out == first.out, offline.err


def test_never_pulled_and_no_network_is_said(client: Client, repo: Repo) -> None:
    offline = client.pull(env={"HF_HUB_OFFLINE": "1"})
    assert offline.code == 1
    assert "not in the cache" in offline.err


def test_revisions_are_pinned_by_argument_or_by_name(hub: HubServer, client: Client, model: Bundle, repo: Repo) -> None:
    old = repo.branches["main"]
    repo.tags["v1"] = old
    (model.folder / DECODER_ONNX).write_bytes(b"a newer graph")
    write_report(model, stand_in_report(model))
    new = repo.add("main", {n: (model.folder / n).read_bytes() for n in model.files()}, "newer")
    assert new in client.pull().out
    assert old in client.pull(revision="v1").out
    assert old in client.pull(repo=f"{MODEL}@{old}").out
    wrong = client.pull(revision="v2")
    assert wrong.code == 1
    assert "no such revision" in wrong.err


def test_a_push_in_the_middle_of_a_pull_does_not_mix_two_models(
    hub: HubServer, client: Client, model: Bundle, repo: Repo
) -> None:
    first = {n: (model.folder / n).read_bytes() for n in model.files()}
    (model.folder / DECODER_ONNX).write_bytes(b"a newer graph")
    write_report(model, stand_in_report(model))
    newer = {n: (model.folder / n).read_bytes() for n in model.files()}
    hub.fail(
        "GET /ada/model/resolve/.*/config.json", "meanwhile", action=lambda: repo.add("main", newer, "newer") and None
    )
    done = client.pull()
    assert done.code == 0, done.err
    assert (Path(done.out.strip()) / DECODER_ONNX).read_bytes() == first[DECODER_ONNX]
    assert hub.files(MODEL)[DECODER_ONNX] != first[DECODER_ONNX]


@pytest.mark.parametrize(("kind", "from_byte"), [("cut", CHUNK), ("reset-body", 0)])
def test_a_download_that_breaks_off_is_finished(
    hub: HubServer, client: Client, model: Bundle, repo: Repo, kind: str, from_byte: int
) -> None:
    # An end that came too early is taken up again where it was; after a reset the client starts anew.
    archive = bytes(range(256)) * (3 * CHUNK // 256)
    (model.folder / TORCHSCRIPT).write_bytes(archive)
    write_report(model, stand_in_report(model))
    repo.add("main", {name: (model.folder / name).read_bytes() for name in model.files()}, "a large file")
    fault = hub.fail(f"GET /objects/{sha256(model.folder / TORCHSCRIPT)}", kind)
    done = client.pull(backend="torchscript", trust_code=True)
    assert done.code == 0, done.err
    assert fault.times == 0
    assert (Path(done.out.strip()) / TORCHSCRIPT).read_bytes() == archive
    first, second = hub.requests(fault.match)
    assert "range" not in first.headers
    assert second.headers.get("range", "bytes=0-") == f"bytes={from_byte}-"


@pytest.mark.long
@pytest.mark.slow
def test_a_pull_that_was_given_up_goes_on_with_the_file_it_was_at(
    hub: HubServer, client: Client, model: Bundle, repo: Repo
) -> None:
    # The client keeps no half of a file for another process; whole ones it keeps.
    fault = hub.fail(f"GET /objects/{sha256(model.folder / WEIGHTS)}", "cut", times=99)
    failed = client.pull(backend="eager", env={"PATIENCE": "0"})
    assert failed.code == 1
    assert "HubError: " in failed.err
    hub.faults.clear()
    hub.seen.clear()
    done = client.pull(backend="eager")
    assert (Path(done.out.strip()) / WEIGHTS).read_bytes() == (model.folder / WEIGHTS).read_bytes()
    assert downloaded(hub) == {fault.match.removeprefix("GET ")}


@pytest.mark.parametrize("pattern", ["HEAD /ada/model/resolve/", "GET /ada/model/resolve/", "GET /objects/"])
def test_each_download_may_fail_once(hub: HubServer, client: Client, repo: Repo, pattern: str) -> None:
    fault = hub.fail(pattern)
    done = client.pull(backend="eager")
    assert done.code == 0, done.err
    assert fault.times == 0


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("GET /objects/", WEIGHTS), ("GET .*/config.json", CONFIG), ("GET .*/parity.json", PARITY)],
)
def test_a_corrupted_byte_is_caught_named_and_gone_at_the_next_try(
    hub: HubServer, client: Client, repo: Repo, pattern: str, name: str
) -> None:
    hub.fail(pattern, "corrupt")
    done = client.pull(backend="eager")
    assert done.code == 1
    assert done.err.startswith("ParityError: ")
    assert name in done.err
    again = client.pull(backend="eager")
    assert again.code == 0, again.err


@pytest.mark.slow
def test_bytes_that_rot_in_the_cache_are_caught_and_fetched_again(client: Client, model: Bundle, repo: Repo) -> None:
    folder = Path(client.pull(backend="eager").out.strip())
    cached = (folder / WEIGHTS).resolve()
    cached.write_bytes(b"\0" * cached.stat().st_size)
    assert WEIGHTS in client.pull(backend="eager").err
    assert client.pull(backend="eager").code == 0
    assert (folder / WEIGHTS).read_bytes() == (model.folder / WEIGHTS).read_bytes()


@pytest.mark.parametrize(
    ("token", "option", "words"),
    [
        (None, {"private": True}, "the Hub has no model of that name"),
        (None, {"gated": True}, "is gated: ask for access"),
        ("hf_wrong", {}, "does not accept the token (401)"),
    ],
)
def test_what_one_may_not_read_is_said(
    client: Client, repo: Repo, token: str | None, option: dict[str, bool], words: str
) -> None:
    for name, value in option.items():
        setattr(repo, name, value)
    done = client.pull(token=token)
    assert done.code == 1
    assert words in done.err
    assert client.pull(token=WRITER if repo.private else READER).code == 0


def test_names_that_lead_nowhere(client: Client, hub: HubServer) -> None:
    missing = client.pull(repo="ada/nothing")
    assert "There is no folder ada/nothing here, and the Hub has no model of that name" in missing.err
    malformed = client.pull(repo="a b/c")
    assert "USER/NAME" in malformed.err
    backend = client.pull(backend="tpu")
    assert "BackendError" in backend.err


def test_a_model_outlives_the_cleaning_of_the_cache(client: Client, model: Bundle, repo: Repo) -> None:
    folder = Path(client.pull(backend="eager").out.strip())
    shutil.rmtree(client.home / "hub")
    assert (folder / WEIGHTS).read_bytes() == (model.folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).unlink()
    assert client.pull(backend="eager").code == 0
    assert (folder / WEIGHTS).read_bytes() == (model.folder / WEIGHTS).read_bytes()


def test_a_pulled_folder_takes_no_disk_space_of_its_own(client: Client, repo: Repo) -> None:
    folder = Path(client.pull(backend="eager").out.strip())
    cached = {path.stat().st_ino for path in (client.home / "hub").rglob("*") if path.is_file()}
    assert all(not path.is_symlink() and path.stat().st_ino in cached for path in folder.iterdir())


def test_where_there_are_no_hard_links_the_files_are_copied_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    cached, name = tmp_path / "cached", tmp_path / "folder" / "name"
    cached.write_bytes(b"one")
    for content in (b"one", b"two"):
        cached.write_bytes(content)
        _link(cached, name)
        made = name.stat().st_ino
        _link(cached, name)
        assert name.read_bytes() == content
        assert name.stat().st_ino == made
    assert [path.name for path in name.parent.iterdir()] == ["name"]


def test_load_takes_a_name_of_the_hub(client: Client, repo: Repo) -> None:
    code = (
        "import tiny_transformer as tt\n"
        f"model = tt.load({MODEL!r}, backend='eager', revision='main')\n"
        "print(model.verified, len(model.generate('hello', max_new_tokens=3, min_new_tokens=3).ids))\n"
    )
    done = client.run([sys.executable, "-c", code], client.environment(READER))
    assert done.out == "True 3\n", done.err
