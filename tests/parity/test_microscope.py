"""The microscope names the part that a planted fault is in, on every backend, and no part of a sound model."""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.commands import main
from tests.support.export_fixtures import MODELS, Exported, eager_of, exported
from tests.support.models import ROOT, run_python
from tests.support.planted_faults import BARE, GPT, GRAPH_FAULTS, POST, PRE, SMALL_HEADS, Edit, plant
from tiny_transformer.backends import BACKENDS, open_backend, open_precise
from tiny_transformer.backends.base import Backend
from tiny_transformer.backends.eager import EagerBackend
from tiny_transformer.backends.numpy_reference import NumpyBackend
from tiny_transformer.backends.paper import Paper
from tiny_transformer.backends.torchscript import load_archive, open_torchscript, script, silenced
from tiny_transformer.bundle import DECODER_ONNX, TORCHSCRIPT, Bundle
from tiny_transformer.errors import BackendError, InputError
from tiny_transformer.model import load_model, weights_of
from tiny_transformer.parity.cases import TensorCase, tensor_cases
from tiny_transformer.parity.microscope import Located, first_part, where

__all__ = ["exported"]

Fault = Callable[[Any], None]
QUICK_MODELS = (PRE, POST, BARE, SMALL_HEADS)  # both architectures, both norms, with and without residual connections


def example(bundle: Bundle, name: str = "batch 3, one token at a time on a cache") -> TensorCase:
    return next(case for case in tensor_cases(bundle.config) if case.name == name)


def named(reference: Backend, candidate: Backend, case: TensorCase, **options: Any) -> str | None:
    part = first_part(where(reference, candidate, case, **options))
    return None if part is None else part.name


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in (PRE, GPT) else pytest.mark.slow) for name in MODELS]
)
def test_sound_backends_differ_in_no_part(exported: Exported, name: str) -> None:
    bundle = exported(name)
    eager, few, many = eager_of(bundle), example(bundle), example(bundle, "ragged padding, many rows")
    for backend in ("torchscript", "onnx", "onnx-int8", "numpy"):
        candidate = open_backend(bundle, backend, device="cpu")
        parts = where(eager, candidate, few)
        assert first_part(parts) is None, backend
        assert max(part.own / part.limit for part in parts) < 0.5, "there is room above what rounding does"
        assert named(eager, candidate, many) is None
    assert named(eager, open_precise(bundle, "cpu", "bfloat16"), few, rounded=True) is None
    assert parts[-1].place.kind == "output"
    per_layer = {"encoder": 4, "decoder": 6 if bundle.config.is_encoder_decoder else 4}
    stacks = {part.place.stack for part in parts}
    final = len(stacks) if bundle.config.norm == "pre" else 0
    assert len(parts) == sum(1 + 2 * per_layer[stack] for stack in stacks) + final + 1


@pytest.mark.parametrize(
    ("model", "backend", "file", "fault", "part"),
    [pytest.param(*values, id=name) for name, *values in GRAPH_FAULTS],
)
def test_a_fault_in_a_graph_is_named(
    exported: Exported, tmp_path: Path, model: str, backend: str, file: str, fault: Edit, part: str
) -> None:
    sound = exported(model)
    folder = Path(shutil.copytree(sound.folder, tmp_path / "model"))
    plant(folder / file, fault)
    case = example(sound, "ragged padding, many rows") if "batch" in file else example(sound)
    parts = where(eager_of(sound), open_backend(Bundle.open(folder), backend, device="cpu"), case)
    found = first_part(parts)
    assert found is not None
    assert found.name == part
    at = parts.index(found)
    assert found.own > 1.5 * found.limit
    assert all(before.own < before.limit / 2 for before in parts[:at])
    assert not any(after.own > 10 * after.limit for after in parts[at + 1 :]), "later parts have no fault of their own"


def other_epsilon(model: Any) -> None:
    model.decoder.layers[0].around_feed_forward.norm.eps = 1e-3


def other_activation(model: Any) -> None:
    model.decoder.layers[1].feed_forward.gelu ^= True


def future_seen(model: Any) -> None:
    model.decoder.layers[1].self_attention.causal = False


def other_embedding_scale(model: Any) -> None:
    model.embedding.scale = 3.0


TORCH_FAULTS = [
    pytest.param(PRE, other_epsilon, "decoder layer 1, norm before feed-forward", id="epsilon"),
    pytest.param(GPT, other_activation, "decoder layer 2, feed-forward", id="activation"),
    pytest.param(GPT, future_seen, "decoder layer 2, self-attention", id="causal mask"),
    pytest.param(POST, other_embedding_scale, "embedding", id="scale of the embedding"),
]


