"""PyTorch eager for a GPU: a decoding step is captured once as a CUDA graph and then replayed.

The step of a small model is about a hundred kernels that take longer to launch than to run. Over static buffers it is
the same list of kernels every time, and a graph launches them all at once. While the caller takes the likeliest token
again and again, the next step is started with it before it is asked for (speculation), so that the GPU works while
the host looks at the scores. On the CPU there is nothing to capture: there the same code runs the step as it is.

Measured on an H200 with `python -m benchmarks.cuda_graphs` (GPT of width 384, tokens/s, bfloat16, 1 and 64 rows):
eager 566 and 27,719; torch.compile(mode="reduce-overhead") over the same buffers 2,200 and 65,394; captured 3,287 and
91,258; captured with speculation 3,753 and 140,361.

Shapes: B batch, R rows of a captured step, T new tokens, V vocabulary.
"""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tiny_transformer.backends.base import check_step
from tiny_transformer.backends.cuda_buffers import (
    MIN_CAPACITY,
    BufferHandle,
    BufferPool,
    BufferSize,
    KVBuffers,
    power_of_two,
)
from tiny_transformer.backends.eager import EagerBackend, TorchState, set_threads, torch_device
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import ModelConfig
from tiny_transformer.model import Memory, load_model

WARM_UP_RUNS = 2  # before a capture: CUDA libraries set themselves up in the first run
SPECULATE_AFTER = 2  # steps in a row that took the likeliest tokens, before the next is started without being asked

# CUDA captures one graph at a time in a process. Captures also share a stream, and with it the libraries' workspace:
# so no thread replays a graph while another captures one, whatever model each of them runs.
CUDA_LOCK = threading.Lock()
_streams: dict[torch.device, torch.cuda.Stream] = {}


def capture(work: Callable[[], None], device: torch.device, memory_pool: Any) -> torch.cuda.CUDAGraph:
    """Capture `work`, which reads and writes static buffers. Called with CUDA_LOCK held.

    Graphs of one memory pool are replayed one after the other, and keep nothing in it between two replays.
    """
    graph = torch.cuda.CUDAGraph()
    # Entering the current stream makes sure that it is restored if the capture fails.
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
        stream = _capture_stream(device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_RUNS):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        # Other threads go on meanwhile: only the calls of this one are captured and restricted.
        captured = torch.cuda.graph(graph, pool=memory_pool, stream=stream, capture_error_mode="thread_local")
        with _no_garbage_collection(), captured:
            work()
    return graph


def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of all captures on a device: memory of a shared pool belongs to the stream it was allocated on."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    return _streams[device]


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Garbage collection might destroy an old graph, which would end the capture."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass
class CudaGraphState(TorchState):
    """A batch in buffers of the pool; its tensors are views of them."""

    handle: BufferHandle
    last_step: "CapturedStep | None" = None  # the step that gave the last logits
    n_greedy: int = 0  # how many steps in a row took the tokens that the step before found likeliest
    speculate_after: int = SPECULATE_AFTER  # doubled each time a speculative step was not wanted
    is_speculative: bool = False  # `last_step` was started again, with the likeliest tokens

    def drop_speculation(self) -> None:
        """Forget the step that was started without being asked for, if there is one: other tokens are wanted."""
        if self.is_speculative:
            self.speculate_after *= 2
        self.last_step, self.n_greedy, self.is_speculative = None, 0, False

    @property
    def buffers(self) -> KVBuffers:
        """The buffers that hold its rows."""
        return self.handle.buffers

    @property
    def capacity(self) -> int:
        """Cache slots per row, as asked for; the buffers may hold more."""
        return self.keys[0].size(2)


