"""A Space on ZeroGPU: CUDA is there only inside a function to which the package `spaces` lends a GPU.

Such a function runs in a process of its own, so what goes in and comes out is pickled, and the model it opens stays
there as long as that process lives.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

from tiny_transformer.errors import TinyTransformerError
from tiny_transformer.tokenizer import Message
from tiny_transformer.ui.answer import Answer
from tiny_transformer.ui.settings import Settings
from tiny_transformer.ui.shelf import Shelf

SECONDS_TO_OPEN = 10  # a new process opens its model before it answers
ON_GPU = "eager"  # the one backend that runs on CUDA


def open_shelf(settings: Settings) -> Shelf:
    """The page's models, as the machine that serves it can run them."""
    shelf = LendingShelf if on_zero_gpu() else Shelf
    return shelf(settings.models, settings.backend, settings.threads)


def on_zero_gpu() -> bool:
    """Whether this is a Space whose GPU comes and goes; ZeroGPU itself says so."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


class LendingShelf(Shelf):
    """Models whose eager backend answers on a GPU lent for that answer; all else runs on this process's CPU."""

    def __init__(self, folders: Sequence[str], backend: str = "auto", threads: int | None = 1) -> None:
        import spaces  # ahead of torch: from here on this process must not touch the driver

        super().__init__(folders, ON_GPU if backend == "auto" else backend, threads, device="cpu")
        there = Shelf(folders, ON_GPU, threads, device="cuda")  # opens nothing before a GPU is there

        def lent(
            name: str, content: str | Sequence[Message], options: dict[str, Any], seconds: float
        ) -> Generator[Answer | TinyTransformerError]:
            try:
                yield from there.answers(name, ON_GPU, content, options, seconds)
            except TinyTransformerError as error:  # raised there, only its type would come back
                yield error

        def duration(name: str, content: object, options: dict[str, Any], seconds: float) -> int:
            return SECONDS_TO_OPEN + int(seconds)

        self._lent = spaces.GPU(duration=duration)(lent)

    def answers(
        self, name: str, backend: str, content: str | Sequence[Message], options: dict[str, Any], seconds: float
    ) -> Generator[Answer]:
        """On the GPU if the visitor's wish comes down to eager."""
        if self.chosen(name, backend) != ON_GPU:
            return super().answers(name, backend, content, options, seconds)
        return self._borrowed(name, content, options, seconds)

    def _borrowed(self, *asked: Any) -> Generator[Answer]:
        with closing(self._lent(*asked)) as states:
            for state in states:
                if isinstance(state, TinyTransformerError):
                    raise state
                yield state
