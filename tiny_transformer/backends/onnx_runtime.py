"""ONNX Runtime: a folder's graphs over buffers that it reads and writes in place, without torch.

Shapes: B batch, R rows that a buffer holds (B or more), S source, H heads, C capacity of the cache, K head width.
"""

import copy
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from tiny_transformer.backends.base import (
    AttentionArrays,
    Batch,
    check_capacity,
    check_inputs,
    check_slots,
    check_step,
    check_threads,
    cores,
)
from tiny_transformer.backends.graph_file import addressable, check_graph
from tiny_transformer.backends.inside_graph import InsideGraph
from tiny_transformer.backends.observed_graphs import Find, GraphObserver
from tiny_transformer.backends.observed_values import Keep, find_values
from tiny_transformer.backends.ranking import rank, ranking_session
from tiny_transformer.backends.sessions import not_this_graph, open_session, run_graph
from tiny_transformer.bundle import (
    DECODER_INT8,
    DECODER_INT8_BATCH,
    DECODER_ONNX,
    EMBEDDING,
    ENCODER_INT8,
    ENCODER_INT8_BATCH,
    ENCODER_ONNX,
    WEIGHTS,
    WEIGHTS_INT8,
    WEIGHTS_SHA256,
    Bundle,
    sha256,
)
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import BackendError, BundleError
from tiny_transformer.weights import WeightIndex, read_index


def width_of(*masks: np.ndarray) -> int:
    """Positions that the longest source takes, of masks B S."""
    return max(int(mask.sum(axis=1).max()) for mask in masks)


def stacked(first: np.ndarray, second: np.ndarray, width: int, n_rows: int) -> np.ndarray:
    """The rows of two arrays over sources, cut or filled up with zeros to a width, in a buffer of at least `n_rows`."""
    axis = first.ndim // 2  # B S, or B H S K
    shape = [max(n_rows, len(first) + len(second)), *first.shape[1:]]
    shape[axis] = width
    joined = np.zeros(shape, dtype=first.dtype)
    at = 0
    for array in (first, second):
        kept = tuple(slice(0, min(width, array.shape[axis])) if i == axis else slice(None) for i in range(array.ndim))
        joined[at : at + len(array)][kept] = array[kept]
        at += len(array)
    return joined


def grown(buffer: np.ndarray, n_rows: int, kept: int, used: int) -> np.ndarray:
    """The same buffer, or one of more rows with the first `kept` in it, as far as they are written."""
    if n_rows <= len(buffer):
        return buffer
    larger = np.zeros((n_rows, *buffer.shape[1:]), dtype=buffer.dtype)
    larger[:kept, :, :used] = buffer[:kept, :, :used]
    return larger


def moved(buffer: np.ndarray, rows: np.ndarray, used: int | None = None) -> np.ndarray:
    """Rows of a buffer in a new order; in place where they fit, and only those that move."""
    if rows.size <= len(buffer):
        target = buffer
        moving = np.flatnonzero(rows != np.arange(rows.size))
    else:
        target = np.zeros((rows.size, *buffer.shape[1:]), dtype=buffer.dtype)
        moving = np.arange(rows.size)
    if moving.size and used is None:
        target[moving] = buffer[rows[moving]]  # the right side is a copy: nothing is lost
    elif moving.size:
        target[moving, :, :used] = buffer[rows[moving], :, :used]
    return target


MANY_ROWS = 8  # from this many rows on, a step spends more time on arithmetic than on reading weights
BYTES_PER_THREAD = 10_000_000

MASK = "encoder_attention_mask"


@dataclass
class OrtState:
    """The cache of one batch: buffers that ONNX Runtime reads and writes in place, their first rows in use."""

    caches: dict[str, np.ndarray]  # past's name → R H C K
    memory: dict[str, np.ndarray]  # the encoder's keys and values, R H S K, and its mask, R S; empty without encoder
    lengths: list[int]  # B: how much of each row is written
    sources: np.ndarray  # B: which source each row of the memory holds
    capacity: int  # cache slots of each row
    # What the next run is bound to; None until a run, and after the number of rows has changed.
    session: Any = None
    binding: Any = None
    shape: tuple[int, int] = (0, 0)  # B T, of the next two
    ids: Any = None  # memoryviews of int64
    positions: Any = None
    logits: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 0), dtype=np.float32))  # B T V
    space: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.float32))  # that `logits` lies in


