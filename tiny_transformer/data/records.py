"""What a model is trained on, before it becomes ids: pairs, dialogues, plain texts; and the files that hold them.

`FORMATS` at the end declares the formats of files. How a record of a format becomes examples is in `examples.py`.
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import zip_longest
from typing import Any

from tiny_transformer.data.files import DataFile, open_text
from tiny_transformer.errors import DataError, InputError, Sentence
from tiny_transformer.tokenizer import Message, message_parts


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


def split_of(text: str, held_out: Mapping[str, float]) -> str:
    """Which split a text belongs to, by its hash alone: the same on every machine, whatever else is in the file."""
    # Case and punctuation are no difference: "Bye" in training would give "bye!" away.
    fraction = int.from_bytes(hashlib.sha256(plain_words(text).encode()).digest()[:8], "big") / 2**64
    for split in ("test", "dev"):
        fraction -= held_out.get(split, 0.0)
        if fraction < 0:
            return split
    return "train"


def plain_words(text: str) -> str:
    """A text without regard to case, punctuation and spacing: what counts when two are the same."""
    return re.sub(r"[\W_]+", " ", text.lower()).strip()


logger = logging.getLogger(__name__)

MAX_MALFORMED_SHARE = 0.01
MAX_TEXT = 1 << 20  # of one line in bytes, of one document in characters: encoding takes some 200 bytes for each
_SHOWN = 3  # malformed lines that a message quotes


@dataclass
class Faults:
    """Malformed lines of one source: how many, and the first few."""

    lines: int = 0
    malformed: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, file: DataFile, line: int, reason: str) -> None:
        """Count one."""
        self.malformed += 1
        if len(self.first) < _SHOWN:
            self.first.append(f"{file.name}:{line}: {reason}")

    def settle(self, what: str, *, again: bool = False) -> None:
        """At the end of a source: a few malformed lines are said, once and not `again`, many are an error."""
        if not self.malformed:
            return
        faults = Sentence(
            "{malformed:,} of {lines:,} lines of {what} are malformed ({first})",
            malformed=self.malformed,
            lines=self.lines,
            what=what,
            first="; ".join(self.first),
        )
        if self.malformed > MAX_MALFORMED_SHARE * self.lines:
            template = "{faults}; more than {share:.0%} is too many, correct the file."
            raise DataError(template, faults=faults, share=MAX_MALFORMED_SHARE)
        if not again:
            _say_once(f"{faults}; they are left out.")


@cache
def _say_once(sentence: str) -> None:
    """A source is read more than once: for its vocabulary, for its examples, for those held out."""
    logger.warning(sentence)


class MalformedError(ValueError):
    """One line is not a record; the text says why."""


def read_all(units: Iterable[tuple[DataFile, ...]], kind: str, name: str, *, again: bool = False) -> Iterator[Any]:
    """The records of all files of a source; what is malformed in them is said at the end."""
    faults = Faults()
    for unit in units:
        yield from read_records(unit, kind, faults)
    faults.settle(name, again=again)


def read_records(unit: tuple[DataFile, ...], kind: str, faults: Faults) -> Iterator[Any]:
    """The records of one file, or of two parallel ones; malformed lines go to `faults`."""
    if len(unit) == 1:
        read = FORMATS[kind].read
        return read(unit[0], faults) if read is not None else iter(())
    source, target = unit
    if kind != "pairs":
        template = "{source} and {target} are parallel files, but the format is {kind}, not pairs."
        raise DataError(template, source=source.name, target=target.name, kind=kind)
    return _parallel(source, target, faults)


def _lines(file: DataFile, faults: Faults) -> Iterator[tuple[int, str | None]]:
    """Numbered lines; None where the bytes are not UTF-8 text. One that would fill the memory is refused."""
    with open_text(file) as stream:
        for number, raw in enumerate(iter(partial(stream.readline, MAX_TEXT + 1), b""), start=1):
            if len(raw) > MAX_TEXT:
                template = "Line {line:,} of {file} is longer than {n:,} bytes; break it into shorter ones."
                raise DataError(template, file=file.name, line=number, n=MAX_TEXT)
            faults.lines += 1
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                line = "\0"
            if "\0" in line:  # half of the bytes of UTF-16 are, and text has none
                faults.add(file, number, "not UTF-8 text")
                yield number, None
            else:
                yield number, line


def _parallel(source: DataFile, target: DataFile, faults: Faults) -> Iterator[tuple[str, str]]:
    target_faults = Faults()  # its lines are the source's lines: they are counted once
    pairs = zip_longest(_lines(source, faults), _lines(target, target_faults), fillvalue=(-1, None))
    for (number, a), (other, b) in pairs:
        if number != other:
            template = "{source} and {target} have different numbers of lines; they are not parallel."
            raise DataError(template, source=source.name, target=target.name)
        if a is None or b is None or not (a.strip() or b.strip()):
            continue
        if not (a.strip() and b.strip()):
            faults.add(source if not a.strip() else target, number, "one side is empty")
            continue
        yield a.strip(), b.strip()
    faults.malformed += target_faults.malformed
    faults.first += target_faults.first


def _paragraphs(file: DataFile, faults: Faults) -> Iterator[str]:
    """Plain text: a blank line ends a document, and a file without any is many documents, not one of its size."""
    document: list[str] = []
    size = 0
    for _, line in _lines(file, faults):
        if document and (line is None or not line.strip() or size + len(line) > MAX_TEXT):
            yield "\n".join(document)
            document, size = [], 0
        if line is not None and line.strip():
            document.append(line)
            size += len(line) + 1
    if document:
        yield "\n".join(document)


def _by_line(parse: Callable[[str], Any]) -> Callable[[DataFile, Faults], Iterator[Any]]:
    """A reader of files in which every line is a record."""

    def read(file: DataFile, faults: Faults) -> Iterator[Any]:
        for number, line in _lines(file, faults):
            if line is None or not line.strip():
                continue
            try:
                yield parse(line)
            except MalformedError as error:
                faults.add(file, number, str(error))

    return read


def _pairs(file: DataFile, faults: Faults) -> Iterator[tuple[str, str]]:
    return _by_line(_pair_object if file.suffix == ".jsonl" else _pair_columns)(file, faults)


def _questions(file: DataFile, faults: Faults) -> Iterator[str]:
    return (target for _, target in _pairs(file, faults))


def _pair_columns(line: str) -> tuple[str, str]:
    columns = [column.strip() for column in line.split("\t")]  # a third column (attribution) is not ours to read
    if len(columns) < 2 or not columns[0] or not columns[1]:
        raise MalformedError("not two texts with a TAB between them")
    return columns[0], columns[1]


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedError("not JSON") from None
    if not isinstance(value, dict):
        raise MalformedError("not a JSON object")
    return value


def _text(values: dict[str, Any], key: str) -> str:
    text = values.get(key)
    if not isinstance(text, str) or not text.strip():
        raise MalformedError(f"no text under {key!r}")
    return _clean(text)


def on_one_line(text: str) -> str:
    """A text without breaks and doubled spaces, for a file of lines."""
    return " ".join(text.split())


def _clean(text: str) -> str:
    # JSON can spell half a character (a lone surrogate), which has no bytes.
    return text.encode("utf-8", errors="replace").decode("utf-8").strip()


def _pair_object(line: str) -> tuple[str, str]:
    values = _object(line)
    return _text(values, "source"), _text(values, "target")


def _texts(values: Any, key: str) -> list[str]:
    if not isinstance(values, list) or not values or not all(isinstance(v, str) and v.strip() for v in values):
        raise MalformedError(f"{key!r} is not a list of texts")
    return [_clean(value) for value in values]


def _dialogue(line: str) -> list[str] | list[tuple[str, str]]:
    """Bare turns as texts, or messages as (role, text)."""
    values = _object(line)
    if "messages" not in values:
        return _texts(values.get("turns"), "turns")
    messages = values["messages"]
    if not isinstance(messages, list) or not messages:
        raise MalformedError("'messages' is not a list of messages")
    try:
        parts = [message_parts(message) for message in messages]
    except InputError as error:
        raise MalformedError(str(error).rstrip(".")) from None
    return [(role, _clean(content)) for role, content in parts]


def _intent(line: str) -> tuple[list[str], str]:
    values = _object(line)
    return _texts(values.get("questions"), "questions"), _text(values, "answer")


@dataclass(frozen=True)
class Jokes:
    """Jokes, what gets one of them, and what gets another one after it."""

    requests: tuple[str, ...]
    more: tuple[str, ...]
    jokes: tuple[str, ...]


def _jokes(line: str) -> Jokes:
    values = _object(line)
    return Jokes(
        tuple(_texts(values.get("requests"), "requests")),
        tuple(_texts(values.get("more"), "more")),
        tuple(_texts(values.get("jokes"), "jokes")),
    )


def _story(line: str) -> tuple[str, str]:
    """Story and title; the title may be missing."""
    values = _object(line)
    title = values.get("title")
    return _text(values, "story"), _clean(title) if isinstance(title, str) else ""


@dataclass(frozen=True)
class Format:
    """One format of training data."""

    read: Callable[[DataFile, Faults], Iterator[Any]] | None  # the records of a file; None: made without any file
    is_pairs: bool = False  # an example is a source and a target: for translation, and for nothing else
    has_answer: bool = False  # a question of it has a right answer, by which a model can be measured


GENERATED = "reversed-words"
FORMATS = {
    "pairs": Format(_pairs, is_pairs=True, has_answer=True),
    "dialogues": Format(_by_line(_dialogue)),
    "intents": Format(_by_line(_intent), has_answer=True),
    "jokes": Format(_by_line(_jokes), has_answer=True),
    "questions": Format(_questions),
    "stories": Format(_by_line(_story)),
    "text": Format(_paragraphs),
    GENERATED: Format(None, is_pairs=True, has_answer=True),
}
