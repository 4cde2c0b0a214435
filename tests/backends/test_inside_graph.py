"""The graph of inner values: each equals PyTorch's own, whole and with parts switched off, and verify covers it."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from tests.support.export_fixtures import ENCODER_DECODERS, MODELS, Exported, eager_of, exported
from tiny_transformer.backends import open_backend
from tiny_transformer.backends.inside_graph import InsideGraph
from tiny_transformer.bundle import ATTENTION_ONNX, DECODER_ONNX, INSIDE_ONNX, WEIGHTS, Bundle
from tiny_transformer.errors import BackendError
from tiny_transformer.inner_values import LENS, LOGITS, switches_without, value_shapes
from tiny_transformer.model import load_model
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.parity import verify_bundle
from tiny_transformer.parity.cases import InsideCase, inside_cases

__all__ = ["exported"]

GPT, PAPER = "decoder-only-rotary", ENCODER_DECODERS[0]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in (GPT, PAPER) else pytest.mark.slow) for name in MODELS]
)
def test_every_inner_value_is_eagers(exported: Exported, name: str):
    bundle = exported(name)
    eager, graph = eager_of(bundle), InsideGraph(bundle)
    for case in inside_cases(bundle.config):
        wanted = eager.inside(case.target, case.source, case.shown, case.switches)
        found = graph.run(case.target, case.source, wanted, shown=case.shown.tolist(), switches=case.switches)
        assert found.keys() == value_shapes(bundle.config).keys()
        for value, array in found.items():
            np.testing.assert_allclose(array, wanted[value], rtol=1e-4, atol=1e-4, err_msg=f"{case.name}: {value}")


@pytest.mark.parametrize("name", [GPT, PAPER])
def test_lens_ends_with_the_logits_and_the_steps_give_the_attention(exported: Exported, name: str):
    """Against the graphs that serve the model, which have other operators."""
    bundle = exported(name)
    backend, graph = open_backend(bundle, "onnx"), InsideGraph(bundle)
    case = next(inside_cases(bundle.config))
    found = graph.run(case.target, case.source, value_shapes(bundle.config), shown=case.shown.tolist())
    wanted = backend.logits(case.target, case.source)[:, case.shown]
    np.testing.assert_allclose(found[LOGITS], wanted, atol=1e-4)
    np.testing.assert_array_equal(found[LENS][-1], found[LOGITS])
    maps = backend.attention(case.target, case.source)
    np.testing.assert_allclose(found["decoder_attentions"], maps.decoder, atol=1e-5)
    mixed = found["decoder_attentions"] @ found["decoder_values"]
    np.testing.assert_allclose(mixed, found["decoder_mixed"], atol=1e-5)
    scores = np.where(np.tri(9, dtype=bool), found["decoder_scores"], -np.inf)
    exponents = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(exponents / exponents.sum(-1, keepdims=True), maps.decoder, atol=1e-5)


def logits_of(model: Transformer, case: InsideCase) -> np.ndarray:
    source = () if case.source is None else (case.source.ids, case.source.mask)
    logits: torch.Tensor = model(*map(torch.from_numpy, (*source, case.target.ids)))
    return logits[:, case.shown].detach().numpy()


@pytest.mark.parametrize("name", [GPT, PAPER])
def test_a_head_that_is_off_is_one_whose_rows_of_the_output_layer_are_zero(exported: Exported, name: str):
    """Without hooks: the weights themselves are changed."""
    bundle = exported(name)
    case = next(inside_cases(bundle.config))
    kinds = {"decoder": "self_attention", "cross": "cross_attention"} if case.source else {"decoder": "self_attention"}
    for kind, attention in kinds.items():
        model = load_model(bundle)
        width = bundle.config.d_head
        with torch.no_grad():
            getattr(model.decoder.layers[1], attention).output.weight[:, width : 2 * width] = 0.0
        switches = switches_without(bundle.config, heads=[(kind, 1, 1)])
        found = InsideGraph(bundle).logits(case.target, case.source, case.shown.tolist(), switches)
        wanted = logits_of(model, case)
        np.testing.assert_allclose(found, wanted, atol=1e-4)
        whole = InsideGraph(bundle).logits(
            case.target, case.source, case.shown.tolist(), switches_without(bundle.config)
        )
        assert np.abs(found - whole).max() > 1e-3


@pytest.mark.parametrize("name", [GPT, PAPER])
def test_a_layer_that_is_off_is_not_there(exported: Exported, name: str):
    bundle = exported(name)
    case = next(inside_cases(bundle.config))
    model = load_model(bundle)
    del model.decoder.layers[0]
    wanted = logits_of(model, case)
    switches = switches_without(bundle.config, layers=[("decoder", 0)])
    found = InsideGraph(bundle).logits(case.target, case.source, case.shown.tolist(), switches)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def copied(bundle: Bundle, folder: Path, *, without: str = "") -> Bundle:
    shutil.copytree(bundle.folder, folder, ignore=shutil.ignore_patterns("*int8*", without))
    return Bundle.open(folder)


def test_verify_finds_a_fault_in_the_graph(exported: Exported, tmp_path: Path):
    """The scores are divided by a little more than the root of the head's width."""
    bundle = copied(exported(GPT), tmp_path / "model")
    report = verify_bundle(bundle, ["onnx"], quick=True)
    assert not report.failures
    assert {case.name for case in report.cases if case.kind == "inside"} == {
        c.name for c in inside_cases(bundle.config)
    }
    path = bundle.folder / INSIDE_ONNX
    model = onnx.load(path, load_external_data=False)
    divisor = next(node for node in model.graph.node if node.op_type == "Div").input[1]
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == divisor)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.01), divisor))
    path.write_bytes(model.SerializeToString())
    assert {case.kind for case in verify_bundle(bundle, ["onnx"], quick=True).failures} == {"attention", "inside"}


def test_a_folder_without_the_graph_opens_and_says_what_adds_it(exported: Exported, tmp_path: Path):
    """As earlier exports left it: with a graph of the maps alone, which nothing reads any more."""
    bundle = copied(exported(GPT), tmp_path / "model", without=INSIDE_ONNX)
    (bundle.folder / ATTENTION_ONNX).write_bytes(b"maps")
    backend = open_backend(bundle, "onnx")
    case = next(inside_cases(bundle.config))
    assert np.isfinite(backend.logits(case.target, case.source)).all()
    for use in (lambda: backend.attention(case.target, None), lambda: verify_bundle(bundle, ["onnx"], quick=True)):
        with pytest.raises(
            BackendError, match=rf"has no inside\.onnx yet; add it with: python -m export all {bundle.folder}"
        ):
            use()


def test_another_graph_under_its_name_is_refused(exported: Exported, tmp_path: Path):
    bundle = copied(exported(GPT), tmp_path / "model")
    shutil.copy(bundle.folder / DECODER_ONNX, bundle.folder / INSIDE_ONNX)
    case = next(inside_cases(bundle.config))
    with pytest.raises(BackendError, match="is not the graph that its name says"):
        InsideGraph(bundle).run(case.target, None, [LENS])
    (bundle.folder / WEIGHTS).rename(bundle.folder / "elsewhere")
    with pytest.raises(BackendError, match="8 bits alone"):
        InsideGraph(bundle)
