"""Which rows make up each batch: by token count, of like length, in an order of seed and epoch."""

from dataclasses import dataclass

import numpy as np

from tiny_transformer.errors import DataError


@dataclass(frozen=True)
class BatchPlan:
    """One micro-batch: a slice of the epoch's order, and the shape it is padded to."""

    start: int
    stop: int
    source_length: int  # 0 for decoder-only
    target_length: int  # of the decoder's input: one less than the row
    tokens: int  # real target tokens
    learnt: int  # of them, those that count in the loss


@dataclass(frozen=True)
class EpochPlan:
    """Every micro-batch of an epoch, all ranks' together."""

    order: np.ndarray  # int64: rows of the epoch's data
    batches: list[BatchPlan]

    def steps(self, parts_per_step: int) -> int:
        """Optimiser steps in the epoch; at least one, however small the data."""
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
    learnt: np.ndarray  # predicted tokens


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
            int(sizes.learnt[order[start:stop]].sum()),
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
