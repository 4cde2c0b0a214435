"""The self-test on another kind of processor: when it runs, what it finds, and what users are told."""

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_transformer as tt
from tests.support.export_fixtures import Exported, eager_of
from tests.support.hub_driver import stand_in_report
from tests.support.models import BundleFactory, run_python
from tiny_transformer import backends, parity
from tiny_transformer.backends import Choice, open_backend
from tiny_transformer.backends.eager import EagerBackend
from tiny_transformer.backends.onnx_runtime import OrtBackend
from tiny_transformer.bundle import DECODER_ONNX, PARITY, Bundle
from tiny_transformer.errors import ParityError
from tiny_transformer.parity import ParityReport, self_test, write_report
from tiny_transformer.parity.report import ExpectedLogits
from tiny_transformer.parity.self_test import expected_logits, processor
from tiny_transformer.text_model import load
from tiny_transformer.ui.comparison import compare
from tiny_transformer.ui.header import availability
from tiny_transformer.ui.models import ModelStore

ABACUS = {"machine": "abacus", "instruction sets": "beads"}
INT8 = "encoder-decoder-sinusoidal"  # of the exported models; it writes a part of its vocabulary


@pytest.fixture(autouse=True)
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backends that a self-test has run on, in a cache of this test's own."""
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    names: list[str] = []
    original = self_test._measured

    def counted(bundle: Bundle, report: ParityReport, name: str) -> dict[str, Any]:
        names.append(name)
        return original(bundle, report, name)

    monkeypatch.setattr(self_test, "_measured", counted)
    return names


def proved(bundle: Bundle, change: Callable[[ExpectedLogits], ExpectedLogits] = lambda case: case) -> Bundle:
    """The folder with a report that was made on another kind of processor, its expected logits changed."""
    rounded = [open_backend(bundle, "onnx-int8")] if backends.available(bundle)["onnx-int8"] is None else []
    expected = expected_logits(bundle.config, eager_of(bundle), rounded)
    report = replace(stand_in_report(bundle), versions=ABACUS, expected=tuple(map(change, expected)))
    write_report(bundle, report)
    return bundle


def off_by(difference: float) -> Callable[[ExpectedLogits], ExpectedLogits]:
    """One logit of every position that is expected to be larger."""
    return lambda case: replace(case, logits=tuple((row[0] + difference, *row[1:]) for row in case.logits))


def less_rounding(case: ExpectedLogits) -> ExpectedLogits:
    """As if 8 bits had been four times as near where the proof was made."""
    return replace(case, rounding={name: value / 4 for name, value in case.rounding.items()})


def in_8_bits(exported: Exported, folder: Path) -> Bundle:
    shutil.copytree(exported(INT8).folder, folder)
    return Bundle.open(folder)


def test_a_proof_holds_what_a_self_test_needs(make_bundle: BundleFactory, measured: list[str]):
    """With an output layer that is smaller than the vocabulary; and `load` does nothing on the same processor."""
    bundle = make_bundle(output_vocab_size=284)
    report = parity.verify_bundle(bundle, ["torchscript", "numpy"])
    assert [case.kind for case in report.expected] == ["cached", "full"]
    few, many = report.expected
    assert len(few.target) == 1
    assert len(many.target) >= 8, "from 8 rows on, ONNX Runtime has other 8-bit graphs"
    assert max(many.columns) < 284
    write_report(bundle, report)
    assert parity.stored_report(bundle) == report
    assert (bundle.folder / PARITY).stat().st_size < 100_000
    model = load(bundle.folder, "eager", "cpu")
    assert model.verified
    assert model.warning is None
    assert not measured
    assert not parity.verify_bundle(bundle, ["numpy"], quick=True).expected


def test_an_older_report_is_read_as_before(make_bundle: BundleFactory, measured: list[str]):
    bundle = make_bundle()
    write_report(bundle, replace(stand_in_report(bundle), versions=ABACUS))
    assert "expected" not in json.loads((bundle.folder / PARITY).read_text())
    assert load(bundle.folder, "eager", "cpu").warning is None
    assert not measured


@pytest.mark.parametrize("backend", ["eager", "numpy"])
def test_another_processor_is_tested_once(
    make_bundle: BundleFactory, measured: list[str], monkeypatch: pytest.MonkeyPatch, backend: str
):
    bundle = proved(make_bundle("decoder-only"))
    for _ in range(2):
        assert load(bundle.folder, backend, "cpu").warning is None
        assert measured == [backend]
    monkeypatch.setattr(self_test, "processor", lambda: ABACUS | {"instruction sets": "beads wire"})
    load(bundle.folder, backend, "cpu")
    assert measured == [backend] * 2, "one more kind of processor"
    write_report(bundle, replace(stand_in_report(bundle), versions={}, expected=proved_cases(bundle)))
    load(bundle.folder, backend, "cpu")
    assert measured == [backend] * 3, "another report"


