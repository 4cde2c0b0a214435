"""This project's ONNX path, through its public interface."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

RUNTIME = "onnxruntime"
BACKENDS = {"float32": "onnx", "int8": "onnx-int8"}


def open_model(folder: Path, precision: str, threads: int, device: str) -> "Ids":
    """The folder's graphs."""
    import tiny_transformer as tt

    return Ids(tt.load(folder, backend=BACKENDS[precision], threads=threads))


class Ids:
    """Ids in, ids out."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def generate(self, rows: Sequence[Sequence[int]], n_new: int) -> list[list[int]]:
        """Without log-probabilities, which no peer computes either."""
        found = self.model.generate_ids(rows, min_new_tokens=n_new, max_new_tokens=n_new, logprobs=False)
        return [row.ids for row in found]

    def search(self, rows: Sequence[Sequence[int]], beams: int) -> list[list[int]]:
        """Each text to its own end; a beam ranks by log-probabilities, greedy search needs none."""
        found = self.model.generate_ids(rows, num_beams=beams, logprobs=beams > 1, length_penalty=1.0)
        return [row.ids for row in found]
