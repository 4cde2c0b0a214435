"""8-bit weights: how near they are, how small, stored once, and that the graphs over them say the same as float32."""

import platform
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.quantize import (
    ZERO,
    Linear,
    LinearNodes,
    as_blocks,
    constants,
    export_int8,
    integer_linear,
    quantize,
    quantize_weights,
)
from export.to_onnx import OPSET
from tests.support.export_fixtures import MODELS, Exported, eager_of, exported, save_random, small_config
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.onnx_runtime import MANY_ROWS, open_ort
from tiny_transformer.bundle import (
    DECODER_INT8,
    DECODER_INT8_BATCH,
    DECODER_ONNX,
    ENCODER_INT8,
    ENCODER_INT8_BATCH,
    WEIGHTS,
    WEIGHTS_INT8,
    WEIGHTS_SHA256,
    sha256,
)
from tiny_transformer.config import preset
from tiny_transformer.errors import BackendError
from tiny_transformer.model import build_model, weights_of
from tiny_transformer.weights import read_index

__all__ = ["exported"]

# On x86, ONNX Runtime's MatMulNBits adds up a row in the order of the integer products, on ARM in another.
SAME_ORDER = platform.machine().lower() in ("x86_64", "amd64")


@given(
    rows=st.integers(1, 5),
    blocks=st.integers(1, 9),
    seed=st.integers(0, 999),
    magnitude=st.sampled_from([1e-6, 1, 1e4]),
)
def test_every_weight_is_within_half_a_step(rows: int, blocks: int, seed: int, magnitude: float):
    weight = (np.random.default_rng(seed).standard_normal((rows, 16 * blocks)) * magnitude).astype(np.float32)
    stored, scales = quantize(weight)
    assert stored.dtype == np.uint8
    assert stored.shape[:2] == scales.shape
    restored = ((stored.astype(np.float32) - ZERO) * scales[..., None]).reshape(weight.shape)
    half_step = np.repeat(scales, stored.shape[2], axis=1) / 2
    assert (np.abs(restored - weight) <= half_step * 1.001).all()
    assert set(np.abs(stored.astype(int) - ZERO).max(axis=-1).ravel()) == {127}  # the whole range is used


def test_zeros_stay_zeros():
    stored, scales = quantize(np.zeros((3, 32), dtype=np.float32))
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
    """Other kernels run for a batch, over the same bytes: but for a rounding here and there, the same results.

    Where the kernels add in another order, an activation may round the other way, in one row of a batch or two: then
    that row differs by about as much as 8 bits differ from float32 (measured on ARM: 0.34 of it over all rows, by the
    root of the mean square), and most rows by float32's rounding alone (0.0002 of it).
    """
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
    difference = np.abs(together - alone)
    error = np.abs(alone - eager_of(bundle).logits(target, source))
    assert np.median(difference) < 1e-3 * np.median(error)
    assert np.sqrt(np.mean(difference**2)) < 0.5 * np.sqrt(np.mean(error**2))
    assert difference.max() < 0.1  # one activation that was rounded the other way
    if SAME_ORDER:
        assert np.median(difference, axis=(1, 2)).max() < 1e-5
    assert {graph for graph, _ in backend._sessions} >= {DECODER_INT8, DECODER_INT8_BATCH}


@pytest.mark.parametrize("name", MODELS)
def test_graphs_use_8_bits_everywhere_and_one_file(exported: Exported, name: str):
    bundle = exported(name)
    index = read_index(bundle.folder / WEIGHTS_INT8)
    assert index.metadata == {WEIGHTS_SHA256: sha256(bundle.folder / WEIGHTS)}
    products = {DECODER_INT8: "MatMulNBits", DECODER_INT8_BATCH: "MatMulIntegerToFloat"}
    if bundle.config.is_encoder_decoder:
        products |= {ENCODER_INT8: "MatMulNBits", ENCODER_INT8_BATCH: "MatMulIntegerToFloat"}
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
    if bundle.config.tie_embeddings and bundle.config.output_vocab_size:
        rows = places["embedding.first_rows.quantized"]
        assert rows["offset"] == lookup["offset"]
        assert int(rows["length"]) == int(lookup["length"]) // 300 * 284
        assert "embedding.tokens.weight.quantized" not in places
    elif bundle.config.tie_embeddings:
        assert places["embedding.tokens.weight.quantized"] == lookup
        assert "embedding.output.weight.quantized" not in places
    else:
        assert places["embedding.output.weight.quantized"]["offset"] != lookup["offset"]


@pytest.mark.parametrize("n_blocks", [1, 3])
@pytest.mark.parametrize("bias", [None, "bias"])
def test_integer_products_are_the_arithmetic_of_matmulnbits(n_blocks: int, bias: str | None):
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((24, 32 * n_blocks)).astype(np.float32)
    rounded, scales = (array.reshape(24, n_blocks, -1) for array in quantize(weight))
    tensors = {
        "w.quantized": rounded,
        "w.scales": scales[..., 0],
        "bias": generator.standard_normal(24).astype(np.float32),
    }
    x = generator.standard_normal((40, 32 * n_blocks)).astype(np.float32)
    x[3] = 0  # the scale of nothing
    x[5] *= 1e6  # a neighbor that would spoil a scale they shared
    layer = ("x", "w.quantized", "w.scales", bias, "y", (24, n_blocks, 32))
    found = [
        run_layer(nodes, [*more, *constants()], tensors, x) for nodes, more in (integer_linear(*layer), blocks(*layer))
    ]
    # Float32's own rounding, measured on ARM: 2.3e-6 of the sum of |x||w|; 8 bits are off by 1e-3 of it.
    bias_size = 0 if bias is None else np.abs(tensors["bias"])
    assert (np.abs(found[0] - found[1]) <= 5e-6 * (np.abs(x) @ np.abs(weight).T + bias_size)).all()
    if SAME_ORDER:
        np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)
    exact = x @ weight.T + (0 if bias is None else tensors["bias"])
    size = np.abs(x).max(axis=1, keepdims=True) + 1e-9
    assert (np.abs(found[0] - exact) / size).max() < 0.2


def blocks(x: str, weight: str, scales: str, bias: str | None, y: str, shape: tuple[int, int, int]) -> LinearNodes:
    return as_blocks(Linear(x, weight.removesuffix(".quantized"), bias, y, shape))


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


@pytest.mark.long
@pytest.mark.slow
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


def test_graphs_of_other_weights_are_not_quantized(exported: Exported, tmp_path):
    bundle = save_random(tmp_path / "model", small_config("decoder-only", n_decoder_layers=1))
    shutil.copy(exported("decoder-only-learned").folder / DECODER_ONNX, bundle.folder)
    with pytest.raises(BackendError, match="was made for another"):
        export_int8(bundle.folder)