def proved_cases(bundle: Bundle) -> tuple[ExpectedLogits, ...]:
    report = parity.stored_report(bundle)
    assert report is not None
    return report.expected


def test_a_gpu_is_not_this_processor(make_bundle: BundleFactory, measured: list[str], monkeypatch: pytest.MonkeyPatch):
    bundle = proved(make_bundle())
    report = parity.stored_report(bundle)
    monkeypatch.setattr(backends, "has_nvidia_gpu", lambda: True)
    for device in (None, "cuda"):
        assert self_test.self_test(bundle, report, Choice("eager", device)) is None
    assert not measured
    self_test.self_test(bundle, report, Choice("eager", "cpu"))
    self_test.self_test(bundle, report, Choice("numpy"))
    assert measured == ["eager", "numpy"]


def test_a_result_that_cannot_be_kept_or_read_is_measured_again(
    make_bundle: BundleFactory, measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bundle = proved(make_bundle())
    load(bundle.folder, "numpy")
    (kept,) = (tmp_path / "cache" / "self-test").iterdir()
    for damage in ("", "[]", "[" * 100_000, '{"found": 1}', '{"case": "x", "found": "", "allowed": 1}', "\xff"):
        measured.clear()
        kept.write_text(damage, encoding="latin-1")
        assert load(bundle.folder, "numpy").warning is None
        assert measured == ["numpy"]
        assert json.loads(kept.read_bytes()) == {}
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(bundle.folder / PARITY))  # a file: nothing can be written below it
    for _ in range(2):
        measured.clear()
        assert load(bundle.folder, "numpy").warning is None
        assert measured == ["numpy"]


@pytest.mark.parametrize("difference", [0.1, -0.1])
def test_a_difference_is_said_once_and_again(
    make_bundle: BundleFactory, measured: list[str], caplog: pytest.LogCaptureFixture, difference: float
):
    bundle = proved(make_bundle(), off_by(difference))
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            model = load(bundle.folder, "eager", "cpu")
        assert model.backend_name == "eager"
        assert model.warning is not None
        assert model.warning == model.notice == caplog.messages[0]
        assert "eager may answer wrongly: on this processor its logits are 0.1 off" in model.warning
        assert "where 0.0001 is allowed (batch 1, one token at a time on a cache)" in model.warning
    assert measured == ["eager"]


def test_rounding_of_float32_passes(make_bundle: BundleFactory):
    assert load(proved(make_bundle(), off_by(5e-5)).folder, "eager", "cpu").warning is None


def test_a_backend_that_gives_no_numbers_is_off(make_bundle: BundleFactory, monkeypatch: pytest.MonkeyPatch):
    bundle = proved(make_bundle())
    monkeypatch.setattr(
        EagerBackend, "logits", lambda self, target, source: np.full((*target.ids.shape, 300), np.nan, np.float32)
    )
    warning = load(bundle.folder, "eager", "cpu").warning
    assert warning is not None
    assert "many rows" in warning


@pytest.mark.parametrize(("noise", "passes"), [(0.0, True), (1.0, True), (2.5, False)])
def test_8_bits_may_round_otherwise_but_not_more(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: float, passes: bool
):
    """Noise in units of what rounding does; saturated sums, as of x86 without VNNI, were 2.4 such units."""
    bundle = proved(in_8_bits(exported, tmp_path / "model"))
    scale = noise * proved_cases(bundle)[-1].rounding["onnx-int8"]
    original, rng = OrtBackend.logits, np.random.default_rng(0)

    def noisy(backend: OrtBackend, *arguments: Any) -> np.ndarray:
        logits = original(backend, *arguments)
        return logits + rng.normal(0, scale, logits.shape) if backend.name == "onnx-int8" else logits

    monkeypatch.setattr(OrtBackend, "logits", noisy)
    model = load(bundle.folder, "onnx-int8")
    assert (model.warning is None) == passes
    assert model.backend_name == ("onnx-int8" if passes else "onnx")


