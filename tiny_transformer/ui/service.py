"""What a visitor asks for, checked before any model runs: texts, dialogues and decoding options within the limits."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tiny_transformer.config import GenerationConfig
from tiny_transformer.errors import InputError
from tiny_transformer.generation import Cancelled
from tiny_transformer.generation.options import OPTIONS
from tiny_transformer.generation.prompt import Prompt
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Message, message_parts
from tiny_transformer.ui.comparison import Comparison, compare
from tiny_transformer.ui.inspection import Inspection, inspect_answer
from tiny_transformer.ui.models import ModelStore
from tiny_transformer.ui.page_settings import Limits
from tiny_transformer.ui.streaming import Answer

OFFERED = {name: info for name, info in OPTIONS.items() if info.on_page}
FROM_MODEL = OFFERED.keys() & {field.name for field in fields(GenerationConfig)}  # a model brings its own defaults
MAX_BEAMS = 8
NO_TEXT = "There is no text yet; write something."
QUEUE_FULL = "{n} requests are waiting already; please try again in a moment."
MAX_DIGITS = 40  # of a number that comes as text
MAX_TURNS = 200  # a dialogue's oldest turns are dropped by the model's context long before


def check_text(text: object, limits: Limits) -> str:
    """A text that is there, is text, and is not too long."""
    if not isinstance(text, str):
        raise InputError("Expected text, not {kind}; pass a string.", kind=type(text).__name__)
    if not text.strip():
        raise InputError(NO_TEXT)
    if len(text) > limits.characters:
        raise InputError(
            "The text has {n:,} characters; at most {limit:,} fit. Please shorten it.",
            n=len(text),
            limit=limits.characters,
        )
    if text != text.encode("utf-8", errors="replace").decode("utf-8"):
        raise InputError("The text holds half of a character (a lone surrogate); remove it.")
    return text


def check_history(history: object, limits: Limits) -> list[Message]:
    """Earlier turns of a dialogue; each like a text, but may be empty."""
    if history is None:
        return []
    if not isinstance(history, Sequence) or isinstance(history, str) or len(history) > MAX_TURNS:
        raise InputError(
            "The history must be a list of at most {limit} messages with role and content.", limit=MAX_TURNS
        )
    turns: list[Message] = []
    for message in history:
        role, content = message_parts(message)
        if content.strip():
            turns.append({"role": role, "content": check_text(content, limits)})
    return turns


def checked_options(asked: Mapping[str, Any], generation: GenerationConfig, limits: Limits) -> dict[str, Any]:
    """Keywords for generation from controls or a program; what is empty is left to the model's own defaults."""
    options: dict[str, Any] = {}
    for name, info in OFFERED.items():
        value = asked.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        if info.kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)  # sliders and JSON make no difference between 3 and 3.0
        if info.kind is int and isinstance(value, str) and value.strip().isdecimal() and len(value) <= MAX_DIGITS:
            value = int(value)  # of a text box
        _check_cost(name, value, limits)
        info.check(value)
        options[name] = value
    if asked.get("stop"):  # text ends before the first of these; the model's own code checks them
        options["stop"] = asked["stop"]
    options.setdefault("max_new_tokens", min(generation.max_new_tokens, limits.new_tokens))
    if options.get("num_beams", 1) > 1:
        options["temperature"] = 0.0  # whatever the slider says: a beam search draws nothing
    return options


def _check_cost(name: str, value: object, limits: Limits) -> None:
    """The page allows less than the library, since visitors share the machine."""
    if name == "num_beams" and isinstance(value, int) and value > MAX_BEAMS:
        raise InputError("This page searches with at most {limit} beams.", limit=MAX_BEAMS)
    if name == "max_new_tokens" and isinstance(value, int) and value > limits.new_tokens:
        raise InputError("This page writes at most {limit} tokens per answer.", limit=limits.new_tokens)


@dataclass(frozen=True)
class PageService:
    """The models and the limits; it keeps nothing of any visitor."""

    store: ModelStore
    limits: Limits
    waiting: Callable[[], int] = lambda: 0  # how many requests are in the queue

    def check_queue(self) -> None:
        """Refuse a request that would wait behind too many others."""
        n_waiting = self.waiting()
        if n_waiting >= self.limits.queue:
            raise InputError(QUEUE_FULL, n=n_waiting)

    def answers(
        self, name: str, backend: str, turns: object, controls: Mapping[str, Any] | None = None
    ) -> Generator[Answer]:
        """States of the answer to a dialogue whose last turn is the visitor's."""
        content = self.content(name, turns)
        options = checked_options(controls or {}, self.store.bundle(name).generation, self.limits)
        return self.store.answers(name, backend, content, options, self.limits.seconds)

    def compare(self, name: str, text: object) -> Generator[Comparison]:
        """States of one text on every backend, each answering greedily."""
        content = self.asked(name, self.question(text))
        options = checked_options({}, self.store.bundle(name).generation, self.limits)
        return compare(self.store, name, content, options, self.limits.seconds)

    def inspect(self, model: TextModel, prompt: Prompt, start: Sequence[int] = ()) -> Inspection:
        """A text token by token, within the time that one request may take."""
        deadline = time.monotonic() + self.limits.seconds
        try:
            return inspect_answer(model, prompt, start, should_stop=lambda: time.monotonic() >= deadline)
        except Cancelled:
            raise InputError(
                "This took longer than {seconds:g} s, the time limit; try a shorter text.", seconds=self.limits.seconds
            ) from None

    def asked(self, name: str, question: str | list[Message]) -> str | list[Message]:
        """A question as the model takes it: a chat model reads a dialogue, any other the last text alone."""
        turns = dialogue([], question) if isinstance(question, str) else question
        return turns if self.store.bundle(name).generation.task == "chat" else turns[-1]["content"]

    def question(self, asked: object) -> str | list[Message]:
        """A text or a dialogue, checked."""
        return self._turns(asked) if isinstance(asked, list) else check_text(asked, self.limits)

    def content(self, name: str, turns: object) -> str | list[Message]:
        """What the model reads of a dialogue: all of it for a chat model, else the last text alone."""
        self.store.bundle(name)  # a model that cannot be used says so first
        return self.asked(name, self._turns(turns))

    def _turns(self, turns: object) -> list[Message]:
        """A dialogue whose last turn is the visitor's."""
        history = check_history(turns, self.limits)
        if not history or history[-1]["role"] != "user":
            raise InputError(NO_TEXT)
        return history

    def text(self, text: object) -> str:
        """A single text, checked."""
        return check_text(text, self.limits)


def last_of(answers: Generator[Answer]) -> Answer:
    """The complete answer."""
    *_, last = answers
    return last


def dialogue(history: Sequence[Message], message: str) -> list[Message]:
    """A history with the visitor's new message."""
    return [*history, {"role": "user", "content": message}]
