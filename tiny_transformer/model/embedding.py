"""From ids to vectors (paper, section 3.4), with their positions, and back to scores.

Shapes: B batch, T positions, L longest length, D model width, V tokens that can be written: the first of the
vocabulary, or all of it.
"""

import math
from typing import TYPE_CHECKING, Final

from torch import Tensor, nn
from torch.nn import functional as F

from tiny_transformer.model.positions import added_positions

if TYPE_CHECKING:
    from tiny_transformer.config import ModelConfig


class Embedding(nn.Module):
    """Token embedding × √D, plus the position's vector; dropout once, on the sum."""

    added: Final[bool]
    tied: Final[bool]
    n_outputs: Final[int]

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        positions = added_positions(config)  # L D
        self.added = positions is not None
        if isinstance(positions, nn.Parameter):
            self.positions = positions
        elif positions is not None:
            # Computed, not stored: the table follows from the config.
            self.register_buffer("positions", positions, persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.tied = config.tie_embeddings
        self.n_outputs = config.n_outputs
        if not self.tied:
            self.output = nn.Linear(config.d_model, config.n_outputs, bias=False)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """`ids` is B T; `positions` is B T, or T where every row counts from the same start."""
        x = self.tokens(ids) * self.scale  # B T D
        if self.added:
            x = x + self.positions[positions].to(x.dtype)  # B T D
        return self.dropout(x)

    def scores(self, x: Tensor) -> Tensor:
        """Logits: how well each token that can be written fits, B T D → B T V."""
        if self.tied:
            return F.linear(x, self.tokens.weight[: self.n_outputs])  # the first rows: a view, not a copy
        return self.output(x)
