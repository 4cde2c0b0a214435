"""One layer of the encoder and one of the decoder (paper, figure 1 and section 3.1).

Shapes: B batch, T positions, S source, D model width, F inner width of the feed-forward.
"""

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tiny_transformer.model.attention import AttentionContext, CrossAttention, SelfAttention

if TYPE_CHECKING:
    from tiny_transformer.config import ModelConfig


class FeedForward(nn.Module):
    """The same two-layer network at every position: widen, bend, narrow (paper, section 3.3)."""

    gelu: Final[bool]

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.output = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.output_dropout = nn.Dropout(config.dropout)
        self.gelu = config.activation == "gelu"

    def forward(self, x: Tensor) -> Tensor:
        """B T D → B T F → B T D."""
        x = self.inner(x)  # B T F
        x = F.gelu(x, approximate="tanh") if self.gelu else F.relu(x)
        return self.output_dropout(self.output(x))  # B T D


class SublayerNorm(nn.Module):
    """The layer norm before or after a sub-layer f, under the name that the weights have in a model folder.

    Post-norm, as published: norm(x + f(x)). Pre-norm: x + f(norm(x)), where x itself is never normalized,
    so that the residual stream runs unchanged from the embedding to the top.
    """

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, bias=config.bias)


class Zeros(nn.Module):
    """Stands for x in x + f(x) in the ablation without residual connections."""

    def forward(self, x: Tensor) -> Tensor:
        """Zeros of the same shape."""
        return torch.zeros_like(x)


class EncoderLayer(nn.Module):
    """Self-attention over the whole source, then feed-forward."""

    pre_norm: Final[bool]

    def __init__(self, config: "ModelConfig", causal: bool = False) -> None:
        super().__init__()
        self.self_attention = _self_attention(config, causal)
        self.around_attention = SublayerNorm(config)
        self.feed_forward = FeedForward(config)
        self.around_feed_forward = SublayerNorm(config)
        self.skip = _skip_connection(config)  # skip(x) is x
        self.pre_norm = config.norm == "pre"

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """B T D → B T D."""
        if self.pre_norm:
            x = self.skip(x) + self.self_attention(self.around_attention.norm(x), context)
            x = self.skip(x) + self.feed_forward(self.around_feed_forward.norm(x))
        else:
            x = self.around_attention.norm(self.skip(x) + self.self_attention(x, context))
            x = self.around_feed_forward.norm(self.skip(x) + self.feed_forward(x))
        return x


class GPTLayer(EncoderLayer):
    """A decoder's layer without an encoder: the encoder's layer, where attention sees the past only."""

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__(config, causal=True)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the encoded source, feed-forward."""

    pre_norm: Final[bool]

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        self.self_attention = _self_attention(config, causal=True)
        self.around_attention = SublayerNorm(config)
        self.cross_attention = CrossAttention(config.d_model, config.n_heads, config.dropout, config.bias)
        self.around_cross = SublayerNorm(config)
        self.feed_forward = FeedForward(config)
        self.around_feed_forward = SublayerNorm(config)
        self.skip = _skip_connection(config)  # skip(x) is x
        self.pre_norm = config.norm == "pre"

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """B T D → B T D."""
        memory = context.memory
        assert memory is not None
        if self.pre_norm:
            x = self.skip(x) + self.self_attention(self.around_attention.norm(x), context)
            x = self.skip(x) + self.cross_attention(self.around_cross.norm(x), memory)
            x = self.skip(x) + self.feed_forward(self.around_feed_forward.norm(x))
        else:
            x = self.around_attention.norm(self.skip(x) + self.self_attention(x, context))
            x = self.around_cross.norm(self.skip(x) + self.cross_attention(x, memory))
            x = self.around_feed_forward.norm(self.skip(x) + self.feed_forward(x))
        return x


def _self_attention(config: "ModelConfig", causal: bool) -> SelfAttention:
    rotary = config.positions == "rotary"
    return SelfAttention(config.d_model, config.n_heads, config.dropout, config.bias, rotary, causal)


def _skip_connection(config: "ModelConfig") -> nn.Module:
    return nn.Identity() if config.residual else Zeros()
