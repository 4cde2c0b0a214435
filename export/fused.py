"""Attention, linear layers and embedding as ONNX Runtime's fast operators, with the model's own parameters.

Parts of the model in a second form, for export only. Gemm takes the weights as they are
stored, without a transpose, but rows only: so the decoder's stream is flat, one row per position. Add and
LayerNormalization stay two operators: ONNX Runtime's CPU takes longer for SkipLayerNormalization, up to eight times.

Shapes: B batch, T new tokens, S source, C cache slots, H heads, D model width, K head width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.onnx.ops import symbolic, symbolic_multi_out

from tiny_transformer.model.attention import AttentionContext, CrossAttention, LayerMemory, SelfAttention
from tiny_transformer.model.embedding import Embedding

TURNS_ITSELF = 16  # GroupQueryAttention turns heads whose width is a multiple of this; others are turned before it
KeepCache = Callable[[Tensor, Tensor], None]  # takes a decoder layer's keys and values, the new ones among them


def fuse(model: Any, keep_cache: KeepCache | None = None) -> Any:
    """The same model on fused operators; `keep_cache` gets the decoder's cache.

    The model writes its cache in place, which an ONNX graph cannot: the operator makes a new one.
    """
    table = model.rotation.table
    for layer in model.encoder.layers if hasattr(model, "encoder") else ():
        layer.self_attention = SourceAttention(layer.self_attention, table)
    for layer in model.decoder.layers:
        layer.self_attention = CachedAttention(layer.self_attention, table, keep_cache)
        if hasattr(layer, "cross_attention"):
            layer.cross_attention = MemoryAttention(layer.cross_attention)
    model.embedding = RowEmbedding(model.embedding)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, RowLinear(child))
    return model


class RowLinear(nn.Module):
    """A linear layer as one Gemm over rows."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """Rows × in → rows × out; a leading batch is flattened and restored."""
        y = _gemm(x.flatten(0, -2), self.weight, self.bias)
        return y if x.dim() == 2 else y.view(*x.shape[:-1], y.size(-1))


class RowEmbedding(nn.Module):
    """The embedding as Gather and Gemm.

    A tied output layer of fewer tokens is a tensor of its own, so that the graph can point at the first rows of the
    table: an operator that cut them off would copy them.
    """

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.tokens, self.scale = embedding.tokens, embedding.scale
        self.added, self.tied = embedding.added, embedding.tied
        if self.added:
            self.positions = embedding.positions
        self.first_rows = None
        if not self.tied:
            self.output = RowLinear(embedding.output)
        elif embedding.n_outputs < self.tokens.num_embeddings:
            # Other values than the table's: the exporter merges equal tensors.
            self.first_rows = nn.Parameter(self.tokens.weight.detach()[: embedding.n_outputs] + 1)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """B T, and positions B T or T → B·T D."""
        x = self.tokens(ids) * self.scale
        if self.added:
            x = x + nn.functional.embedding(positions, self.positions)
        return x.flatten(0, 1)

    def scores(self, x: Tensor) -> Tensor:
        """B·T D → B·T V."""
        if not self.tied:
            scores: Tensor = self.output(x)
            return scores
        return _gemm(x, self.tokens.weight if self.first_rows is None else self.first_rows, None)


class CachedAttention(nn.Module):
    """Causal self-attention as GroupQueryAttention, which also turns the heads and fills the cache."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, attention: SelfAttention, table: Tensor, keep_cache: KeepCache | None) -> None:
        super().__init__()
        self.qkv, self.output = RowLinear(attention.qkv), RowLinear(attention.output)
        self.n_heads, self.rotary = attention.n_heads, attention.rotary
        self.keep_cache = keep_cache
        _keep_table(self, table)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """B·T D → B·T D."""
        positions, past = context.positions, context.cache
        assert past is not None
        batch, length = positions.shape
        width = x.size(1)
        last = positions[:, -1].to(torch.int32)  # B
        total = (positions.max() + 1).to(torch.int32)
        attributes: dict[str, Any] = {"num_heads": self.n_heads, "kv_num_heads": self.n_heads}
        qkv = self.qkv(x).view(batch, length, 3 * width)
        heads: tuple[Tensor | None, ...] = (qkv, None, None)
        tables: tuple[Tensor, ...] = ()
        if self.rotary and width // self.n_heads % TURNS_ITSELF == 0:
            attributes["do_rotary"] = 1
            tables = (self.cosine, self.sine)
        elif self.rotary:
            query, key, value = qkv.chunk(3, dim=-1)  # each B T D
            heads = (_turn(self, query, positions), _turn(self, key, positions), value)
        inputs = (*heads, *past, last, total, *tables)
        mixed, key, value = symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            inputs,
            attributes,
            dtypes=(x.dtype,) * 3,
            shapes=[(batch, length, width), past.key.shape, past.value.shape],
            version=1,
        )
        if self.keep_cache is not None:
            self.keep_cache(key, value)
        result: Tensor = self.output(mixed.flatten(0, 1))
        return result


