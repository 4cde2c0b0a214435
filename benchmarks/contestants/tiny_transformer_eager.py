"""This project's PyTorch path, on the CPU or on CUDA."""

from pathlib import Path

from .tiny_transformer_onnx import Ids

RUNTIME = "torch"


def open_model(folder: Path, precision: str, threads: int, device: str) -> Ids:
    """The folder's weights in the plain model."""
    import tiny_transformer as tt

    return Ids(tt.load(folder, backend="eager", device=device, threads=threads))
