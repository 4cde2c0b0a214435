"""8-bit weights and graphs: matrices in bytes with a scale per block, read by MatMulNBits or by integer products.

MatMulNBits reads each weight once and is unbeaten for a few rows; for many, the processor's integer matrix products
take a third of its time. Both give a row's block of activations one scale, round it to 8 bits, multiply integers and
scale the sums, so their results differ by float rounding alone, and a row's by nothing its neighbors do.

Shapes: R rows, K inputs and N outputs of a layer, in blocks of k inputs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

from .onnx_graph import STORED, add_signature, external_tensor, with_nodes
from .to_onnx import export_onnx
from .write_graph import samples_for, similar, write_graph

BITS = 8
MOST_PRODUCTS = 4  # a layer may be taken apart into
ZERO = 1 << (BITS - 1)  # MatMulNBits takes a byte of 128 for zero
LARGEST_BLOCK, SMALLEST_BLOCK = 256, 16  # weights that share a scale; the kernels' fastest, and their smallest
QUANTIZED, SCALES, ROWS = ".quantized", ".scales", ".rows"  # suffixes of a weight's name
_ACTIVATIONS_INT8 = 4  # accuracy_level: each row's activations in 8 bits too, with a scale of its own

LARGEST = 127.0  # what the highest activation of a block becomes
ZERO_POINT = 128  # and what 0 becomes: the fast kernels want unsigned activations

PRODUCT = "MatMulIntegerToFloat"
_ONE, _ZERO, _STEP, _LAST = "integer.one", "integer.zero", "integer.step", "integer.last"


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
    return [WEIGHTS_INT8, *_write_graphs(folder, {INT8: as_blocks, INT8_BATCH: as_integers})]


def export_web_graphs(folder: Path) -> list[str]:
    """Write the graphs that a browser runs over the folder's 8-bit weights; file names."""
    if not Bundle.open(folder).has(WEIGHTS_INT8):
        export_int8(folder)
    return _write_graphs(folder, {INT8_WEB: as_floats})


def _write_graphs(folder: Path, kinds: "Mapping[str, LinearMaker]") -> list[str]:
    """The folder's float32 graphs over its 8-bit weights, each precision with linear layers of its own kind."""
    bundle = Bundle.open(folder)
    index = addressable(read_index(folder / WEIGHTS_INT8), bundle.config)
    model, graphs = load_model(bundle), graph_files(bundle.config)
    written = []
    for precision, linear in kinds.items():
        for part, name in graph_files(bundle.config, precision).items():
            graph = quantize_graph(onnx.load(folder / graphs[part], load_external_data=False), index, linear)
            if linear is as_integers and not any(node.op_type == PRODUCT for node in graph.graph.node):
                (folder / name).unlink(missing_ok=True)  # it would be the other graph once more
                continue
            written.append(name)
            add_signature(graph, bundle.config, index)
            write_graph(folder / name, graph, samples_for(part, model, bundle.config), similar)
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
    """A matrix (N, K) as bytes (N, blocks, block) and a scale (N, blocks) each: weight ≈ (byte - 128) × scale."""
    rows, width = weight.shape
    block = min(LARGEST_BLOCK, width & -width)  # the largest power of two that divides the width
    grouped = weight.reshape(rows, width // block, block)
    scales = np.abs(grouped).max(axis=-1) / np.float32(ZERO - 1)
    scales[scales == 0] = 1
    return (np.rint(grouped / scales[..., None]) + ZERO).astype(np.uint8), scales


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


def as_integers(linear: Linear) -> LinearNodes:
    """A layer as integer products, the fastest for many rows unless there are many blocks to add up."""
    _, n_blocks, block = linear.shape
    if n_blocks > 1 and (block < LARGEST_BLOCK or n_blocks > MOST_PRODUCTS):
        return as_blocks(linear)
    weight = linear.weight
    return integer_linear(linear.x, weight + QUANTIZED, weight + SCALES, linear.bias, linear.y, linear.shape)


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
    if any(node.op_type in ("Gemm", "MatMulIntegerToFloat") for node in nodes):
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
    """What every integer layer of a graph shares."""
    values = {
        _ONE: np.float32(1),
        _ZERO: np.uint8(ZERO_POINT),
        _STEP: np.float32(1 / LARGEST),
        _LAST: np.array([1], dtype=np.int64),
    }
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]


