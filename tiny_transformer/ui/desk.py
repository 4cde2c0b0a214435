"""Where every request goes: it is checked against the limits, finds its model, and is answered."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Message
from tiny_transformer.ui.answer import Answer
from tiny_transformer.ui.guard import Guard, Halted
from tiny_transformer.ui.inside import Look, look
from tiny_transformer.ui.race import Race, race
from tiny_transformer.ui.settings import Limits
from tiny_transformer.ui.shelf import Shelf
from tiny_transformer.ui.wishes import Decoding, Refused, check_history, check_text


@dataclass(frozen=True)
class Desk:
    """The models and the limits; it keeps nothing of any visitor."""

    shelf: Shelf
    limits: Limits
    waiting: Callable[[], int] = lambda: 0  # how many requests are in the queue

    def check_queue(self) -> None:
        """Refuse a request that would wait behind too many others."""
        n_waiting = self.waiting()
        if n_waiting >= self.limits.queue:
            raise Refused("refused_queue", n=n_waiting)

    def answers(
        self, name: str, backend: str, turns: object, controls: Mapping[str, Any] | None = None
    ) -> Generator[Answer]:
        """States of the answer to a dialogue whose last turn is the visitor's."""
        content = self.content(name, turns)
        decoding = Decoding.checked(controls or {}, self.limits)
        options = decoding.options(self.shelf.bundle(name).generation.max_new_tokens, self.limits)
        return self.shelf.answers(name, backend, content, options, self.limits.seconds)

    def race(self, name: str, text: object) -> Generator[Race]:
        """States of one text on every backend, each answering greedily."""
        checked = check_text(text, self.limits)
        special = self.shelf.bundle(name).generation
        options = Decoding().options(special.max_new_tokens, self.limits)
        return race(self.shelf, name, self.asked(name, checked), options, self.limits.seconds)

    def look(self, model: TextModel, content: str | Sequence[Message], start: Sequence[int] = ()) -> Look:
        """A text token by token, within the time that one request may take."""
        try:
            return look(TextModel(model.bundle, Guard(model.backend, self.limits.seconds)), content, start)
        except Halted:
            raise Refused("refused_time", seconds=f"{self.limits.seconds:g}") from None

    def asked(self, name: str, text: str) -> str | list[Message]:
        """A single text as the model takes it: a chat model reads a dialogue of one turn."""
        return dialogue([], text) if self.shelf.bundle(name).generation.task == "chat" else text

    def content(self, name: str, turns: object) -> str | list[Message]:
        """What the model reads of a dialogue: all of it for a chat model, else the last text alone."""
        bundle = self.shelf.bundle(name)
        history = check_history(turns, self.limits)
        if not history or history[-1]["role"] != "user":
            raise Refused("refused_empty")
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
