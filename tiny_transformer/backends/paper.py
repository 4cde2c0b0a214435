"""The paper in numpy: "Attention Is All You Need" (Vaswani et al., 2017), one function for each idea of it.

Nothing here is fast. One text is read at a time, without batches, padding or a cache, in float64. That makes it the
file to read first, and a witness of the other backends: it shares the names of the weights with them, and no code.

Shapes: T positions of the text, S positions that attention looks at, D model width, H heads, K = D / H head width,
F inner width of the feed-forward, V tokens that can be written: the first of the vocabulary, or all of it. Sections
are the paper's, unless another paper is named.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tiny_transformer.config import ModelConfig

Maps = list[np.ndarray]  # the attention weights (H T S) of each layer, in the order in which they are computed


class Paper:
    """A Transformer (figure 1): the weights by name, and what is computed with them."""

    def __init__(self, config: "ModelConfig", weights: Mapping[str, np.ndarray]) -> None:
        self.config = config
        self.weights = {name: array.astype(np.float64) for name, array in weights.items()}

    def encode(self, ids: np.ndarray, maps: Maps) -> np.ndarray:
        """The left half of figure 1: a source (T) becomes one vector per position (T D)."""
        x = self.embed(ids)
        everything = np.ones((len(ids), len(ids)), dtype=bool)  # the encoder reads in both directions
        for i in range(self.config.n_encoder_layers):
            layer = f"encoder.layers.{i}"
            x = self.add_and_norm(layer + ".around_attention", partial(self.self_attention, layer, everything, maps), x)
            x = self.add_and_norm(layer + ".around_feed_forward", partial(self.feed_forward, layer), x)
        return self.final_norm("encoder", x)

    def decode(self, ids: np.ndarray, encoded: np.ndarray | None, maps: Maps, cross_maps: Maps) -> np.ndarray:
        """The right half: a target (T), and the encoded source (S D) where there is one, give logits (T V).

        Row t of the logits scores every token of the vocabulary as the one that follows position t. A GPT is this
        half alone, without the attention over a source.
        """
        return self.scores(self.read(ids, encoded, maps, cross_maps))

    def read(self, ids: np.ndarray, encoded: np.ndarray | None, maps: Maps, cross_maps: Maps) -> np.ndarray:
        """All of that half but its last layer: one vector per position (T D)."""
        x = self.embed(ids)
        past = np.tril(np.ones((len(ids), len(ids)), dtype=bool))  # position t sees s ≤ t (section 3.2.3)
        for i in range(self.config.n_decoder_layers):
            layer = f"decoder.layers.{i}"
            x = self.add_and_norm(layer + ".around_attention", partial(self.self_attention, layer, past, maps), x)
            if encoded is not None:
                read_source = partial(self.cross_attention, layer, encoded, cross_maps)
                x = self.add_and_norm(layer + ".around_cross", read_source, x)
            x = self.add_and_norm(layer + ".around_feed_forward", partial(self.feed_forward, layer), x)
        return self.final_norm("decoder", x)

    def embed(self, ids: np.ndarray) -> np.ndarray:
        """Sections 3.4 and 3.5: each token's vector × √D, plus its position's vector (T D)."""
        x = self.weights["embedding.tokens.weight"][ids]
        if self.config.scale_embeddings:
            x = x * np.sqrt(self.config.d_model)
        if self.config.positions == "sinusoidal":
            x = x + sinusoids(len(ids), self.config.d_model)
        elif self.config.positions == "learned":
            x = x + self.weights["embedding.positions"][: len(ids)]
        return x

    def add_and_norm(self, name: str, f: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
        """Section 3.1: the residual connection and the layer norm around a sub-layer f (T D → T D)."""
        norm = partial(self.layer_norm, name + ".norm")
        skip = x if self.config.residual else np.zeros_like(x)
        if self.config.norm == "post":  # as published
            return norm(skip + f(x))
        return skip + f(norm(x))  # pre-norm, as in GPT-2 (Radford et al., 2019)

    def self_attention(self, layer: str, visible: np.ndarray, maps: Maps, x: np.ndarray) -> np.ndarray:
        """Section 3.2.3: every position asks all positions that `visible` (T T) lets it see."""
        q, k, v = np.split(self.linear(layer + ".self_attention.qkv", x), 3, axis=-1)  # each T D
        rotary = self.config.positions == "rotary"
        return self.linear(layer + ".self_attention.output", self.heads(q, k, v, visible, rotary, maps))

    def cross_attention(self, layer: str, encoded: np.ndarray, maps: Maps, x: np.ndarray) -> np.ndarray:
        """Section 3.2.3: every position of the target asks all positions of the encoded source (S D)."""
        q = self.linear(layer + ".cross_attention.query", x)  # T D
        k, v = np.split(self.linear(layer + ".cross_attention.key_value", encoded), 2, axis=-1)  # each S D
        everything = np.ones((len(x), len(encoded)), dtype=bool)
        return self.linear(layer + ".cross_attention.output", self.heads(q, k, v, everything, False, maps))

    def heads(
        self, q: np.ndarray, k: np.ndarray, v: np.ndarray, visible: np.ndarray, rotary: bool, maps: Maps
    ) -> np.ndarray:
        """Section 3.2.2: each head attends in its own K dimensions; the results lie side by side (T D)."""
        results, weights = [], []
        for query, key, value in zip(*(np.split(x, self.config.n_heads, axis=-1) for x in (q, k, v)), strict=True):
            if rotary:
                query, key = rotated(query), rotated(key)
            weights.append(attention_weights(query, key, visible))  # T S
            results.append(weights[-1] @ value)  # T K
        maps.append(np.stack(weights))  # H T S
        return np.concatenate(results, axis=-1)

    def feed_forward(self, layer: str, x: np.ndarray) -> np.ndarray:
        """Section 3.3: at every position the same two linear layers, with a bend between them."""
        inner = self.linear(layer + ".feed_forward.inner", x)  # T F
        if self.config.activation == "relu":
            inner = np.maximum(inner, 0)
        else:  # GELU in its tanh form (Hendrycks & Gimpel, 2016)
            inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        return self.linear(layer + ".feed_forward.output", inner)  # T D

    def final_norm(self, stack: str, x: np.ndarray) -> np.ndarray:
        """A pre-norm stack never normalizes x itself, so it ends with one norm more."""
        return self.layer_norm(stack + ".norm", x) if self.config.norm == "pre" else x

    def scores(self, x: np.ndarray) -> np.ndarray:
        """Section 3.4: how well each token fits (T V); the embedding of the tokens may serve as the output layer."""
        output = "embedding.tokens.weight" if self.config.tie_embeddings else "embedding.output.weight"
        return x @ self.weights[output][: self.config.n_outputs].T

    def layer_norm(self, name: str, x: np.ndarray) -> np.ndarray:
        """Every position to mean 0 and variance 1, then scaled and shifted by learned vectors (Ba et al., 2016)."""
        centered = x - x.mean(axis=-1, keepdims=True)
        variance = (centered**2).mean(axis=-1, keepdims=True)
        return centered / np.sqrt(variance + 1e-5) * self.weights[name + ".weight"] + self.bias(name)

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        """x Wᵀ + b."""
        return x @ self.weights[name + ".weight"].T + self.bias(name)

    def bias(self, name: str) -> np.ndarray | float:
        """The learned bias of a linear layer or a norm; a model may have none."""
        return self.weights.get(name + ".bias", 0.0)


def attention_weights(query: np.ndarray, key: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Section 3.2.1: softmax(Q Kᵀ / √K), where the invisible gets the score -∞ and so the weight 0 (T S)."""
    scores = np.where(visible, query @ key.T / np.sqrt(query.shape[-1]), -np.inf)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def sinusoids(length: int, width: int) -> np.ndarray:
    """Section 3.5: sin and cos of pos / 10000^(2i/D), one pair of dimensions after the other (T D)."""
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)  # T D/2
    table = np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(length, width)
    return table.astype(np.float32)  # the other backends keep the table in float32


def rotated(x: np.ndarray) -> np.ndarray:
    """RoFormer, section 3.2 (Su et al., 2021): each pair (x[i], x[i + K/2]) as a complex number, turned (T K)."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] / 10_000 ** (np.arange(half) / half)  # T K/2
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)  # kept so by the others
    turned = (x[:, :half] + 1j * x[:, half:]) * (cosine.astype(np.float64) + 1j * sine)
    return np.concatenate((turned.real, turned.imag), axis=-1)
