"""The engines that are compared: each module opens a model folder of its own kind behind the same small interface."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol


class Engine(Protocol):
    """A loaded model that continues rows of ids by a fixed number of tokens, always choosing the likeliest."""

    def generate(self, rows: Sequence[Sequence[int]], n_new: int) -> list[list[int]]:
        """The new ids of each row."""
        ...


@dataclass(frozen=True)
class Entry:
    """One way to run a model: whose, and in which precision."""

    module: str  # in this package
    precision: str
    architectures: tuple[str, ...] = ("encoder-decoder", "decoder-only")
    ours: bool = False
    graphs: bool = False  # whether it runs our ONNX graphs

    @property
    def code(self) -> Any:
        """Its module: `RUNTIME`, `convert` and `open_model`."""
        return import_module(f"{__name__}.{self.module}")


ENTRIES = {
    "onnx": Entry("tiny_transformer_onnx", "float32", ours=True, graphs=True),
    "onnx-int8": Entry("tiny_transformer_onnx", "int8", ours=True, graphs=True),
    "eager": Entry("tiny_transformer_eager", "float32", ours=True),
    "eager-bfloat16": Entry("tiny_transformer_eager", "bfloat16", ours=True),
    "ctranslate2": Entry("ctranslate2", "float32"),
    "ctranslate2-int8": Entry("ctranslate2", "int8"),
    "transformers": Entry("transformers", "float32"),
    "transformers-bfloat16": Entry("transformers", "bfloat16"),
    "optimum": Entry("optimum", "float32"),
    "web": Entry("tiny_transformer_web", "float32", ours=True, graphs=True),
    "transformers-js": Entry("transformers_js", "float32"),
    "genai": Entry("onnxruntime_genai", "float32", ("decoder-only",), graphs=True),
    "genai-int8": Entry("onnxruntime_genai", "int8", ("decoder-only",), graphs=True),
}
