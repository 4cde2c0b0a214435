"""A backend of pure numpy for tests of generation: quick, exact, and strict about the protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiny_transformer.backends.base import AttentionArrays, Batch
from tiny_transformer.config import ModelConfig
from tiny_transformer.generation import Generated, GenerationOptions, Request, generate_ids

PAD, BOS, EOS = 0, 1, 2


@dataclass
class FakeState:
    """Every row's tokens and source, in full."""

    rows: list[list[int]]
    sources: list[list[int]] | None
    capacity: int
    consumed: bool = False


class FakeBackend:
    """Logits that depend on the last two tokens, the place and the source, through fixed random tables."""

    name = "fake"
    max_rows = 64

    def __init__(
        self,
        vocab_size: int = 12,
        max_length: int = 24,
        *,
        seed: int = 0,
        scale: float = 2.0,
        noise: float = 0.0,
        encoder: bool = True,
    ) -> None:
        generator = np.random.default_rng(seed)
        build = ModelConfig if encoder else ModelConfig.gpt
        self.config = build(vocab_size=vocab_size, max_length=max_length, d_model=8, n_heads=1)
        self._last, self._before, self._source = generator.normal(0, scale, (3, vocab_size, vocab_size))
        self._place = generator.normal(0, scale / 4, (max_length + 1, vocab_size))  # so that no two texts tie
        self._noise = noise  # stands for another backend's rounding
        self._generator = np.random.default_rng(seed + 1)
        self.rows_stepped = 0

    def start(self, prefix: Batch, source: Batch | None, capacity: int) -> tuple[np.ndarray, FakeState]:
        prefix.check(self.config, "target")
        assert self.config.is_encoder_decoder == (source is not None)
        assert prefix.ids.shape[1] <= capacity <= self.config.max_length
        sources = None
        if source is not None:
            source.check(self.config, "source")
            sources = source.rows
        state = FakeState(prefix.rows, sources, capacity)
        return self._logits(state), state

    def step(self, ids: np.ndarray, state: FakeState) -> tuple[np.ndarray, FakeState]:
        assert not state.consumed
        assert ids.shape == (len(state.rows), 1)
        state.consumed = True
        rows = [[*row, int(new)] for row, new in zip(state.rows, ids[:, 0], strict=True)]
        assert max(map(len, rows)) <= state.capacity
        self.rows_stepped += len(rows)
        state = FakeState(rows, state.sources, state.capacity)
        return self._logits(state), state

    def reorder(self, state: FakeState, rows: np.ndarray) -> FakeState:
        assert not state.consumed
        state.consumed = True
        sources = None if state.sources is None else [state.sources[i] for i in rows]
        return FakeState([list(state.rows[i]) for i in rows], sources, state.capacity)

    def side_by_side(self, n_rows: int) -> list["FakeBackend"]:
        return [self]

    def join(self, state: FakeState, other: FakeState) -> FakeState:
        assert not state.consumed
        assert not other.consumed
        assert state.capacity == other.capacity
        state.consumed = other.consumed = True
        sources = None
        if state.sources is not None:
            assert other.sources is not None
            sources = state.sources + other.sources
        return FakeState(state.rows + other.rows, sources, state.capacity)

    def logits(self, target: Batch, source: Batch | None) -> np.ndarray:
        sources = [None] * len(target.lengths) if source is None else source.rows
        result = np.zeros((*target.ids.shape, self.config.vocab_size), dtype=np.float32)
        for b, (row, read) in enumerate(zip(target.rows, sources, strict=True)):
            for t in range(len(row)):
                result[b, t] = self.row_logits(row[: t + 1], read)
        return result

    def attention(self, target: Batch, source: Batch | None) -> AttentionArrays:
        raise AssertionError("generation has no use for attention weights")

    def row_logits(self, tokens: Sequence[int], source: Sequence[int] | None) -> np.ndarray:
        """Logits (V,) after `tokens`."""
        logits = self._last[tokens[-1]] + (0.5 * self._before[tokens[-2]] if len(tokens) > 1 else 0.0)
        logits = logits + self._place[len(tokens)]
        if source is not None:
            logits = logits + self._source[list(source)].mean(axis=0)
        return np.asarray(logits, dtype=np.float32)

    def _logits(self, state: FakeState) -> np.ndarray:
        sources = state.sources or [None] * len(state.rows)
        found = np.stack([self.row_logits(row, source) for row, source in zip(state.rows, sources, strict=True)])
        return (found + self._noise * self._generator.uniform(-1, 1, found.shape)).astype(np.float32)


class TableBackend(FakeBackend):
    """Writes one given row of ids, then the end."""

    def __init__(self, ids: Sequence[int], vocab_size: int, max_length: int = 600) -> None:
        super().__init__(1, max_length)
        self.config = ModelConfig(vocab_size=vocab_size, max_length=max_length, d_model=8, n_heads=1)
        self._ids = [*ids, EOS]

    def row_logits(self, tokens: Sequence[int], source: Sequence[int] | None) -> np.ndarray:
        logits = np.zeros(self.config.vocab_size, dtype=np.float32)
        logits[self._ids[min(len(tokens), len(self._ids)) - 1]] = 20.0
        return logits


class EchoBackend(FakeBackend):
    """A translator that writes what it reads."""

    def __init__(self, vocab_size: int, max_length: int = 64) -> None:
        super().__init__(1, max_length)
        self.config = ModelConfig(vocab_size=vocab_size, max_length=max_length, d_model=8, n_heads=1)

    def row_logits(self, tokens: Sequence[int], source: Sequence[int] | None) -> np.ndarray:
        assert source is not None
        logits = np.zeros(self.config.vocab_size, dtype=np.float32)
        logits[source[min(len(tokens), len(source)) - 1]] = 20.0
        return logits


def generate(
    backend: Any,
    prefixes: Sequence[Sequence[int]],
    sources: Sequence[Sequence[int]] | None,
    *,
    rows: Sequence[int] | None = None,
    **options: Any,
) -> list[Generated]:
    """`generate_ids` with the tests' special ids."""
    request = Request(prefixes, sources, GenerationOptions(**options), EOS, PAD, streams=rows)
    return generate_ids(backend, request)


def random_rows(seed: int, n_rows: int, vocab_size: int, longest: int) -> list[list[int]]:
    """Rows of random ids of random lengths, none of them the end."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, longest + 1, n_rows)
    return [generator.integers(3, vocab_size, n).tolist() for n in lengths]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """The textbook formula, as an oracle."""
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
