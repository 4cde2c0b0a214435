"""One answer as it is written: its states while it grows, the time it takes, and its end when nobody waits for it."""

import queue
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Self

from tiny_transformer.errors import Sentence
from tiny_transformer.generation import Cancelled
from tiny_transformer.generation.text import TextStream, TokenEvent
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Message
from tiny_transformer.ui.i18n import source_language

# A page cannot show more than some twenty states per second, and each costs a message to the browser.
SECONDS_BETWEEN = 0.04


@dataclass(frozen=True, kw_only=True)
class TimedText:
    """A text so far, and the time that the model alone has spent on it."""

    backend: str
    text: str = ""
    ids: tuple[int, ...] = ()  # the end token is one
    seconds: float = 0.0
    first_seconds: float | None = None  # until the first token
    finish_reason: str | None = None  # eos, stop, length, context, or time where the page's limit ended it

    @property
    def n_tokens(self) -> int:
        """Tokens so far; the end token counts."""
        return len(self.ids)

    @property
    def tokens_per_second(self) -> float:
        """Speed after the first token, which waits for the prompt to be read."""
        if self.n_tokens > 1 and self.first_seconds is not None and self.seconds > self.first_seconds:
            return (self.n_tokens - 1) / (self.seconds - self.first_seconds)
        return self.n_tokens / self.seconds if self.seconds else 0.0

    def with_token(self, event: TokenEvent, spent: float) -> Self:
        """One token more, which took some seconds."""
        seconds = self.seconds + spent
        return replace(
            self,
            text=self.text + event.text,
            ids=(*self.ids, event.token.id),
            seconds=seconds,
            first_seconds=seconds if self.first_seconds is None else self.first_seconds,
            finish_reason=event.token.finish_reason,
        )


@dataclass(frozen=True, kw_only=True)
class Answer(TimedText):
    """An answer so far, or, with a finish reason, the whole of it."""

    notices: tuple[Sentence, ...] = ()
    language: str | None = None  # what a text to translate was taken for
    target_language: str = ""  # what the model translates into
    n_source_tokens: int = 0  # that the model reads; of a text in sentences, those of all of them
    first_ids: tuple[int, ...] = ()  # the answer to the first prompt; of a text in sentences, to the first of them
    max_new_tokens: int = 0  # for which the prompt left room


def stream_answer(
    model: TextModel, content: str | Sequence[Message], options: dict[str, Any], seconds: float
) -> Generator[Answer]:
    """States of one answer, the last one complete. Closing the iterator ends the work at once."""
    deadline, left = time.monotonic() + seconds, threading.Event()

    def should_stop() -> bool:  # also where the program is ending: it waits for a search that is still running
        return left.is_set() or time.monotonic() >= deadline or not threading.main_thread().is_alive()

    stream = model.stream_tokens(content, should_stop=should_stop, **options)
    answer = Answer(
        backend=model.backend_name,
        notices=stream.notices if model.warning is None else (model.warning, *stream.notices),
        language=_language(model, content),
        target_language=model.bundle.generation.target_language,
        n_source_tokens=sum(prompt.n_tokens for prompt in stream.prompts),
        max_new_tokens=options["max_new_tokens"],
    )

    def with_first_ids(answer: Answer) -> Answer:
        return replace(answer, first_ids=tuple(stream.rows[0])) if stream.rows else answer

    yield answer
    shown = time.monotonic()
    events = _from_thread(stream, left) if options.get("num_beams", 1) > 1 else _timed(stream)
    try:
        with closing(events):
            for event, spent in events:
                answer = answer if event is None else answer.with_token(event, spent)
                if time.monotonic() - shown >= SECONDS_BETWEEN or answer.finish_reason:
                    yield with_first_ids(answer)
                    shown = time.monotonic()
    except Cancelled:  # by the deadline: a visitor who left has closed this iterator
        yield with_first_ids(replace(answer, finish_reason="time"))
    finally:
        left.set()


def _timed(stream: TextStream) -> Generator[tuple[TokenEvent | None, float]]:
    """Events with the seconds that each took."""
    with stream:
        start = time.perf_counter()
        for event in stream:
            yield event, time.perf_counter() - start
            start = time.perf_counter()


def _from_thread(stream: TextStream, left: threading.Event) -> Generator[tuple[TokenEvent | None, float]]:
    """A beam search gives nothing before its end: it runs in a thread, and None comes while it is searching.

    Closing the generator sets `left`, which ends the search at its next step, and waits for the thread.
    """
    results: queue.Queue[list[TokenEvent] | BaseException] = queue.Queue(1)

    def search() -> None:
        try:
            results.put(list(stream))
        except BaseException as error:  # raised again by whoever waits
            results.put(error)

    start = time.perf_counter()
    thread = threading.Thread(target=search, name="beam search")
    thread.start()
    found: list[TokenEvent] | BaseException | None = None
    try:
        while found is None:
            try:
                found = results.get(timeout=SECONDS_BETWEEN)
            except queue.Empty:
                yield None, 0.0
    finally:
        left.set()
        thread.join()
    if isinstance(found, BaseException):
        raise found
    seconds = time.perf_counter() - start
    for number, event in enumerate(found):
        yield event, 0.0 if number else seconds


def _language(model: TextModel, content: str | Sequence[Message]) -> str | None:
    if model.task != "translate" or not isinstance(content, str):
        return None
    return source_language(content, model.bundle.generation.source_languages)
