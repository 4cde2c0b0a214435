"""This project's PyTorch path, on the CPU or on CUDA."""

from pathlib import Path

from .tiny_transformer_onnx import Ids

RUNTIME = "torch"


def open_model(folder: Path, precision: str, threads: int, device: str) -> Ids:
    """The folder's weights in the plain model."""
    from tiny_transformer.backends import open_precise
    from tiny_transformer.backends.eager import set_threads
    from tiny_transformer.bundle import Bundle
    from tiny_transformer.text_model import TextModel

    set_threads(threads)
    bundle = Bundle.open(folder)
    return Ids(TextModel(bundle, open_precise(bundle, device, precision)))
