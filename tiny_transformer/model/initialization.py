"""Starting weights: every part's output has about the variance of its input."""

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from tiny_transformer.config import ModelConfig


def initialize(model: nn.Module, config: "ModelConfig", generator: torch.Generator | None = None) -> None:
    """Fill every parameter in place.

    Projections that write into the residual stream (`*.output`) are scaled by 1/√n, n the number of
    such writes in a stack, so that the stream's variance doesn't grow with depth (GPT-2, section 2.3).
    """
    writes = {"encoder": 2 * config.n_encoder_layers, "decoder": (3 if config.is_encoder_decoder else 2)}
    writes["decoder"] *= config.n_decoder_layers
    # With √D in front, rows of variance 1/D arrive as unit variance and give unit logits when tied.
    embedding_std = config.d_model**-0.5 if config.scale_embeddings else 0.02
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "norm" in name.split("."):
            nn.init.ones_(parameter)
        elif name.startswith("embedding."):
            nn.init.normal_(parameter, std=embedding_std, generator=generator)
        else:
            fan_out, fan_in = parameter.shape
            scale = writes[name.split(".")[0]] ** -0.5 if name.endswith("output.weight") else 1.0
            std = scale * math.sqrt(2.0 / (fan_in + _one_projection(name, fan_out)))
            nn.init.normal_(parameter, std=std, generator=generator)


def _one_projection(name: str, fan_out: int) -> int:
    """Rows of one projection where several are stacked in a single matrix."""
    if name.endswith("qkv.weight"):
        return fan_out // 3
    if name.endswith("key_value.weight"):
        return fan_out // 2
    return fan_out
