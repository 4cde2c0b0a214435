"""The forward pass again, in plain numpy and float64, written from the papers: loops over rows, heads and queries.

Vaswani et al. 2017 (attention, feed-forward, sinusoids, post-norm, figure 1), Ba et al. 2016 (layer norm),
Radford et al. 2019 (pre-norm, GELU in its tanh form), Su et al. 2021 (rotary positions). It shares no code
with the model: only the names of the weights.
"""

from collections.abc import Mapping

import numpy as np

from tiny_transformer.config import ModelConfig

Weights = Mapping[str, np.ndarray]


def forward(
    config: ModelConfig,
    weights: Weights,
    target: np.ndarray,
    source: np.ndarray | None = None,
    source_lengths: list[int] | None = None,
) -> np.ndarray:
    """Logits (B, T, V), each row of the batch on its own: a row cannot see another, nor its own padding."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    rows = []
    for b, ids in enumerate(target):
        memory = None
        if source is not None and source_lengths is not None:
            memory = encode(config, w, source[b, : source_lengths[b]])
        rows.append(decode(config, w, ids, memory))
    return np.stack(rows)


def encode(config: ModelConfig, w: Weights, ids: np.ndarray) -> np.ndarray:
    """The encoder's output (S, D) for one source without padding."""
    x = embed(config, w, ids)
    everything = np.ones((len(ids), len(ids)), dtype=bool)
    for i in range(config.n_encoder_layers):
        layer = f"encoder.layers.{i}"
        x = self_attention(config, w, layer, x, everything)
        x = feed_forward(config, w, layer, x)
    return final_norm(config, w, "encoder", x)


def decode(config: ModelConfig, w: Weights, ids: np.ndarray, memory: np.ndarray | None) -> np.ndarray:
    """Logits (T, V) for one target."""
    x = embed(config, w, ids)
    past = np.array([[s <= t for s in range(len(ids))] for t in range(len(ids))])
    for i in range(config.n_decoder_layers):
        layer = f"decoder.layers.{i}"
        x = self_attention(config, w, layer, x, past)
        if memory is not None:
            x = cross_attention(config, w, layer, x, memory)
        x = feed_forward(config, w, layer, x)
    x = final_norm(config, w, "decoder", x)
    return x @ w["embedding.tokens.weight" if config.tie_embeddings else "embedding.output.weight"].T


def embed(config: ModelConfig, w: Weights, ids: np.ndarray) -> np.ndarray:
    x = w["embedding.tokens.weight"][ids]
    if config.scale_embeddings:
        x = x * np.sqrt(config.d_model)
    if config.positions == "learned":
        x = x + w["embedding.positions"][: len(ids)]
    if config.positions == "sinusoidal":
        x = x + np.array([sinusoid(position, config.d_model) for position in range(len(ids))])
    return x


def sinusoid(position: int, d_model: int) -> np.ndarray:
    """Section 3.5, one number at a time; the model keeps the table in float32."""
    row = np.empty(d_model)
    for i in range(0, d_model, 2):
        angle = position / 10_000 ** (i / d_model)
        row[i], row[i + 1] = np.float32(np.sin(angle)), np.float32(np.cos(angle))
    return row


def around(config: ModelConfig, w: Weights, name: str, x: np.ndarray, part) -> np.ndarray:
    """norm(x + f(x)) or x + f(norm(x)); without residual, the x in front goes."""
    if config.norm == "pre":
        fx = part(layer_norm(w, f"{name}.norm", x))
        return x + fx if config.residual else fx
    fx = part(x)
    return layer_norm(w, f"{name}.norm", x + fx if config.residual else fx)


def self_attention(config: ModelConfig, w: Weights, layer: str, x: np.ndarray, visible: np.ndarray) -> np.ndarray:
    d = config.d_model

    def part(x: np.ndarray) -> np.ndarray:
        name = f"{layer}.self_attention"
        matrix, bias = w[f"{name}.qkv.weight"], w.get(f"{name}.qkv.bias", np.zeros(3 * d))
        q, k, v = (x @ matrix[i * d : (i + 1) * d].T + bias[i * d : (i + 1) * d] for i in range(3))
        return linear(w, f"{name}.output", heads(config, q, k, v, visible, config.positions == "rotary"))

    return around(config, w, f"{layer}.around_attention", x, part)


def cross_attention(config: ModelConfig, w: Weights, layer: str, x: np.ndarray, memory: np.ndarray) -> np.ndarray:
    d = config.d_model

    def part(x: np.ndarray) -> np.ndarray:
        name = f"{layer}.cross_attention"
        matrix, bias = w[f"{name}.key_value.weight"], w.get(f"{name}.key_value.bias", np.zeros(2 * d))
        q = linear(w, f"{name}.query", x)
        k, v = (memory @ matrix[i * d : (i + 1) * d].T + bias[i * d : (i + 1) * d] for i in range(2))
        everything = np.ones((len(x), len(memory)), dtype=bool)
        return linear(w, f"{name}.output", heads(config, q, k, v, everything, rotary=False))

    return around(config, w, f"{layer}.around_cross", x, part)


def heads(
    config: ModelConfig, q: np.ndarray, k: np.ndarray, v: np.ndarray, visible: np.ndarray, rotary: bool
) -> np.ndarray:
    """Section 3.2: each head, each query, its softmax over the keys it may see."""
    out = np.zeros_like(q)
    width = config.d_model // config.n_heads
    for h in range(config.n_heads):
        own = slice(h * width, (h + 1) * width)
        query, key = (turn(x[:, own]) if rotary else x[:, own] for x in (q, k))
        for t in range(len(q)):
            seen = np.flatnonzero(visible[t])
            score = key[seen] @ query[t] / np.sqrt(width)
            weight = np.exp(score - score.max())
            out[t, own] = weight @ v[seen, own] / weight.sum()
    return out


def turn(x: np.ndarray) -> np.ndarray:
    """Su et al., eq. 13: each pair of dimensions is a complex number, turned by its position's angle."""
    half = x.shape[1] // 2
    frequency = 10_000.0 ** (-2 * np.arange(half) / x.shape[1])
    turned = np.empty_like(x)
    for position, row in enumerate(x):
        cosine, sine = np.cos(position * frequency), np.sin(position * frequency)
        circle = cosine.astype(np.float32) + 1j * sine.astype(np.float32)  # the model's table is float32
        z = (row[:half] + 1j * row[half:]) * circle.astype(np.complex128)
        turned[position] = np.concatenate([z.real, z.imag])
    return turned


def feed_forward(config: ModelConfig, w: Weights, layer: str, x: np.ndarray) -> np.ndarray:
    def part(x: np.ndarray) -> np.ndarray:
        inner = linear(w, f"{layer}.feed_forward.inner", x)
        if config.activation == "relu":
            inner = np.where(inner > 0, inner, 0)
        else:
            inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        return linear(w, f"{layer}.feed_forward.output", inner)

    return around(config, w, f"{layer}.around_feed_forward", x, part)


def final_norm(config: ModelConfig, w: Weights, stack: str, x: np.ndarray) -> np.ndarray:
    return layer_norm(w, f"{stack}.norm", x) if config.norm == "pre" else x


def layer_norm(w: Weights, name: str, x: np.ndarray) -> np.ndarray:
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * w[f"{name}.weight"] + w.get(f"{name}.bias", 0.0)


def linear(w: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)
