"""The protocol between generation and whatever runs the model: numpy at the boundary.

Shapes: B batch, T new or target tokens, S source, V vocabulary, L layers, H heads.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from tiny_transformer.backends.observed_values import Keep
from tiny_transformer.checks import check_whole
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import InputError

# Opaque to everyone but the backend that made it. Handed to `step`, `reorder` or `join` it is consumed:
# buffers are written in place, so the old state must not be used again.
State = Any


@dataclass(frozen=True)
class Batch:
    """Rows of ids of different lengths, padded on the right."""

    ids: np.ndarray  # (B, T) int64
    lengths: np.ndarray  # (B,) int64, each at least 1

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], pad_id: int = 0) -> "Batch":
        """Pad rows to the longest."""
        if not rows or not all(len(row) for row in rows):
            raise InputError("A batch needs at least one row and every row at least one token; pass some text.")
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        ids = np.full((len(rows), int(lengths.max())), pad_id, dtype=np.int64)
        for row, tokens in zip(ids, rows, strict=True):
            row[: len(tokens)] = tokens
        return cls(ids, lengths)

    @property
    def mask(self) -> np.ndarray:
        """(B, T) bool, True at real tokens."""
        return np.arange(self.ids.shape[1]) < self.lengths[:, None]

    @property
    def rows(self) -> list[list[int]]:
        """The ids of each row without its padding."""
        return [ids[:length].tolist() for ids, length in zip(self.ids, self.lengths, strict=True)]

    def check(self, config: ModelConfig, what: str) -> None:
        """Refuse what the model cannot read: ids outside the vocabulary, too long a row, no rows."""
        if self.ids.ndim != 2 or 0 in self.ids.shape or self.lengths.shape != (self.ids.shape[0],):
            template = "The {what} must be rows of at least one token; got an array of shape {shape}."
            raise InputError(template, what=what, shape=self.ids.shape)
        if self.ids.shape[1] > config.max_length:
            template = "The {what} has {n} tokens, more than the model's max_length {size}; shorten it."
            raise InputError(template, what=what, n=self.ids.shape[1], size=config.max_length)
        if self.lengths.min() < 1 or self.lengths.max() > self.ids.shape[1]:
            template = "The {what}'s lengths must lie from 1 to {size}; correct them."
            raise InputError(template, what=what, size=self.ids.shape[1])
        _check_vocabulary(what, int(self.ids.min()), int(self.ids.max()), config.vocab_size)


def check_inputs(config: ModelConfig, target: Batch, source: Batch | None) -> None:
    """Refuse a target and source the model cannot read, or that do not belong together."""
    target.check(config, "target")
    if config.is_encoder_decoder != (source is not None):
        template = (
            "The model is {architecture} and needs a source; correct the call."
            if source is None
            else "The model is {architecture} and takes no source; correct the call."
        )
        raise InputError(template, architecture=config.architecture)
    if source is not None:
        source.check(config, "source")
        if len(source.ids) != len(target.ids):
            template = "There are {n_sources} sources for {n_targets} targets; pair them up."
            raise InputError(template, n_sources=len(source.ids), n_targets=len(target.ids))


def check_capacity(config: ModelConfig, prefix: Batch, capacity: int) -> None:
    """Refuse a cache that is too small for a prefix, or larger than the model's context."""
    n_new = prefix.ids.shape[1]
    if not n_new <= capacity <= config.max_length:
        template = "capacity is {capacity}; choose from {low} to {high}."
        raise InputError(template, capacity=capacity, low=n_new, high=config.max_length)


def check_slots(capacity: int, needed: int) -> None:
    """Refuse a step for which the cache has no slots left."""
    if needed > capacity:
        template = "The cache has {capacity} slots and {needed} are needed; ask for more."
        raise InputError(template, capacity=capacity, needed=needed)


def check_step(config: ModelConfig, ids: np.ndarray, n_rows: int) -> None:
    """Refuse new tokens (B, T) that do not fit a state of `n_rows` rows, or are not of the vocabulary."""
    if ids.ndim != 2 or len(ids) != n_rows or 0 in ids.shape or min(ids.shape) > 1:
        template = "A step of shape {shape} does not fit a state of {n} rows; correct it."
        raise InputError(template, shape=ids.shape, n=n_rows)
    rows = ids.tolist()  # for a few numbers, Python is faster than numpy
    _check_vocabulary("step", min(map(min, rows)), max(map(max, rows)), config.vocab_size)


def _check_vocabulary(what: str, low: int, high: int, size: int) -> None:
    if low < 0 or high >= size:
        template = "The {what} holds the id {id}, outside the vocabulary of {size}; check the tokenizer."
        raise InputError(template, what=what, id=low if low < 0 else high, size=size)


def check_threads(threads: int | None) -> None:
    """Refuse what is no number of threads; None leaves the choice to the backend."""
    if threads is not None:
        check_whole("threads", threads, 1, 1024, InputError)


MAX_THREADS = 4


