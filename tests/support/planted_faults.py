"""Faults that can be planted in a graph of a model folder: it still loads, and its signature fits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, helper, numpy_helper

from tiny_transformer.bundle import (
    DECODER_INT8,
    DECODER_INT8_BATCH,
    DECODER_ONNX,
    ENCODER_INT8,
    ENCODER_ONNX,
)

Edit = Callable[[GraphProto], None]
PRE, ROTARY, GPT = "encoder-decoder-sinusoidal", "encoder-decoder-rotary", "decoder-only-none"
POST, BARE, SMALL_HEADS = "decoder-only-learned", "encoder-decoder-none", "decoder-only-rotary"


def plant(path: Path, edit: Edit) -> None:
    """Change a graph file."""
    model = onnx.load(path, load_external_data=False)
    before = model.SerializeToString()
    edit(model.graph)
    assert model.SerializeToString() != before
    onnx.save(model, path)


def reader(graph: GraphProto, name: str, op: str = "") -> NodeProto:
    """The node that reads a value and is no Cast."""
    return next(n for n in graph.node if name in n.input and n.op_type != "Cast" and op in ("", n.op_type))


def constant(graph: GraphProto, name: str, value: Any) -> str:
    graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def changed(graph: GraphProto, value: str, op: str, *more: str, **attributes: Any) -> None:
    """One more operator between a value and all that read it."""
    readers = [node for node in graph.node if value in node.input]
    node = helper.make_node(op, [value, *more], [f"{value}.changed"], **attributes)
    for one in readers:
        one.input[:] = [f"{value}.changed" if name == value else name for name in one.input]
    where = min([*graph.node].index(one) for one in readers)
    graph.node.insert(where, node)


def points_at(name: str, other: str) -> Edit:
    """A tensor lies where another one of its shape is."""

    def edit(graph: GraphProto) -> None:
        tensors = {tensor.name.removesuffix(".stored"): tensor for tensor in graph.initializer}
        assert tensors[name].dims == tensors[other].dims
        entries = list(tensors[other].external_data)
        del tensors[name].external_data[:]
        tensors[name].external_data.extend(entries)

    return edit


def attribute(weight: str, op: str, key: str, value: Any) -> Edit:
    """The attribute of a node; the node is found by a weight or a value that it reads."""

    def edit(graph: GraphProto) -> None:
        node = reader(graph, weight, op)
        kept = [found for found in node.attribute if found.name != key]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(key, value)])

    return edit


def scaled(weight: str, factor: float) -> Edit:
    """The result of a linear layer times a number."""
    return lambda graph: changed(
        graph, reader(graph, weight).output[0], "Mul", constant(graph, "factor", np.float32(factor))
    )


def scaled_input(name: str, factor: float) -> Edit:
    """An initializer times a number, such as the scales of 8-bit weights."""
    return lambda graph: changed(graph, name, "Mul", constant(graph, "factor", np.float32(factor)))


def no_mask(nth: int) -> Edit:
    """An attention over the source that looks at its padding, too."""

    def edit(graph: GraphProto) -> None:
        [n for n in graph.node if n.op_type == "MultiHeadAttention"][nth].input[4] = ""

    return edit


def heads_exchanged(nth: int) -> Edit:
    """The two heads of the nth self-attention in each other's place."""

    def edit(graph: GraphProto) -> None:
        node = [n for n in graph.node if n.op_type in ("GroupQueryAttention", "MultiHeadAttention")][nth]
        order = constant(graph, "order", np.roll(np.arange(32), 16))
        changed(graph, node.output[0], "Gather", order, axis=-1)

    return edit


def inputs_exchanged(op: str, nth: int, first: int, second: int) -> Edit:
    def edit(graph: GraphProto) -> None:
        node = [n for n in graph.node if n.op_type == op][nth]
        node.input[first], node.input[second] = node.input[second], node.input[first]

    return edit


def positions_shifted(graph: GraphProto) -> None:
    node = reader(graph, "embedding.positions")
    shifted = helper.make_node("Add", [node.input[1], constant(graph, "one", np.int64(1))], ["shifted"])
    node.input[1] = "shifted"
    graph.node.insert([*graph.node].index(node), shifted)


def leaky(graph: GraphProto) -> None:
    node = next(n for n in graph.node if n.op_type == "Relu")
    node.op_type = "LeakyRelu"


def other_rows(weight: str) -> Edit:
    """The output layer reads the table of the tokens in another order."""
    return lambda graph: changed(graph, weight, "Gather", constant(graph, "order", np.arange(284)[::-1].copy()), axis=0)


def other_skip(weight: str) -> Edit:
    """The residual connection around a sub-layer starts at the embedding."""

    def edit(graph: GraphProto) -> None:
        first = next(n for n in graph.node if n.op_type == "LayerNormalization")
        reader(graph, reader(graph, weight).output[0], "Add").input[0] = first.input[0]

    return edit


def other_scale(graph: GraphProto) -> None:
    """The tokens' vectors times another number than √D."""
    lookup = next(n for n in graph.node if "input_ids" in n.input and n.op_type == "Gather")
    reader(graph, lookup.output[0], "Mul").input[1] = constant(graph, "scale", np.float32(5))


