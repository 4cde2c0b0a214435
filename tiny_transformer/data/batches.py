"""Which rows make up each batch: by token count, of like length, in an order of seed and epoch."""

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tiny_transformer.data.cache import Part, tokenized
from tiny_transformer.data.examples import source_bytes
from tiny_transformer.data.source import Source
from tiny_transformer.errors import DataError
from tiny_transformer.tokenizer import Tokenizer


@dataclass(frozen=True)
class BatchPlan:
    """One micro-batch: a slice of the epoch's order, and the shape it is padded to."""

    start: int
    stop: int
    source_length: int  # 0 for decoder-only
    target_length: int  # of the decoder's input: one less than the row
    tokens: int  # real target tokens
    learned: int  # of them, those that count in the loss


@dataclass(frozen=True)
class EpochPlan:
    """Every micro-batch of an epoch, all ranks' together."""

    order: np.ndarray  # int64: rows of the epoch's data
    batches: list[BatchPlan]

    def steps(self, parts_per_step: int) -> int:
        """Optimizer steps in the epoch; at least one, however small the data."""
        return max(1, len(self.batches) // parts_per_step)

    def of_step(self, step: int, parts_per_step: int) -> list[BatchPlan]:
        """The micro-batches of one step, over all ranks; a tiny epoch is walked around."""
        first = step * parts_per_step
        return [self.batches[i % len(self.batches)] for i in range(first, first + parts_per_step)]


@dataclass(frozen=True)
class RowSizes:
    """What planning needs to know of every row of an epoch's data."""

    source: np.ndarray  # tokens; zeros for decoder-only
    target: np.ndarray  # positions of the decoder's input
    tokens: np.ndarray  # real target tokens
    learned: np.ndarray  # predicted tokens


def plan_epoch(
    rows: np.ndarray, sizes: RowSizes, batch_tokens: int, rng: np.random.Generator, max_length: int = 1 << 31
) -> EpochPlan:
    """Sort rows into buckets of like padded length, cut buckets into batches, shuffle the batches."""
    if not len(rows):
        raise DataError("There is nothing to train on; check the sources and their repeats.")
    rows = rng.permutation(rows)
    source, target = (np.minimum(padded_length(side[rows]), max_length) for side in (sizes.source, sizes.target))
    # Short to long, so that what is left of a bucket joins the next one with little padding.
    by_length = np.lexsort((source, target, np.maximum(source, target)))
    order = rows[by_length]
    shapes = np.stack((source[by_length], target[by_length]), axis=1)
    batches = [
        BatchPlan(
            start,
            stop,
            int(width[0]),
            int(width[1]),
            int(sizes.tokens[order[start:stop]].sum()),
            int(sizes.learned[order[start:stop]].sum()),
        )
        for start, stop, width in _cut(shapes, batch_tokens)
    ]
    return EpochPlan(order, [batches[i] for i in rng.permutation(len(batches))])


def padded_length(lengths: np.ndarray) -> np.ndarray:
    """Round up to a grid that is fine for short rows and coarser for long ones: few shapes, little padding."""
    step = np.where(lengths <= 128, 8, np.where(lengths <= 256, 16, 32))
    return (lengths + step - 1) // step * step


def _cut(shapes: np.ndarray, batch_tokens: int) -> list[tuple[int, int, np.ndarray]]:
    """Slices of the sorted rows with the shape each is padded to; rows × longer side stays within the budget."""
    edges = np.flatnonzero((shapes[1:] != shapes[:-1]).any(axis=1)) + 1
    cuts: list[tuple[int, int, np.ndarray]] = []
    start, width = 0, np.zeros(2, dtype=np.int64)
    for first, last in zip((0, *edges), (*edges, len(shapes)), strict=True):
        wider = np.maximum(width, shapes[first])
        if _wasteful(first - start, width, wider, batch_tokens):
            cuts.append((start, int(first), width))
            start, wider = int(first), shapes[first]
        width = wider
        fit = _rows_that_fit(width, batch_tokens)
        while last - start >= fit:
            cuts.append((start, start + fit, width))
            start, width = start + fit, shapes[first]
            fit = _rows_that_fit(width, batch_tokens)
    if start < len(shapes):
        cuts.append((start, len(shapes), width))
    return cuts


def _rows_that_fit(width: np.ndarray, batch_tokens: int) -> int:
    rows = max(1, batch_tokens // int(width.max()))
    return rows // 8 * 8 if rows >= 8 else rows


def _wasteful(rows: int, width: np.ndarray, wider: np.ndarray, batch_tokens: int) -> bool:
    """Whether a nearly full batch would rather go as it is than be padded to the next bucket's shape."""
    return rows > 0 and rows >= 0.75 * _rows_that_fit(width, batch_tokens) and bool((wider > width).any())


_MIN_PARALLEL_BYTES = 32 * 2**20  # over all variants: below, starting processes takes longer than the work


@dataclass(frozen=True)
class Rows:
    """Several parts as one run of rows, numbered through."""

    parts: tuple[Part, ...]
    end: int | None = None  # the token that ends each source, where a row may hold several pairs

    @classmethod
    def of(cls, sources: Sequence[Source], parts: Sequence[Part], tokenizer: Tokenizer) -> "Rows":
        """The parts that were made of some sources."""
        packed = any(source.packing and source.is_pairs for source in sources)
        return cls(tuple(parts), tokenizer.eos_id if packed else None)

    @cached_property
    def sizes(self) -> RowSizes:
        """The lengths of every row."""
        target = np.concatenate([part.target.lengths for part in self.parts]) - 1
        source = [part.source.lengths if part.source else np.zeros(len(part), dtype=np.int64) for part in self.parts]
        learned = np.concatenate([part.learned for part in self.parts])
        # Every token of a translation is learned, and where pairs share a row nothing else of it counts.
        tokens = target if self.end is None else learned
        return RowSizes(np.concatenate(source), target, tokens, learned)

    @property
    def n_tokens(self) -> int:
        """Tokens on all sides, padding not among them."""
        return sum(len(part.target.ids) + (len(part.source.ids) if part.source else 0) for part in self.parts)


@dataclass
class TrainingData:
    """Every train source of a recipe; tokenized variants are opened when their epoch comes."""

    sources: tuple[Source, ...]
    root: str
    tokenizer: Tokenizer
    max_length: int
    _parts: dict[tuple[str, int], Part] = field(default_factory=dict, init=False)

    def prepare(self) -> None:
        """Tokenize whatever is not in the cache yet; much text, on every core at once."""
        jobs = [(source, variant) for source in self.sources for variant in range(source.variants)]
        if sum(source_bytes(source, self.root) for source, _ in jobs) > _MIN_PARALLEL_BYTES:
            spelling, output_size = self.tokenizer.to_json(), self.tokenizer.output_size
            context = multiprocessing.get_context("spawn")  # a fork would share locks of torch's threads
            with context.Pool(min(len(jobs), os.cpu_count() or 1)) as pool:
                work = [
                    (source, self.root, spelling, output_size, self.max_length, variant, self.sources)
                    for source, variant in jobs
                ]
                pool.starmap(_tokenize, work, chunksize=1)
        for source, variant in jobs:
            self._part(source, variant)

    def rows(self, epoch: int) -> Rows:
        """The rows epoch `epoch` draws from."""
        parts = [self._part(source, epoch % source.variants) for source in self.sources]
        return Rows.of(self.sources, parts, self.tokenizer)

    def plan(
        self, rows: Rows, epoch: int, repeats: Mapping[str, float], batch_tokens: int, seed: Sequence[int]
    ) -> EpochPlan:
        """The batches of an epoch: the same for the same seed, on every rank and after every resume."""
        rng = np.random.default_rng([*seed, epoch])
        chosen: list[np.ndarray] = []
        first = 0
        for source, part in zip(self.sources, rows.parts, strict=True):
            chosen.append(first + _repeated(len(part), repeats.get(source.name, source.repeat), rng))
            first += len(part)
        return plan_epoch(np.concatenate(chosen), rows.sizes, batch_tokens, rng, self.max_length)

    def _part(self, source: Source, variant: int) -> Part:
        # Opening hashes the tokenizer and asks for files' times: once a run, not once an epoch.
        key = (source.name, variant)
        if key not in self._parts:
            self._parts[key] = tokenized(
                source, self.root, self.tokenizer, self.max_length, variant=variant, among=self.sources
            )
        return self._parts[key]


def _tokenize(
    source: Source,
    root: str,
    spelling: str,
    output_size: int,
    max_length: int,
    variant: int,
    among: Sequence[Source],
) -> None:
    """One job of a pool: the result stays on disk."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the pool already fills the cores
    tokenizer = Tokenizer.from_json(spelling, output_size=output_size)
    tokenized(source, root, tokenizer, max_length, variant=variant, among=among)


def _repeated(count: int, repeat: float, rng: np.random.Generator) -> np.ndarray:
    """Row numbers, each shown `repeat` times; the fraction is a fresh draw."""
    whole = int(repeat)
    extra = rng.permutation(count)[: round((repeat - whole) * count)]
    return np.concatenate([np.tile(np.arange(count), whole), extra]).astype(np.int64)
