"""The backend web: the JavaScript is judged as every backend is, and each fault in it is caught."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from export.commands import main
from export.quantize import QUANTIZED, SCALES, ZERO, export_web_graphs
from tests.support.export_fixtures import Exported
from tests.support.models import ROOT
from tests.support.web_fixtures import WEB
from tiny_transformer import backends
from tiny_transformer.backends import javascript
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.eager import EagerBackend
from tiny_transformer.backends.javascript import JavaScriptBackend
from tiny_transformer.bundle import DECODER_WEB, ENCODER_WEB, WEIGHTS_INT8, Bundle, save_bundle
from tiny_transformer.errors import BackendError
from tiny_transformer.model import load_model
from tiny_transformer.parity import verify_bundle
from tiny_transformer.parity.cases import tensor_cases
from tiny_transformer.parity.texts import TextReference, text_steps
from tiny_transformer.parity.verification import verify
from tiny_transformer.weights import read_weights

pytestmark = pytest.mark.browser

TRANSLATOR, CHAT = "encoder-decoder-sinusoidal", "decoder-only-rotary"


@pytest.fixture(autouse=True)
def _quick_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(javascript, "NODE_FLAGS", ("--liftoff-only",))


KINDS = ("full", "attention", "cached", "chunk", "reorder", "greedy", "beam")


def failed(bundle: Bundle, web: Path, *, program: str | None = None, kinds: Sequence[str] = KINDS) -> set[str]:
    """The kinds of cases in which the JavaScript of a folder differs from eager."""
    candidate = JavaScriptBackend(bundle, "web", program or shutil.which("node"), web)
    reference = EagerBackend(load_model(bundle), bundle.config)
    try:
        cases = [case for case in tensor_cases(bundle.config) if case.kind in kinds]
        results = list(verify(reference, candidate, cases).cases)
        texts = text_steps(TextReference(bundle, reference), candidate, 1e-4)
        results += [result for step in texts if any(kind in step.name for kind in kinds) for result in step.run()]
    finally:
        candidate.close()
    assert {case.kind for case in results} >= set(kinds)
    return {case.kind for case in results if not case.passed}


def test_the_javascript_equals_eager(exported: Exported) -> None:
    assert failed(exported(TRANSLATOR), WEB) == set()


def changed(folder: Path, file: str, old: str, new: str) -> Path:
    """The modules with one fault in them."""
    shutil.copytree(WEB, folder, ignore=shutil.ignore_patterns("node_modules"))
    (folder / "node_modules").symlink_to(WEB / "node_modules")
    text = (folder / file).read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "file", "old", "new", "caught"),
    [
        pytest.param(
            TRANSLATOR, "backend.js", "padded(row.map(() => 1), width)", "Array(width).fill(1)", "full", id="mask"
        ),
        pytest.param(
            CHAT,
            "backend.js",
            "=> state.lengths[i] + t)",
            "=> state.lengths[i] + t - Number(state.lengths[i] > 0))",
            "cached",
            id="position",
        ),
        pytest.param(CHAT, "tokenizer.js", "utf8.encode(word)", "utf8.encode(word).reverse()", "greedy", id="token"),
    ],
)
def test_a_fault_in_the_javascript_is_caught(
    exported: Exported, tmp_path: Path, name: str, file: str, old: str, new: str, caught: str
) -> None:
    assert caught in failed(exported(name), changed(tmp_path / "web", file, old, new), kinds=[caught])


@pytest.mark.slow
def test_in_chromium_it_is_the_same(exported: Exported) -> None:
    program = javascript.engine(javascript.BROWSERS)
    assert program, "this test needs Chromium on the PATH"
    assert failed(exported(CHAT), WEB, program=program) == set()


def test_web_is_compared_only_where_it_is_named(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(javascript, "engine", lambda *_: shutil.which("node"))
    bundle = exported(CHAT)
    named = verify_bundle(bundle, ["web"], quick=True)
    assert named.candidates == ("web",)
    assert named.verdict == "verified"
    assert named.versions["onnxruntime-web"] == "1.30.0"
    assert named.versions["JavaScript"].startswith("Node")
    monkeypatch.setattr(backends, "available", lambda _: {"eager": None, "web": None, "web-int8": None})
    assert verify_bundle(bundle, quick=True).candidates == ()


@pytest.mark.slow  # it exports
def test_the_8_bit_form_of_a_page_is_proved_by_name_though_no_folder_has_its_graphs(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(javascript, "engine", lambda *_: shutil.which("node"))
    folder = exported(CHAT).folder
    before = sorted(folder.iterdir())
    assert main(["verify", str(folder), "--backends", "web-int8", "--quick"]) == 0
    assert "web-int8     full" in capsys.readouterr().out
    assert sorted(folder.iterdir()) == before


def test_what_is_missing_is_said_in_one_sentence(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(exported(CHAT).folder)
    monkeypatch.setattr(javascript, "engine", lambda *_: None)
    assert main(["verify", folder, "--backends", "web"]) == 2
    assert "neither Chromium nor Node is on the PATH" in capsys.readouterr().err
    monkeypatch.setattr(javascript, "WEB", tmp_path)
    assert main(["verify", folder, "--backends", "web"]) == 2
    assert f"the folder {tmp_path} is missing" in capsys.readouterr().err
    (tmp_path / "witness.js").touch()
    assert main(["verify", folder, "--backends", "web"]) == 2
    assert f"get it with: npm ci --prefix {tmp_path}" in capsys.readouterr().err


def test_a_program_that_ends_is_one_sentence(exported: Exported) -> None:
    with pytest.raises(BackendError, match="gave no answer to open"):
        JavaScriptBackend(exported(CHAT), "web", shutil.which("true"))


@pytest.mark.slow  # it exports
def test_8_bit_weights_become_float_in_the_browser(exported: Exported, tmp_path: Path) -> None:
    """The graphs compute with the numbers that the 8-bit weights stand for, and no 8-bit kernel is left in them."""
    folder = shutil.copytree(exported(TRANSLATOR).folder, tmp_path / "model")
    assert export_web_graphs(folder) == [ENCODER_WEB, DECODER_WEB]
    for file in (ENCODER_WEB, DECODER_WEB):
        operators = {node.op_type for node in onnx.load(folder / file, load_external_data=False).graph.node}
        assert "DequantizeLinear" in operators
        assert not operators & {"MatMulNBits", "MatMulIntegerToFloat"}
    bundle = Bundle.open(folder)
    stored = read_weights(folder / WEIGHTS_INT8)
    weights = dict(bundle.weights())
    for name in weights:
        if name + QUANTIZED in stored:
            values = (stored[name + QUANTIZED].astype(np.float32) - ZERO) * stored[name + SCALES][..., None]
            weights[name] = values.reshape(weights[name].shape)
    rounded = save_bundle(tmp_path / "rounded", bundle.config, bundle.generation, bundle.tokenizer, weights)
    reference = EagerBackend(load_model(rounded), bundle.config)
    candidate = JavaScriptBackend(bundle, "web-int8", shutil.which("node"))
    try:
        cases = [case for case in tensor_cases(bundle.config) if case.kind != "attention"]
        report = verify(reference, candidate, cases)
        with pytest.raises(BackendError, match="8 bits, which have no attention maps"):
            candidate.attention(Batch.of([[1, 2]]), Batch.of([[3]]))
    finally:
        candidate.close()
    assert not report.failures


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chat", "translate"])
def test_the_shipped_models_are_proved(name: str) -> None:
    report = verify_bundle(Bundle.open(ROOT / "checkpoints" / name), ["web"])
    report.raise_if_failed()
    assert sum(case.kind == "greedy" for case in report.cases) == 2
