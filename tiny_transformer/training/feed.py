"""Batches as tensors, ready before the device asks.

Shapes: B rows, S source, T target, N predicted positions.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from queue import Queue

import numpy as np
import torch
from torch import Tensor

from tiny_transformer.data.batches import BatchPlan, Rows
from tiny_transformer.data.cache import Column, Part

IGNORED = -100  # the label that cross-entropy leaves out
_MAX_RESIDENT_SHARE = 0.25  # of the free GPU memory that data may take
_PREFETCHED_BATCHES = 4  # that a thread prepares ahead of the device


@dataclass(frozen=True)
class Batch:
    """What one forward and backward pass reads."""

    source: Tensor | None  # B S
    source_mask: Tensor | None  # B S, True at real tokens
    target: Tensor  # B T: the decoder's input
    picked: Tensor  # N: which of the B × T positions predict something
    labels: Tensor  # N: what they should predict
    source_texts: Tensor | None = None  # B S: which pair of its row a token belongs to, from 1; 0 is padding
    target_texts: Tensor | None = None  # B T: likewise; neither is there where every row is one pair

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All of it, in the order in which the objective takes it."""
        return tuple(getattr(self, part.name) for part in fields(self))


class HostRows:
    """Rows read from the memory map as they are needed."""

    def __init__(self, rows: Rows, order: np.ndarray, device: torch.device) -> None:
        self._parts = rows.parts
        self._end = rows.end
        self._order = order
        self._firsts = np.cumsum([0, *(len(part) for part in rows.parts)])
        self._device = device

    def batch(self, plan: BatchPlan, pad_id: int) -> Batch:
        """Gather, pad, and copy to the device without waiting for it."""
        numbers = self._order[plan.start : plan.stop]
        target = np.full((len(numbers), plan.target_length + 1), pad_id, dtype=np.int64)
        learn = np.zeros(target.shape, dtype=np.bool_)
        source = np.full((len(numbers), plan.source_length), pad_id, dtype=np.int64)
        source_lengths = np.zeros(len(numbers), dtype=np.int64)
        which = np.searchsorted(self._firsts, numbers, side="right") - 1
        for i in np.unique(which):
            at = np.flatnonzero(which == i)
            _fill(self._parts[i], numbers[at] - self._firsts[i], at, source, source_lengths, target, learn)
        arrays = [self._to_device(a) for a in (source, source_lengths, target, learn)]
        return _assemble(arrays[0], arrays[1], arrays[2], arrays[3], plan, pad_id, self._end)

    def _to_device(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(self._device, non_blocking=True) if self._device.type == "cuda" else tensor


class ResidentRows:
    """All rows on the device: a batch is an index there, not a copy."""

    def __init__(self, rows: Rows, order: np.ndarray, device: torch.device) -> None:
        sources = [part.source for part in rows.parts if part.source is not None]
        self._source = _DeviceColumn.of(sources, device) if sources else None
        self._target = _DeviceColumn.of([part.target for part in rows.parts], device)
        self._learn = torch.from_numpy(np.concatenate([part.learn for part in rows.parts])).to(device)
        self._order = torch.from_numpy(order).to(device)
        self._end = rows.end

    def batch(self, plan: BatchPlan, pad_id: int) -> Batch:
        """Gather and pad on the device; nothing here waits for it."""
        numbers = self._order[plan.start : plan.stop]  # B
        index, real = self._target.token_indices(numbers, plan.target_length + 1)  # B T+1
        target = torch.where(real, self._target.ids[index], pad_id)
        learn = self._learn[index].bool() & real
        if self._source is None:
            nothing = target[:, :0]
            return _assemble(nothing, nothing, target, learn, plan, pad_id, None)
        index, real = self._source.token_indices(numbers, plan.source_length)  # B S
        source = torch.where(real, self._source.ids[index], pad_id)
        return _assemble(source, real.sum(dim=1), target, learn, plan, pad_id, self._end)


@dataclass(frozen=True)
class _DeviceColumn:
    ids: Tensor
    starts: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, columns: Sequence[Column], device: torch.device) -> "_DeviceColumn":
        ids = np.concatenate([column.ids for column in columns]).astype(np.int64)
        lengths = np.concatenate([column.lengths for column in columns])
        starts = np.cumsum(lengths) - lengths
        return cls(*(torch.from_numpy(array).to(device) for array in (ids, starts, lengths)))

    def token_indices(self, numbers: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Where each padded position's token lies (any token where it is padding), and whether it is real."""
        column = torch.arange(width, device=numbers.device)
        real = column < self.lengths[numbers][:, None]  # B W
        return torch.where(real, self.starts[numbers][:, None] + column, 0), real


def device_rows(rows: Rows, order: np.ndarray, device: torch.device) -> HostRows | ResidentRows:
    """An epoch's rows in their order; on a GPU they live on it if they take a small part of its memory."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if rows.n_tokens * 9 < _MAX_RESIDENT_SHARE * free:  # 8 bytes an id, 1 for whether it is learned
            return ResidentRows(rows, order, device)
    return HostRows(rows, order, device)


def batches(
    rows: HostRows | ResidentRows, plans: Sequence[BatchPlan], pad_id: int, device: torch.device
) -> Iterator[Batch]:
    """The planned batches in order. For a GPU that reads from the host, a thread works ahead."""
    made = (rows.batch(plan, pad_id) for plan in plans)
    if isinstance(rows, ResidentRows) or device.type == "cpu":
        return made  # on a CPU a thread would only take time from the arithmetic
    return ahead(made)


def ahead(made: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, prepared by a thread while the device is busy with earlier ones."""
    queue: Queue[Batch | BaseException | None] = Queue(maxsize=_PREFETCHED_BATCHES)

    def work() -> None:
        try:
            for batch in made:
                queue.put(batch)
            queue.put(None)
        except BaseException as error:
            queue.put(error)  # raised again where the batch was wanted

    threading.Thread(target=work, daemon=True).start()
    while (item := queue.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


def _assemble(
    source: Tensor,
    source_lengths: Tensor,
    target: Tensor,
    learn: Tensor,
    plan: BatchPlan,
    pad_id: int,
    end: int | None,
) -> Batch:
    """Shift target into input and labels, and pick the positions that predict: no other sees the vocabulary."""
    labels = torch.where(learn[:, 1:], target[:, 1:], IGNORED).flatten()  # B·T
    count = predicted(plan.learned, labels.numel())
    # How many there are is known from the plan, so that the device needn't be asked (as nonzero would).
    picked = torch.sort((labels == IGNORED).to(torch.uint8), stable=True).indices[:count]
    read = target[:, :-1].contiguous()  # B T
    if not plan.source_length:
        return Batch(None, None, read, picked, labels[picked])
    mask = torch.arange(plan.source_length, device=source.device) < source_lengths[:, None]  # B S
    if end is None:
        return Batch(source, mask, read, picked, labels[picked])
    # A source ends with its end token; a target begins with the one token of it that isn't learned.
    is_end = (source == end).long()
    source_texts = torch.where(mask, is_end.cumsum(dim=1) - is_end + 1, 0)
    target_texts = torch.where(read != pad_id, (~learn[:, :-1]).cumsum(dim=1), 0)
    return Batch(source, mask, read, picked, labels[picked], source_texts, target_texts)


def predicted(learned: int, positions: int) -> int:
    """How many positions meet the vocabulary: rounded up to few different sizes; the surplus is IGNORED."""
    grain = max(64, positions // 16 // 64 * 64)
    return min(-(-learned // grain) * grain, positions)


def _fill(
    part: Part,
    numbers: np.ndarray,
    at: np.ndarray,
    source: np.ndarray,
    source_lengths: np.ndarray,
    target: np.ndarray,
    learn: np.ndarray,
) -> None:
    """Copy rows `numbers` of a part into rows `at` of the padded arrays."""
    index, row, column = _token_indices(part.target, numbers, at)
    target[row, column] = part.target.ids[index]
    learn[row, column] = part.learn[index]
    if part.source is not None:
        index, row, column = _token_indices(part.source, numbers, at)
        source[row, column] = part.source.ids[index]
        source_lengths[at] = part.source.offsets[numbers + 1] - part.source.offsets[numbers]


def _token_indices(column: Column, numbers: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every token of these rows: where it lies in the file, and its row and column in the padded array."""
    starts = column.offsets[numbers]
    lengths = column.offsets[numbers + 1] - starts
    columns = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts, lengths) + columns, np.repeat(at, lengths), columns
