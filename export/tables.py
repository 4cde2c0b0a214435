"""Position tables as a formula that ONNX Runtime works out once, when it loads a graph: a table would be its bulk.

Sines and cosines of the same angles as `tiny_transformer.model.positions`, in float64 as there.
"""

import math

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

SINUSOIDAL, COSINE, SINE = "positions", "cosine", "sine"  # last part of the constants' names


def is_table(name: str) -> bool:
    """Whether a constant of this name is a position table."""
    return name.rpartition(".")[2] in (SINUSOIDAL, COSINE, SINE)


def formula(name: str, length: int, width: int) -> tuple[list[NodeProto], list[TensorProto]]:
    """Nodes and small constants whose result is the table `name`: sin(place × frequency + phase)."""
    kind = name.rpartition(".")[2]
    pairs = width // 2 if kind == SINUSOIDAL else width
    frequency = np.exp(np.arange(pairs, dtype=np.float64) * (-math.log(10_000.0) / pairs))
    quarter = math.pi / 2  # a cosine is a sine, a quarter turn on
    if kind == SINUSOIDAL:
        frequency, phase = frequency.repeat(2), np.tile([0.0, quarter], pairs)
    else:
        phase = np.full(pairs, quarter if kind == COSINE else 0.0)
    constants = {"places": np.arange(length, dtype=np.float64)[:, None], "frequency": frequency, "phase": phase}
    part = {key: f"{name}.{key}" for key in (*constants, "turned", "shifted", "float64")}
    nodes = [
        helper.make_node("Mul", [part["places"], part["frequency"]], [part["turned"]]),
        helper.make_node("Add", [part["turned"], part["phase"]], [part["shifted"]]),
        helper.make_node("Sin", [part["shifted"]], [part["float64"]]),
        helper.make_node("Cast", [part["float64"]], [name], to=TensorProto.FLOAT),
    ]
    return nodes, [numpy_helper.from_array(value, part[key]) for key, value in constants.items()]
