"""The rows that run at once: texts wait their turn, start in groups, and leave as they end (continuous batching)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from tiny_transformer.backends.base import Backend, Batch, Ranker, State, check_inputs
from tiny_transformer.config import GenerationConfig
from tiny_transformer.errors import InputError
from tiny_transformer.generation.options import GenerationOptions
from tiny_transformer.generation.prompt import Prompt
from tiny_transformer.generation.sampling import check_finite, rank_rows
from tiny_transformer.generation.tokens import FinishReason, Stopped

GROUP_SHARE = 4  # new texts start when 1/4 of the rows are free: reading several texts together costs less per text
SMALL_GROUP = 8  # texts; larger groups are read in parts of 1/4 of the rows, each padded to its own longest text alone
READ_AT_ONCE = 8_192  # tokens, padding included: a backend may hold the scores of the whole vocabulary for each

ShouldStop = Callable[[], bool]


class Cancelled(Exception):  # noqa: N818 - no error: the caller asked for it
    """The caller's `should_stop` said that the work is not wanted any more."""


@dataclass(frozen=True)
class Request:
    """Texts to continue: each text's prefix, its source where the model has an encoder, and how."""

    prefixes: Sequence[Sequence[int]]
    sources: Sequence[Sequence[int]] | None
    options: GenerationOptions
    eos_id: int
    pad_id: int
    stopped: Stopped | None = None  # whether a text's new ids complete a stop string
    streams: Sequence[int] | None = None  # which stream of random numbers each text draws from; by default 0, 1, …
    should_stop: ShouldStop | None = None  # asked before every step, from the thread that makes the step
    in_parallel: bool = True  # whether the backend may share the texts among threads

    def __post_init__(self) -> None:
        if not self.prefixes:
            raise InputError("A batch needs at least one row; pass some text.")
        if self.sources is not None and len(self.sources) != len(self.prefixes):
            template = "There are {n_sources} sources for {n_targets} targets; pair them up."
            raise InputError(template, n_sources=len(self.sources), n_targets=len(self.prefixes))

    @classmethod
    def of(
        cls,
        prompts: Sequence[Prompt],
        options: GenerationOptions,
        generation: GenerationConfig,
        *,
        stopped: Stopped | None = None,
        streams: Sequence[int] | None = None,
        should_stop: ShouldStop | None = None,
    ) -> Self:
        """A request for prompts of one model."""
        prefixes = [prompt.prefix for prompt in prompts]
        sources = [prompt.source for prompt in prompts if prompt.source is not None] or None
        return cls(prefixes, sources, options, generation.eos_id, generation.pad_id, stopped, streams, should_stop)

    def share(self, numbers: Sequence[int], should_stop: ShouldStop) -> "Request":
        """Some of the texts as a request of their own, for one thread."""
        return replace(
            self,
            prefixes=[self.prefixes[i] for i in numbers],
            sources=None if self.sources is None else [self.sources[i] for i in numbers],
            streams=[i if self.streams is None else self.streams[i] for i in numbers],
            should_stop=should_stop,
            in_parallel=False,
        )

    def check_cancelled(self) -> None:
        """End here if the caller wants it."""
        if self.should_stop is not None and self.should_stop():
            raise Cancelled

    def batches(self, numbers: Sequence[int]) -> tuple[Batch, Batch | None]:
        """Prefixes and sources of some texts, padded."""
        source = None if self.sources is None else Batch.of([self.sources[i] for i in numbers], self.pad_id)
        return Batch.of([self.prefixes[i] for i in numbers], self.pad_id), source

    def n_read(self, number: int) -> int:
        """Tokens the model reads before it writes this text."""
        return len(self.prefixes[number]) + (0 if self.sources is None else len(self.sources[number]))

    def limits(self, max_length: int) -> list[tuple[int, FinishReason]]:
        """For each text, how many tokens may come and why it would end there.

        The last token is never read again, so it may stand one position past the context.
        """
        wanted = self.options.max_new_tokens
        rooms = [max_length - len(prefix) + 1 for prefix in self.prefixes]
        return [(wanted, "length") if wanted <= room else (room, "context") for room in rooms]

    def capacity(self, max_length: int) -> int:
        """Cache slots the longest text can need."""
        limits = self.limits(max_length)
        return max(len(prefix) + limit - 1 for prefix, (limit, _) in zip(self.prefixes, limits, strict=True))

    def finish_reason(self, ids: Sequence[int], limit: tuple[int, FinishReason]) -> FinishReason | None:
        """Why a text ends with the newest of its ids, if it does."""
        if ids[-1] == self.eos_id:
            return "eos"
        if self.stopped is not None and self.stopped(ids):
            return "stop"
        return limit[1] if len(ids) >= limit[0] else None


class RunningBatch:
    """A backend's state and newest logits, for some of a request's texts; the others wait."""

    def __init__(self, backend: Backend, request: Request, rows_per_text: int = 1) -> None:
        check_inputs(backend.config, *request.batches(range(len(request.prefixes))))  # before any of them runs
        self.logits = np.empty((0, backend.config.n_outputs), dtype=np.float32)  # R V; valid until the next step
        self._backend = backend
        self._ranker = backend if isinstance(backend, Ranker) else None
        self._request = request
        self._max_texts = max(1, backend.max_rows // rows_per_text)
        self._capacity = request.capacity(backend.config.max_length)
        # Taken from the end, the longest first: those that still run when none waits are then the short ones.
        self._waiting = sorted(range(len(request.prefixes)), key=lambda i: (request.n_read(i), -i))
        self._state: State = None

    def fill(self, n_running: int) -> list[int]:
        """Start waiting texts, one row each behind the others, while there is room for a group; their numbers."""
        started: list[int] = []
        share = self._max_texts // GROUP_SHARE
        while self._waiting and (free := self._max_texts - n_running - len(started)) >= max(1, share):
            self._request.check_cancelled()
            n_new = min(free, len(self._waiting))
            n_parts = math.ceil(n_new / max(share, SMALL_GROUP))
            longest = self._request.n_read(self._waiting[-1])
            n_new = min(math.ceil(n_new / n_parts), max(1, READ_AT_ONCE // longest))
            group = [self._waiting.pop() for _ in range(n_new)]
            prefix, source = self._request.batches(group)
            logits, state = self._backend.start(prefix, source, self._capacity)
            if n_running or started:
                self.logits = np.concatenate((self.logits, logits))
                self._state = self._backend.join(self._state, state)
            else:
                self.logits, self._state = logits, state
            started += group
        return started

    def keep(self, rows: np.ndarray) -> None:
        """Go on with row rows[i] as row i; with none, the state is dropped."""
        self._state = self._backend.reorder(self._state, rows) if rows.size else None

    def rank(self, logits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids (R, k) of each row's k highest logits (R V), best first, the lower id of equals; and log Σ exp (R,)."""
        check_finite(logits.max(axis=-1).tolist())
        return rank_rows(logits, k) if self._ranker is None else self._ranker.rank(logits, k)

    def step(self, ids: Sequence[int]) -> None:
        """Add a token to every row."""
        self._request.check_cancelled()
        self.logits, self._state = self._backend.step(np.array([[i] for i in ids]), self._state)


def compacted(alive: np.ndarray) -> np.ndarray:
    """Indices of the live rows, the last of them moved into the holes, so that few rows move."""
    n_alive = int(alive.sum())
    kept = np.arange(n_alive)
    kept[~alive[:n_alive]] = n_alive + np.flatnonzero(alive[n_alive:])
    return kept
