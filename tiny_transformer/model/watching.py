"""The inner values of a PyTorch model, taken by hooks while it runs its ordinary path; parts can be switched off.

Names and shapes are those of `tiny_transformer.inner_values`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tiny_transformer.inner_values import LENS, LOGITS
from tiny_transformer.model.attention import CrossAttention, SelfAttention, plain_attention, split_heads

Found = dict[str, list[Tensor]]


@torch.no_grad()
def inner_values(
    model: Any,
    target: Tensor,
    shown: Tensor,
    switches: Mapping[str, np.ndarray],
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
) -> dict[str, Tensor]:
    """Every value of one pass over a whole target (B T); `shown` are the positions of which logits are wanted."""
    found: Found = defaultdict(list)
    hooks: list[Any] = []
    for stack in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(model, stack).layers if hasattr(model, stack) else ()):
            hooks += _watch_layer(layer, stack, bool(switches[f"{stack}_layers"][i]), found)
            hooks += _watch_attention(layer.self_attention, stack, switches[f"{stack}_heads"][i], found)
            if hasattr(layer, "cross_attention"):
                hooks += _watch_attention(layer.cross_attention, "cross", switches["cross_heads"][i], found)
    try:
        if source is None:
            model(target)
        else:
            model(source, torch.ones_like(source).bool() if source_mask is None else source_mask, target)
    finally:
        for hook in hooks:
            hook.remove()
    found[LENS] = [model.embedding.scores(model.decoder.norm(x[:, shown])) for x in found["decoder_stream"]]
    values = {name: torch.stack(tensors) for name, tensors in found.items()}
    return values | {LOGITS: values[LENS][-1]}


def _watch_layer(layer: Any, stack: str, on: bool, found: Found) -> list[Any]:
    """The stream, and what the feed-forward makes of it."""

    def keep_stream(module: nn.Module, args: tuple[Tensor, ...], result: Tensor) -> Tensor:
        passed = result if on else args[0]
        if not found[f"{stack}_stream"]:
            found[f"{stack}_stream"].append(args[0])
        found[f"{stack}_stream"].append(passed)
        return passed

    def keep_inner(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        found[f"{stack}_inner"].append(args[0])

    return [
        layer.register_forward_hook(keep_stream),
        layer.feed_forward.register_forward_hook(_keeper(found, f"{stack}_feed_forward")),
        layer.feed_forward.output.register_forward_pre_hook(keep_inner),
    ]


def _watch_attention(
    attention: SelfAttention | CrossAttention, kind: str, heads_on: np.ndarray, found: Found
) -> list[Any]:
    """The steps of one attention; heads that are off are zeroed on the way to its output layer."""

    def keep_steps(module: Any, args: tuple[Tensor, Any], result: Tensor) -> None:
        x, context = args
        if isinstance(module, CrossAttention):
            query, key, value = module.project(x), context.key, context.value
            causal = False
        else:
            query, key, value = module.project(x, context.rotation)
            causal = module.causal and context.mask is None
        found[f"{kind}_queries"].append(query)
        found[f"{kind}_keys"].append(key)
        found[f"{kind}_values"].append(value)
        found[f"{kind}_scores"].append(query @ key.transpose(-2, -1) / math.sqrt(query.size(-1)))
        found[f"{kind}_attentions"].append(plain_attention(query, key, value, context.mask, causal)[1])
        found[f"{kind}_output"].append(result)

    def zero_heads(module: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        mixed = split_heads(args[0], len(heads_on)).clone()  # B H T K
        mixed[:, torch.from_numpy(~heads_on)] = 0.0
        found[f"{kind}_mixed"].append(mixed)
        return mixed.transpose(1, 2).reshape(args[0].shape)

    return [attention.register_forward_hook(keep_steps), attention.output.register_forward_pre_hook(zero_heads)]


def _keeper(found: Found, name: str) -> Callable[..., None]:
    def keep(module: nn.Module, args: tuple[Tensor, ...], result: Tensor) -> None:
        found[name].append(result)

    return keep