class CudaGraphBackend(EagerBackend):
    """Eager whose steps are replayed CUDA graphs."""

    max_rows = 256  # reading new texts takes the same number of launches for one row as for many

    def __init__(
        self, model: Any, config: ModelConfig, *, device: torch.device | str = "cuda", dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(model, config, device=device, dtype=dtype)
        self._pool = BufferPool(partial(KVBuffers, config, self.device, self.dtype))
        # One memory pool for all captured steps: they run one after the other and keep nothing in it between two steps.
        self._memory_pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None

    @torch.inference_mode()
    def step(self, ids: np.ndarray, state: TorchState) -> tuple[np.ndarray, TorchState]:
        """Add tokens (B, T) to every row; logits (B, V) after the last. T > 1 for a single row only."""
        assert isinstance(state, CudaGraphState)
        if ids.shape[-1] != 1:
            state.drop_speculation()
            return super().step(ids, state)
        check_step(self.config, ids, state.lengths.size)
        steps = state.buffers.steps
        # Attention costs as much as the slots it looks at: few sizes, and none much larger than what is written.
        size = power_of_two(state.lengths.size), max(MIN_CAPACITY, power_of_two(state.longest_with(1)))
        if size not in steps:
            steps[size] = self._capture(state, *size)
        step: CapturedStep = steps[size]
        if state.last_step is None or not np.array_equal(ids[:, 0], state.last_step.likeliest[: len(ids)]):
            state.drop_speculation()
        else:
            state.n_greedy += 1
        was_speculative, state.is_speculative = (
            state.is_speculative,
            False,
        )  # by this very step: it never goes past its size
        if not was_speculative:
            step.start(ids, state.lengths)
        logits = step.finish(state.lengths.size)
        state.lengths = state.lengths + 1
        state.last_step = step
        if state.n_greedy >= state.speculate_after and int(state.lengths.max()) < min(size[1], state.capacity):
            state.is_speculative = step.start_with_likeliest()
        return logits, state

    @torch.inference_mode()
    def reorder(self, state: TorchState, rows: np.ndarray) -> TorchState:
        """The state whose row i was row rows[i]; rows may be repeated or left out."""
        assert isinstance(state, CudaGraphState)
        rows = np.asarray(rows, dtype=np.int64)
        old, size = state.buffers, state.buffers.size
        handle = state.handle if rows.size <= size.n_rows else self._acquire(rows.size, size.capacity, size.n_source)
        sources = state.sources[rows]
        # A beam mostly exchanges rows of one source: then the memory can stay as it is.
        moves = not np.array_equal(sources, state.sources)
        handle.buffers.copy_rows(old, rows, int(state.lengths.max()), memory=moves)
        state.drop_speculation()
        return self._state_on(handle, state.lengths[rows], sources, state.capacity, state.speculate_after)

    @torch.inference_mode()
    def join(self, state: TorchState, other: TorchState) -> TorchState:
        """The rows of both, `other`'s behind; both were started with the same capacity."""
        assert isinstance(state, CudaGraphState)
        assert isinstance(other, CudaGraphState)
        first, second = state.lengths.size, other.lengths.size
        old = state.buffers.size
        n_source = max(old.n_source, other.buffers.size.n_source)
        handle = state.handle
        if first + second > old.n_rows or n_source > old.n_source:
            handle = self._acquire(first + second, old.capacity, n_source)
            handle.buffers.copy_rows(state.buffers, np.arange(first), int(state.lengths.max()))
        handle.buffers.copy_rows(other.buffers, np.arange(second), int(other.lengths.max()), at=first)
        lengths = np.concatenate((state.lengths, other.lengths))
        sources = np.concatenate((state.sources, other.sources + state.sources.max() + 1))
        state.drop_speculation()
        return self._state_on(handle, lengths, sources, state.capacity, state.speculate_after)

    def _empty(self, n_rows: int, capacity: int, memory: Memory | None) -> TorchState:
        handle = self._acquire(n_rows, capacity, 0 if memory is None else memory.mask.size(-1))
        if memory is not None:
            handle.buffers.write_memory(memory)
        return self._state_on(handle, np.zeros(n_rows, dtype=np.int64), np.arange(n_rows), capacity)

    def _acquire(self, n_rows: int, capacity: int, n_source: int) -> BufferHandle:
        with CUDA_LOCK:
            return self._pool.acquire(BufferSize.of(n_rows, capacity, n_source))

    def _state_on(
        self,
        handle: BufferHandle,
        lengths: np.ndarray,
        sources: np.ndarray,
        capacity: int,
        speculate_after: int = SPECULATE_AFTER,
    ) -> CudaGraphState:
        keys, values = handle.buffers.caches(lengths.size, capacity)
        memory = handle.buffers.memories(lengths.size)
        return CudaGraphState(keys, values, lengths, memory, sources, handle, speculate_after=speculate_after)

    def _capture(self, state: CudaGraphState, n_rows: int, n_slots: int) -> "CapturedStep":
        """The step over the first rows of the state's buffers, and the first cache slots of each."""
        buffers = state.buffers
        keys, values = buffers.caches(n_rows, n_slots)
        memory = [] if state.memory is None else [buffers.memories(n_rows)]
        run = self.model.decode

        def decode(ids: Tensor, positions: Tensor) -> Tensor:
            logits: Tensor = run(ids, positions, keys, values, *memory)[0]
            return logits[:, -1]  # R V

        with CUDA_LOCK:
            # The buffers may have more slots than the model has positions.
            last = min(n_slots, self.config.max_length) - 1
            return CapturedStep(
                decode, n_rows, last, self.config.n_outputs, self.device, self._memory_pool, state.lengths
            )


class CapturedStep:
    """Ids and positions in, logits out, always through the same buffers.

    Beside the logits it writes the inputs of a greedy next step: the likeliest tokens, one position further on.
    """

    def __init__(
        self,
        decode: Callable[[Tensor, Tensor], Tensor],
        n_rows: int,
        last_position: int,
        n_outputs: int,
        device: torch.device,
        memory_pool: Any,
        lengths: np.ndarray,
    ) -> None:
        """`lengths` of the rows in use: the warm-up runs write only behind them."""
        on_gpu = device.type == "cuda"
        self._decode = decode
        self._device = device
        self._last_position = last_position
        self._given = torch.zeros(2, n_rows, 1, dtype=torch.int64, pin_memory=on_gpu)  # ids, positions
        self._inputs = torch.zeros_like(self._given, device=device)
        self._logits = torch.empty(n_rows, n_outputs, device=device)  # R V
        # Two buffers: the host reads one while the GPU may fill the other.
        self._found = [torch.empty(n_rows, n_outputs, pin_memory=on_gpu) for _ in range(2)]  # R V
        self._turn = 0
        self._next = torch.zeros(n_rows, 1, dtype=torch.int64, pin_memory=on_gpu)
        self.likeliest = np.empty(0, dtype=np.int64)  # R: the tokens that the last_step logits prefer
        # The same memory as numpy sees it.
        self._ids, self._positions = self._given.numpy()
        self._positions[: lengths.size, 0] = lengths
        self._graph = None
        if on_gpu:
            self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._inputs.copy_(self._given)
            self._graph = capture(self._work, device, memory_pool)

    def start(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Add one new token (B, 1) per row; rows beyond B compute values that nobody reads."""
        self._ids[: lengths.size] = ids
        self._positions[: lengths.size, 0] = lengths
        with CUDA_LOCK:
            self._inputs.copy_(self._given, non_blocking=True)
            self._run()

    def start_with_likeliest(self) -> bool:
        """Add the tokens that the last run found likeliest; False if that would mean waiting for another thread."""
        if not CUDA_LOCK.acquire(blocking=False):
            return False
        try:
            self._run()
        finally:
            CUDA_LOCK.release()
        return True

    def finish(self, n_rows: int) -> np.ndarray:
        """Logits (B, V) of what was started last, valid until the second start from now."""
        if self._graph is not None:
            self._done.synchronize()
        self.likeliest = self._next.numpy()[:, 0].copy()
        array: np.ndarray = self._found[self._turn].numpy()[:n_rows]
        return array

    @property
    def n_bytes(self) -> int:
        """Memory that it keeps on the device; twice as much is pinned on the host."""
        return self._logits.nbytes

    def _run(self) -> None:
        self._turn = 1 - self._turn
        if self._graph is None:
            self._work()
        else:
            self._graph.replay()
        self._found[self._turn].copy_(self._logits, non_blocking=True)
        self._next.copy_(self._inputs[0], non_blocking=True)
        if self._graph is not None:
            self._done.record(torch.cuda.current_stream(self._device))

    def _work(self) -> None:
        ids, positions = self._inputs
        self._logits.copy_(self._decode(ids, positions))
        torch.argmax(self._logits, dim=-1, keepdim=True, out=ids)
        # Unused rows count on as well, but not past the end.
        positions.add_(1).clamp_(max=self._last_position)


def open_eager(
    bundle: Bundle, device: str | None = None, threads: int | None = None, dtype: str = "float32"
) -> EagerBackend:
    """The folder's model, on CUDA where there is one unless `device` says otherwise; float32 or bfloat16."""
    chosen = torch_device(device)
    set_threads(threads)
    precision = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    return eager_on(load_model(bundle), bundle.config, chosen, precision)


def eager_on(model: Any, config: ModelConfig, device: torch.device, dtype: torch.dtype | None = None) -> EagerBackend:
    """A model on a device, in the form that is fast there."""
    kind = CudaGraphBackend if device.type == "cuda" else EagerBackend
    return kind(model, config, device=device, dtype=dtype)
