"""What a visitor asks for, checked before any model runs: texts, dialogues and decoding options within the limits."""

import math
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiny_transformer.checks import shown
from tiny_transformer.errors import InputError
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Message, message_parts
from tiny_transformer.ui.comparison import Comparison, compare
from tiny_transformer.ui.inspection import Inspection, inspect_answer
from tiny_transformer.ui.models import ModelStore
from tiny_transformer.ui.page_settings import Limits
from tiny_transformer.ui.streaming import Answer, Guard, Halted

MAX_BEAMS = 8
NO_TEXT = "There is no text yet; write something."
QUEUE_FULL = "{n} requests are waiting already; please try again in a moment."
_NO_NUMBER = "{name} must be a number, not {value}."
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


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """The controls of the page; None leaves the choice to the model's own defaults."""

    max_new_tokens: int | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float | None = None
    num_beams: int = 1
    seed: int | None = None

    @classmethod
    def checked(cls, values: Mapping[str, Any], limits: Limits) -> "Decoding":
        """From controls or a program; what the model's own check would refuse later is left to it."""
        names = ("max_new_tokens", "top_k", "num_beams", "seed")
        whole = {name: _whole(name, values.get(name)) for name in names}
        beams = 1 if whole["num_beams"] is None else whole["num_beams"]
        if beams > MAX_BEAMS:
            raise InputError("This page searches with at most {limit} beams.", limit=MAX_BEAMS)
        if (whole["max_new_tokens"] or 0) > limits.new_tokens:
            raise InputError("This page writes at most {limit} tokens per answer.", limit=limits.new_tokens)
        numbers = {name: _number(name, values.get(name)) for name in ("temperature", "top_p", "repetition_penalty")}
        return cls(
            max_new_tokens=whole["max_new_tokens"],
            temperature=0.0 if beams > 1 else numbers["temperature"] or 0.0,
            top_k=whole["top_k"] or 0,
            top_p=1.0 if numbers["top_p"] is None else numbers["top_p"],
            repetition_penalty=numbers["repetition_penalty"],
            num_beams=beams,
            seed=whole["seed"],
        )

    def options(self, default_new_tokens: int, limits: Limits) -> dict[str, Any]:
        """Keywords for generation, never above the page's limit."""
        wanted = default_new_tokens if self.max_new_tokens is None else self.max_new_tokens
        keywords: dict[str, Any] = {
            "max_new_tokens": min(wanted, limits.new_tokens),
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "num_beams": self.num_beams,
            "seed": self.seed,
        }
        if self.repetition_penalty is not None:
            keywords["repetition_penalty"] = self.repetition_penalty
        return keywords


def _number(name: str, value: object) -> float | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        raise InputError(_NO_NUMBER, name=name, value=shown(value))
    if math.isnan(value):
        raise InputError(_NO_NUMBER, name=name, value="NaN")
    return float(value)


def _whole(name: str, value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # not by way of a float, which has no room for every seed
    number = _number(name, value)
    if number is not None and number != int(number):
        raise InputError(_NO_NUMBER, name=name, value=shown(value))
    return None if number is None else int(number)


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
        decoding = Decoding.checked(controls or {}, self.limits)
        options = decoding.options(self.store.bundle(name).generation.max_new_tokens, self.limits)
        return self.store.answers(name, backend, content, options, self.limits.seconds)

    def compare(self, name: str, text: object) -> Generator[Comparison]:
        """States of one text on every backend, each answering greedily."""
        checked = check_text(text, self.limits)
        special = self.store.bundle(name).generation
        options = Decoding().options(special.max_new_tokens, self.limits)
        return compare(self.store, name, self.asked(name, checked), options, self.limits.seconds)

    def inspect(self, model: TextModel, content: str | Sequence[Message], start: Sequence[int] = ()) -> Inspection:
        """A text token by token, within the time that one request may take."""
        try:
            return inspect_answer(TextModel(model.bundle, Guard(model.backend, self.limits.seconds)), content, start)
        except Halted:
            raise InputError(
                "This took longer than {seconds:g} s, the time limit; try a shorter text.", seconds=self.limits.seconds
            ) from None

    def asked(self, name: str, text: str) -> str | list[Message]:
        """A single text as the model takes it: a chat model reads a dialogue of one turn."""
        return dialogue([], text) if self.store.bundle(name).generation.task == "chat" else text

    def content(self, name: str, turns: object) -> str | list[Message]:
        """What the model reads of a dialogue: all of it for a chat model, else the last text alone."""
        bundle = self.store.bundle(name)
        history = check_history(turns, self.limits)
        if not history or history[-1]["role"] != "user":
            raise InputError(NO_TEXT)
        text = check_text(history[-1]["content"], self.limits)
        return history if bundle.generation.task == "chat" else text

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