def integer_linear(
    x: str, weight: str, scales: str, bias: str | None, y: str, shape: Sequence[int]
) -> tuple[list[NodeProto], list[TensorProto]]:
    """Nodes and constants of y = x Wᵀ + bias; W lies as bytes (N, blocks, k) with one scale per block (N, blocks)."""
    _, n, width = shape
    parts = [f"{y}.{i}" for i in range(n)]
    tensors = [numpy_helper.from_array(np.array(i, dtype=np.int64), f"{part}.number") for i, part in enumerate(parts)]
    if n == 1:
        nodes = list(_quantized(x, parts[0]))
        nodes.append(helper.make_node("Unsqueeze", [f"{parts[0]}.step", _LAST], [f"{parts[0]}.scale"]))  # R 1
    else:
        sizes = {f"{y}.by_block": [-1, width], f"{y}.whole": [-1, n * width], f"{y}.blocks": [-1, n]}
        tensors += [numpy_helper.from_array(np.array(size, dtype=np.int64), name) for name, size in sizes.items()]
        nodes = [
            helper.make_node("Reshape", [x, f"{y}.by_block"], [f"{y}.x"]),  # R·blocks k
            *_quantized(f"{y}.x", y),
            helper.make_node("Reshape", [f"{y}.rounded", f"{y}.whole"], [f"{y}.rows"]),  # R K
            helper.make_node("Reshape", [f"{y}.step", f"{y}.blocks"], [f"{y}.scale"]),  # R blocks
            helper.make_node("Split", [f"{y}.rows"], [f"{part}.rounded" for part in parts], axis=1, num_outputs=n),
            helper.make_node("Split", [f"{y}.scale"], [f"{part}.scale" for part in parts], axis=1, num_outputs=n),
        ]
    for part in parts:
        product = [f"{part}.rounded", f"{part}.weight", _ONE, f"{part}.weight_scale", _ZERO]
        nodes += [
            *_unpacked(part, weight, scales),
            helper.make_node(PRODUCT, product, [f"{part}.sum"], domain="com.microsoft"),  # R N
            helper.make_node("Mul", [f"{part}.sum", f"{part}.scale"], [f"{part}.y"]),
        ]
    return [*nodes, *_summed([f"{part}.y" for part in parts] + ([bias] if bias else []), y)], tensors


def _summed(names: Sequence[str], y: str) -> Iterator[NodeProto]:
    """Their sum. Add after Add: the operator Sum takes three times as long."""
    if len(names) == 1:
        yield helper.make_node("Identity", names, [y])
        return
    total = names[0]
    for i, name in enumerate(names[1:], start=1):
        total, before = (y if i == len(names) - 1 else f"{y}.to_{i}"), total
        yield helper.make_node("Add", [before, name], [total])


def _quantized(x: str, name: str) -> Iterator[NodeProto]:
    """Rows (R k) as bytes `name.rounded`, and one scale per row, `name.step`.

    A row of zeros has the scale 0 and bytes without meaning, which the scale makes zeros again.
    """
    yield helper.make_node("Abs", [x], [f"{name}.size"])
    yield helper.make_node("ReduceMax", [f"{name}.size", _LAST], [f"{name}.highest"], keepdims=0)
    yield helper.make_node("Mul", [f"{name}.highest", _STEP], [f"{name}.step"])  # R
    yield helper.make_node("Shape", [f"{name}.step"], [f"{name}.count"])
    yield helper.make_node("Expand", [_ZERO, f"{name}.count"], [f"{name}.zeros"])
    yield helper.make_node("QuantizeLinear", [x, f"{name}.step", f"{name}.zeros"], [f"{name}.rounded"], axis=0)


def _unpacked(part: str, weight: str, scales: str) -> Iterator[NodeProto]:
    """One block's weights (k N), signed as the fast kernels want them, and their scales (N): folded at load."""
    yield helper.make_node("Gather", [weight, f"{part}.number"], [f"{part}.bytes"], axis=1)  # N k
    yield helper.make_node("BitwiseXor", [f"{part}.bytes", _ZERO], [f"{part}.shifted"])  # the byte of value - 128
    yield helper.make_node("Cast", [f"{part}.shifted"], [f"{part}.signed"], to=TensorProto.INT8)
    yield helper.make_node("Transpose", [f"{part}.signed"], [f"{part}.weight"], perm=[1, 0])
    yield helper.make_node("Gather", [scales, f"{part}.number"], [f"{part}.weight_scale"], axis=1)
