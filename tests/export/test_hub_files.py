"""Which files of a repo travel for which backend, and which of them are believed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.hub_commands import Client, downloaded, stand_in_report
from tests.support.hub_server import HubServer, Repo
from tiny_transformer.bundle import (
    CARD,
    CONFIG,
    DECODER_INT8,
    DECODER_INT8_BATCH,
    DECODER_ONNX,
    ENCODER_INT8,
    ENCODER_INT8_BATCH,
    ENCODER_ONNX,
    EVALUATION,
    GENERATION,
    INSIDE_ONNX,
    PARITY,
    REQUIRED,
    TOKENIZER,
    TORCHSCRIPT,
    WEIGHTS,
    WEIGHTS_INT8,
    WEIGHTS_SHA256,
    Bundle,
)
from tiny_transformer.parity.report import ParityReport, write_report
from tiny_transformer.weights import write_weights

LARGE = (".onnx", ".safetensors", ".pt")
GRAPHS = (ENCODER_ONNX, DECODER_ONNX, INSIDE_ONNX)
IN_8_BITS = {
    CONFIG,
    GENERATION,
    TOKENIZER,
    ENCODER_INT8,
    DECODER_INT8,
    ENCODER_INT8_BATCH,
    DECODER_INT8_BATCH,
    WEIGHTS_INT8,
}


def names(folder: str) -> set[str]:
    return {path.name for path in Path(folder.strip()).iterdir()}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"backend": "eager"}, {*REQUIRED}),
        ({"backend": "onnx"}, {*REQUIRED, *GRAPHS}),
        ({"backend": "auto"}, {*REQUIRED, *GRAPHS}),
        ({"backend": "onnx-int8"}, IN_8_BITS),
        ({"backend": "torchscript"}, {*REQUIRED}),
        ({"backend": "torchscript", "trust_code": True}, {*REQUIRED, TORCHSCRIPT}),
        ({"all_files": True}, {*REQUIRED, *GRAPHS, *IN_8_BITS, EVALUATION, CARD}),
        ({"all_files": True, "trust_code": True}, {*REQUIRED, *GRAPHS, *IN_8_BITS, EVALUATION, CARD, TORCHSCRIPT}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_backend_gets_its_files_and_no_more(
    hub: HubServer, client: Client, model: Bundle, repo: Repo, options: dict[str, object], wanted: set[str]
) -> None:
    done = client.pull(**options)
    assert done.code == 0, done.err
    assert names(done.out) == {*wanted, PARITY}
    for name in (*wanted, PARITY):
        assert (Path(done.out.strip()) / name).read_bytes() == (model.folder / name).read_bytes()
    large = {name: f"/objects/{model.hashes()[name]}" for name in wanted if name.endswith(LARGE)}
    assert downloaded(hub) == {PARITY, *(large.get(name, name) for name in wanted)}


def test_weights_in_8_bits_that_come_alone_must_be_made_from_those_the_report_names(
    client: Client, model: Bundle, repo: Repo
) -> None:
    write_weights(model.folder / WEIGHTS_INT8, {"weight": np.zeros(8, dtype=np.float32)}, {WEIGHTS_SHA256: "0" * 64})
    write_report(model, stand_in_report(model))
    repo.add("main", {name: (model.folder / name).read_bytes() for name in model.files()}, "from other weights")
    done = client.pull(backend="onnx-int8")
    assert done.code == 1
    assert f"{WEIGHTS_INT8} was made from another {WEIGHTS}" in done.err


def test_without_a_report_the_weights_come_along_for_who_runs_in_8_bits(client: Client, repo: Repo) -> None:
    del repo.commits[repo.branches["main"]][PARITY]
    done = client.pull(backend="onnx-int8", trust_unverified=True)
    assert names(done.out) == {*IN_8_BITS, WEIGHTS}, done.err


def test_an_archive_that_lies_in_the_cache_is_not_used_without_trust(client: Client, repo: Repo) -> None:
    assert TORCHSCRIPT in names(client.pull(backend="torchscript", trust_code=True).out)
    assert TORCHSCRIPT not in names(client.pull(backend="torchscript").out)


def test_a_repo_without_a_report_needs_trust(hub: HubServer, client: Client, repo: Repo) -> None:
    del repo.commits[repo.branches["main"]][PARITY]
    refused = client.pull()
    assert refused.code == 1
    assert "trust_unverified=True" in refused.err
    assert hub.requests("GET /objects/") == []
    done = client.pull(trust_unverified=True)
    assert done.code == 0, done.err
    assert names(done.out) == {*REQUIRED, ENCODER_ONNX, DECODER_ONNX, INSIDE_ONNX}
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
    done = client.pull(all_files=True)
    assert done.code == 0, done.err
    assert not hub.requests("escaped|passwd")
