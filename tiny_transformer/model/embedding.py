"""From ids to vectors (paper, section 3.4), with their positions, and back to scores.

Shapes: B batch, T positions, L longest length, D model width, V vocabulary.
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