def cores() -> int:
    """How many threads pay: the cores that this process may use, and never more than a few for models of this size."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(found, MAX_THREADS)


@dataclass(frozen=True)
class Tolerance:
    """|candidate - reference| ≤ absolute + relative × |reference|."""

    absolute: float
    relative: float


EXACT = Tolerance(0.0, 0.0)
CLOSE = Tolerance(1e-4, 1e-4)  # float32 on a CPU: measured differences are 2e-6 to 5e-5


@dataclass(frozen=True)
class AttentionArrays:
    """Attention weights of every layer and head; a decoder-only model has `decoder` alone."""

    encoder: np.ndarray | None  # (L, B, H, S, S)
    decoder: np.ndarray  # (L, B, H, T, T)
    cross: np.ndarray | None  # (L, B, H, T, S)


class Backend(Protocol):
    """One way to run a model. Everything above it is written once, for all backends.

    `source` is given for an encoder-decoder model and None for a decoder-only one. The cache is a
    buffer of fixed `capacity` per row, at most max_length, and each row has its own length in it.
    """

    name: str
    config: ModelConfig
    max_rows: int  # with more rows than this, a step takes longer in proportion

    def start(self, prefix: Batch, source: Batch | None, capacity: int) -> tuple[np.ndarray, State]:
        """Read source and prefix; logits (B, V) after each row's last prefix token."""
        ...

    def step(self, ids: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """Add tokens (B, T) to every row; logits (B, V) after the last. T > 1 for a single row only.

        The logits may lie in a buffer of the state: whoever wants them beyond its next step, or beyond the state,
        copies them.
        """
        ...

    def reorder(self, state: State, rows: np.ndarray) -> State:
        """The state whose row i was row rows[i]; rows may be repeated or left out."""
        ...

    def join(self, state: State, other: State) -> State:
        """The rows of both, `other`'s behind; both were started with the same capacity."""
        ...

    def side_by_side(self, n_rows: int) -> Sequence["Backend"]:
        """Who should share so many rows, each in a thread of its own; this one alone where no more would pay."""
        ...

    def logits(self, target: Batch, source: Batch | None) -> np.ndarray:
        """Logits (B, T, V) of a whole target at once; values at padding mean nothing."""
        ...

    def attention(self, target: Batch, source: Batch | None) -> AttentionArrays:
        """Every attention weight of one pass over the whole target."""
        ...


@dataclass
class TextState:
    """The texts so far. There is no cache: every step reads them again from their start."""

    texts: list[list[int]]
    sources: list[Any]  # per text, what was read of its source; None without an encoder
    capacity: int  # the most tokens that a text may have


class WholeTextBackend(ABC):
    """The steps of the protocol for a model that always reads whole texts."""

    max_rows = 1
    config: ModelConfig

    @abstractmethod
    def _read_source(self, ids: list[int]) -> Any:
        """What is kept of a source."""

    @abstractmethod
    def _last_logits(self, state: TextState) -> np.ndarray:
        """What each text scores as its next token (B V)."""

    def start(self, prefix: Batch, source: Batch | None, capacity: int) -> tuple[np.ndarray, TextState]:
        """Read source and prefix; logits (B, V) after each row's last prefix token."""
        check_inputs(self.config, prefix, source)
        check_capacity(self.config, prefix, capacity)
        texts = prefix.rows
        sources = [None] * len(texts) if source is None else [self._read_source(ids) for ids in source.rows]
        state = TextState(texts, sources, capacity)
        return self._last_logits(state), state

    def step(self, ids: np.ndarray, state: TextState) -> tuple[np.ndarray, TextState]:
        """Add tokens (B, T) to every row; logits (B, V) after the last. T > 1 for a single row only."""
        check_step(self.config, ids, len(state.texts))
        texts = [[*text, *new] for text, new in zip(state.texts, ids.tolist(), strict=True)]
        check_slots(state.capacity, max(map(len, texts)))
        state = TextState(texts, state.sources, state.capacity)
        return self._last_logits(state), state

    def reorder(self, state: TextState, rows: np.ndarray) -> TextState:
        """The state whose row i was row rows[i]; rows may be repeated or left out."""
        return TextState([state.texts[row] for row in rows], [state.sources[row] for row in rows], state.capacity)

    def join(self, state: TextState, other: TextState) -> TextState:
        """The rows of both, `other`'s behind; both were started with the same capacity."""
        return TextState(state.texts + other.texts, state.sources + other.sources, state.capacity)

    def side_by_side(self, n_rows: int) -> list[Self]:
        """This one alone."""
        return [self]


@runtime_checkable
class Ranker(Protocol):
    """A backend that finds the best of its scores by itself, faster than numpy does."""

    def rank(self, logits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids (B, k) of each row's k highest logits (B, V), best first, the lower id of equals; and log Σ exp (B,)."""
        ...


@runtime_checkable
class Writer(Protocol):
    """A backend that has a tokenizer, prompts and a loop of its own, which are judged with it."""

    def written(self, content: str | Sequence[Mapping[str, object]], max_new_tokens: int) -> tuple[list[int], str]:
        """Ids and finish reason of what it writes for a text or a dialogue, read as one, with the model's options."""
        ...


@runtime_checkable
class Observable(Protocol):
    """A backend that can show the values inside its model, so that a difference can be followed to where it begins."""

    def weights(self) -> Mapping[str, np.ndarray]:
        """The parameters of the model by name, before anything was rounded to 8 bits."""
        ...

    def observed(self, keep: Keep) -> Backend:
        """The same model as a backend whose runs hand every inner value (`backends/observed_values.py`) to `keep`."""
        ...
