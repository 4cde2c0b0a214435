"""Making text with a model: written once, in numpy, over the backend protocol."""

from tiny_transformer.generation.batching import Cancelled, Request
from tiny_transformer.generation.options import GenerationOptions
from tiny_transformer.generation.stream import generate_ids, stream_ids
from tiny_transformer.generation.tokens import FinishReason, Generated, GeneratedToken

__all__ = [
    "Cancelled",
    "FinishReason",
    "Generated",
    "GeneratedToken",
    "GenerationOptions",
    "Request",
    "generate_ids",
    "stream_ids",
]
