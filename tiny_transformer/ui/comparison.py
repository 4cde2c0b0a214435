"""One prompt through every backend at once, then the project's own check of how far they are apart."""

import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from tiny_transformer.backends import BACKENDS
from tiny_transformer.backends.base import CLOSE, Batch
from tiny_transformer.errors import Sentence, TinyTransformerError
from tiny_transformer.generation.prompt import Prompt
from tiny_transformer.generation.text import TextStream
from tiny_transformer.parity import verify
from tiny_transformer.parity.cases import TensorCase
from tiny_transformer.parity.microscope import Place, first_part, where
from tiny_transformer.parity.texts import first_difference
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Message
from tiny_transformer.ui.models import ModelStore
from tiny_transformer.ui.streaming import SECONDS_BETWEEN, TimedText

MAX_COMPARED = 16  # sentences whose logits are compared: those of 16 with 40 tokens take 31 MB of each backend


@dataclass(frozen=True, kw_only=True)
class BackendRun(TimedText):
    """One backend's run so far; its seconds are those spent in this backend alone."""

    state: str = "waiting"  # then loading, running, done; or failed
    memory: int | None = None  # bytes that loading took
    problem: Sentence | None = None  # why the backend failed


@dataclass(frozen=True)
class Difference:
    """How one backend compares with the reference on this prompt."""

    backend: str
    first_difference: int | None  # the token, counted from 1; None where the texts are equal
    max_difference: float
    tolerance: float
    passed: bool | None  # None: rounded weights are checked by their task, not by logits
    place: Place | None = None  # of a backend that did not pass: the first part of the model that differs, if one is


@dataclass(frozen=True)
class Comparison:
    """All runs, and once all are done the differences; the reference has none."""

    runs: tuple[BackendRun, ...]
    reference: str
    differences: tuple[Difference, ...] = ()
    finished: bool = False
    notices: tuple[Sentence, ...] = ()

    def run(self, backend: str) -> BackendRun:
        """The run of a backend."""
        return next(run for run in self.runs if run.backend == backend)

    def with_run(self, run: BackendRun) -> "Comparison":
        """The same with a newer state of one run."""
        return replace(self, runs=tuple(run if old.backend == run.backend else old for old in self.runs))

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
        store.chosen(name)  # raises the reason
    state = Comparison(tuple(BackendRun(backend=backend) for backend in names), names[0])
    models: dict[str, TextModel] = {}
    for backend in names:
        state = state.with_run(replace(state.run(backend), state="loading"))
        yield state
        try:
            loaded = store.load(name, backend)
        except TinyTransformerError as error:
            state = state.with_run(replace(state.run(backend), state="failed", problem=error.message))
            continue
        if loaded.model.warning is not None and loaded.model.backend_name != backend:
            state = state.with_run(replace(state.run(backend), state="failed", problem=loaded.model.warning))
            continue
        models[backend] = loaded.model
        state = state.with_run(replace(state.run(backend), state="running", memory=loaded.memory))
    if not models:
        yield replace(state, finished=True)
        return
    reference = next(iter(models))
    streams = {backend: model.stream_tokens(content, **options) for backend, model in models.items()}
    if not streams[reference].prompts:  # nothing to translate, but the backends shall be compared
        streams = {backend: model.stream_tokens(content, split=False, **options) for backend, model in models.items()}
    state = replace(state, reference=reference, notices=streams[reference].notices)
    for reached in _run(state, dict(streams), seconds):
        state = reached
        yield state
    yield replace(state, differences=tuple(_differences(state, models, streams[reference])), finished=True)


def _run(state: Comparison, streams: dict[str, TextStream], seconds: float) -> Generator[Comparison]:
    """The run that has used the least time goes next, so the speeds are comparable on any number of cores."""
    with ExitStack() as stack:
        for stream in streams.values():
            stack.enter_context(stream)
        shown, deadline = time.monotonic(), time.monotonic() + seconds
        while streams:
            backend = min(streams, key=lambda b: state.run(b).seconds)
            start = time.perf_counter()
            event = next(streams[backend])
            run = state.run(backend).with_token(event, time.perf_counter() - start)
            if run.finish_reason is None and time.monotonic() > deadline:
                run = replace(run, finish_reason="time")
            if run.finish_reason is not None:
                run = replace(run, state="done")
                del streams[backend]
            state = state.with_run(run)
            if time.monotonic() - shown >= SECONDS_BETWEEN:
                yield state
                shown = time.monotonic()
    yield state


def _differences(state: Comparison, models: dict[str, TextModel], stream: TextStream) -> Generator[Difference]:
    """Every logit of the reference's own text, by the comparison that the whole project uses."""
    reference = state.run(state.reference)
    limit = models[state.reference].config.max_length
    rows = list(zip(stream.prompts, stream.rows, strict=False))[:MAX_COMPARED]  # time may have ended the others
    case, short = _case(rows, limit), _case(rows[:1], limit)
    for backend, model in models.items():
        if backend == state.reference:
            continue
        # Several threads may add in another order each time; `export verify` takes one, and wants the same bits.
        report = verify(models[state.reference].backend, model.backend, [case], CLOSE)
        rounded = None in (BACKENDS[backend].tolerance, BACKENDS[state.reference].tolerance)
        largest = max(result.max_absolute for result in report.cases)
        ids = state.run(backend).ids
        first = None if ids == reference.ids else first_difference(reference.ids, ids) + 1
        passed = None if rounded else not report.failures
        place = None if passed in (None, True) else _place(models[state.reference], model, short)
        yield Difference(backend, first, largest, CLOSE.absolute, passed, place)


def _case(rows: Sequence[tuple[Prompt, Sequence[int]]], limit: int) -> TensorCase:
    target = Batch.of([[*prompt.prefix, *ids][:limit] for prompt, ids in rows])
    sources = [prompt.source for prompt, _ in rows if prompt.source is not None]
    return TensorCase("full", "this prompt", target, Batch.of(sources) if sources else None)


def _place(reference: TextModel, model: TextModel, case: TensorCase) -> Place | None:
    """Where the fault lies, in a short case: every part of the model is computed once more, which takes its time."""
    try:
        part = first_part(where(reference.backend, model.backend, case))
    except TinyTransformerError:  # a backend that does not show what is inside it
        return None
    return None if part is None else part.place
