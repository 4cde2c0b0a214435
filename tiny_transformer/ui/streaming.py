"""A backend that can be told to stop: what lets a visitor leave, or a deadline pass, in the middle of a beam."""

import queue
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tiny_transformer.backends.base import AttentionArrays, Backend, Batch, State
from tiny_transformer.generation.text import TextStream, TokenEvent
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Message
from tiny_transformer.ui.i18n import source_language


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


# A page cannot show more than some twenty states a second, and each costs a message to the browser.
SECONDS_BETWEEN = 0.04


@dataclass(frozen=True)
class Answer:
    """An answer so far, or, with a finish reason, the whole of it."""

    backend: str
    text: str = ""
    n_tokens: int = 0  # the end token counts
    seconds: float = 0.0  # spent in the model alone
    first_seconds: float | None = None  # until the first token
    finish_reason: str | None = None  # eos, stop, length, context, or time where the limit ended it
    notices: tuple[str, ...] = ()
    language: str | None = None  # what a text to translate was taken for

    @property
    def tokens_per_second(self) -> float:
        """Speed after the first token, which waits for the prompt to be read."""
        if self.n_tokens > 1 and self.first_seconds is not None and self.seconds > self.first_seconds:
            return (self.n_tokens - 1) / (self.seconds - self.first_seconds)
        return self.n_tokens / self.seconds if self.seconds else 0.0


def stream_answer(
    model: TextModel, content: str | Sequence[Message], options: dict[str, Any], seconds: float
) -> Generator[Answer]:
    """States of one answer, the last one complete. Closing the iterator ends the work at once."""
    guard = Guard(model.backend, seconds)
    guarded = TextModel(model.bundle, guard)
    stream = token_stream(guarded, content, options)
    answer = Answer(model.backend_name, notices=stream.notices, language=_language(model, content))
    yield answer
    shown = time.monotonic()
    try:
        with closing(_timed(stream, guard, in_thread=options.get("num_beams", 1) > 1)) as events:
            for event, spent in events:
                answer = _with(answer, event, spent)
                if time.monotonic() - shown >= SECONDS_BETWEEN or answer.finish_reason:
                    yield answer
                    shown = time.monotonic()
    except Halted:  # the only halt that comes here is the deadline: a visitor who left closed the iterator
        yield replace(answer, finish_reason="time")


def _timed(stream: TextStream, guard: Guard, *, in_thread: bool) -> Generator[tuple[TokenEvent | None, float]]:
    """Events with the seconds each took; None while a beam, which gives nothing before its end, is searching."""
    if in_thread:
        yield from _searched(stream, guard)
        return
    with stream:
        while True:
            start = time.perf_counter()
            try:
                event = next(stream)
            except StopIteration:
                return
            yield event, time.perf_counter() - start


def _searched(stream: TextStream, guard: Guard) -> Generator[tuple[TokenEvent | None, float]]:
    """A beam runs in a thread of its own, so that whoever waits for it may leave."""
    results: queue.Queue[list[TokenEvent] | BaseException] = queue.Queue(1)

    def search() -> None:
        try:
            results.put(list(stream))
        except BaseException as error:  # handed to whoever waits
            results.put(error)

    start = time.perf_counter()
    threading.Thread(target=search, name="beam search", daemon=True).start()
    try:
        while True:
            try:
                found = results.get(timeout=SECONDS_BETWEEN)
                break
            except queue.Empty:
                yield None, 0.0
    finally:
        guard.stop()
    if isinstance(found, BaseException):
        raise found
    seconds = time.perf_counter() - start
    for place, event in enumerate(found):
        yield event, 0.0 if place else seconds


def _with(answer: Answer, event: TokenEvent | None, spent: float) -> Answer:
    if event is None:
        return answer
    seconds = answer.seconds + spent
    return replace(
        answer,
        text=answer.text + event.text,
        n_tokens=answer.n_tokens + 1,
        seconds=seconds,
        first_seconds=seconds if answer.first_seconds is None else answer.first_seconds,
        finish_reason=event.token.finish_reason,
    )


def token_stream(model: TextModel, content: str | Sequence[Message], options: dict[str, Any]) -> TextStream:
    """The tokens of an answer to a text or a dialogue."""
    if isinstance(content, str):
        return model.stream_tokens(content, **options)
    return model.stream_reply_tokens(content, **options)


def _language(model: TextModel, content: str | Sequence[Message]) -> str | None:
    if model.task != "translate" or not isinstance(content, str):
        return None
    return source_language(content, model.bundle.generation.source_languages)
