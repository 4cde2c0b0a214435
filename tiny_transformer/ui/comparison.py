"""One prompt through every backend at once, then the project's own difference of how far they are apart."""

import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from tiny_transformer.backends import BACKENDS
from tiny_transformer.backends.base import CLOSE, Batch
from tiny_transformer.errors import TinyTransformerError
from tiny_transformer.generation.prompt import Prompt, prompt_for
from tiny_transformer.generation.text import TextStream
from tiny_transformer.parity import Tolerance, verify
from tiny_transformer.parity.cases import TensorCase
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Message
from tiny_transformer.ui.models import ModelStore
from tiny_transformer.ui.streaming import SECONDS_BETWEEN, token_stream


@dataclass(frozen=True)
class BackendRun:
    """One backend's run so far."""

    backend: str
    state: str = "waiting"  # then loading, running, done; or failed
    text: str = ""
    ids: tuple[int, ...] = ()
    seconds: float = 0.0  # spent in this backend alone
    first_seconds: float | None = None
    finish_reason: str | None = None
    memory: int | None = None
    problem: str | None = None  # why the backend failed

    @property
    def tokens_per_second(self) -> float:
        """Speed after the first token."""
        if len(self.ids) > 1 and self.first_seconds is not None and self.seconds > self.first_seconds:
            return (len(self.ids) - 1) / (self.seconds - self.first_seconds)
        return 0.0


@dataclass(frozen=True)
class Difference:
    """How one backend compares with the reference on this prompt."""

    backend: str
    first_difference: int | None  # the token, counted from 1; None where the texts are equal
    max_difference: float
    tolerance: float
    passed: bool | None  # None: rounded weights are checked by their task, not by logits


@dataclass(frozen=True)
class Comparison:
    """All runs, and once all are done the differences; the reference has none."""

    runs: tuple[BackendRun, ...]
    reference: str
    differences: tuple[Difference, ...] = ()
    finished: bool = False
    notices: tuple[str, ...] = ()

    def run(self, backend: str) -> BackendRun:
        """The run of a backend."""
        return next(run for run in self.runs if run.backend == backend)

    @property
    def verdict(self) -> str:
        """alone, differ, tie or equal."""
        checked = [difference for difference in self.differences if difference.passed is not None]
        if not checked:
            return "alone"
        if not all(difference.passed for difference in checked):
            return "differ"
        return "equal" if all(difference.first_difference is None for difference in checked) else "tie"


def compare(
    store: ModelStore, name: str, content: str | Sequence[Message], options: dict[str, Any], seconds: float
) -> Generator[Comparison]:
    """States of the comparison: every backend that can run this model, the reference first."""
    names = [backend for backend, reason in store.backends(name).items() if reason is None]
    if not names:
        store.chosen(name)  # says why
    bundle = store.bundle(name)
    prompt = prompt_for(
        bundle.tokenizer, bundle.config, bundle.generation, content, max_new_tokens=options["max_new_tokens"]
    )
    state = Comparison(tuple(BackendRun(backend) for backend in names), names[0], notices=prompt.notices)
    models: dict[str, TextModel] = {}
    for backend in names:
        state = _changed(state, replace(state.run(backend), state="loading"))
        yield state
        try:
            loaded = store.load(name, backend)
        except TinyTransformerError as error:
            state = _changed(state, replace(state.run(backend), state="failed", problem=error.message))
            continue
        models[backend] = loaded.model
        state = _changed(state, replace(state.run(backend), state="running", memory=loaded.memory))
    if not models:
        yield replace(state, finished=True)
        return
    state = replace(state, reference=next(iter(models)))
    for reached in _run(state, models, content, options, seconds):
        state = reached
        yield state
    yield replace(state, differences=tuple(_differences(state, models, prompt)), finished=True)


def _run(
    state: Comparison,
    models: dict[str, TextModel],
    content: str | Sequence[Message],
    options: dict[str, Any],
    seconds: float,
) -> Generator[Comparison]:
    """The run that has used the least time goes next, so the speeds are comparable on any number of cores."""
    with ExitStack() as stack:
        streams = {
            backend: stack.enter_context(token_stream(model, content, options)) for backend, model in models.items()
        }
        shown, deadline = time.monotonic(), time.monotonic() + seconds
        while streams:
            backend = min(streams, key=lambda b: state.run(b).seconds)
            run = _stepped(state.run(backend), streams[backend])
            if run.state == "running" and time.monotonic() > deadline:
                run = replace(run, state="done", finish_reason="time")
            if run.state == "done":
                del streams[backend]
            state = _changed(state, run)
            if time.monotonic() - shown >= SECONDS_BETWEEN:
                yield state
                shown = time.monotonic()
    yield state


def _stepped(run: BackendRun, stream: TextStream) -> BackendRun:
    start = time.perf_counter()
    event = next(stream)
    seconds = run.seconds + time.perf_counter() - start
    return replace(
        run,
        text=run.text + event.text,
        ids=(*run.ids, event.token.id),
        seconds=seconds,
        first_seconds=seconds if run.first_seconds is None else run.first_seconds,
        finish_reason=event.token.finish_reason,
        state="running" if event.token.finish_reason is None else "done",
    )


def _differences(state: Comparison, models: dict[str, TextModel], prompt: Prompt) -> Generator[Difference]:
    """Every logit of the reference's own text, by the comparison that the whole project uses."""
    reference = state.run(state.reference)
    limit = models[state.reference].config.max_length
    target = Batch.of([[*prompt.prefix, *reference.ids][:limit]])
    source = None if prompt.source is None else Batch.of([prompt.source])
    case = TensorCase("full", "this prompt", target, source)
    for backend, model in models.items():
        if backend == state.reference:
            continue
        tolerance = _tolerance(state.reference, backend)
        report = verify(models[state.reference].backend, model.backend, [case], tolerance)
        exact_weights = all(BACKENDS[name].tolerance is not None for name in (backend, state.reference))
        passed = not report.failures if exact_weights else None
        largest = max(result.max_absolute for result in report.cases)
        found = _first_difference(reference.ids, state.run(backend).ids)
        yield Difference(backend, found, largest, tolerance.absolute, passed)


def _tolerance(reference: str, backend: str) -> Tolerance:
    return (BACKENDS[backend].tolerance or CLOSE) if reference == "eager" else CLOSE


def _first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    if tuple(a) == tuple(b):
        return None
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False), 1) if x != y), min(len(a), len(b)) + 1)


def _changed(state: Comparison, run: BackendRun) -> Comparison:
    return replace(state, runs=tuple(run if old.backend == run.backend else old for old in state.runs))
