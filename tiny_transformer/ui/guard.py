"""A backend that can be told to stop: what lets a visitor leave, or a deadline pass, in the middle of a beam."""

import threading
import time
from typing import Any

import numpy as np

from tiny_transformer.backends.base import AttentionArrays, Backend, Batch, State


class Halted(Exception):  # noqa: N818 - no error: someone asked for it
    """The work was ended from outside, between two steps of the model."""


class Guard:
    """A backend whose every step first asks whether to go on."""

    def __init__(self, backend: Backend, seconds: float) -> None:
        self._backend = backend
        self._deadline = time.monotonic() + seconds
        self._stopped = threading.Event()
        self.name = backend.name
        self.config = backend.config
        self.max_rows = backend.max_rows

    def stop(self) -> None:
        """End the work at its next step."""
        self._stopped.set()

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._deadline

    def start(self, prefix: Batch, source: Batch | None, capacity: int) -> tuple[np.ndarray, State]:
        """As the backend's."""
        self._check()
        return self._backend.start(prefix, source, capacity)

    def step(self, ids: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """As the backend's, unless it is time to stop."""
        self._check()
        return self._backend.step(ids, state)

    def reorder(self, state: State, rows: np.ndarray) -> State:
        """As the backend's."""
        return self._backend.reorder(state, rows)

    def join(self, state: State, other: State) -> State:
        """As the backend's."""
        return self._backend.join(state, other)

    def side_by_side(self, n_rows: int) -> list["Guard"]:
        """This one alone: whoever stops it must stop all of the work."""
        return [self]

    def logits(self, target: Batch, source: Batch | None) -> np.ndarray:
        """As the backend's."""
        return self._backend.logits(target, source)

    def attention(self, target: Batch, source: Batch | None) -> AttentionArrays:
        """As the backend's."""
        return self._backend.attention(target, source)

    def _check(self) -> None:
        if self._stopped.is_set() or self.late:
            raise Halted

    def __getattr__(self, name: str) -> Any:
        """Whatever else a backend offers beyond the protocol."""
        return getattr(self._backend, name)
