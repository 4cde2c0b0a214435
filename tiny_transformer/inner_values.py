"""What can be looked at inside a model, by name, and which of its parts can be switched off.

The graph `inside.onnx` has these names as its outputs and inputs, and hooks on the PyTorch model give the same values.
A switch is True where a part runs. A head that is off passes on zeros; a layer that is off passes on what it got.

Shapes: L layers, B batch, H heads, T target, S source, K head width, D model width, F inner width of the feed-forward,
N positions of the target whose tokens are wanted, V tokens that can be written.
"""

from collections.abc import Iterable

import numpy as np

from tiny_transformer.config import ModelConfig

Shape = tuple[str | int, ...]  # a word for each size that varies
LENS = "lens_logits"  # the stream after the embedding and after each layer, read by the output layer: L+1 B N V
LENS_POSITIONS = "lens_positions"
LOGITS = "logits"  # the last of them alone: B N V


def stacks_of(config: ModelConfig) -> dict[str, tuple[int, str]]:
    """Name of a stack → its layers, and the length that it works on."""
    stacks = {"decoder": (config.n_decoder_layers, "target")}
    return stacks | ({"encoder": (config.n_encoder_layers, "source")} if config.is_encoder_decoder else {})


def attentions_of(config: ModelConfig) -> dict[str, tuple[int, str, str]]:
    """Kind of attention → its layers, the length of its queries and that of its keys."""
    kinds = {kind: (n_layers, length, length) for kind, (n_layers, length) in stacks_of(config).items()}
    return kinds | ({"cross": (config.n_decoder_layers, "target", "source")} if config.is_encoder_decoder else {})


def value_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Every value that can be looked at, and its shape."""
    heads, width = config.n_heads, config.d_head
    found: dict[str, Shape] = {}
    for kind, (n, queries, keys) in attentions_of(config).items():
        found[f"{kind}_queries"] = (n, "batch", heads, queries, width)  # with rotary positions, already turned
        found[f"{kind}_keys"] = found[f"{kind}_values"] = (n, "batch", heads, keys, width)
        found[f"{kind}_scores"] = (n, "batch", heads, queries, keys)  # q·k / √K, before the mask
        found[f"{kind}_attentions"] = (n, "batch", heads, queries, keys)  # after mask and softmax
        found[f"{kind}_mixed"] = (n, "batch", heads, queries, width)  # the weighted sums, as the heads pass them on
        found[f"{kind}_output"] = (n, "batch", queries, config.d_model)  # what attention adds to the stream
    for stack, (n, length) in stacks_of(config).items():
        found[f"{stack}_stream"] = (n + 1, "batch", length, config.d_model)  # the embedding, then after each layer
        found[f"{stack}_inner"] = (n, "batch", length, config.d_ff)  # the feed-forward's, after its activation
        found[f"{stack}_feed_forward"] = (n, "batch", length, config.d_model)
    found[LENS] = (config.n_decoder_layers + 1, "batch", "shown", config.n_outputs)
    found[LOGITS] = ("batch", "shown", config.n_outputs)
    return found


def switch_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every set of switches: the heads of each kind of attention, and the layers of each stack."""
    heads = {f"{kind}_heads": (n, config.n_heads) for kind, (n, _, _) in attentions_of(config).items()}
    return heads | {f"{stack}_layers": (n,) for stack, (n, _) in stacks_of(config).items()}


def switches_without(
    config: ModelConfig, heads: Iterable[tuple[str, int, int]] = (), layers: Iterable[tuple[str, int]] = ()
) -> dict[str, np.ndarray]:
    """Everything on but the named heads (kind, layer, head) and layers (stack, layer), counted from 0."""
    switches = {name: np.ones(shape, dtype=np.bool_) for name, shape in switch_shapes(config).items()}
    for kind, layer, head in heads:
        switches[f"{kind}_heads"][layer, head] = False
    for stack, layer in layers:
        switches[f"{stack}_layers"][layer] = False
    return switches
