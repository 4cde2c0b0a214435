"""8-bit weights: how near they are, how small, stored once, and that the graphs over them say the same as float32."""

import json
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.calibration import Rounding, best_rounding
from export.quantize import ZERO, Linear, as_integers, constants, export_int8, quantize, quantize_weights
from export.to_onnx import OPSET
from tests.support.export_fixtures import MODELS, Exported, eager_of, exported, save_random, small_config
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.graph_file import read_graph
from tiny_transformer.backends.onnx_runtime import MANY_ROWS, open_ort
from tiny_transformer.bundle import (
    DECODER_INT8,
    DECODER_INT8_BATCH,
    DECODER_ONNX,
    ENCODER_INT8,
    ENCODER_INT8_BATCH,
    EVALUATION,
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
    assert set(np.abs(stored.astype(int) - ZERO).max(axis=(1, 2))) == {127}  # the whole range is used
    assert (scales == scales[:, :1]).all()  # an integer product has one scale for a row


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
    """But for an activation between two bytes, which float32's last bits may round the other way in one of the rows."""
    bundle = exported(name)
    backend = open_ort(bundle, threads=1, int8=True)
    ids = np.random.default_rng(1).integers(6, 300, (2, 8))
    target = Batch(ids, np.array([8, 8]))
    source = Batch(ids[:, :5], np.array([5, 2])) if bundle.config.is_encoder_decoder else None
    wanted = backend.logits(target, source).copy()
    logits, state = backend.start(Batch(ids[:, :3], np.array([3, 3])), source, 8)
    found = [logits.copy()]
    for t in range(3, 8):
        logits, state = backend.step(ids[:, t : t + 1], state)
        found.append(logits.copy())
    difference = np.abs(np.stack(found, axis=1) - wanted[:, 2:])  # B T V
    assert difference.max() < 0.1
    assert difference.max(axis=(1, 2)).min() < 2e-5


@pytest.mark.parametrize("name", MODELS)
def test_many_rows_are_as_near_to_float32_as_few(exported: Exported, name: str):
    """Other kernels run for a batch, over the same weights: its ranges were measured before, those of a row alone are
    its own. So the two differ, by about as much as 8 bits differ from float32."""
    bundle = exported(name)
    backend = open_ort(bundle, threads=1, int8=True)
    target, source = (random_batch(seed, 2 * MANY_ROWS) for seed in (2, 3))
    source = source if bundle.config.is_encoder_decoder else None
    together = backend.logits(target, source)
    alone = np.empty_like(together)
    for row in range(len(target.ids)):
        own = None if source is None else Batch.of([source.ids[row].tolist()])
        alone[row] = backend.logits(Batch.of([target.ids[row].tolist()]), own)[0]
    exact = eager_of(bundle).logits(target, source)
    assert 0 < root_mean_square(together - exact) < 3 * root_mean_square(alone - exact)
    assert {graph for graph, _ in backend._sessions} >= {DECODER_INT8, DECODER_INT8_BATCH}


@pytest.mark.parametrize("name", MODELS)
def test_a_row_does_not_depend_on_its_neighbors(exported: Exported, name: str):
    """Other rows, larger in every number, stand beside the first: what is stored for all of them stays as it is."""
    bundle = exported(name)
    backend = open_ort(bundle, threads=1, int8=True)
    found = []
    for seed in (5, 6):
        target, source = (random_batch(4, MANY_ROWS), random_batch(7, MANY_ROWS))
        target.ids[1:] = random_batch(seed, MANY_ROWS).ids[1:]
        source.ids[1:] = random_batch(seed + 10, MANY_ROWS).ids[1:]
        found.append(backend.logits(target, source if bundle.config.is_encoder_decoder else None)[0].copy())
    np.testing.assert_array_equal(*found)
    assert not any(graph == DECODER_INT8 for graph, _ in backend._sessions)


def random_batch(seed: int, n_rows: int) -> Batch:
    return Batch.of(np.random.default_rng(seed).integers(6, 300, (n_rows, 6)).tolist())


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


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
@pytest.mark.parametrize("rounding", [Rounding.between(-3, 3), Rounding.between(-1, 2), Rounding.between(0, 2)])
def test_an_integer_product_is_that_of_rounded_numbers(n_blocks: int, bias: str | None, rounding: Rounding):
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((24, 32 * n_blocks)).astype(np.float32)
    stored, scales = quantize(weight)
    tensors = {
        "w.quantized.rows": stored.reshape(weight.shape),
        "w.scales": scales,
        "bias": generator.standard_normal(24).astype(np.float32),
    }
    x = generator.standard_normal((40, 32 * n_blocks)).astype(np.float32)
    x[3] = 0
    x[5] *= 1e6  # cut off, and no matter to the others
    nodes, more = as_integers({"w": rounding}, Linear("x", "w", bias, "y", stored.shape))
    found = run_layer(nodes, [*more, *constants()], tensors, x)
    rounded = (stored.reshape(weight.shape).astype(np.float64) - ZERO) * scales[:, :1]
    wanted = rounding.rounded(x) @ rounded.T + (tensors["bias"] if bias else 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


def test_zero_has_a_byte_of_its_own():
    assert Rounding.between(0.0, 0.0) == Rounding(1.0, 0)
    assert Rounding.between(0.0, 2.55) == Rounding(0.01, 0)  # what a ReLU gives has all bytes for itself
    assert Rounding.between(-2.55, -1.0) == Rounding(0.01, 255)
    for low, high in ((-1.0, 2.0), (-0.17, 5.0), (0.1, 3.0), (-7.0, 1e-6)):
        rounding = Rounding.between(low, high)
        assert rounding.rounded(np.zeros(1)) == 0
        inside = np.linspace(min(low, 0), max(high, 0), 1001)
        assert np.abs(rounding.rounded(inside) - inside).max() <= 1.02 * rounding.step


def test_a_rare_outlier_is_cut_off_unless_the_product_depends_on_it():
    inputs = np.random.default_rng(0).uniform(-1, 1, (40_000, 16)).astype(np.float32)
    inputs[7, 3] = 4.0
    weight = np.ones((4, 16), dtype=np.float32)
    assert 255 * best_rounding(inputs, weight, -1.0, 4.0).step < 3
    weight[:, 3] = 1_000
    assert 255 * best_rounding(inputs, weight, -1.0, 4.0).step > 4


def test_the_graphs_say_what_their_ranges_were_measured_on(exported: Exported, tmp_path):
    source = exported("encoder-decoder-sinusoidal")
    record = json.loads(read_graph(source.folder / DECODER_INT8_BATCH).metadata["calibration"])
    assert record["text"] == "random tokens"
    folder = tmp_path / "copy"
    shutil.copytree(source.folder, folder)
    for n_examples, text in ((3, f"{EVALUATION} and random tokens"), (300, EVALUATION)):
        (folder / EVALUATION).write_text('{"source": "a b c", "target": "d e"}\n' * n_examples, encoding="utf-8")
        export_int8(folder)
        record = json.loads(read_graph(folder / ENCODER_INT8_BATCH).metadata["calibration"])
        assert (record["text"], record["sha256"]) == (text, sha256(folder / EVALUATION))
    steps = {
        t.name: onnx.numpy_helper.to_array(t)
        for t in onnx.load(folder / DECODER_INT8_BATCH, load_external_data=False).graph.initializer
        if t.name.endswith(".step")
    }
    assert steps
    assert all(step > 0 for step in steps.values())


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
