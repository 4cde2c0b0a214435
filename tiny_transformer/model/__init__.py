"""The Transformer in PyTorch, one part a file; scriptable, and ignorant of how it is exported."""

from tiny_transformer.model.attention_maps import AttentionMaps, attention_maps
from tiny_transformer.model.loading import load_model, load_weights, weights_of
from tiny_transformer.model.parameters import count_parameters, optimizer_groups
from tiny_transformer.model.transformer import DecoderOnly, EncoderDecoder, Memory, build_model

__all__ = [
    "AttentionMaps",
    "DecoderOnly",
    "EncoderDecoder",
    "Memory",
    "attention_maps",
    "build_model",
    "count_parameters",
    "load_model",
    "load_weights",
    "optimizer_groups",
    "weights_of",
]