def test_float32_runs_where_8_bits_are_off(
    exported: Exported, tmp_path: Path, measured: list[str], caplog: pytest.LogCaptureFixture
):
    """In Python, on the command line's log, and on the page: in answers, in the head, and as no lane of Compare."""
    bundle = proved(in_8_bits(exported, tmp_path / "model"), less_rounding)
    with caplog.at_level(logging.WARNING):
        model = load(bundle.folder, "onnx-int8")
    assert model.backend_name == "onnx"
    assert measured == ["onnx-int8", "onnx"], "what runs instead is tested too"
    assert model.warning is not None
    assert model.warning.startswith("Running on onnx instead of onnx-int8: on this processor its logits are ")
    assert caplog.messages == [model.warning]

    store = ModelStore([str(bundle.folder)])
    answer = list(store.answers("model", "onnx-int8", "Hallo", {"max_new_tokens": 2}, 10.0))[-1]
    assert answer.backend == "onnx"
    assert model.warning in answer.notices
    assert "instead of onnx-int8" in availability(store, "model", "en")
    assert "改用 onnx 运行" in availability(store, "model", "zh")
    lane = list(compare(store, "model", "Hallo", {"max_new_tokens": 2}, 10.0))[-1].run("onnx-int8")
    assert lane.state == "failed"
    assert lane.problem == model.warning

    (bundle.folder / DECODER_ONNX).unlink()  # now there is nothing to fall back to
    report = parity.stored_report(bundle)
    assert report is not None
    without = {name: digest for name, digest in report.files.items() if name != DECODER_ONNX}
    write_report(bundle, replace(report, files=without))
    model = load(bundle.folder, "onnx-int8")
    assert model.backend_name == "onnx-int8"
    assert model.warning is not None
    assert "onnx-int8 may answer wrongly" in model.warning


def test_a_corpus_runs_on_what_the_self_test_left(exported: Exported, tmp_path: Path, run_cli: Callable[..., Any]):
    bundle = proved(in_8_bits(exported, tmp_path / "model"), less_rounding)
    (tmp_path / "in.txt").write_text("Hallo\n")
    out = tmp_path / "out"
    options = ("--backend", "onnx-int8", "--max-new-tokens", "2", "--out", out)
    assert run_cli("corpus", bundle.folder, tmp_path / "in.txt", *options).code == 0
    assert json.loads((out / "manifest.json").read_text())["model"]["backend"] == "onnx"


def test_it_needs_no_torch(exported: Exported, tmp_path: Path):
    bundle = proved(in_8_bits(exported, tmp_path / "model"))
    code = """
import sys
import tiny_transformer as tt
for backend in ("onnx", "onnx-int8"):
    assert tt.load(sys.argv[1], backend).warning is None
assert "torch" not in sys.modules
"""
    done = run_python(code, bundle.folder)
    assert done.code == 0, done.err
    assert len(list((tmp_path / "cache" / "self-test").iterdir())) == 2, "both were tested"


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "attention"},
        {"kind": 1},
        {"name": "\x1b[2J"},
        {"target": [[1] * 65]},
        {"target": [[1]] * 17},
        {"target": [[True]]},
        {"target": [[-1]]},
        {"target": 7},
        {"source": [["1"]]},
        {"n_steps": 1.0},
        {"columns": []},
        {"columns": list(range(65))},
        {"logits": [[0.0]]},
        {"logits": [[0.0] * 64, [0.0]]},
        {"logits": []},
        {"logits": [["0"] * 64]},
        {"rounding": {"onnx-int8": -1}},
        {"rounding": {"onnx-int8": None}},
        {"rounding": []},
        {"unknown": 1},
    ],
)
def test_expected_logits_are_read_strictly(make_bundle: BundleFactory, changes: dict[str, Any]):
    bundle = proved(make_bundle())
    values = json.loads((bundle.folder / PARITY).read_text())
    del values["digest"]
    values["expected"][0] |= changes
    text = json.dumps(values | {"digest": parity.report._digest(values)})
    with pytest.raises(ParityError, match="is not a parity report"):
        ParityReport.from_json(text, where="here")


@pytest.mark.parametrize(
    "changes",
    [
        {"target": ((300,) * 7,)},
        {"source": ()},
        {"columns": (*range(63), 300)},
        {"target": ((1, 2, 3),)},
        {"n_steps": 9},
        {"n_steps": 2},
        {"target": ()},
    ],
)
def test_a_case_that_does_not_fit_the_model_is_refused(make_bundle: BundleFactory, changes: dict[str, Any]):
    bundle = proved(make_bundle(), lambda case: replace(case, **changes) if case.kind == "cached" else case)
    with pytest.raises(ParityError, match="is not a parity report"):
        tt.load(bundle.folder, backend="eager", device="cpu")


def test_this_processor_is_named():
    assert set(processor()) == {"machine", "instruction sets"}
    assert processor()["machine"]
