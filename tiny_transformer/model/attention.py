"""Attention (paper, section 3.2): a soft dictionary look-up of queries among keys and values.

Shapes: B batch, T queries, S keys, H heads, D model width, K head width (D = H × K), C capacity of the cache.
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
    """The same, step by step as in the paper: the result, and the weights behind it."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # B H T S
    if causal:
        mask = additive_mask(causal_mask(query.size(-2), query.device), query.dtype)
    if mask is not None:
        scores = scores + mask
    # A row of nothing but -inf is NaN after softmax: such a query attends to nothing.
    weights = torch.nan_to_num(scores.softmax(dim=-1), nan=0.0)
    return weights @ value, weights  # B H T K, B H T S


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True where position t may look at position s: s ≤ t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()  # T T


def additive_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores: 0 where a query may see a key, -inf where not. All layers share one."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, -math.inf)


class LayerCache(NamedTuple):
    """Keys and values of one layer's earlier positions; new ones are written into it in place."""

    key: Tensor  # B H C K
    value: Tensor  # B H C K


class LayerMemory(NamedTuple):
    """What one decoder layer reads of the encoded source."""

    key: Tensor  # B H S K
    value: Tensor  # B H S K
    mask: Tensor  # additive, B 1 1 S: hides the source's padding


class AttentionContext(NamedTuple):
    """What the attention of one layer needs besides its input."""

    positions: Tensor  # T, or B T: the input's positions, which are also its slots in the cache
    rotation: Tensor  # the rotary table's rows for these positions; empty without rotary positions
    mask: Tensor | None = None  # additive, of query t and key s: B 1 T S, or B 1 1 S for all queries alike
    cache: LayerCache | None = None
    memory: LayerMemory | None = None


class SelfAttention(nn.Module):
    """Every position looks at its own sequence; with `causal`, only at itself and the past."""

    rotary: Final[bool]
    causal: Final[bool]

    def __init__(self, d_model: int, n_heads: int, dropout: float, bias: bool, rotary: bool, causal: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=bias)  # all heads' queries, keys, values: one product
        self.output = nn.Linear(d_model, d_model, bias=bias)
        self.n_heads = n_heads
        self.dropout = dropout  # of the weights
        self.output_dropout = nn.Dropout(dropout)
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

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """B T D → B T D. With a cache, `context.mask` hides the slots that a query may not see."""
        query, key, value = self.project(x, context.rotation)
        cache = context.cache
        if cache is not None:
            key = write_cache(cache.key, key, context.positions)  # B H C K
            value = write_cache(cache.value, value, context.positions)
        dropout = self.dropout if self.training else 0.0
        mixed = fused_attention(query, key, value, context.mask, self.causal and context.mask is None, dropout)
        return self.output_dropout(self.output(merge_heads(mixed)))


class CrossAttention(nn.Module):
    """Every position of the decoder looks at the encoder's memory."""

    def __init__(self, d_model: int, n_heads: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model, bias=bias)
        self.key_value = nn.Linear(d_model, 2 * d_model, bias=bias)
        self.output = nn.Linear(d_model, d_model, bias=bias)
        self.n_heads = n_heads
        self.dropout = dropout  # of the weights
        self.output_dropout = nn.Dropout(dropout)

    def project_memory(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, computed once however long the target grows."""
        key, value = self.key_value(encoded).chunk(2, dim=-1)  # each B S D
        return split_heads(key, self.n_heads), split_heads(value, self.n_heads)  # each B H S K

    def project(self, x: Tensor) -> Tensor:
        """Queries by head."""
        return split_heads(self.query(x), self.n_heads)  # B H T K

    def forward(self, x: Tensor, memory: LayerMemory) -> Tensor:
        """B T D → B T D."""
        dropout = self.dropout if self.training else 0.0
        mixed = fused_attention(self.project(x), memory.key, memory.value, memory.mask, False, dropout)
        return self.output_dropout(self.output(merge_heads(mixed)))


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """B T D → B H T K."""
    return x.view(x.size(0), x.size(1), n_heads, x.size(2) // n_heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """B H T K → B T D."""
    return x.transpose(1, 2).reshape(x.size(0), x.size(2), x.size(1) * x.size(3))


def write_cache(cache: Tensor, new: Tensor, positions: Tensor) -> Tensor:
    """Write row b's new entry t into slot positions[b, t]; rows may have different lengths."""
    index = positions[:, None, :, None].expand(new.size(0), new.size(1), new.size(2), new.size(3))  # B H T K
    return cache.scatter_(2, index, new)
