"""Positions (paper, section 3.5): attention alone cannot tell first from last.

Either a vector is added to each token's embedding, or queries and keys are turned inside attention.

Shapes: B batch, T positions, L longest length, D model width, K head width.
"""

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

from tiny_transformer import position_tables

if TYPE_CHECKING:
    from tiny_transformer.config import ModelConfig


def sinusoidal_table(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(the same)."""
    return torch.from_numpy(position_tables.sinusoidal_table(length, d_model)).float()  # L D


def rotary_table(length: int, d_head: int) -> Tensor:
    """Cosine and sine of each position's turn, for each pair of a head's dimensions (RoFormer, 3.2.2)."""
    return torch.from_numpy(position_tables.rotary_table(length, d_head)).float()  # L K: cosines, then sines


def added_positions(config: "ModelConfig") -> Tensor | None:
    """The vectors that are added to embeddings, L D: a parameter where they are learned; None where none is added."""
    if config.positions == "learned":
        return nn.Parameter(torch.empty(config.max_length, config.d_model))
    table = position_tables.ADDED_TABLES.get(config.positions)
    return None if table is None else torch.from_numpy(table(config.max_length, config.d_model)).float()


class Rotation(nn.Module):
    """The rows of the rotary table for given positions; an empty tensor where nothing rotates."""

    rotary: Final[bool]
    table: Tensor  # L K

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        self.rotary = config.positions == "rotary"
        table = rotary_table(config.max_length, config.d_head) if self.rotary else torch.empty(0)
        self.register_buffer("table", table, persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """T K for positions T; B 1 T K for positions B T."""
        if not self.rotary:
            return self.table
        rows = self.table[positions]  # T K or B T K
        return rows if positions.dim() == 1 else rows[:, None]


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + K/2]) by its position's angle, so that q·k depends on distance alone.

    `x` is B H T K; `rotation` is rows of `rotary_table`, T K or B 1 T K.
    """
    cosine, sine = rotation.to(x.dtype).chunk(2, dim=-1)  # each … T K/2
    first, second = x.chunk(2, dim=-1)  # each B H T K/2
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)  # B H T K
