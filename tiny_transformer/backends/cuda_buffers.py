"""Static buffers for CUDA graphs: the caches of a batch, used by one state at a time and again by the next.

Shapes: N buffers (keys of every layer, then values), R rows, H heads, C capacity, S source, K head width.
"""

import math
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tiny_transformer.config import ModelConfig
from tiny_transformer.model import Memory

KEPT_BYTES = 2**30  # of buffers that no state uses
MIN_CAPACITY = 64
MIN_SOURCE = 16


class BufferSize(NamedTuple):
    """How much some buffers hold; each number is a power of two, so that few sizes serve all texts."""

    n_rows: int
    capacity: int
    n_source: int  # 0 without an encoder

    @classmethod
    def of(cls, n_rows: int, capacity: int, n_source: int) -> "BufferSize":
        """The smallest that fits."""
        source = max(MIN_SOURCE, power_of_two(n_source)) if n_source else 0
        return cls(power_of_two(n_rows), max(MIN_CAPACITY, power_of_two(capacity)), source)


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


class KVBuffers:
    """Caches and memories for some rows. Unused rows hold old numbers, never NaN: 0 × NaN would be NaN."""

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype, size: BufferSize) -> None:
        n_layers, heads, width = config.n_decoder_layers, config.n_heads, config.d_head
        shape = (2 * n_layers, size.n_rows, heads)
        self.size = size
        self.n_layers = n_layers
        self.cache = torch.zeros(*shape, size.capacity, width, dtype=dtype, device=device)  # N R H C K
        self.memory = torch.zeros(*shape, size.n_source, width, dtype=dtype, device=device)  # N R H S K
        # Nothing is masked: a row that sees nothing at all would be NaN.
        self.mask = torch.zeros(size.n_rows, 1, 1, size.n_source, dtype=dtype, device=device)
        self.steps: dict[tuple[int, int], Any] = {}  # rows and cache slots of each → the step captured over them

    @property
    def n_bytes(self) -> int:
        """Memory on the device, with that of the steps captured over it."""
        return self.cache.nbytes + self.memory.nbytes + sum(step.n_bytes for step in self.steps.values())

    def clear(self) -> None:
        """Back to zeros: a text that came to NaN must not reach the next."""
        for buffer in (self.cache, self.memory, self.mask):
            buffer.zero_()

    def caches(self, n_rows: int, capacity: int) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values of the first rows, one per layer, each R H C K."""
        buffers = list(self.cache[:, :n_rows, :, :capacity].unbind())
        return buffers[: self.n_layers], buffers[self.n_layers :]

    def memories(self, n_rows: int) -> Memory | None:
        """What the first rows keep of their sources; None without an encoder."""
        if not self.size.n_source:
            return None
        buffers = list(self.memory[:, :n_rows].unbind())
        return Memory(buffers[: self.n_layers], buffers[self.n_layers :], self.mask[:n_rows])

    def write_memory(self, memory: Memory) -> None:
        """Copy the memory of new sources in, from the first row on."""
        n_rows, n_source = memory.mask.size(0), memory.mask.size(-1)
        self.memory[:, :n_rows, :, :n_source] = torch.stack([*memory.keys, *memory.values])
        self.mask[:n_rows] = -math.inf
        self.mask[:n_rows, ..., :n_source] = memory.mask

    def copy_rows(self, other: "KVBuffers", rows: np.ndarray, used: int, at: int = 0, *, memory: bool = True) -> None:
        """Copy rows of other buffers (or of these), up to slot `used`, to the rows from `at` on."""
        here = np.arange(at, at + rows.size)
        moving = np.flatnonzero(rows != here) if other is self else np.arange(rows.size)
        if not moving.size:
            return
        source, target = (torch.from_numpy(index).to(self.cache.device) for index in (rows[moving], here[moving]))
        # index_select is a copy, so that no row is overwritten before it is read.
        self.cache[:, :, :, :used].index_copy_(1, target, other.cache[:, :, :, :used].index_select(1, source))
        if memory and self.size.n_source:
            n_source = other.size.n_source
            self.memory[:, :, :, :n_source].index_copy_(1, target, other.memory.index_select(1, source))
            mask = other.mask.index_select(0, source)
            self.mask.index_fill_(0, target, -math.inf)
            self.mask[..., :n_source].index_copy_(0, target, mask)


@dataclass(eq=False)
class BufferHandle:
    """Holds buffers of a pool; when the handle is collected, they go back."""

    buffers: KVBuffers


@dataclass
class BufferPool:
    """Buffers that are free, to be used again: capturing a step takes longer than a short text."""

    make: Callable[[BufferSize], KVBuffers]
    _free: list[KVBuffers] = field(default_factory=list)  # the longest unused first; only `acquire` touches it
    _returned: deque[KVBuffers] = field(default_factory=deque)  # appended to from any thread, at any moment

    def acquire(self, size: BufferSize) -> BufferHandle:
        """Free buffers of a size, or new ones. One thread at a time; giving back happens by itself, in any."""
        while self._returned:
            self._free.append(self._returned.popleft())
        found = next((buffers for buffers in reversed(self._free) if buffers.size == size), None)
        if found is not None:
            self._free.remove(found)
            found.clear()
        while sum(buffers.n_bytes for buffers in self._free) > KEPT_BYTES:
            del self._free[0]
        if found is None:
            found = self.make(size)
        handle = BufferHandle(found)
        weakref.finalize(handle, self._returned.append, found)
        return handle
