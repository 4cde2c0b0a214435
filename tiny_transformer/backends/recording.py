"""Work on a GPU recorded once, as a CUDA graph: replayed, all its kernels are launched at once."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

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
