"""8-bit weights: how near they are, how small, stored once, and that the graphs over them say the same as float32."""

import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from export_fixtures import MODELS, Exported, eager_of, exported, save_random, small_config
from hypothesis import given
from hypothesis import strategies as st

from export.graphs import OPSET
from export.integer import constants, integer_linear, unpacked
from export.quantize import ZERO, Linear, as_blocks, export_int8, quantize, quantize_weights
from export.to_onnx import export_onnx
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.ort import MANY_ROWS, open_ort
from tiny_transformer.bundle import (
    DECODER_INT8,
    DECODER_INT8_BATCH,
    DECODER_ONNX,
    ENCODER_INT8,
    WEIGHTS,
    WEIGHTS_INT8,
    WEIGHTS_SHA256,
    sha256,
)
from tiny_transformer.errors import BackendError
from tiny_transformer.model import build_model, weights_of
from tiny_transformer.presets import preset
from tiny_transformer.weights import read_index, read_weights

__all__ = ["exported"]


@given(
    rows=st.integers(1, 5),
    blocks=st.integers(1, 9),
    seed=st.integers(0, 999),
    magnitude=st.sampled_from([1e-6, 1, 1e4]),
)
def test_every_weight_is_within_half_a_step(rows: int, blocks: int, seed: int, magnitude: float):
    weight = (np.random.default_rng(seed).standard_normal((rows, 16 * blocks)) * magnitude).astype(np.float32)
    stored, scales = quantize(weight, 16)
    assert stored.dtype == np.uint8
    assert stored.shape[:2] == scales.shape
    restored = ((stored.astype(np.float32) - ZERO) * scales[..., None]).reshape(weight.shape)
    half_step = np.repeat(scales, stored.shape[2], axis=1) / 2
    assert (np.abs(restored - weight) <= half_step * 1.001).all()
    assert set(np.abs(stored.astype(int) - ZERO).max(axis=-1).ravel()) == {127}  # the whole range is used


def test_zeros_stay_zeros():
    stored, scales = quantize(np.zeros((3, 32), dtype=np.float32), 32)
    assert (stored == ZERO).all()
    assert (scales > 0).all()


@pytest.mark.parametrize("name", ["translate", "chat"])
def test_shipped_shapes_take_at_most_three_tenths(name: str):
    weights = weights_of(build_model(preset(name)))
    small = sum(array.nbytes for array in quantize_weights(weights).values())
    assert small <= 0.3 * sum(array.nbytes for array in weights.values())


@pytest.mark.parametrize("name", MODELS)
def test_logits_point_where_the_float_models_do(exported: Exported, name: str):
    bundle = exported(name)
    generator = np.random.default_rng(0)
    target, source = (Batch.of([generator.integers(6, 300, n).tolist() for n in (9, 4, 1)]) for _ in range(2))
    source = source if bundle.config.is_encoder_decoder else None
    wanted = eager_of(bundle).logits(target, source)[target.mask]
    found = open_ort(bundle, threads=1, int8=True).logits(target, source)[target.mask]
    cosine = (found * wanted).sum(-1) / np.linalg.norm(found, axis=-1) / np.linalg.norm(wanted, axis=-1)
    assert cosine.min() > 0.995
    assert np.abs(found - wanted).max() > 0  # it is really another model


