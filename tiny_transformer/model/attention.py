"""Attention (paper, section 3.2): a soft dictionary look-up of queries among keys and values.

Shapes: B batch, T queries, S keys, H heads, D model width, K head width (D = H × K).
"""

import math
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tiny_transformer.model.positions import rotate


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    """softmax(Q Kᵀ / √K) V in one kernel. A query that may see no key gets zeros."""
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal
    )  # B H T K


def plain_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """The same, step by step as in the paper, with the weights beside the result."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # B H T S
    if causal:
        mask = hiding(causal_mask(query.size(-2), query.device), query.dtype)
    if mask is not None:
        scores = scores + mask
    # A row of nothing but -inf is NaN after softmax: such a query attends to nothing.
    weights = torch.nan_to_num(scores.softmax(dim=-1), nan=0.0)
    return weights @ value, weights  # B H T K, B H T S


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True where position t may look at position s: s ≤ t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()  # T T


def hiding(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """What a mask adds to the scores: 0 where a query may see a key, -inf where not. Made once, for all layers."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, -math.inf)


class View(NamedTuple):
    """Where the positions of one call stand, and what they may see."""

    rotation: Tensor  # rows of the rotary table, or an empty tensor
    mask: Tensor | None  # added to the scores of query t and key s: B 1 T S, or B 1 1 S for all queries alike
    positions: Tensor | None  # B T: places in the cache, where there is one


class SelfAttention(nn.Module):
    """Every position looks at its own sequence; with `causal`, only at itself and the past."""

    rotary: Final[bool]
    causal: Final[bool]

    def __init__(self, d_model: int, n_heads: int, dropout: float, bias: bool, rotary: bool, causal: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=bias)  # all heads' queries, keys, values: one product
        self.output = nn.Linear(d_model, d_model, bias=bias)
        self.n_heads = n_heads
        self.dropout = dropout
        self.rotary = rotary
        self.causal = causal

    def project(self, x: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by head; with rotary positions, already turned."""
        query, key, value = self.qkv(x).chunk(3, dim=-1)  # each B T D
        query = split_heads(query, self.n_heads)
        key = split_heads(key, self.n_heads)
        if self.rotary:
            query, key = rotate(query, rotation), rotate(key, rotation)
        return query, key, split_heads(value, self.n_heads)  # each B H T K

    def forward(
        self, x: Tensor, view: View, past_key: Tensor | None, past_value: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The result, and the keys and values that later positions will want to see.

        With a past (B H capacity K), new keys and values are written into it in place, at
        `view.positions`, and `view.mask` hides the places of it that a query may not see.
        """
        query, key, value = self.project(x, view.rotation)
        positions = view.positions
        if past_key is not None and past_value is not None and positions is not None:
            key = write_cache(past_key, key, positions)
            value = write_cache(past_value, value, positions)
        dropout = self.dropout if self.training else 0.0
        context = fused_attention(query, key, value, view.mask, self.causal and view.mask is None, dropout)
        return self.output(merge_heads(context)), key, value


class CrossAttention(nn.Module):
    """Every position of the decoder looks at the encoder's memory."""

    def __init__(self, d_model: int, n_heads: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model, bias=bias)
        self.key_value = nn.Linear(d_model, 2 * d_model, bias=bias)
        self.output = nn.Linear(d_model, d_model, bias=bias)
        self.n_heads = n_heads
        self.dropout = dropout

    def remember(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, computed once however long the target grows."""
        key, value = self.key_value(encoded).chunk(2, dim=-1)  # each B S D
        return split_heads(key, self.n_heads), split_heads(value, self.n_heads)  # each B H S K

    def project(self, x: Tensor) -> Tensor:
        """Queries by head."""
        return split_heads(self.query(x), self.n_heads)  # B H T K

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """`mask` (B 1 1 S) hides the source's padding."""
        dropout = self.dropout if self.training else 0.0
        context = fused_attention(self.project(x), key, value, mask, False, dropout)
        return self.output(merge_heads(context))


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """B T D → B H T K."""
    return x.view(x.size(0), x.size(1), n_heads, x.size(2) // n_heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """B H T K → B T D."""
    return x.transpose(1, 2).reshape(x.size(0), x.size(2), x.size(1) * x.size(3))


def write_cache(cache: Tensor, new: Tensor, positions: Tensor) -> Tensor:
    """Put row b's new entry t at place positions[b, t]; rows may stand at different lengths."""
    index = positions[:, None, :, None].expand(new.size(0), new.size(1), new.size(2), new.size(3))  # B H T K
    return cache.scatter_(2, index, new)