class SourceAttention(nn.Module):
    """The encoder's self-attention as MultiHeadAttention."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, attention: SelfAttention, table: Tensor) -> None:
        super().__init__()
        self.qkv, self.output = RowLinear(attention.qkv), RowLinear(attention.output)
        self.n_heads, self.rotary = attention.n_heads, attention.rotary
        _keep_table(self, table)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """B·S D → B·S D."""
        mask = context.mask  # B S, as numbers: 0 at padding
        assert mask is not None
        qkv = self.qkv(x).view(mask.size(0), mask.size(1), 3 * x.size(1))  # B S 3·D
        query, key, value = qkv.chunk(3, dim=-1)  # each B S D
        if self.rotary:
            start = torch.zeros(1, dtype=torch.int64)  # the operator counts on from there
            query, key = _turn(self, query, start), _turn(self, key, start)
        mixed = _multi_head_attention(query, key, value, mask, self.n_heads)
        result: Tensor = self.output(mixed.flatten(0, 1))
        return result


class MemoryAttention(nn.Module):
    """Cross-attention as MultiHeadAttention over keys and values that are already split by head."""

    def __init__(self, attention: CrossAttention) -> None:
        super().__init__()
        self.query, self.output = RowLinear(attention.query), RowLinear(attention.output)
        self.key_value = RowLinear(attention.key_value)
        self.n_heads = attention.n_heads

    project_memory = CrossAttention.project_memory

    def forward(self, x: Tensor, memory: LayerMemory) -> Tensor:
        """B·T D → B·T D. The memory's mask is the source's, as numbers, B S."""
        query = self.query(x).view(memory.mask.size(0), -1, x.size(1))  # B T D
        mixed = _multi_head_attention(query, *memory, self.n_heads)
        result: Tensor = self.output(mixed.flatten(0, 1))
        return result


def _turn(attention: "CachedAttention | SourceAttention", x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions as an operator of its own; `positions` are B T, or the first alone."""
    inputs = (x, positions, attention.cosine, attention.sine)
    attributes: dict[str, Any] = {"num_heads": attention.n_heads}
    return symbolic("com.microsoft::RotaryEmbedding", inputs, attributes, dtype=x.dtype, shape=x.shape, version=1)


def _gemm(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Rows × in, out × in → rows × out."""
    inputs = (x, weight) if bias is None else (x, weight, bias)
    shape = (x.size(0), weight.size(0))
    return symbolic("Gemm", inputs, {"transB": 1}, dtype=x.dtype, shape=shape, version=13)


def _multi_head_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, n_heads: int) -> Tensor:
    """One operator; `mask` (B S, int32) is 0 at padding, which then weighs exp(-10,000) = 0."""
    return symbolic(
        "com.microsoft::MultiHeadAttention",
        (query, key, value, None, mask),
        {"num_heads": n_heads},
        dtype=query.dtype,
        shape=query.shape,
        version=1,
    )


def _keep_table(module: nn.Module, table: Tensor) -> None:
    """The rotary table's cosines and sines (each L K/2) as the module's own constants."""
    for name, half in zip(("cosine", "sine"), table.chunk(2, dim=-1), strict=True):
        module.register_buffer(name, half.contiguous(), persistent=False)
