"""Positions (paper, section 3.5): attention alone cannot tell first from last.

Shapes: B batch, T positions, L longest length, D model width, K head width.
"""

import math

import torch
from torch import Tensor


def sinusoidal_table(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(the same)."""
    angles = _angles(length, d_model)  # L D/2
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()  # L D, sine and cosine interleaved


def rotary_table(length: int, d_head: int) -> Tensor:
    """Cosine and sine of each position's turn, for each pair of a head's dimensions (RoFormer, 3.2.2)."""
    angles = _angles(length, d_head)  # L K/2
    return torch.cat((angles.cos(), angles.sin()), dim=-1).float()  # L K: cosines, then sines


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + K/2]) by its position's angle, so that q·k depends on distance alone.

    `x` is B H T K; `rotation` is rows of `rotary_table`, T K or B 1 T K.
    """
    cosine, sine = rotation.to(x.dtype).chunk(2, dim=-1)  # each … T K/2
    first, second = x.chunk(2, dim=-1)  # each B H T K/2
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)  # B H T K


def _angles(length: int, width: int) -> Tensor:
    """pos / 10000^(2i/width) in float64: at position 4,000 a float32 angle is off by 1e-4."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    return position * frequency
