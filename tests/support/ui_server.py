"""A page in a process of its own, for the tests: app.py's options, and `--delay SECONDS --steps FILE`.

Prints the page's address, serves until its input is closed, and can make every step of a model slow.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tiny_transformer.text_model import TextModel
from tiny_transformer.ui import server
from tiny_transformer.ui.models import Loaded, ModelStore
from tiny_transformer.ui.page_settings import parse_settings


class SlowBackend:
    """A backend whose every step takes a while, which lets a test stop an answer in the middle."""

    def __init__(self, backend: Any, seconds: float, steps: str | None = None) -> None:
        self._backend = backend
        self._seconds = seconds
        self._file = os.open(steps, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if steps else None
        self.steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def step(self, ids: Any, state: Any) -> Any:
        """Wait, count, then as the backend's."""
        time.sleep(self._seconds)
        self.steps += 1
        if self._file is not None:
            os.write(self._file, b".")
        return self._backend.step(ids, state)


class SlowModelStore(ModelStore):
    """Models that take their time."""

    seconds = 0.0
    steps: str | None = None

    def load(self, name: str, backend: str = "auto") -> Loaded:
        """The model on a slow backend."""
        found = super().load(name, backend)
        slow = SlowBackend(found.model.backend, self.seconds, self.steps)
        return Loaded(TextModel(found.model.bundle, slow), found.seconds, found.memory)


def main() -> None:
    """Serve until whoever started this closes our input."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--steps")
    options, rest = parser.parse_known_args()
    settings = parse_settings(["--port", "0", *rest])
    if options.delay:
        SlowModelStore.seconds, SlowModelStore.steps = options.delay, options.steps
        store: ModelStore = SlowModelStore(settings.models, settings.backend, settings.threads)
        store.load(store.default)
    else:
        store = ModelStore(settings.models, settings.backend, settings.threads)
    page = server.start(store, settings)
    print(page.local_url, flush=True)
    sys.stdin.read()
    page.close(verbose=False)


if __name__ == "__main__":
    main()
