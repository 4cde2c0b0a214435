"""What is asked of generation at once: rows to continue, how, and when each must end."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiny_transformer.backends.base import Batch
from tiny_transformer.errors import InputError
from tiny_transformer.generation.options import GenerationOptions
from tiny_transformer.generation.tokens import FinishReason, Stopped


class HaltError(Exception):
    """The work was ended from another thread."""


@dataclass(frozen=True)
class Request:
    """Rows to continue: each row's prefix, its source where the model has an encoder, and how."""

    prefixes: Sequence[Sequence[int]]
    sources: Sequence[Sequence[int]] | None
    options: GenerationOptions
    eos_id: int
    pad_id: int
    stopped: Stopped | None = None
    rows: Sequence[int] | None = None  # which stream of random numbers each row draws from; by default 0, 1, …
    halt: threading.Event | None = None  # set by another thread that wants this work to end

    def __post_init__(self) -> None:
        if not self.prefixes:
            raise InputError("A batch needs at least one row; pass some text.")
        if self.sources is not None and len(self.sources) != len(self.prefixes):
            raise InputError(f"There are {len(self.sources)} sources for {len(self.prefixes)} prefixes; pair them up.")

    def share(self, numbers: Sequence[int], halt: threading.Event) -> "Request":
        """Some of the rows as a request of their own."""
        return replace(
            self,
            prefixes=[self.prefixes[i] for i in numbers],
            sources=None if self.sources is None else [self.sources[i] for i in numbers],
            rows=[i if self.rows is None else self.rows[i] for i in numbers],
            halt=halt,
        )

    def check_halt(self) -> None:
        """End here if another thread wants it."""
        if self.halt is not None and self.halt.is_set():
            raise HaltError

    def batches(self, numbers: Sequence[int]) -> tuple[Batch, Batch | None]:
        """Prefixes and sources of some rows, padded."""
        source = None if self.sources is None else Batch.of([self.sources[i] for i in numbers], self.pad_id)
        return Batch.of([self.prefixes[i] for i in numbers], self.pad_id), source

    def n_read(self, number: int) -> int:
        """Tokens the model reads before it writes this row."""
        return len(self.prefixes[number]) + (0 if self.sources is None else len(self.sources[number]))

    def limits(self, max_length: int) -> list[tuple[int, FinishReason]]:
        """For each row, how many tokens may come and why it would end there.

        The last token is never read again, so it may stand one place past the context.
        """
        wanted = self.options.max_new_tokens
        rooms = [max_length - len(prefix) + 1 for prefix in self.prefixes]
        return [(wanted, "length") if wanted <= room else (room, "context") for room in rooms]

    def capacity(self, max_length: int) -> int:
        """Places of cache the longest row can need."""
        limits = self.limits(max_length)
        return max(len(prefix) + limit - 1 for prefix, (limit, _) in zip(self.prefixes, limits, strict=True))


def finish_reason(request: Request, ids: Sequence[int], limit: tuple[int, FinishReason]) -> FinishReason | None:
    """Why a row ends with the newest of its ids, if it does."""
    if ids[-1] == request.eos_id:
        return "eos"
    if request.stopped is not None and request.stopped(ids):
        return "stop"
    return limit[1] if len(ids) >= limit[0] else None
