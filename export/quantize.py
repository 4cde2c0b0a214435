"""8-bit weights and graphs: matrices in bytes with a scale per output, read by MatMulNBits or by integer products.

MatMulNBits reads each weight once and is unbeaten for a few rows; it finds the range of each row's inputs anew. For
many rows the processor's integer matrix products take a fraction of its time; the range of their inputs was measured
before (`calibration`) and stands in the graph. Neither lets a row's result depend on its neighbors. The two round the
inputs differently, so a text may differ between them as it may between 8 bits and float32.

Shapes: R rows, K inputs and N outputs of a layer, in blocks of k inputs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tiny_transformer.backends.graph_file import addressable, check_graph
from tiny_transformer.bundle import (
    INT8,
    INT8_BATCH,
    INT8_WEB,
    WEB_GRAPHS,
    WEIGHTS,
    WEIGHTS_INT8,
    WEIGHTS_SHA256,
    Bundle,
    graph_files,
    remove_derived,
    sha256,
)
from tiny_transformer.model import load_model
from tiny_transformer.weights import WeightIndex, read_index, write_weights

from .calibration import Rounding, calibrate
from .onnx_graph import STORED, add_signature, external_tensor, with_nodes
from .to_onnx import export_onnx
from .write_graph import samples_for, similar, write_graph

BITS = 8
ZERO = 1 << (BITS - 1)  # MatMulNBits takes a byte of 128 for zero
LARGEST_BLOCK, SMALLEST_BLOCK = 256, 16  # weights that MatMulNBits scales at once; its fastest, and its smallest
QUANTIZED, SCALES, ROWS = ".quantized", ".scales", ".rows"  # suffixes of a weight's name
_ACTIVATIONS_INT8 = 4  # accuracy_level: each row's activations in 8 bits too, with a scale of its own

PRODUCT = "MatMulIntegerToFloat"
CALIBRATION = "calibration"  # in a graph's metadata: what its stored ranges were measured on
_ZERO, _FIRST = "integer.zero", "integer.first"


def export_int8(folder: Path) -> list[str]:
    """Quantize the weights and the float32 graphs, which are made first where they are missing; file names."""
    bundle = Bundle.open(folder)
    graphs = graph_files(bundle.config)
    if not bundle.has(*graphs.values()):
        export_onnx(folder)
    for name in graphs.values():
        check_graph(folder / name, folder / WEIGHTS, bundle.config)
    source = {WEIGHTS_SHA256: sha256(folder / WEIGHTS)}
    write_weights(folder / WEIGHTS_INT8, quantize_weights(bundle.weights()), source)
    remove_derived(folder, WEB_GRAPHS)  # they are over the weights that were here before
    calibration = calibrate(bundle)
    written = _write_graphs(folder, INT8, as_blocks)
    written += _write_graphs(
        folder, INT8_BATCH, partial(as_integers, calibration.roundings), {CALIBRATION: calibration.record}
    )
    return [WEIGHTS_INT8, *written]


def export_web_graphs(folder: Path) -> list[str]:
    """Write the graphs that a browser runs over the folder's 8-bit weights; file names."""
    if not Bundle.open(folder).has(WEIGHTS_INT8):
        export_int8(folder)
    return _write_graphs(folder, INT8_WEB, as_floats)


def _write_graphs(
    folder: Path, precision: str, linear: "LinearMaker", metadata: Mapping[str, str] | None = None
) -> list[str]:
    """The folder's float32 graphs over its 8-bit weights, with linear layers of one kind."""
    bundle = Bundle.open(folder)
    index = addressable(read_index(folder / WEIGHTS_INT8), bundle.config)
    model, graphs = load_model(bundle), graph_files(bundle.config)
    written = []
    for part, name in graph_files(bundle.config, precision).items():
        graph = quantize_graph(onnx.load(folder / graphs[part], load_external_data=False), index, linear)
        add_signature(graph, bundle.config, index, metadata)
        write_graph(folder / name, graph, samples_for(part, model, bundle.config), similar)
        written.append(name)
    return written


