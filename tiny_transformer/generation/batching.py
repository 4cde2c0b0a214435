"""The rows that run at once: texts wait their turn, start in groups, and leave as they end (continuous batching)."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tiny_transformer.backends.base import Backend, Batch, State, check_inputs
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
            raise InputError(
                "There are {n} sources for {n_2} prefixes; pair them up.", n=len(self.sources), n_2=len(self.prefixes)
            )

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


GROUP = 4  # a new group starts when this part of the room is free: reading a few texts together costs less
READ_AT_ONCE = 8_192  # tokens, padding among them: a backend may hold the whole vocabulary's scores of each


class Running:
    """A backend's state and newest logits, for some of a request's texts; the others wait."""

    def __init__(self, backend: Backend, request: Request, rows_a_text: int = 1) -> None:
        check_inputs(backend.config, *request.batches(range(len(request.prefixes))))  # before any of them runs
        self.logits = np.empty((0, backend.config.vocab_size), dtype=np.float32)  # R V; valid until the next step
        self._backend = backend
        self._request = request
        self._room = max(1, backend.max_rows // rows_a_text)  # in texts
        self._capacity = request.capacity(backend.config.max_length)
        # Taken from the end, the longest first: those that still run when no one waits are then the short ones.
        self._waiting = sorted(range(len(request.prefixes)), key=lambda i: (request.n_read(i), -i))
        self._state: State = None

    def fill(self, n_running: int) -> list[int]:
        """Start texts that wait, one row each behind the others, if there is room for a group; their numbers."""
        if not self._waiting:
            return []
        self._request.check_halt()
        free = self._room - n_running
        if n_running and free < max(1, self._room // GROUP):
            return []
        longest = self._request.n_read(self._waiting[-1])
        n_new = min(free, len(self._waiting), max(1, READ_AT_ONCE // longest))
        group = [self._waiting.pop() for _ in range(n_new)]
        prefix, source = self._request.batches(group)
        logits, state = self._backend.start(prefix, source, self._capacity)
        if n_running:
            self.logits = np.concatenate((self.logits, logits))
            self._state = self._backend.join(self._state, state)
        else:
            self.logits, self._state = logits, state
        return group

    def keep(self, rows: np.ndarray) -> None:
        """Go on with row rows[i] as row i; with none, the state is let go."""
        self._state = self._backend.reorder(self._state, rows) if rows.size else None

    def step(self, ids: Sequence[int]) -> None:
        """Add a token to every row."""
        self._request.check_halt()
        self.logits, self._state = self._backend.step(np.array([[i] for i in ids]), self._state)


def compacted(alive: np.ndarray) -> np.ndarray:
    """Indices of the live rows, the last of them moved into the holes: few rows change their place."""
    n_alive = int(alive.sum())
    kept = np.arange(n_alive)
    kept[~alive[:n_alive]] = n_alive + np.flatnonzero(alive[n_alive:])
    return kept
