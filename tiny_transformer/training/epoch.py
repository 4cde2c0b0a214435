"""The data of one epoch: each source's variant of the moment, and how often its rows are shown."""

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.batches import EpochPlan, RowSizes, plan_epoch
from tiny_transformer.training.cache import Part, tokenised
from tiny_transformer.training.settings import PAIRS, Source
from tiny_transformer.training.sources import source_bytes

_MUCH_TEXT = 32 * 1024 * 1024  # bytes, over all variants: below, starting processes takes longer than the work


@dataclass(frozen=True)
class Rows:
    """Several parts as one run of rows, numbered through."""

    parts: tuple[Part, ...]
    end: int | None = None  # the token that ends each source, where a row may hold several pairs

    @classmethod
    def of(cls, sources: Sequence[Source], parts: Sequence[Part], tokenizer: Tokenizer) -> "Rows":
        """The parts that were made of some sources."""
        packed = any(source.packing and source.format in PAIRS for source in sources)
        return cls(tuple(parts), tokenizer.eos_id if packed else None)

    @cached_property
    def sizes(self) -> RowSizes:
        """The lengths of every row."""
        target = np.concatenate([part.target.lengths for part in self.parts]) - 1
        source = [part.source.lengths if part.source else np.zeros(len(part), dtype=np.int64) for part in self.parts]
        learnt = np.concatenate([part.learnt for part in self.parts])
        # Every token of a translation is learnt, and where pairs share a row nothing else of it counts.
        tokens = target if self.end is None else learnt
        return RowSizes(np.concatenate(source), target, tokens, learnt)

    @property
    def n_tokens(self) -> int:
        """Tokens on all sides, padding not among them."""
        return sum(len(part.target.ids) + (len(part.source.ids) if part.source else 0) for part in self.parts)


@dataclass
class TrainingData:
    """Every train source of a recipe; tokenised variants are opened when their epoch comes."""

    sources: tuple[Source, ...]
    root: str
    tokenizer: Tokenizer
    max_length: int
    _parts: dict[tuple[str, int], Part] = field(default_factory=dict, init=False)

    def prepare(self) -> None:
        """Tokenise whatever is not in the cache yet; much text, on every core at once."""
        jobs = [(source, variant) for source in self.sources for variant in range(source.variants)]
        if sum(source_bytes(source, self.root) for source, _ in jobs) > _MUCH_TEXT:
            spelling = self.tokenizer.to_json()
            context = multiprocessing.get_context("spawn")  # a fork would share locks of torch's threads
            with context.Pool(min(len(jobs), os.cpu_count() or 1)) as pool:
                work = [(source, self.root, spelling, self.max_length, variant) for source, variant in jobs]
                pool.starmap(_tokenise, work, chunksize=1)
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
            self._parts[key] = tokenised(source, self.root, self.tokenizer, self.max_length, variant=variant)
        return self._parts[key]


def _tokenise(source: Source, root: str, spelling: str, max_length: int, variant: int) -> None:
    """One job of a pool: the result stays on disk."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the pool already fills the cores
    tokenised(source, root, Tokenizer.from_json(spelling), max_length, variant=variant)


def _repeated(count: int, repeat: float, rng: np.random.Generator) -> np.ndarray:
    """Row numbers, each shown `repeat` times; the fraction is a fresh draw."""
    whole = int(repeat)
    extra = rng.permutation(count)[: round((repeat - whole) * count)]
    return np.concatenate([np.tile(np.arange(count), whole), extra]).astype(np.int64)