def quantize_weights(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every matrix of the linear layers and of the embedding in 8 bits; all else, and odd widths, in float32."""
    stored: dict[str, np.ndarray] = {}
    for name, weight in weights.items():
        if weight.ndim == 2 and name.endswith(".weight") and weight.shape[1] % SMALLEST_BLOCK == 0:
            stored[name + QUANTIZED], stored[name + SCALES] = quantize(weight.astype(np.float32))
        else:
            stored[name] = weight.astype(np.float32)
    return stored


def quantize(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A matrix (N, K) as bytes (N, blocks, block) and scales (N, blocks): weight ≈ (byte - 128) × scale.

    All blocks of a row have the same scale: MatMulNBits wants one each, an integer product takes one for a row.
    """
    rows, width = weight.shape
    block = min(LARGEST_BLOCK, width & -width)  # the largest power of two that divides the width
    scales = np.abs(weight).max(axis=1, keepdims=True) / np.float32(ZERO - 1)
    scales[scales == 0] = 1
    stored = (np.rint(weight / scales) + ZERO).astype(np.uint8)
    return stored.reshape(rows, width // block, block), scales.repeat(width // block, axis=1)


@dataclass(frozen=True)
class Linear:
    """One linear layer of a graph, and where its weights lie in the 8-bit file."""

    x: str
    weight: str
    bias: str | None
    y: str
    shape: tuple[int, int, int]  # outputs, blocks, weights of a block


LinearNodes = tuple[list[NodeProto], list[TensorProto]]
LinearMaker = Callable[[Linear], LinearNodes]


def as_blocks(linear: Linear) -> LinearNodes:
    """A layer as MatMulNBits: the fastest for a few rows."""
    outputs, n_blocks, block = linear.shape
    inputs = [linear.x, linear.weight + QUANTIZED, linear.weight + SCALES]
    inputs += ["", "", linear.bias] if linear.bias else []
    attributes: dict[str, Any] = {"domain": "com.microsoft", "bits": BITS, "block_size": block}
    attributes |= {"K": n_blocks * block, "N": outputs, "accuracy_level": _ACTIVATIONS_INT8}
    return [helper.make_node("MatMulNBits", inputs, [linear.y], **attributes)], []


def as_integers(roundings: Mapping[str, Rounding], linear: Linear) -> LinearNodes:
    """A layer as one product of bytes, the fastest for many rows: y = (bytes of x) Wᵀ × step × scales + bias."""
    y, rounding = linear.y, roundings[linear.weight]
    product = [f"{y}.bytes", f"{y}.weight", f"{y}.step", f"{y}.scales", f"{y}.zero"]
    product += ["", linear.bias] if linear.bias else []
    nodes = [
        # The weight (K N), signed as the fast kernels want it, and its scales (N): folded at load.
        helper.make_node("BitwiseXor", [linear.weight + QUANTIZED + ROWS, _ZERO], [f"{y}.shifted"]),  # byte - 128
        helper.make_node("Cast", [f"{y}.shifted"], [f"{y}.signed"], to=TensorProto.INT8),
        helper.make_node("Transpose", [f"{y}.signed"], [f"{y}.weight"], perm=[1, 0]),
        helper.make_node("Gather", [linear.weight + SCALES, _FIRST], [f"{y}.scales"], axis=1),
        helper.make_node("QuantizeLinear", [linear.x, f"{y}.step", f"{y}.zero"], [f"{y}.bytes"]),  # R K
        helper.make_node(PRODUCT, product, [y], domain="com.microsoft"),  # R N
    ]
    values = {f"{y}.step": np.float32(rounding.step), f"{y}.zero": np.uint8(rounding.zero)}
    return nodes, [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]


def as_floats(linear: Linear) -> LinearNodes:
    """A layer whose weights become float32 when the graph is opened, for a runtime without fast 8-bit kernels."""
    outputs, n_blocks, block = linear.shape
    y, shape = linear.y, np.array([outputs, n_blocks], dtype=np.int64)
    stored = [linear.weight + QUANTIZED + ROWS, linear.weight + SCALES, f"{y}.zeros"]
    inputs = [linear.x, f"{y}.weight", *([linear.bias] if linear.bias else [])]
    nodes = [
        helper.make_node("Expand", [_ZERO, f"{y}.scales_shape"], [f"{y}.zeros"]),
        helper.make_node("DequantizeLinear", stored, [f"{y}.weight"], axis=1, block_size=block),  # N K
        helper.make_node("Gemm", inputs, [y], transB=1),
    ]
    return nodes, [numpy_helper.from_array(shape, f"{y}.scales_shape")]


def quantize_graph(graph: onnx.ModelProto, index: WeightIndex, linear_nodes: LinearMaker) -> onnx.ModelProto:
    """The graph over the 8-bit file `index`: its linear layers, and look-ups as GatherBlockQuantized."""
    model = onnx.ModelProto()
    model.CopyFrom(graph)
    inline = [*constants(), *(tensor for tensor in model.graph.initializer if not tensor.external_data)]
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "Cast" and node.input[0].endswith(STORED):
            continue
        new, more = _quantized_node(node, index, linear_nodes)
        nodes += new
        inline += more
    nodes = _without_flattening(nodes, inline, {output.name for output in model.graph.output})
    used = {name for node in nodes for name in node.input}
    tensors = [external_tensor(name, index.tensors[name], WEIGHTS_INT8) for name in sorted(used & index.tensors.keys())]
    # A look-up reads the same bytes as the output layer, seen as rows instead of blocks.
    for name in sorted(used & {name + ROWS for name in index.tensors}):
        entry = index.tensors[name.removesuffix(ROWS)]
        tensors.append(external_tensor(name, entry, WEIGHTS_INT8, (entry.shape[0], entry.shape[1] * entry.shape[2])))
    return with_nodes(model, nodes, [*tensors, *(tensor for tensor in inline if tensor.name in used)])


def _quantized_node(node: NodeProto, index: WeightIndex, linear_nodes: LinearMaker) -> LinearNodes:
    """What replaces a node: itself, unless it uses a quantized weight."""
    where = {"Gemm": 1, "Gather": 0}.get(node.op_type)
    weight = "" if where is None else node.input[where]
    if weight + QUANTIZED not in index.tensors:
        return [node], []
    outputs, n_blocks, block = index.tensors[weight + QUANTIZED].shape
    if node.op_type == "Gemm":
        bias = node.input[2] if len(node.input) > 2 else None
        return linear_nodes(Linear(node.input[0], weight, bias, node.output[0], (outputs, n_blocks, block)))
    inputs = [weight + QUANTIZED + ROWS, node.input[1], weight + SCALES]
    attributes: dict[str, Any] = {"bits": BITS, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    nodes = [helper.make_node("GatherBlockQuantized", inputs, list(node.output), domain="com.microsoft", **attributes)]
    return nodes, []


def _without_flattening(nodes: list[NodeProto], constants: list[TensorProto], outputs: set[str]) -> list[NodeProto]:
    """Without the Reshapes between a flat stream and batches: MatMulNBits, alone, takes any batch."""
    if any(node.op_type in ("Gemm", PRODUCT) for node in nodes):
        return nodes
    ranks = {tensor.name: tensor.dims[0] for tensor in constants if len(tensor.dims) == 1}
    ranks |= {node.output[0]: len(node.input) for node in nodes if node.op_type == "Concat"}
    same: dict[str, str] = {}
    kept = []
    for node in nodes:
        for i, name in enumerate(node.input):
            node.input[i] = same.get(name, name)
        # Four axes are heads cut out of the width: a real reshape.
        if node.op_type == "Reshape" and ranks[node.input[1]] < 4:
            same[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    for node in kept:
        for i, name in enumerate(node.output):
            flat = next((flat for flat, given in same.items() if given == name and flat in outputs), None)
            node.output[i] = flat or name
    return _used(kept, outputs)


def _used(nodes: list[NodeProto], outputs: set[str]) -> list[NodeProto]:
    """The nodes that something depends on."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if wanted & set(node.output):
            wanted |= set(node.input)
            kept.append(node)
    return kept[::-1]


def constants() -> list[TensorProto]:
    """What the layers of a graph share."""
    values = {_ZERO: np.uint8(ZERO), _FIRST: np.int64(0)}
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
