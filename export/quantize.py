"""`int8`: write the 8-bit weights of a model folder and the graphs over them."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

    from tiny_transformer.weights import WeightIndex

EXAMPLE = "python -m export int8 checkpoints/translate"

BITS = 8
ZERO = 1 << (BITS - 1)  # MatMulNBits takes a byte of 128 for zero
LARGEST_BLOCK, SMALLEST_BLOCK = 128, 16  # weights that share a scale; the kernels' fastest, and their smallest
QUANTIZED, SCALES, ROWS = ".quantized", ".scales", ".rows"  # suffixes of a weight's name
_ACTIVATIONS_INT8 = 4  # accuracy_level: each row's activations in 8 bits too, with a scale of its own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder."""
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="a model folder")


def run(options: argparse.Namespace) -> None:
    """Write model_int8.safetensors and the *_int8.onnx graphs."""
    export_int8(options.bundle)


def export_int8(folder: Path) -> list[str]:
    """Quantise the weights and the float32 graphs, which are made first where they are missing; file names."""
    import onnx

    from tiny_transformer.backends.graph_file import check_graph
    from tiny_transformer.backends.ort import WEIGHTS_SHA256
    from tiny_transformer.bundle import (
        DECODER_INT8,
        DECODER_ONNX,
        ENCODER_INT8,
        ENCODER_ONNX,
        WEIGHTS,
        WEIGHTS_INT8,
        Bundle,
        sha256,
    )
    from tiny_transformer.model import load_model
    from tiny_transformer.weights import read_index, write_weights

    from .artefact import similar, write_graph
    from .external import sign
    from .samples import samples_for
    from .to_onnx import export_onnx

    bundle = Bundle.open(folder)
    encoder = {ENCODER_ONNX: ENCODER_INT8} if bundle.config.is_encoder_decoder else {}
    names = {**encoder, DECODER_ONNX: DECODER_INT8}
    if not bundle.has(*names):
        export_onnx(folder)
    for name in names:
        check_graph(folder / name, folder / WEIGHTS, bundle.config)
    source = {WEIGHTS_SHA256: sha256(folder / WEIGHTS)}
    write_weights(folder / WEIGHTS_INT8, quantize_weights(bundle.weights()), source)
    index = read_index(folder / WEIGHTS_INT8)
    model = load_model(bundle)
    for name, name_int8 in names.items():
        graph = quantize_graph(onnx.load(folder / name, load_external_data=False), index)
        sign(graph, bundle.config, index)
        write_graph(folder / name_int8, graph, samples_for(name_int8, model, bundle.config), similar)
    return [WEIGHTS_INT8, *names.values()]


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


def quantize_graph(graph: "onnx.ModelProto", index: "WeightIndex") -> "onnx.ModelProto":
    """The graph over the 8-bit file `index`: linear layers as MatMulNBits, look-ups as GatherBlockQuantized."""
    import onnx

    from tiny_transformer.bundle import WEIGHTS_INT8

    from .external import STORED, external, replaced

    model = onnx.ModelProto()
    model.CopyFrom(graph)
    shapes = {tensor.name.removesuffix(STORED): tuple(tensor.dims) for tensor in model.graph.initializer}
    inline = [tensor for tensor in model.graph.initializer if not tensor.external_data]
    nodes = [
        new
        for node in model.graph.node
        if not (node.op_type == "Cast" and node.input[0].endswith(STORED))
        for new in _quantized_node(node, shapes, index)
    ]
    used = {name for node in nodes for name in node.input}
    tensors = [external(name, index.tensors[name], WEIGHTS_INT8) for name in sorted(used & index.tensors.keys())]
    # A look-up reads the same bytes as the output layer, seen as rows instead of blocks.
    for name in sorted(used & {name + ROWS for name in index.tensors}):
        entry = index.tensors[name.removesuffix(ROWS)]
        tensors.append(external(name, entry, WEIGHTS_INT8, (entry.shape[0], entry.shape[1] * entry.shape[2])))
    return replaced(model, nodes, [*tensors, *inline])


def _quantized_node(
    node: "onnx.NodeProto", shapes: Mapping[str, tuple[int, ...]], index: "WeightIndex"
) -> list["onnx.NodeProto"]:
    """What stands in the place of a node: itself, unless it uses a quantised weight."""
    from onnx import helper

    where = {"Gemm": 1, "Gather": 0}.get(node.op_type)
    weight = "" if where is None else node.input[where]
    if weight + QUANTIZED not in index.tensors:
        return [node]
    rows, width = shapes[weight]
    block = index.tensors[weight + QUANTIZED].shape[2]
    attributes: dict[str, Any] = {"domain": "com.microsoft", "bits": BITS, "block_size": block}
    if node.op_type == "Gemm":
        bias = ["", "", node.input[2]] if len(node.input) > 2 else []
        inputs = [node.input[0], weight + QUANTIZED, weight + SCALES, *bias]
        attributes |= {"K": width, "N": rows, "accuracy_level": _ACTIVATIONS_INT8}
        return [helper.make_node("MatMulNBits", inputs, list(node.output), **attributes)]
    inputs = [weight + QUANTIZED + ROWS, node.input[1], weight + SCALES]
    attributes |= {"gather_axis": 0, "quantize_axis": 1}
    return [helper.make_node("GatherBlockQuantized", inputs, list(node.output), **attributes)]
