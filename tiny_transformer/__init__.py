"""Tiny Transformer: train, export, prove equal and serve a small Transformer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiny_transformer.bundle import Bundle
    from tiny_transformer.config import GenerationConfig, ModelConfig
    from tiny_transformer.errors import TinyTransformerError
    from tiny_transformer.generation import GenerationOptions
    from tiny_transformer.text_model import TextModel, load

__version__ = "0.1.0"
__all__ = [
    "Bundle",
    "GenerationConfig",
    "GenerationOptions",
    "ModelConfig",
    "TextModel",
    "TinyTransformerError",
    "__version__",
    "load",
]

_HOMES = {
    "Bundle": "bundle",
    "GenerationConfig": "config",
    "GenerationOptions": "generation",
    "ModelConfig": "config",
    "TextModel": "text_model",
    "TinyTransformerError": "errors",
    "load": "text_model",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that importing the package costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
