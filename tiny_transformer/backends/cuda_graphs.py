"""Work on a GPU recorded once, as a CUDA graph: replayed, all its kernels are launched at once."""

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

from tiny_transformer.backends.cuda_buffers import SMALLEST_CAPACITY, Lease, Places, Pool, Size, power_of_two
from tiny_transformer.backends.eager import EagerBackend, TorchState, set_threads, torch_device
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import ModelConfig
from tiny_transformer.model import Memory, load_model

WARM_UPS = 2  # runs before a recording: libraries set themselves up in the first

# CUDA records one graph at a time in a process. Recordings also share a stream, and with it the libraries' workspace:
# so nobody replays while another records, whatever model each of them runs.
ONE_AT_A_TIME = threading.Lock()
_streams: dict[torch.device, torch.cuda.Stream] = {}


def record(work: Callable[[], None], device: torch.device, workspace: Any) -> torch.cuda.CUDAGraph:
    """Record `work`, which reads and writes memory that keeps its place. Called with ONE_AT_A_TIME held.

    Recordings of one workspace run one after the other, and keep nothing in it between two runs.
    """
    graph = torch.cuda.CUDAGraph()
    # The outer stream is the one that is current: a recording that fails would otherwise leave its own behind.
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
        stream = _recording_stream(device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        # Other threads go on meanwhile: only what this one does is recorded, and only it is held to the rules.
        recording = torch.cuda.graph(graph, pool=workspace, stream=stream, capture_error_mode="thread_local")
        with _no_collection(), recording:
            work()
    return graph


def _recording_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of all recordings on a device: memory of a shared pool belongs to the stream it was taken on."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    return _streams[device]


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection in between: it might destroy an old graph, which ends a recording."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


PATIENCE = 2  # steps in a row that were the likeliest tokens, before the next is started with them unasked


@dataclass
class CapturedState(TorchState):
    """A batch in places that were lent to it; its tensors are views of them."""

    lease: Lease
    newest: "RecordedStep | None" = None  # the step that gave the last logits
    in_a_row: int = 0  # so many steps, up to now, were given the tokens that the one before found likeliest
    patience: int = PATIENCE  # that many must be, before the next starts unasked; doubled each time it was in vain
    is_ahead: bool = False  # the newest step was started again, with the likeliest tokens

    def give_up(self) -> None:
        """What was started unasked, if anything, is not what is wanted."""
        if self.is_ahead:
            self.patience *= 2
        self.newest, self.in_a_row, self.is_ahead = None, 0, False

    @property
    def places(self) -> Places:
        """Where its rows lie."""
        return self.lease.places

    @property
    def capacity(self) -> int:
        """As it was asked for; the places may hold more."""
        return self.keys[0].size(2)


class CapturedBackend(EagerBackend):
    """Eager whose steps are replayed."""

    max_rows = 256  # reading new texts is many launches whatever their number

    def __init__(
        self, model: Any, config: ModelConfig, *, device: torch.device | str = "cuda", dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(model, config, device=device, dtype=dtype)
        self._pool = Pool(partial(Places, config, self.device, self.dtype))
        # One workspace for all recordings: they run one after the other, and keep nothing in it between two steps.
        self._workspace = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None

    @torch.inference_mode()
    def step(self, ids: np.ndarray, state: TorchState) -> tuple[np.ndarray, TorchState]:
        """Add tokens (B, T) to every row; logits (B, V) after the last. T > 1 for a single row only."""
        assert isinstance(state, CapturedState)
        if ids.shape[-1] != 1:
            state.give_up()
            return super().step(ids, state)
        self._check_step(ids, state)
        steps = state.places.steps
        # Attention costs what a recording looks at: few sizes, and none much larger than what is written.
        size = power_of_two(state.lengths.size), max(SMALLEST_CAPACITY, power_of_two(state.longest_with(1)))
        if size not in steps:
            steps[size] = self._record(state, *size)
        step: RecordedStep = steps[size]
        if state.newest is None or not np.array_equal(ids[:, 0], state.newest.likeliest[: len(ids)]):
            state.give_up()
        else:
            state.in_a_row += 1
        was_ahead, state.is_ahead = state.is_ahead, False  # of this very recording: it never goes past its size
        if not was_ahead:
            step.start(ids, state.lengths)
        logits = step.finish(state.lengths.size)
        state.lengths = state.lengths + 1
        state.newest = step
        if state.in_a_row >= state.patience and int(state.lengths.max()) < min(size[1], state.capacity):
            state.is_ahead = step.start_with_likeliest()
        return logits, state

    @torch.inference_mode()
    def reorder(self, state: TorchState, rows: np.ndarray) -> TorchState:
        """The state whose row i was row rows[i]; rows may be repeated or left out."""
        assert isinstance(state, CapturedState)
        rows = np.asarray(rows, dtype=np.int64)
        old, size = state.places, state.places.size
        lease = state.lease if rows.size <= size.n_rows else self._lend(rows.size, size.capacity, size.n_source)
        sources = state.sources[rows]
        # A beam mostly trades places among rows of one source: then the memory can stay as it is.
        moves = not np.array_equal(sources, state.sources)
        lease.places.take(old, rows, int(state.lengths.max()), memory=moves)
        state.give_up()
        return self._at(lease, state.lengths[rows], sources, state.capacity, state.patience)

    @torch.inference_mode()
    def join(self, state: TorchState, other: TorchState) -> TorchState:
        """The rows of both, `other`'s behind; both were started with the same capacity."""
        assert isinstance(state, CapturedState)
        assert isinstance(other, CapturedState)
        first, second = state.lengths.size, other.lengths.size
        old = state.places.size
        n_source = max(old.n_source, other.places.size.n_source)
        lease = state.lease
        if first + second > old.n_rows or n_source > old.n_source:
            lease = self._lend(first + second, old.capacity, n_source)
            lease.places.take(state.places, np.arange(first), int(state.lengths.max()))
        lease.places.take(other.places, np.arange(second), int(other.lengths.max()), at=first)
        lengths = np.concatenate((state.lengths, other.lengths))
        sources = np.concatenate((state.sources, other.sources + state.sources.max() + 1))
        state.give_up()
        return self._at(lease, lengths, sources, state.capacity, state.patience)

    def _empty(self, n_rows: int, capacity: int, memory: Memory | None) -> TorchState:
        lease = self._lend(n_rows, capacity, 0 if memory is None else memory.mask.size(-1))
        if memory is not None:
            lease.places.remember(memory)
        return self._at(lease, np.zeros(n_rows, dtype=np.int64), np.arange(n_rows), capacity)

    def _lend(self, n_rows: int, capacity: int, n_source: int) -> Lease:
        with ONE_AT_A_TIME:
            return self._pool.lend(Size.of(n_rows, capacity, n_source))

    def _at(
        self, lease: Lease, lengths: np.ndarray, sources: np.ndarray, capacity: int, patience: int = PATIENCE
    ) -> CapturedState:
        keys, values = lease.places.caches(lengths.size, capacity)
        memory = lease.places.memories(lengths.size)
        return CapturedState(keys, values, lengths, memory, sources, lease, patience=patience)

    def _record(self, state: CapturedState, n_rows: int, n_places: int) -> "RecordedStep":
        """The step over the first rows of the state's places, and the first so many places of each."""
        places = state.places
        keys, values = places.caches(n_rows, n_places)
        memory = [] if state.memory is None else [places.memories(n_rows)]
        run = self.model.decode

        def decode(ids: Tensor, positions: Tensor) -> Tensor:
            logits: Tensor = run(ids, positions, keys, values, *memory)[0]
            return logits[:, -1]  # R V

        with ONE_AT_A_TIME:
            # A recording may have more places than the model has positions.
            last = min(n_places, self.config.max_length) - 1
            return RecordedStep(
                decode, n_rows, last, self.config.vocab_size, self.device, self._workspace, state.lengths
            )


class RecordedStep:
    """Ids and positions in, logits out, always by way of the same memory.

    Behind the logits it lays down what would come next: the likeliest tokens, a position further on.
    """

    def __init__(
        self,
        decode: Callable[[Tensor, Tensor], Tensor],
        n_rows: int,
        last_position: int,
        vocab_size: int,
        device: torch.device,
        workspace: Any,
        lengths: np.ndarray,
    ) -> None:
        """`lengths` of the rows that are in use: what runs before the recording writes only from there on."""
        on_gpu = device.type == "cuda"
        self._decode = decode
        self._device = device
        self._last_position = last_position
        self._given = torch.zeros(2, n_rows, 1, dtype=torch.int64, pin_memory=on_gpu)  # ids, positions
        self._inputs = torch.zeros_like(self._given, device=device)
        self._logits = torch.empty(n_rows, vocab_size, device=device)  # R V
        # Two of them: the host reads the one while the GPU may fill the other.
        self._found = [torch.empty(n_rows, vocab_size, pin_memory=on_gpu) for _ in range(2)]  # R V
        self._turn = 0
        self._next = torch.zeros(n_rows, 1, dtype=torch.int64, pin_memory=on_gpu)
        self.likeliest = np.empty(0, dtype=np.int64)  # R: the tokens that the newest logits prefer
        # The same memory as numpy sees it.
        self._ids, self._positions = self._given.numpy()
        self._positions[: lengths.size, 0] = lengths
        self._graph = None
        if on_gpu:
            self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._inputs.copy_(self._given)
            self._graph = record(self._work, device, workspace)

    def start(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Add one new token (B, 1) a row; rows beyond B compute nonsense."""
        self._ids[: lengths.size] = ids
        self._positions[: lengths.size, 0] = lengths
        with ONE_AT_A_TIME:
            self._inputs.copy_(self._given, non_blocking=True)
            self._run()

    def start_with_likeliest(self) -> bool:
        """Add what the last run found likeliest; not if that means to wait for another thread."""
        if not ONE_AT_A_TIME.acquire(blocking=False):
            return False
        try:
            self._run()
        finally:
            ONE_AT_A_TIME.release()
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
        """What it keeps on the device, and twice as much beside it."""
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
        # Rows that nobody uses count on as well, but not past the end.
        positions.add_(1).clamp_(max=self._last_position)


def open_eager(
    bundle: Bundle, device: str | None = None, threads: int | None = None, dtype: str = "float32"
) -> EagerBackend:
    """The folder's model, on CUDA where there is one unless `device` says otherwise; float32 or bfloat16."""
    place = torch_device(device)
    set_threads(threads)
    precision = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    return eager_on(load_model(bundle), bundle.config, place, precision)


def eager_on(model: Any, config: ModelConfig, device: torch.device, dtype: torch.dtype | None = None) -> EagerBackend:
    """A model on a device, in the form that is fast there."""
    kind = CapturedBackend if device.type == "cuda" else EagerBackend
    return kind(model, config, device=device, dtype=dtype)
