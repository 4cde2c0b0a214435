"""This project's JavaScript in headless Chromium: the modules, the runtime and the graphs that a visitor's tab has."""

from collections.abc import Sequence
from pathlib import Path

from tiny_transformer.backends.javascript import BROWSERS, JavaScriptBackend, engine
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import GenerationConfig

RUNTIME = "numpy"


def open_model(folder: Path, precision: str, threads: int, device: str) -> "Continued":
    """The folder in a page of its own."""
    program = engine(BROWSERS)
    assert program, "install Chromium"
    assert threads == 1, "a page has one thread"
    bundle = Bundle.open(folder)
    return Continued(JavaScriptBackend(bundle, "web", program), bundle.generation)


class Continued:
    """Ids in, ids out; the whole loop runs in the page."""

    def __init__(self, backend: JavaScriptBackend, generation: GenerationConfig) -> None:
        self.backend, self.generation = backend, generation

    def generate(self, rows: Sequence[Sequence[int]], n_new: int) -> list[list[int]]:
        """One row after the other."""
        return [self._continued(list(row), n_new) for row in rows]

    def _continued(self, row: list[int], n_new: int) -> list[int]:
        reads = self.generation.task == "translate"
        prefix, source = ([self.generation.bos_id], row) if reads else (row, None)
        return self.backend.continued(prefix, source, n_new)