# Name, model, backend, file, fault, and the part that has it.
GRAPH_FAULTS: list[tuple[str, str, str, str, Edit, str]] = [
    (
        "weight of another layer",
        PRE,
        "onnx",
        ENCODER_ONNX,
        points_at("encoder.layers.1.feed_forward.inner.weight", "encoder.layers.0.feed_forward.inner.weight"),
        "encoder layer 2, feed-forward",
    ),
    (
        "bias of another layer",
        PRE,
        "onnx",
        DECODER_ONNX,
        points_at("decoder.layers.0.self_attention.output.bias", "decoder.layers.1.self_attention.output.bias"),
        "decoder layer 1, self-attention",
    ),
    (
        "weight transposed",
        PRE,
        "onnx",
        DECODER_ONNX,
        attribute("decoder.layers.0.cross_attention.output.weight", "Gemm", "transB", 0),
        "decoder layer 1, cross-attention",
    ),
    (
        "feed-forward zeroed",
        POST,
        "onnx",
        DECODER_ONNX,
        scaled("decoder.layers.1.feed_forward.output.weight", 0.0),
        "decoder layer 2, feed-forward",
    ),
    (
        "block scaled",
        PRE,
        "onnx",
        ENCODER_ONNX,
        scaled("encoder.layers.1.self_attention.output.weight", 1.01),
        "encoder layer 2, self-attention",
    ),
    (
        "epsilon",
        PRE,
        "onnx",
        DECODER_ONNX,
        attribute("decoder.layers.1.around_cross.norm.weight", "LayerNormalization", "epsilon", 1e-3),
        "decoder layer 2, norm before cross-attention",
    ),
    (
        "epsilon after",
        POST,
        "onnx",
        DECODER_ONNX,
        attribute("decoder.layers.0.around_attention.norm.weight", "LayerNormalization", "epsilon", 1e-3),
        "decoder layer 1, norm after self-attention",
    ),
    (
        "norm weight",
        PRE,
        "onnx",
        DECODER_ONNX,
        points_at("decoder.norm.weight", "decoder.layers.0.around_cross.norm.weight"),
        "decoder, final norm",
    ),
    ("source mask", PRE, "onnx", ENCODER_ONNX, no_mask(1), "encoder layer 2, self-attention"),
    ("cross mask", PRE, "onnx", DECODER_ONNX, no_mask(0), "decoder layer 1, cross-attention"),
    ("cross mask without residual", BARE, "onnx", DECODER_ONNX, no_mask(1), "decoder layer 2, cross-attention"),
    ("head order", GPT, "onnx", DECODER_ONNX, heads_exchanged(1), "decoder layer 2, self-attention"),
    ("head order of the encoder", ROTARY, "onnx", ENCODER_ONNX, heads_exchanged(0), "encoder layer 1, self-attention"),
    (
        "keys and values exchanged",
        PRE,
        "onnx",
        DECODER_ONNX,
        inputs_exchanged("MultiHeadAttention", 1, 1, 2),
        "decoder layer 2, cross-attention",
    ),
    ("position", PRE, "onnx", DECODER_ONNX, positions_shifted, "embedding of the target"),
    ("position of a GPT", POST, "onnx", DECODER_ONNX, positions_shifted, "embedding"),
    (
        "rotation",
        ROTARY,
        "onnx",
        DECODER_ONNX,
        inputs_exchanged("GroupQueryAttention", 1, 7, 8),
        "decoder layer 2, self-attention",
    ),
    ("activation", PRE, "onnx", DECODER_ONNX, leaky, "decoder layer 1, feed-forward"),
    (
        "activation, exact instead of tanh",
        GPT,
        "onnx",
        DECODER_ONNX,
        lambda graph: attribute(
            [n for n in graph.node if n.op_type == "Gelu"][1].input[0], "Gelu", "approximate", "none"
        )(graph),
        "decoder layer 2, feed-forward",
    ),
    (
        "scale of the scores",
        PRE,
        "onnx",
        DECODER_ONNX,
        attribute("past_key_values.1.encoder.key", "MultiHeadAttention", "scale", 0.3),
        "decoder layer 2, cross-attention",
    ),
    ("scale of the embedding", PRE, "onnx", ENCODER_ONNX, other_scale, "embedding of the source"),
    ("tied table", PRE, "onnx", DECODER_ONNX, other_rows("embedding.first_rows"), "output"),
    (
        "residual connection",
        PRE,
        "onnx",
        ENCODER_ONNX,
        other_skip("encoder.layers.1.feed_forward.output.weight"),
        "encoder layer 2, feed-forward",
    ),
    (
        "8-bit scales",
        PRE,
        "onnx-int8",
        DECODER_INT8,
        scaled_input("decoder.layers.1.feed_forward.output.weight.scales", 1.5),
        "decoder layer 2, feed-forward",
    ),
    (
        "8-bit scales for many rows",
        GPT,
        "onnx-int8",
        DECODER_INT8_BATCH,
        scaled_input("decoder.layers.0.self_attention.qkv.weight.scales", 1.5),
        "decoder layer 1, self-attention",
    ),
    (
        "8-bit embedding",
        PRE,
        "onnx-int8",
        ENCODER_INT8,
        scaled_input("embedding.tokens.weight.scales", 1.5),
        "embedding of the source",
    ),
    ("8-bit cross mask", PRE, "onnx-int8", DECODER_INT8, no_mask(1), "decoder layer 2, cross-attention"),
]
