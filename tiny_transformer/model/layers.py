"""One layer of the encoder and one of the decoder (paper, figure 1 and section 3.1).

Shapes: B batch, T positions, S source, D model width, F inner width of the feed-forward.
"""

from typing import Final

from torch import Tensor, nn
from torch.nn import functional as F

from tiny_transformer.config import ModelConfig
from tiny_transformer.model.attention import CrossAttention, SelfAttention, View


class FeedForward(nn.Module):
    """The same two-layer network at every position: widen, bend, narrow (paper, section 3.3)."""

    gelu: Final[bool]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.output = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.gelu = config.activation == "gelu"

    def forward(self, x: Tensor) -> Tensor:
        """B T D → B T F → B T D."""
        x = self.inner(x)  # B T F
        x = F.gelu(x, approximate="tanh") if self.gelu else F.relu(x)
        return self.output(x)  # B T D


class Sublayer(nn.Module):
    """What surrounds attention and feed-forward: norm before or after, dropout, residual.

    Post-norm, as published: norm(x + f(x)). Pre-norm: x + f(norm(x)), where x itself is never
    normalised, so that the residual stream runs untouched from the embedding to the top.
    """

    pre: Final[bool]
    residual: Final[bool]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)
        self.pre = config.norm == "pre"
        self.residual = config.residual

    def enter(self, x: Tensor) -> Tensor:
        """What f sees."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, fx: Tensor) -> Tensor:
        """What goes on, from the stream `x` and the part's result `fx`."""
        fx = self.dropout(fx)
        if self.residual:
            fx = x + fx
        return fx if self.pre else self.norm(fx)


class EncoderLayer(nn.Module):
    """Self-attention over the whole source, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = _self_attention(config, causal=False)
        self.around_attention = Sublayer(config)
        self.feed_forward = FeedForward(config)
        self.around_feed_forward = Sublayer(config)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """B S D → B S D."""
        attended, _, _ = self.self_attention(self.around_attention.enter(x), view, None, None)
        x = self.around_attention.leave(x, attended)
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the encoder's memory where there is one, feed-forward."""

    cross: Final[bool]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = _self_attention(config, causal=True)
        self.around_attention = Sublayer(config)
        self.cross = config.is_encoder_decoder  # a GPT has no one to listen to
        if self.cross:
            self.cross_attention = CrossAttention(config.d_model, config.n_heads, config.dropout, config.bias)
            self.around_cross = Sublayer(config)
        self.feed_forward = FeedForward(config)
        self.around_feed_forward = Sublayer(config)

    def forward(
        self,
        x: Tensor,
        view: View,
        past_key: Tensor | None,
        past_value: Tensor | None,
        memory_key: Tensor,
        memory_value: Tensor,
        memory_mask: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """B T D → B T D, and this layer's keys and values."""
        attended, key, value = self.self_attention(self.around_attention.enter(x), view, past_key, past_value)
        x = self.around_attention.leave(x, attended)
        if self.cross:
            crossed = self.cross_attention(self.around_cross.enter(x), memory_key, memory_value, memory_mask)
            x = self.around_cross.leave(x, crossed)
        x = self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))
        return x, key, value


def _self_attention(config: ModelConfig, causal: bool) -> SelfAttention:
    rotary = config.positions == "rotary"
    return SelfAttention(config.d_model, config.n_heads, config.dropout, config.bias, rotary, causal)
