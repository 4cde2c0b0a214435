"""The weights of every layer and head, read out while the model runs its ordinary path.

Shapes: L layers, B batch, H heads, S source, T target.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tiny_transformer.model.attention import (
    AttentionContext,
    CrossAttention,
    LayerMemory,
    SelfAttention,
    plain_attention,
)
from tiny_transformer.model.transformer import DecoderOnly, EncoderDecoder


class AttentionMaps(NamedTuple):
    """Attention weights; each row sums to 1. A decoder-only model has the second alone."""

    encoder: Tensor | None  # L B H S S
    decoder: Tensor  # L B H T T
    cross: Tensor | None  # L B H T S


@torch.no_grad()
def attention_maps(
    model: DecoderOnly | EncoderDecoder,
    target: Tensor,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
) -> AttentionMaps:
    """Run the model once and keep the weights its attention parts use."""
    found: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}

    def watch(stack: str, module: SelfAttention | CrossAttention) -> RemovableHandle:
        def keep_self(module: SelfAttention, args: tuple[Tensor, AttentionContext], _: object) -> None:
            x, context = args
            causal = module.causal and context.mask is None
            found[stack].append(plain_attention(*module.project(x, context.rotation), context.mask, causal)[1])

        def keep_cross(module: CrossAttention, args: tuple[Tensor, LayerMemory], _: object) -> None:
            x, memory = args
            found["cross"].append(plain_attention(module.project(x), *memory, False)[1])

        return module.register_forward_hook(keep_self if isinstance(module, SelfAttention) else keep_cross)

    hooks = [
        watch(name.split(".")[0], module)
        for name, module in model.named_modules()
        if isinstance(module, SelfAttention | CrossAttention)
    ]
    try:
        _run(model, target, source, source_mask)
    finally:
        for hook in hooks:
            hook.remove()
    return AttentionMaps(
        encoder=torch.stack(found["encoder"]) if found["encoder"] else None,
        decoder=torch.stack(found["decoder"]),
        cross=torch.stack(found["cross"]) if found["cross"] else None,
    )


def _run(model: nn.Module, target: Tensor, source: Tensor | None, source_mask: Tensor | None) -> None:
    if not isinstance(model, EncoderDecoder):
        model(target)
        return
    if source is None:
        raise ValueError("An encoder-decoder model needs a source.")
    model(source, torch.ones_like(source, dtype=torch.bool) if source_mask is None else source_mask, target)
