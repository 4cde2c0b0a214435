"""The Transformer in PyTorch, one file per part; scriptable, and independent of how it is exported."""

from tiny_transformer.model.attention_maps import AttentionMaps, attention_maps
from tiny_transformer.model.loading import load_model, load_weights, weights_of
from tiny_transformer.model.transformer import DecoderOnly, EncoderDecoder, Memory, build_model

__all__ = [
    "AttentionMaps",
    "DecoderOnly",
    "EncoderDecoder",
    "Memory",
    "attention_maps",
    "build_model",
    "load_model",
    "load_weights",
    "weights_of",
]