@pytest.mark.parametrize(("name", "change", "part"), TORCH_FAULTS)
def test_a_fault_in_the_code_of_an_archive_is_named(
    exported: Exported, tmp_path: Path, name: str, change: Fault, part: str
) -> None:
    """The weights are right, so the archive opens; the code in it is another."""
    folder = Path(shutil.copytree(exported(name).folder, tmp_path / "model"))
    bundle = Bundle.open(folder)
    model = load_model(bundle)
    change(model)
    buffer = io.BytesIO()
    with silenced():
        torch.jit.save(script(model), buffer)
    (folder / TORCHSCRIPT).write_bytes(buffer.getvalue())
    assert load_archive(folder / TORCHSCRIPT)
    candidate = open_torchscript(Bundle.open(folder), device="cpu")
    case = example(bundle, "ragged padding")
    assert named(eager_of(bundle), candidate, case) == part
    # The reference may as well be the one at fault.
    assert named(candidate, eager_of(bundle), case) == part


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")
def test_a_fault_in_bfloat16_is_named(exported: Exported) -> None:
    bundle = exported(PRE)
    model = load_model(bundle)
    with torch.no_grad():
        model.decoder.layers[1].cross_attention.query.weight *= 2
    candidate = EagerBackend(model, bundle.config, dtype=torch.bfloat16)
    assert named(eager_of(bundle), candidate, example(bundle), rounded=True) == "decoder layer 2, cross-attention"


