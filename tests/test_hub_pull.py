"""Pulling over real HTTP: no file too many, every byte checked, a cache that works without a network."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hub_commands import MODEL, READER, WRITER, Client, stand_in_report
from hub_server import HubServer, Repo

from tiny_transformer.bundle import (
    ATTENTION_ONNX,
    CARD,
    CONFIG,
    DECODER_INT8,
    DECODER_ONNX,
    ENCODER_INT8,
    ENCODER_ONNX,
    EVALUATION,
    PARITY,
    REQUIRED,
    TORCHSCRIPT,
    WEIGHTS,
    WEIGHTS_INT8,
    Bundle,
    sha256,
)
from tiny_transformer.parity.report import ParityReport, write_report

CHUNK = 10 * 1024 * 1024  # how much the client writes at once
DOWN = {"HF_ENDPOINT": "http://127.0.0.1:9", "PATIENCE": "0"}


@pytest.fixture
def repo(hub: HubServer, model: Bundle) -> Repo:
    """A published model with everything a repo can hold."""
    for name in (ATTENTION_ONNX, ENCODER_INT8, DECODER_INT8, WEIGHTS_INT8, TORCHSCRIPT, EVALUATION):
        (model.folder / name).write_bytes(f"stands for {name}".encode())
    write_report(model, stand_in_report(model))
    (model.folder / CARD).write_text("---\n---\n# A card\n")
    return hub.create(MODEL, files={name: (model.folder / name).read_bytes() for name in model.files()})


def names(folder: str) -> set[str]:
    return {path.name for path in Path(folder.strip()).iterdir()}


def downloaded(hub: HubServer) -> set[str]:
    """Files whose bytes were sent, large or small."""
    small = {seen.path.rsplit("/", 1)[-1] for seen in hub.requests("^GET /ada/model/resolve/")}
    return small | {seen.path for seen in hub.requests("^GET /objects/")}


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        ({"backend": "eager"}, set()),
        ({"backend": "onnx"}, {ENCODER_ONNX, DECODER_ONNX, ATTENTION_ONNX}),
        ({"backend": "onnx-int8"}, {ENCODER_INT8, DECODER_INT8, WEIGHTS_INT8, ATTENTION_ONNX}),
        ({"backend": "torchscript"}, set()),
        ({"backend": "torchscript", "trust_code": True}, {TORCHSCRIPT}),
        (
            {"whole": True},
            {ENCODER_ONNX, DECODER_ONNX, ATTENTION_ONNX, ENCODER_INT8, DECODER_INT8, WEIGHTS_INT8} | {EVALUATION, CARD},
        ),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_backend_gets_its_files_and_no_more(
    hub: HubServer, client: Client, model: Bundle, repo: Repo, options: dict[str, object], extra: set[str]
) -> None:
    done = client.pull(**options)
    assert done.code == 0, done.err
    wanted = {*REQUIRED, PARITY, *extra}
    assert names(done.out) == wanted
    for name in wanted:
        assert (Path(done.out.strip()) / name).read_bytes() == (model.folder / name).read_bytes()
    large = [name for name in wanted if name.endswith((".onnx", ".safetensors", ".pt"))]
    assert len(downloaded(hub)) == len(wanted)
    assert len(hub.requests("^GET /objects/")) == len(large)


def test_an_archive_that_lies_in_the_cache_is_not_used_without_trust(client: Client, repo: Repo) -> None:
    assert TORCHSCRIPT in names(client.pull(backend="torchscript", trust_code=True).out)
    assert TORCHSCRIPT not in names(client.pull(backend="torchscript").out)


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


def test_bytes_that_rot_in_the_cache_are_caught_and_fetched_again(client: Client, model: Bundle, repo: Repo) -> None:
    folder = Path(client.pull(backend="eager").out.strip())
    cached = (folder / WEIGHTS).resolve()
    cached.write_bytes(b"\0" * cached.stat().st_size)
    assert WEIGHTS in client.pull(backend="eager").err
    assert client.pull(backend="eager").code == 0
    assert (folder / WEIGHTS).read_bytes() == (model.folder / WEIGHTS).read_bytes()


def test_a_repo_without_a_report_needs_trust(hub: HubServer, client: Client, repo: Repo) -> None:
    del repo.commits[repo.branches["main"]][PARITY]
    refused = client.pull()
    assert refused.code == 1
    assert "trust_unverified=True" in refused.err
    assert hub.requests("GET /objects/") == []
    done = client.pull(trust_unverified=True)
    assert done.code == 0, done.err
    assert names(done.out) == {*REQUIRED, ENCODER_ONNX, DECODER_ONNX, ATTENTION_ONNX}
    offline = client.pull(trust_unverified=True, env={"HF_HUB_OFFLINE": "1"})
    assert offline.out == done.out, offline.err


@pytest.mark.parametrize("change", ["edited", "swapped", "uncovered", "failed"])
def test_a_report_that_does_not_fit_is_refused_in_spite_of_trust(client: Client, repo: Repo, change: str) -> None:
    files = repo.commits[repo.branches["main"]]
    report = json.loads(files[PARITY])
    if change == "edited":
        report["files"][WEIGHTS] = "0" * 64
        files[PARITY] = json.dumps(report).encode()
    elif change == "swapped":
        files[DECODER_ONNX] = files[DECODER_ONNX][::-1]
    elif change == "failed":
        files[PARITY] = files[PARITY].replace(b'"passed": true', b'"passed": false')
    else:
        files[PARITY] = _report_without(files, DECODER_ONNX)
    done = client.pull(backend="onnx", trust_unverified=True)
    if change == "uncovered":  # what a report does not name is not there: the backend then says what is missing
        assert DECODER_ONNX not in names(done.out)
    else:
        assert done.code == 1
        assert "ParityError" in done.err


def _report_without(files: dict[str, bytes], name: str) -> bytes:
    report = ParityReport.from_json(files[PARITY].decode(), where="the test")
    covered = {key: value for key, value in report.files.items() if key != name}
    return replace(report, files=covered).to_json().encode()


def test_a_required_file_that_the_report_does_not_name_is_refused(client: Client, repo: Repo) -> None:
    files = repo.commits[repo.branches["main"]]
    files[PARITY] = _report_without(files, WEIGHTS)
    done = client.pull()
    assert done.code == 1
    assert f"does not cover {WEIGHTS}" in done.err


def test_a_report_cannot_make_paths(client: Client, hub: HubServer, repo: Repo) -> None:
    files = repo.commits[repo.branches["main"]]
    report = ParityReport.from_json(files[PARITY].decode(), where="the test")
    strangers = dict.fromkeys(("../../escaped", "/etc/passwd"), "0" * 64)
    files[PARITY] = replace(report, files=report.files | strangers).to_json().encode()
    done = client.pull(whole=True)
    assert done.code == 0, done.err
    assert not hub.requests("escaped|passwd")


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


def test_links_of_a_cache_that_was_cleaned_are_made_again(client: Client, model: Bundle, repo: Repo) -> None:
    folder = Path(client.pull(backend="eager").out.strip())
    shutil.rmtree(client.home / "hub")
    assert not (folder / WEIGHTS).exists()
    assert client.pull(backend="eager").code == 0
    assert (folder / WEIGHTS).read_bytes() == (model.folder / WEIGHTS).read_bytes()


def test_load_takes_a_name_of_the_hub(client: Client, repo: Repo) -> None:
    code = (
        "import tiny_transformer as tt\n"
        f"model = tt.load({MODEL!r}, backend='eager', revision='main')\n"
        "print(model.verified, len(model.generate('hello', max_new_tokens=3, min_new_tokens=3).ids))\n"
    )
    done = client.run([sys.executable, "-c", code], client.environment(READER))
    assert done.out == "True 3\n", done.err
