"""The exporter's graph made ours: our names and shapes, weights in the model's own file, position tables as formulas.

A position table would be the bulk of a graph's file. As a formula, with the angles of
`tiny_transformer.position_tables` in float64 as there, ONNX Runtime computes it once, when it loads the graph.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tiny_transformer import __version__
from tiny_transformer.backends.graph_file import signature
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import ExportError
from tiny_transformer.position_tables import frequencies, sinusoidal_table
from tiny_transformer.weights import TensorEntry, WeightIndex

MODEL = "model."  # where a graph module keeps the model, and so the prefix of its parameters' names


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a graph: its name, and its shape with a word for each size that varies."""

    name: str
    shape: tuple[str | int, ...]
    dtype: torch.dtype = torch.float32


SINUSOIDAL, COSINE, SINE = "positions", "cosine", "sine"  # last part of the constants' names


def is_table(name: str) -> bool:
    """Whether a constant of this name is a position table."""
    return name.rpartition(".")[2] in (SINUSOIDAL, COSINE, SINE)


def table_formula(name: str, length: int, width: int) -> tuple[list[NodeProto], list[TensorProto]]:
    """Nodes and small constants whose result is the table `name`: sin(position × frequency + phase)."""
    kind = name.rpartition(".")[2]
    quarter = math.pi / 2  # a cosine is a sine, a quarter turn on
    if kind == SINUSOIDAL:
        frequency, phase = frequencies(width).repeat(2), np.tile([0.0, quarter], width // 2)
    else:
        frequency, phase = frequencies(2 * width), np.full(width, quarter if kind == COSINE else 0.0)
    # The names stand in the graphs that are published.
    constants = {"places": np.arange(length, dtype=np.float64)[:, None], "frequency": frequency, "phase": phase}
    part = {key: f"{name}.{key}" for key in (*constants, "turned", "shifted", "float64")}
    nodes = [
        helper.make_node("Mul", [part["places"], part["frequency"]], [part["turned"]]),
        helper.make_node("Add", [part["turned"], part["phase"]], [part["shifted"]]),
        helper.make_node("Sin", [part["shifted"]], [part["float64"]]),
        helper.make_node("Cast", [part["float64"]], [name], to=TensorProto.FLOAT),
    ]
    return nodes, [numpy_helper.from_array(value, part[key]) for key, value in constants.items()]


OPSET = 21
PRODUCER = "tiny-transformer"
ONNX_TYPES = {"F32": TensorProto.FLOAT, "F16": TensorProto.FLOAT16, "U8": TensorProto.UINT8}
STORED = ".stored"  # suffix of a float16 initializer in front of its Cast
_LARGEST_INLINE = 16  # elements of a constant that may stay in a graph


def clean_graph(graph: onnx.ModelProto, inputs: list[TensorSpec], outputs: list[TensorSpec]) -> onnx.ModelProto:
    """The exporter's result with our names and shapes, and nothing of the machine that made it."""
    model = onnx.ModelProto()
    model.CopyFrom(graph)
    for message in (model, model.graph, *model.graph.node):
        message.ClearField("metadata_props")
        message.ClearField("doc_string")
    model.graph.ClearField("value_info")
    model.ClearField("functions")
    model.graph.name = "graph"
    model.producer_name, model.producer_version = PRODUCER, __version__
    for node in model.graph.node:
        node.input[:] = [name.removeprefix(MODEL) for name in node.input]
    for tensor in model.graph.initializer:
        tensor.name = tensor.name.removeprefix(MODEL)
        tensor.ClearField("doc_string")
        tensor.ClearField("metadata_props")
    _declare(model.graph.input, inputs)
    _declare(model.graph.output, outputs)
    return model


def _declare(values: Any, specs: list[TensorSpec]) -> None:
    """Set the shapes of the specs: the exporter takes the length of a past for a constant."""
    found = {value.name: value.type.tensor_type.elem_type for value in values}
    if set(found) != {spec.name for spec in specs}:
        raise ExportError(
            "The exporter named the values {found}; its version does not suit this project.", found=", ".join(found)
        )
    del values[:]
    values.extend(helper.make_tensor_value_info(spec.name, found[spec.name], spec.shape) for spec in specs)


def with_external_weights(model: onnx.ModelProto, index: WeightIndex, location: str) -> onnx.ModelProto:
    """A copy whose parameters lie in the file `location`; float16 ones are cast when the graph is loaded."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    tensors, nodes = [], []
    for tensor in model.graph.initializer:
        entry = index.tensors.get(tensor.name)
        if entry is not None:
            if tuple(tensor.dims) != entry.shape:
                template = "{tensor} has shape {shape} in {location}; the exporter's differs."
                raise ExportError(template, tensor=tensor.name, shape=entry.shape, location=location)
            half = entry.dtype == "F16"
            stored = tensor.name + STORED if half else tensor.name
            tensors.append(external_tensor(stored, entry, location))
            if half:
                nodes.append(helper.make_node("Cast", [stored], [tensor.name], to=TensorProto.FLOAT))
        elif is_table(tensor.name) and not _is_other_table(tensor):
            computed, constants = table_formula(tensor.name, *tensor.dims)
            nodes += computed
            tensors += constants
        elif not is_table(tensor.name) and math.prod(tensor.dims) > _LARGEST_INLINE:
            template = "The exporter folded a parameter into {tensor}; its version does not suit this project."
            raise ExportError(template, tensor=tensor.name)
        else:
            tensors.append(tensor)
    return with_nodes(result, [*nodes, *model.graph.node], tensors)


def _is_other_table(tensor: TensorProto) -> bool:
    """Whether added positions follow another formula than the paper's; such a table stays in the graph as it is."""
    if tensor.name.rpartition(".")[2] != SINUSOIDAL:
        return False
    return not np.allclose(numpy_helper.to_array(tensor), sinusoidal_table(*tensor.dims), rtol=0, atol=1e-6)


def with_nodes(model: onnx.ModelProto, nodes: list[onnx.NodeProto], tensors: list[TensorProto]) -> onnx.ModelProto:
    """The model with its nodes and initializers replaced."""
    model.graph.ClearField("node")
    model.graph.ClearField("initializer")
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(tensors)
    return model


def external_tensor(name: str, entry: TensorEntry, location: str, shape: tuple[int, ...] | None = None) -> TensorProto:
    """An initializer without data of its own: the bytes of one tensor of a safetensors file."""
    tensor = TensorProto(name=name, data_type=ONNX_TYPES[entry.dtype], dims=shape or entry.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", entry.offset), ("length", entry.length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def add_signature(
    model: onnx.ModelProto, config: ModelConfig, index: WeightIndex, more: Mapping[str, str] | None = None
) -> None:
    """Say which config and which weights file the graph belongs to, and perhaps more."""
    helper.set_model_props(model, {**signature(config, index), **(more or {})})
