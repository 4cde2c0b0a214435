"""From ids to vectors (paper, section 3.4), with their positions, and back to scores.

Shapes: B batch, T positions, D model width, V vocabulary, K head width.
"""

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tiny_transformer.config import ModelConfig
from tiny_transformer.model.positions import rotary_table, sinusoidal_table


class Embedding(nn.Module):
    """Token embedding × √D, plus the position's vector; dropout once, on the sum."""

    added: Final[bool]
    tied: Final[bool]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.added = config.positions in ("learned", "sinusoidal")
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_length, config.d_model))
        elif self.added:
            # Computed, not stored: the table follows from the config.
            self.register_buffer("positions", sinusoidal_table(config.max_length, config.d_model), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.tied = config.tie_embeddings
        if not self.tied:
            self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """`ids` is B T; `positions` is B T, or T where every row counts from the same start."""
        x = self.tokens(ids) * self.scale  # B T D
        if self.added:
            x = x + self.positions[positions].to(x.dtype)  # B T D
        return self.dropout(x)

    def scores(self, x: Tensor) -> Tensor:
        """Logits: how well each token of the vocabulary fits, B T D → B T V."""
        if self.tied:
            return F.linear(x, self.tokens.weight)
        return self.output(x)


class Rotation(nn.Module):
    """The rows of the rotary table for given positions; an empty tensor where nothing rotates."""

    rotary: Final[bool]
    table: Tensor  # L K

    def __init__(self, config: ModelConfig) -> None:
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