class OrtBackend:
    """Runs a folder's graphs through the protocol. Threads may share it: what a run needs is in its state."""

    def __init__(self, bundle: Bundle, *, threads: int | None = None, int8: bool = False) -> None:
        self.name = "onnx-int8" if int8 else "onnx"
        self.config = bundle.config
        self.max_rows = 64
        self._bundle = bundle
        self._weights = WEIGHTS_INT8 if int8 else WEIGHTS
        # For a few rows, and for many.
        self._encoders = _pair(bundle, ENCODER_INT8, ENCODER_INT8_BATCH) if int8 else (ENCODER_ONNX, ENCODER_ONNX)
        self._decoders = _pair(bundle, DECODER_INT8, DECODER_INT8_BATCH) if int8 else (DECODER_ONNX, DECODER_ONNX)
        self._threads = threads
        index = read_index(bundle.folder / WEIGHTS_INT8) if int8 else bundle.index
        self._bytes_per_step = read_per_step(index, self.config, int8=int8)
        self._sessions: dict[tuple[str, int], Any] = {}
        self._opening: dict[tuple[str, int], threading.Lock] = {}
        self._observer: GraphObserver | None = None
        part = ".decoder" if self.config.is_encoder_decoder else ""
        slots = [f"{i}{part}.{kind}" for i in range(self.config.n_decoder_layers) for kind in ("key", "value")]
        self._caches = {f"past_key_values.{slot}": f"present.{slot}" for slot in slots}
        self._memory = {name.replace(".decoder.", ".encoder.") for name in self._caches} if part else set()

    def start(self, prefix: Batch, source: Batch | None, capacity: int) -> tuple[np.ndarray, OrtState]:
        """Read source and prefix; logits (B, V) after each row's last prefix token."""
        check_inputs(self.config, prefix, source)
        check_capacity(self.config, prefix, capacity)
        n_rows = len(prefix.ids)
        state = OrtState(
            caches=self._empty_caches(n_rows, capacity),
            memory=self._read(source),
            lengths=[0] * n_rows,
            sources=np.arange(n_rows),
            capacity=capacity,
        )
        logits = self._decode(prefix.ids.tolist(), state)  # B T V
        # Slots past a row's own length now hold keys of padding: overwritten before any query sees them.
        state.lengths = prefix.lengths.tolist()
        return logits[np.arange(n_rows), prefix.lengths - 1], state

    def step(self, ids: np.ndarray, state: OrtState) -> tuple[np.ndarray, OrtState]:
        """Add tokens (B, T) to every row; logits (B, V) after the last. T > 1 for a single row only."""
        check_step(self.config, ids, len(state.lengths))
        logits = self._decode(ids.tolist(), state)  # B T V
        state.lengths = [length + ids.shape[1] for length in state.lengths]
        return logits[:, -1], state

    def reorder(self, state: OrtState, rows: np.ndarray) -> OrtState:
        """The state whose row i was row rows[i]; rows may be repeated or left out."""
        rows = np.asarray(rows, dtype=np.int64)
        if rows.size != len(state.lengths):
            state.binding = None
        used = max(state.lengths)
        state.caches = {name: moved(buffer, rows, used) for name, buffer in state.caches.items()}
        sources = state.sources[rows]
        # A beam mostly exchanges rows of one source: then the memory can stay as it is.
        if state.memory and not np.array_equal(sources, state.sources):
            state.memory = {name: moved(array, rows) for name, array in state.memory.items()}
        state.sources, state.lengths = sources, [state.lengths[row] for row in rows.tolist()]
        return state

    def join(self, state: OrtState, other: OrtState) -> OrtState:
        """The rows of both, `other`'s behind; both were started with the same capacity."""
        first, n_rows = len(state.lengths), len(state.lengths) + len(other.lengths)
        used = max(*state.lengths, *other.lengths)
        for name, buffer in state.caches.items():
            state.caches[name] = buffer = grown(buffer, n_rows, first, used)
            buffer[first:n_rows, :, :used] = other.caches[name][: n_rows - first, :, :used]
        if state.memory:
            width = width_of(state.memory[MASK][:first], other.memory[MASK][: n_rows - first])
            for name, array in state.memory.items():
                state.memory[name] = stacked(array[:first], other.memory[name][: n_rows - first], width, len(array))
        state.sources = np.concatenate((state.sources, other.sources + state.sources.max() + 1))
        state.lengths += other.lengths
        state.binding = None
        return state

    def side_by_side(self, n_rows: int) -> list["OrtBackend"]:
        """One of a single thread for each core: two threads of one run wait for each other after every operator."""
        n_threads = min(self._threads or cores(), n_rows // MANY_ROWS)
        if n_threads < 2:
            return [self]
        single = copy.copy(self)  # with the same sessions
        single._threads = 1
        return [single] * n_threads

    def rank(self, logits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids (B, k) of each row's k highest logits (B, V), best first, the lower id of equals; and log Σ exp (B,)."""
        return rank(logits, k)

    def logits(self, target: Batch, source: Batch | None) -> np.ndarray:
        """Logits (B, T, V) of a whole target at once, from an empty past."""
        check_inputs(self.config, target, source)
        n_rows = len(target.ids)
        state = OrtState(self._empty_caches(n_rows, 0), self._read(source), [0] * n_rows, np.arange(n_rows), capacity=0)
        return self._decode(target.ids.tolist(), state)

    def attention(self, target: Batch, source: Batch | None) -> AttentionArrays:
        """Every attention weight of one pass over the whole target; int8 graphs have the float model's."""
        return self.inside_graph.attention(target, source)

    @cached_property
    def inside_graph(self) -> InsideGraph:
        """The graph that shows what is inside the float model; a folder without it says what adds it."""
        return InsideGraph(self._bundle, self._threads)

    def _read(self, source: Batch | None) -> dict[str, np.ndarray]:
        """The encoder's memory of the source, under the decoder's names; nothing without a source."""
        if source is None:
            return {}
        self._open_decoder_meanwhile(len(source.ids))
        graph = self._encoders[len(source.ids) >= MANY_ROWS]
        session = self._session(graph, self._weights, self._threads or cores())
        mask = source.mask.astype(np.int64)
        n_rows, length = source.ids.shape
        memory = {name: np.empty(self._cache_shape(n_rows, length), dtype=np.float32) for name in sorted(self._memory)}
        binding = session.io_binding()
        ids = np.ascontiguousarray(source.ids, dtype=np.int64)
        _bind_input(binding, "input_ids", ids)
        _bind_input(binding, "attention_mask", mask)
        for name, array in memory.items():
            _bind_output(binding, name.replace("past_key_values.", "present."), array)
        self._run(graph, session.run_with_iobinding, binding)
        return memory | {MASK: mask}

    def _open_decoder_meanwhile(self, n_rows: int) -> None:
        """The first text waits for all sessions: open the others while the encoder's is opened and run."""
        if (self._decoders[n_rows >= MANY_ROWS], self._step_threads(n_rows)) in self._sessions:
            return

        def work() -> None:
            with suppress(BackendError, BundleError):  # raised again where the session is wanted
                self._decoder_session(n_rows)
                ranking_session()

        # Not as a daemon: a process that ends while ONNX Runtime opens a graph would end by a signal.
        threading.Thread(target=work).start()

    def _decode(self, ids: list[list[int]], state: OrtState) -> np.ndarray:
        """Run new tokens (B T) behind each row's length; logits B T V, in the state's own buffer."""
        shape = len(ids), len(ids[0])
        if state.capacity:
            check_slots(state.capacity, max(state.lengths) + shape[1])
        if state.binding is None:
            state.session = self._decoder_session(len(ids))
            state.binding = state.session.io_binding()
            self._bind_buffers(state, in_place=state.capacity > 0)
            state.shape = (0, 0)
        if state.shape != shape:
            self._bind_new(state, shape)
        # In a Python loop: after a step, numpy's code is no longer in the processor's cache, and for a few numbers that
        # costs more than the loop (measured: `positions += 1` alone took 12 µs).
        for row, (new, length) in enumerate(zip(ids, state.lengths, strict=True)):
            for t, token_id in enumerate(new):
                state.ids[row, t], state.positions[row, t] = token_id, length + t
        self._run(self._decoders[len(ids) >= MANY_ROWS], state.session.run_with_iobinding, state.binding)
        return state.logits

    def _run(self, graph: str, run: Callable[..., Any], *arguments: Any) -> Any:
        chosen = run if self._observer is None else partial(self._observer.run, graph, run)
        return run_graph(self._bundle.folder / graph, chosen, *arguments)

    def _bind_new(self, state: OrtState, shape: tuple[int, int]) -> None:
        """Buffers for new tokens (B T), where they stand, and the logits that come of them."""
        ids, positions = (np.empty(shape, dtype=np.int64) for _ in range(2))
        size = math.prod(shape) * self.config.n_outputs
        if not size <= state.space.size <= 4 * size:  # what a long prefix took is not kept for a few rows' steps
            state.space = np.empty(size, dtype=np.float32)
        state.logits = state.space[:size].reshape(*shape, self.config.n_outputs)
        state.shape, state.ids, state.positions = shape, ids.data, positions.data
        _bind_input(state.binding, "input_ids", ids)
        _bind_input(state.binding, "position_ids", positions)
        _bind_output(state.binding, "logits", state.logits)

    def _bind_buffers(self, state: OrtState, in_place: bool) -> None:
        """Past and present are one buffer: the graph writes the new slots and copies nothing."""
        n_rows = len(state.lengths)
        for past, present in self._caches.items():
            _bind_input(state.binding, past, state.caches[past][:n_rows])
            if in_place:
                _bind_output(state.binding, present, state.caches[past][:n_rows])
        for name, array in state.memory.items():
            _bind_input(state.binding, name, array[:n_rows])

    def _empty_caches(self, n_rows: int, capacity: int) -> dict[str, np.ndarray]:
        # Zeros come from the system as they are touched: a large capacity costs nothing until it is used.
        return {name: np.zeros(self._cache_shape(n_rows, capacity), dtype=np.float32) for name in self._caches}

    def _cache_shape(self, n_rows: int, length: int) -> tuple[int, int, int, int]:
        return (n_rows, self.config.n_heads, length, self.config.d_head)

    def _step_threads(self, n_rows: int) -> int:
        """How many threads pay for a step: waking one costs as much as reading some megabytes of weights alone."""
        worth = cores() if n_rows >= MANY_ROWS else self._bytes_per_step // BYTES_PER_THREAD
        return self._threads or max(1, min(cores(), worth))

    def _decoder_session(self, n_rows: int) -> Any:
        """The graph whose kernels suit this many rows; in 8 bits the two round differently."""
        return self._session(self._decoders[n_rows >= MANY_ROWS], self._weights, self._step_threads(n_rows))

    def _session(self, graph: str, weights: str, threads: int) -> Any:
        """The session of one graph, opened when it is first wanted."""
        with self._opening.setdefault((graph, threads), threading.Lock()):
            if (graph, threads) not in self._sessions:
                folder = self._bundle.folder
                check_graph(folder / graph, folder / weights, self.config)
                more = [] if self._observer is None else [self._observer.outputs(folder / graph)]
                session = open_session(folder / graph, threads, *more)
                self._bundle.confirm(graph, weights)
                self._check_names(folder / graph, session)
                self._sessions[graph, threads] = session
            return self._sessions[graph, threads]

    def weights(self) -> dict[str, np.ndarray]:
        """The parameters by name, as stored before anything was rounded to 8 bits."""
        return self._bundle.weights()

    def observed(self, keep: Keep, find: Find = find_values) -> "OrtBackend":
        """The same on the folder's own graphs, opened with the inner values that `find` names as outputs."""
        backend = copy.copy(self)
        backend._sessions, backend._opening = {}, {}
        backend._observer = GraphObserver(self.config, keep, find)
        return backend

    def _check_names(self, path: Path, session: Any) -> None:
        """Refuse a graph under the name of another: what it reads or gives is not what will be asked of it."""
        if path.name in self._encoders:
            inputs = {"input_ids", "attention_mask"}
            outputs = {name.replace("past_key_values.", "present.") for name in self._memory}
        else:
            inputs = {"input_ids", "position_ids", *self._caches, *self._memory, *([MASK] if self._memory else [])}
            outputs = {"logits", *self._caches.values()}
        found = {value.name for value in session.get_inputs()}, {value.name for value in session.get_outputs()}
        if found[0] != inputs or not outputs <= found[1]:
            raise not_this_graph(path)


def open_ort(
    bundle: Bundle, device: str | None = None, threads: int | None = None, *, int8: bool = False
) -> OrtBackend:
    """The folder's graphs on the CPU (there is no other device), checked; nothing is loaded before it is used."""
    check_threads(threads)
    if int8:
        _check_int8(bundle)
    return OrtBackend(bundle, threads=threads, int8=int8)


def _pair(bundle: Bundle, few: str, many: str) -> tuple[str, str]:
    """The graphs for few rows and for many; the same where the model has but one."""
    return few, many if bundle.has(many) else few


def _check_int8(bundle: Bundle) -> None:
    """The 8-bit weights must have been made from the folder's own, where these are there."""
    path = bundle.folder / WEIGHTS_INT8
    if not bundle.has(WEIGHTS_INT8):
        raise BackendError(
            "{path} does not exist; make it with: python -m export all {folder}", path=path, folder=bundle.folder
        )
    if bundle.has(WEIGHTS) and read_index(path).metadata.get(WEIGHTS_SHA256) != sha256(bundle.folder / WEIGHTS):
        template = (
            "{path} was made from another {weights} than the one beside it; make it again with: python -m "
            "export all {folder}"
        )
        raise BackendError(template, path=path, weights=WEIGHTS, folder=bundle.folder)


def read_per_step(index: WeightIndex, config: ModelConfig, *, int8: bool) -> int:
    """How many bytes of weights the decoder reads for every new token: as stored, or computed with in float32."""
    of_source = ".cross_attention.key_value."  # run once a source, by the encoder's graph
    parts = ("decoder.", "embedding.")
    # Of a smaller output layer only its own rows are read; to look one token up is next to nothing.
    without = (of_source, EMBEDDING) if config.output_vocab_size else (of_source,)
    tensors = addressable(index, config).tensors.items()
    read = [entry for name, entry in tensors if name.startswith(parts) and not any(part in name for part in without)]
    return sum(entry.length if int8 else 4 * math.prod(entry.shape) for entry in read)


def _bind_input(binding: Any, name: str, array: np.ndarray) -> None:
    assert array.flags.c_contiguous
    binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)


def _bind_output(binding: Any, name: str, array: np.ndarray) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
