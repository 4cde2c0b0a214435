"""The formulas of the position encodings in numpy and float64: the one declaration of their angles.

The model, the ONNX graphs and the page take their tables from here. A table has one row per position. It is
computed in float64, because a float32 angle is off by 1e-4 at position 4,000.

Shapes: L number of positions, D width of the encoding: the model's for sinusoidal, a head's for rotary.
"""

import math

import numpy as np

BASE = 10_000.0  # the slowest pair turns once in 2π × BASE positions (paper, section 3.5)


def frequencies(width: int) -> np.ndarray:
    """BASE^(-2i / width) for each pair i of dimensions, in radians per position: D/2 numbers, from 1 downwards."""
    return np.exp(np.arange(0, width, 2, dtype=np.float64) * (-math.log(BASE) / width))


def angles(length: int, width: int) -> np.ndarray:
    """How far each pair of dimensions has turned at each position, in radians: (L, D/2)."""
    return np.arange(length, dtype=np.float64)[:, None] * frequencies(width)


def sinusoidal_table(length: int, width: int) -> np.ndarray:
    """PE(pos, 2i) = sin(angle), PE(pos, 2i + 1) = cos(angle) (paper, section 3.5): (L, D), pairs side by side."""
    turned = angles(length, width)
    return np.stack((np.sin(turned), np.cos(turned)), axis=-1).reshape(length, width)


def rotary_table(length: int, width: int) -> np.ndarray:
    """The cosines of all pairs, then their sines (RoFormer, section 3.2.2): (L, D)."""
    turned = angles(length, width)
    return np.concatenate((np.cos(turned), np.sin(turned)), axis=-1)


# Name in the config → the table of (max_length, d_model) whose rows are added to the token embeddings.
# A new encoding of this kind is one function and one entry here, and its name in `config.POSITIONS`.
ADDED_TABLES = {"sinusoidal": sinusoidal_table}
