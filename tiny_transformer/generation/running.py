"""The rows that run at once: texts wait their turn, start in groups, and leave as they end (continuous batching)."""

from collections.abc import Sequence

import numpy as np

from tiny_transformer.backends.base import Backend, State, check_inputs
from tiny_transformer.generation.request import Request

GROUP = 4  # a new group starts when this part of the room is free: reading a few texts together costs less
READ_AT_ONCE = 8_192  # tokens, padding among them: a backend may hold the whole vocabulary's scores of each


class Running:
    """A backend's state and newest logits, for some of a request's texts; the others wait."""

    def __init__(self, backend: Backend, request: Request, rows_a_text: int = 1) -> None:
        check_inputs(backend.config, *request.batches(range(len(request.prefixes))))  # before any of them runs
        self.logits = np.empty((0, backend.config.vocab_size), dtype=np.float32)  # R V; valid until the next step
        self._backend = backend
        self._request = request
        self._room = max(1, backend.max_rows // rows_a_text)  # in texts
        self._capacity = request.capacity(backend.config.max_length)
        # Taken from the end, the longest first: those that still run when no one waits are then the short ones.
        self._waiting = sorted(range(len(request.prefixes)), key=lambda i: (request.n_read(i), -i))
        self._state: State = None

    def fill(self, n_running: int) -> list[int]:
        """Start texts that wait, one row each behind the others, if there is room for a group; their numbers."""
        if not self._waiting:
            return []
        self._request.check_halt()
        free = self._room - n_running
        if n_running and free < max(1, self._room // GROUP):
            return []
        longest = self._request.n_read(self._waiting[-1])
        n_new = min(free, len(self._waiting), max(1, READ_AT_ONCE // longest))
        group = [self._waiting.pop() for _ in range(n_new)]
        prefix, source = self._request.batches(group)
        logits, state = self._backend.start(prefix, source, self._capacity)
        if n_running:
            self.logits = np.concatenate((self.logits, logits))
            self._state = self._backend.join(self._state, state)
        else:
            self.logits, self._state = logits, state
        return group

    def keep(self, rows: np.ndarray) -> None:
        """Go on with row rows[i] as row i; with none, the state is let go."""
        self._state = self._backend.reorder(self._state, rows) if rows.size else None

    def step(self, ids: Sequence[int]) -> None:
        """Add a token to every row."""
        self._request.check_halt()
        self.logits, self._state = self._backend.step(np.array([[i] for i in ids]), self._state)


def compacted(alive: np.ndarray) -> np.ndarray:
    """Indices of the live rows, the last of them moved into the holes: few rows change their place."""
    n_alive = int(alive.sum())
    kept = np.arange(n_alive)
    kept[~alive[:n_alive]] = n_alive + np.flatnonzero(alive[n_alive:])
    return kept