@pytest.mark.parametrize("name", MODELS)
def test_steps_equal_a_whole_pass(exported: Exported, name: str):
    bundle = exported(name)
    backend = open_ort(bundle, threads=1, int8=True)
    ids = np.random.default_rng(1).integers(6, 300, (2, 8))
    target = Batch(ids, np.array([8, 8]))
    source = Batch(ids[:, :5], np.array([5, 2])) if bundle.config.is_encoder_decoder else None
    wanted = backend.logits(target, source)
    logits, state = backend.start(Batch(ids[:, :3], np.array([3, 3])), source, 8)
    np.testing.assert_allclose(logits, wanted[:, 2], atol=2e-5)
    for t in range(3, 8):
        logits, state = backend.step(ids[:, t : t + 1], state)
        np.testing.assert_allclose(logits, wanted[:, t], atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_many_rows_are_computed_as_few_are(exported: Exported, name: str):
    """Other kernels run for a batch, over the same bytes: but for a rounding here and there, the same results."""
    bundle = exported(name)
    backend = open_ort(bundle, threads=1, int8=True)
    generator = np.random.default_rng(2)
    target, source = (Batch.of(generator.integers(6, 300, (2 * MANY_ROWS, 6)).tolist()) for _ in range(2))
    source = source if bundle.config.is_encoder_decoder else None
    together = backend.logits(target, source)
    alone = np.empty_like(together)
    for row in range(len(target.ids)):
        own = None if source is None else Batch.of([source.ids[row].tolist()])
        alone[row] = backend.logits(Batch.of([target.ids[row].tolist()]), own)[0]
    apart = np.abs(together - alone)
    assert np.quantile(apart, 0.8) < 1e-5
    assert apart.max() < 0.1  # one activation that was rounded the other way, and what followed from it
    assert {graph for graph, _ in backend._sessions} >= {DECODER_INT8, DECODER_INT8_BATCH}


@pytest.mark.parametrize("name", MODELS)
def test_graphs_use_8_bits_everywhere_and_one_file(exported: Exported, name: str):
    bundle = exported(name)
    index = read_index(bundle.folder / WEIGHTS_INT8)
    assert index.metadata == {WEIGHTS_SHA256: sha256(bundle.folder / WEIGHTS)}
    products = {DECODER_INT8: "MatMulNBits", DECODER_INT8_BATCH: "MatMulIntegerToFloat"}
    if bundle.config.is_encoder_decoder:
        products[ENCODER_INT8] = "MatMulIntegerToFloat"
    for file, product in products.items():
        model = onnx.load(bundle.folder / file, load_external_data=False)
        kinds = {node.op_type for node in model.graph.node}
        assert "GatherBlockQuantized" in kinds
        assert "Gemm" not in kinds
        assert product in kinds
        entries = [{entry.key: entry.value for entry in t.external_data} for t in model.graph.initializer]
        assert {entry["location"] for entry in entries if entry} == {WEIGHTS_INT8}


@pytest.mark.parametrize("name", MODELS)
def test_a_tied_embedding_is_stored_once(exported: Exported, name: str):
    bundle = exported(name)
    model = onnx.load(bundle.folder / DECODER_INT8, load_external_data=False)
    places = {t.name: {e.key: e.value for e in t.external_data} for t in model.graph.initializer}
    lookup = places["embedding.tokens.weight.quantized.rows"]
    if bundle.config.tie_embeddings:
        assert places["embedding.tokens.weight.quantized"] == lookup
        assert "embedding.output.weight.quantized" not in places
    else:
        assert places["embedding.output.weight.quantized"]["offset"] != lookup["offset"]


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("n_blocks", [1, 3])
@pytest.mark.parametrize("bias", [None, "bias"])
def test_integer_products_are_the_arithmetic_of_matmulnbits(n_blocks: int, bias: str | None, batched: bool):
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((24, 32 * n_blocks)).astype(np.float32)
    rounded, scales = quantize(weight, 32)
    tensors = {
        "w.quantized": rounded,
        "w.scales": scales,
        "bias": generator.standard_normal(24).astype(np.float32),
    }
    x = generator.standard_normal((40, 32 * n_blocks)).astype(np.float32)
    x[3] = 0  # the scale of nothing
    x[5] *= 1e6  # a neighbour that would spoil a scale they shared
    x = x.reshape(5, 8, -1) if batched else x
    blocks, (unpacking, numbers) = unpacked("w.quantized", "w.scales", n_blocks, "y")
    nodes, more = integer_linear("x", blocks, bias, "y", 32, batched=batched)
    integers = run_layer(unpacking + nodes, [*numbers, *more, *constants()], tensors, x)
    wanted = run_layer(*as_blocks(Linear("x", "w", bias, "y", (24, n_blocks, 32))), tensors, x)
    assert integers.shape == wanted.shape == (*x.shape[:-1], 24)
    np.testing.assert_allclose(integers, wanted, rtol=1e-5, atol=1e-5)
    exact = x @ weight.T + (0 if bias is None else tensors["bias"])
    size = np.abs(x).max(axis=-1, keepdims=True) + 1e-9
    assert (np.abs(integers - exact) / size).max() < 0.2


def test_what_a_source_needs_lies_as_integer_products_want_it(exported: Exported):
    """Signed, transposed, a scale an output: nothing is left to be turned about when the graph is loaded."""
    bundle = exported("encoder-decoder-sinusoidal")
    stored, weights = read_weights(bundle.folder / WEIGHTS_INT8), bundle.weights()
    for name in ("encoder.layers.0.feed_forward.output.weight", "decoder.layers.1.cross_attention.key_value.weight"):
        assert name + ".quantized" not in stored
        restored = (stored[name + ".integers"] * stored[name + ".scales"]).T
        half_step = stored[name + ".scales"][:, None] / 2
        assert (np.abs(restored - weights[name].astype(np.float32)) <= half_step * 1.001).all()
    graph = onnx.load(bundle.folder / ENCODER_INT8, load_external_data=False).graph
    assert "MatMulNBits" not in {node.op_type for node in graph.node}
    assert not [node for node in graph.node if node.op_type == "BitwiseXor"]


@pytest.mark.parametrize("file", [DECODER_ONNX, DECODER_INT8, DECODER_INT8_BATCH])
@pytest.mark.parametrize("name", MODELS)
def test_no_operator_copies_the_logits(exported: Exported, name: str, file: str):
    graph = onnx.load(exported(name).folder / file, load_external_data=False).graph
    assert writer_of_logits(graph) in ("FusedMatMul", "MatMulNBits", "Mul")
    read = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    assert [node.op_type for node in graph.node if not read & set(node.output)] == []
    assert {tensor.name for tensor in graph.initializer} <= read


def test_nor_where_the_float_graph_still_does(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """Graphs that were exported before stay as they are; what is made from them need not copy."""
    bundle = save_random(tmp_path / "model", small_config("decoder-only", n_decoder_layers=1))
    with monkeypatch.context() as before:
        before.setattr("export.output_layer.to_output", lambda model: None)
        export_onnx(bundle.folder)
    export_int8(bundle.folder)
    for file, writer in ((DECODER_ONNX, "Reshape"), (DECODER_INT8, "MatMulNBits"), (DECODER_INT8_BATCH, "Mul")):
        assert writer_of_logits(onnx.load(bundle.folder / file, load_external_data=False).graph) == writer


def writer_of_logits(graph: onnx.GraphProto) -> str:
    kinds: list[str] = [node.op_type for node in graph.node if "logits" in node.output]
    return kinds[0]


def run_layer(nodes: list, more: list, tensors: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """The result of one layer's nodes."""
    value = onnx.helper.make_tensor_value_info
    used = {name for node in nodes for name in node.input}
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in tensors.items() if name in used]
    initializers += [tensor for tensor in more if tensor.name in used]
    inputs, outputs = ([value(name, onnx.TensorProto.FLOAT, None)] for name in ("x", "y"))
    graph = onnx.helper.make_graph(nodes, "layer", inputs, outputs, initializers)
    opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": x})[0]


def test_odd_widths_stay_in_float(tmp_path):
    """Blocks have at least 16 weights: a feed-forward of 24 keeps its output matrix, the rest goes to 8 bits."""
    config = small_config("decoder-only", d_ff=24, n_decoder_layers=1)
    bundle = save_random(tmp_path / "model", config)
    export_int8(bundle.folder)
    names = read_index(bundle.folder / WEIGHTS_INT8).tensors
    assert "decoder.layers.0.feed_forward.output.weight" in names
    assert "decoder.layers.0.feed_forward.inner.weight.quantized" in names
    target = Batch.of([[7, 8, 9]])
    wanted = eager_of(bundle).logits(target, None)
    np.testing.assert_allclose(open_ort(bundle, threads=1, int8=True).logits(target, None), wanted, atol=0.3)


def test_exporting_again_gives_the_same_bytes(exported: Exported, tmp_path):
    source = exported("decoder-only-none")
    folder = tmp_path / "copy"
    shutil.copytree(source.folder, folder)
    export_int8(folder)
    for file in (WEIGHTS_INT8, DECODER_INT8, DECODER_INT8_BATCH):
        assert (folder / file).read_bytes() == (source.folder / file).read_bytes()


def test_graphs_of_other_weights_are_not_quantised(exported: Exported, tmp_path):
    bundle = save_random(tmp_path / "model", small_config("decoder-only", n_decoder_layers=1))
    shutil.copy(exported("decoder-only-learned").folder / DECODER_ONNX, bundle.folder)
    with pytest.raises(BackendError, match="was made for another"):
        export_int8(bundle.folder)