def test_a_fault_in_numpy_is_named(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = exported(GPT)
    eager, case = eager_of(bundle), example(bundle)
    weights = {name: array.astype(np.float64) for name, array in bundle.weights().items()}
    weights["decoder.layers.1.around_attention.norm.bias"] = (
        weights["decoder.layers.1.around_attention.norm.bias"] + 0.01
    )
    faulty = NumpyBackend(bundle.config, weights)
    assert named(eager, faulty, case) == "decoder layer 2, norm before self-attention"
    # The code that both numpy and the judge run: then it is eager that differs from them.
    monkeypatch.setattr(Paper, "feed_forward", lambda self, layer, x: np.maximum(x, 0))
    sound = NumpyBackend(bundle.config, bundle.weights())
    assert named(eager, sound, case) == "decoder layer 1, feed-forward"


def test_a_fault_of_the_cache_alone_is_named(exported: Exported) -> None:
    """A step that counts positions from 1: whole texts are read rightly."""
    bundle = exported(PRE)
    model = load_model(bundle)
    model.embedding.register_forward_pre_hook(
        lambda module, args: (args[0], args[1] + 1) if args[0].size(1) == 1 and args[1].dim() == 2 else None
    )
    candidate = EagerBackend(model, bundle.config)
    assert named(eager_of(bundle), candidate, example(bundle, "ragged padding")) is None
    assert named(eager_of(bundle), candidate, example(bundle)) == "embedding of the target"


def test_large_numbers_on_the_way_are_no_fault(exported: Exported) -> None:
    """Trained models have numbers of a thousand in their stream: what is added to them loses its last digits."""
    bundle = exported(GPT)
    model = load_model(bundle)
    with torch.no_grad():
        model.embedding.tokens.weight[:, 3] = 1000.0
        for layer in model.decoder.layers:
            layer.self_attention.output.weight *= 0.01
            layer.self_attention.output.bias *= 0.01
    eager = EagerBackend(model, bundle.config)
    assert named(eager, NumpyBackend(bundle.config, weights_of(model)), example(bundle)) is None


def test_numbers_that_are_none_are_named(exported: Exported) -> None:
    bundle = exported(GPT)
    model = load_model(bundle)
    with torch.no_grad():
        model.decoder.layers[0].feed_forward.output.weight[0, 0] = torch.nan
    parts = where(eager_of(bundle), EagerBackend(model, bundle.config), example(bundle))
    found = first_part(parts)
    assert found is not None
    assert found.name == "decoder layer 1, feed-forward"
    assert found.own == np.inf
    located = Located("eager", "x", "y", tuple(parts)).to_dict()
    json.dumps(located, allow_nan=False)
    assert located["first"] == found.name


def test_the_values_inside_change_nothing_outside(exported: Exported) -> None:
    """A backend that is looked into gives the numbers that it gives without."""
    bundle = exported(PRE)
    for name in (name for name, spec in BACKENDS.items() if not spec.on_request):
        backend: Any = open_backend(bundle, name, device="cpu")
        for case in (example(bundle), example(bundle, "ragged padding, many rows")):
            seen: list[str] = []
            observed = backend.observed(lambda key, array, seen=seen: seen.append(key))
            for plain, shown in zip(case.run(backend), case.run(observed), strict=True):
                np.testing.assert_allclose(shown, plain, rtol=1e-5, atol=1e-5)
            assert "decoder.embedded" in seen
            assert "encoder.norm.after" in seen


def test_what_cannot_be_looked_into_is_refused(exported: Exported, tmp_path: Path) -> None:
    bundle = exported(GPT)
    eager, case = eager_of(bundle), example(bundle)
    with pytest.raises(InputError, match="kind attention"):
        where(eager, eager, replace(case, kind="attention"))
    with pytest.raises(InputError, match="different models"):
        where(eager, eager_of(exported(POST)), case)
    blind: Any = type("Blind", (), {"name": "blind", "config": bundle.config})()
    with pytest.raises(BackendError, match="backend blind does not show"):
        where(eager, blind, case)
    folder = Path(shutil.copytree(bundle.folder, tmp_path / "model"))

    def without_norm(graph: Any) -> None:
        node = next(n for n in graph.node if n.op_type == "LayerNormalization")
        node.op_type = "Identity"
        del node.input[1:], node.attribute[:]

    plant(folder / DECODER_ONNX, without_norm)
    with pytest.raises(BackendError, match="not the graph that its name says"):
        where(eager, open_backend(Bundle.open(folder), "onnx"), case)


TORCH_FREE = """
import sys
from tiny_transformer.backends import open_backend
from tiny_transformer.backends.base import Batch
from tiny_transformer.bundle import Bundle
from tiny_transformer.parity.cases import TensorCase
from tiny_transformer.parity.microscope import first_part, where

bundle = Bundle.open(sys.argv[1])
case = TensorCase("full", "this prompt", Batch.of([[5, 6, 7], [8]]), Batch.of([[9, 10], [11, 12, 13]]))
onnx = open_backend(bundle, "onnx")
for name in ("onnx-int8", "numpy"):
    parts = where(onnx, open_backend(bundle, name), case)
    assert parts and first_part(parts) is None
assert not {"torch", "onnx"} & set(sys.modules)
print(len(parts))
"""


def test_it_needs_neither_torch_nor_the_onnx_package(exported: Exported) -> None:
    done = run_python(TORCH_FREE, exported(PRE).folder)
    assert done.code == 0, done.err


def test_the_command_names_the_part(exported: Exported, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(exported(GPT).folder, tmp_path / "model"))
    assert main(["verify", str(folder), "--where"]) == 0
    sound = capfd.readouterr()
    assert ">" not in sound.out.replace("> marks", "")
    assert "onnx-int8 and eager agree in every part" in sound.out
    assert "eager bfloat16 and eager agree in every part" in sound.out
    plant(folder / DECODER_ONNX, next(edit for name, *_, edit, _ in GRAPH_FAULTS if name == "head order"))
    assert main(["verify", str(folder), "--where"]) == 1
    done = capfd.readouterr()
    assert "The first part in which onnx and eager differ: decoder layer 2, self-attention." in done.err
    (marked,) = (line for line in done.out.splitlines() if ">" in line and "marks" not in line)
    assert marked.startswith("decoder layer 2, self-attention ")
    assert main(["verify", str(folder), "--where", "--json"]) == 1
    found = {entry["candidate"]: entry for entry in json.loads(capfd.readouterr().out)}
    assert found["onnx"]["first"] == "decoder layer 2, self-attention"
    assert {name for name, entry in found.items() if entry["first"]} == {"onnx"}
    assert {"onnx", "onnx-int8", "onnx-int8, 10 rows", "torchscript", "numpy", "eager bfloat16"} == found.keys()
    assert main(["verify", str(folder), "--where", "--device", "cpu", "--json"]) == 1
    first = {entry["candidate"]: entry["first"] for entry in json.loads(capfd.readouterr().out)}
    # The graphs are the reference there.
    assert first["cpu float32"] == first["cpu bfloat16"] == "decoder layer 2, self-attention"
    assert main(["verify", str(folder), "--where", "--quick"]) == 2
    capfd.readouterr()
    assert main(["verify", str(folder), "--quick"]) == 1
    assert f"python -m export verify {folder} --where" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["translate", "chat"])
def test_the_shipped_models_differ_in_no_part(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(ROOT / "checkpoints" / name), "--where"]) == 0, capfd.readouterr().err
