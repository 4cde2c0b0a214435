"""PyTorch eager, on the CPU or on CUDA: the reference every other backend is compared with.

Shapes: B batch, T new tokens, S source, H heads, C capacity of the cache, K head width, V vocabulary.
"""

import copy
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tiny_transformer.backends.base import (
    AttentionArrays,
    Batch,
    check_capacity,
    check_inputs,
    check_slots,
    check_step,
    check_threads,
)
from tiny_transformer.backends.observed_values import AFTER, BEFORE, EMBEDDED, Keep
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import BackendError
from tiny_transformer.model import Memory, attention_maps, weights_of
from tiny_transformer.model.watching import inner_values


@dataclass
class TorchState:
    """The cache of one batch: buffers written in place, and how much of each row is written."""

    keys: list[Tensor]  # one per layer, each B H C K
    values: list[Tensor]  # likewise
    lengths: np.ndarray  # B
    memory: Memory | None  # of the source, where there is an encoder
    sources: np.ndarray  # B: which source each row of the memory holds

    def longest_with(self, n_new: int) -> int:
        """Cache slots that the longest row needs for `n_new` more tokens; refused where there are not that many."""
        needed = int(self.lengths.max()) + n_new
        check_slots(self.keys[0].size(2), needed)
        return needed


class EagerBackend:
    """Runs a torch model through the protocol. Threads may share it: what a run needs is in its state."""

    name = "eager"
    max_rows = 64

    def __init__(
        self, model: Any, config: ModelConfig, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
    ) -> None:
        """Move the model to the device (and type) and put it into evaluation mode."""
        self.config = config
        self.device = torch.device(device)
        self.model = model.to(device=self.device, dtype=dtype).eval()
        self.dtype = next(self.model.parameters()).dtype
        self._watching = threading.Lock()

    @torch.inference_mode()
    def start(self, prefix: Batch, source: Batch | None, capacity: int) -> tuple[np.ndarray, TorchState]:
        """Read source and prefix; logits (B, V) after each row's last prefix token."""
        check_inputs(self.config, prefix, source)
        check_capacity(self.config, prefix, capacity)
        n_rows = len(prefix.ids)
        memory = None if source is None else self.model.encode(self._tensor(source.ids), self._tensor(source.mask))
        state = self._empty(n_rows, capacity, memory)
        logits = self._decode(prefix.ids, state)  # B T V
        # Slots past a row's own length now hold keys of padding: overwritten before any query sees them.
        state.lengths = prefix.lengths.copy()
        last = logits[torch.arange(n_rows, device=self.device), self._tensor(prefix.lengths - 1)]  # B V
        return _array(last), state

    @torch.inference_mode()
    def step(self, ids: np.ndarray, state: TorchState) -> tuple[np.ndarray, TorchState]:
        """Add tokens (B, T) to every row; logits (B, V) after the last. T > 1 for a single row only."""
        check_step(self.config, ids, state.lengths.size)
        logits = self._decode(ids, state)  # B T V
        state.lengths = state.lengths + ids.shape[1]
        return _array(logits[:, -1]), state

    @torch.inference_mode()
    def reorder(self, state: TorchState, rows: np.ndarray) -> TorchState:
        """The state whose row i was row rows[i]; rows may be repeated or left out."""
        rows = np.asarray(rows, dtype=np.int64)
        used = int(state.lengths.max())
        memory, sources = state.memory, state.sources[rows]
        # A beam mostly exchanges rows of one source: then the memory can stay as it is.
        if memory is not None and not np.array_equal(sources, state.sources):
            index = self._tensor(rows)
            memory = Memory(
                [key.index_select(0, index) for key in memory.keys],
                [value.index_select(0, index) for value in memory.values],
                memory.mask.index_select(0, index),
            )
        return TorchState(
            [self._moved(key, rows, used) for key in state.keys],
            [self._moved(value, rows, used) for value in state.values],
            state.lengths[rows],
            memory,
            sources,
        )

    @torch.inference_mode()
    def join(self, state: TorchState, other: TorchState) -> TorchState:
        """The rows of both, `other`'s behind; both were started with the same capacity."""
        memory = None
        if state.memory is not None and other.memory is not None:
            width = max(state.memory.mask.size(-1), other.memory.mask.size(-1))
            memories = [_widened(found, width) for found in (state.memory, other.memory)]
            memory = Memory(
                [torch.cat(keys) for keys in zip(*(found.keys for found in memories), strict=True)],
                [torch.cat(values) for values in zip(*(found.values for found in memories), strict=True)],
                torch.cat([found.mask for found in memories]),
            )
        return TorchState(
            [torch.cat(keys) for keys in zip(state.keys, other.keys, strict=True)],
            [torch.cat(values) for values in zip(state.values, other.values, strict=True)],
            np.concatenate((state.lengths, other.lengths)),
            memory,
            np.concatenate((state.sources, other.sources + state.sources.max() + 1)),
        )

    def side_by_side(self, n_rows: int) -> list["EagerBackend"]:
        """This one alone: PyTorch's threads are the whole process's."""
        return [self]

    @torch.inference_mode()
    def logits(self, target: Batch, source: Batch | None) -> np.ndarray:
        """Logits (B, T, V) of a whole target at once, without a cache."""
        check_inputs(self.config, target, source)
        if source is None:
            return _array(self.model(self._tensor(target.ids)))
        return _array(self.model(self._tensor(source.ids), self._tensor(source.mask), self._tensor(target.ids)))

    def attention(self, target: Batch, source: Batch | None) -> AttentionArrays:
        """Every attention weight of one pass over the whole target."""
        check_inputs(self.config, target, source)
        inputs = [] if source is None else [self._tensor(source.ids), self._tensor(source.mask)]
        with self._watching:
            maps = attention_maps(self._watched_model, self._tensor(target.ids), *inputs)
        return AttentionArrays(*(None if m is None else _array(m) for m in maps))  # type: ignore[arg-type]

    def weights(self) -> dict[str, np.ndarray]:
        """The parameters by name, as float32."""
        return weights_of(self.model)

    def observed(self, keep: Keep) -> "EagerBackend":
        """The same on a copy of the model whose norms and stacks hand what they take and give to `keep`."""
        model = self._copied()
        for name, module in model.named_modules():
            if isinstance(module, nn.LayerNorm):
                module.register_forward_hook(partial(_keep_norm, keep, name))
            elif name in ("encoder", "decoder"):
                module.register_forward_pre_hook(partial(_keep_embedded, keep, name))
        return EagerBackend(model, self.config, device=self.device)

    def inside(
        self, target: Batch, source: Batch | None, shown: np.ndarray, switches: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Every inner value of one pass, some parts switched off; logits at the positions `shown`."""
        check_inputs(self.config, target, source)
        inputs = [] if source is None else [self._tensor(source.ids), self._tensor(source.mask)]
        with self._watching:
            found = inner_values(self._watched_model, self._tensor(target.ids), self._tensor(shown), switches, *inputs)
        return {name: _array(tensor) for name, tensor in found.items()}

    @cached_property
    def _watched_model(self) -> Any:
        return self._copied()

    def _copied(self) -> Any:
        """A copy over the same tensors: hooks on the model itself would also see other threads' runs."""
        shared = {id(tensor): tensor for tensor in (*self.model.parameters(), *self.model.buffers())}
        return copy.deepcopy(self.model, shared)

    def _empty(self, n_rows: int, capacity: int, memory: Memory | None) -> TorchState:
        """A state with nothing written yet."""
        shape = (n_rows, self.config.n_heads, capacity, self.config.d_head)  # B H C K
        layers = range(self.config.n_decoder_layers)
        # Zeros, not empty memory: a masked slot has weight 0, but 0 × NaN would still be NaN.
        keys = [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in layers]
        values = [torch.zeros_like(key) for key in keys]
        return TorchState(keys, values, np.zeros(n_rows, dtype=np.int64), memory, np.arange(n_rows))

    def _decode(self, ids: np.ndarray, state: TorchState) -> Tensor:
        """Write new tokens (B, T) behind each row's length; logits B T V."""
        positions = state.lengths[:, None] + np.arange(ids.shape[1])  # B T
        used = state.longest_with(ids.shape[1])
        # Views that end with the longest row: attention costs what is written, not what may come.
        keys = [key[:, :, :used] for key in state.keys]  # each B H used K
        values = [value[:, :, :used] for value in state.values]
        memory = [] if state.memory is None else [state.memory]
        logits: Tensor = self.model.decode(self._tensor(ids), self._tensor(positions), keys, values, *memory)[0]
        return logits

    def _moved(self, buffer: Tensor, rows: np.ndarray, used: int) -> Tensor:
        """Rows of a buffer in a new order; in place where they fit, and only those that move."""
        if rows.size <= buffer.size(0):
            target = buffer[: rows.size]  # n H C K
            moving = np.flatnonzero(rows != np.arange(rows.size))
        else:
            target = buffer.new_zeros(rows.size, *buffer.shape[1:])
            moving = np.arange(rows.size)
        if moving.size:
            taken = buffer[:, :, :used].index_select(0, self._tensor(rows[moving]))  # a copy: nothing is overwritten
            target[:, :, :used].index_copy_(0, self._tensor(moving), taken)
        return target

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def _keep_norm(keep: Keep, name: str, module: nn.Module, args: tuple[Tensor], result: Tensor) -> None:
    keep(name + BEFORE, _array(args[0]))
    keep(name + AFTER, _array(result))


def _keep_embedded(keep: Keep, name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
    keep(name + EMBEDDED, _array(args[0]))


def _widened(memory: Memory, width: int) -> Memory:
    """The same memory for sources of `width` positions, the new ones masked."""
    more = width - memory.mask.size(-1)
    pad = torch.nn.functional.pad
    return Memory(
        [pad(key, (0, 0, 0, more)) for key in memory.keys],
        [pad(value, (0, 0, 0, more)) for value in memory.values],
        pad(memory.mask, (0, more), value=-math.inf),
    )


def torch_device(name: str | None) -> torch.device:
    """A device that is really there. On CUDA, float32 then means float32 (no TF32)."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        raise BackendError("There is no device {device!r}; choose cpu, cuda or cuda:N.", device=name) from None
    if device.type not in ("cpu", "cuda"):
        raise BackendError("The device {device!r} is not supported; choose cpu, cuda or cuda:N.", device=name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            template = "The device {device!r} is not there ({n} CUDA devices found); choose cpu."
            raise BackendError(template, device=name, n=count)
        torch.set_float32_matmul_precision("highest")
    return device


def device_name(name: str) -> str:
    """What the device calls itself, such as NVIDIA H200."""
    device = torch_device(name)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def set_threads(threads: int | None) -> None:
    """How many cores torch may use, for the whole process; None leaves it as it is."""
    check_threads(threads)
    if threads is not None:
        torch.set_num_threads(threads)


def _array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().float().cpu().numpy()
    return array
