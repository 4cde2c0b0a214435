"""What a model is trained on, before it becomes ids: pairs, dialogues, plain texts."""

from collections.abc import Sequence
from dataclasses import dataclass

from tiny_transformer.tokenizer import Message


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class Dialogue:
    """Turns of a user and an assistant."""

    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Text:
    """A document without roles."""

    text: str


Example = Pair | Dialogue | Text


def turns(contents: Sequence[str], *, first: str = "user") -> Dialogue:
    """A dialogue of bare turns by two speakers in alternation."""
    second = "assistant" if first == "user" else "user"
    return Dialogue(tuple(Message(role=(first, second)[i % 2], content=content) for i, content in enumerate(contents)))


def texts_of(example: Example) -> list[str]:
    """Every text in an example, in order: what a tokenizer learns from and encodes."""
    if isinstance(example, Pair):
        return [example.source, example.target]
    if isinstance(example, Dialogue):
        return [message["content"] for message in example.messages]
    return [example.text]
