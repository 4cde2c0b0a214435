"""From the files of a source to examples: which split each belongs to, and what the source's transforms make of it."""

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tiny_transformer.data.augment import (
    TRANSFORMS,
    AlternateRoles,
    Balance,
    Compose,
    Recast,
    Rephrase,
    SwapSides,
    Tag,
    UseAnalogies,
)
from tiny_transformer.data.augment.pairs import transformed
from tiny_transformer.data.augment.small_talk import composed, small_talk, unanswerable
from tiny_transformer.data.augment.stories import recast, story_dialogue
from tiny_transformer.data.files import DataFile, join, locate
from tiny_transformer.data.records import FORMATS, GENERATED, Dialogue, Example, Pair, Text, read_all, texts_of, turns
from tiny_transformer.data.source import Source
from tiny_transformer.errors import DataError
from tiny_transformer.tokenizer import Message

Keyed = tuple[str, Example]  # an example after the text that decides its split
_N_WORDS, _SHORTEST, _LONGEST, _SEED = 20_000, 3, 10, 2017  # of the generated words; lengths in letters


def read_examples(source: Source, root: str, split: str, variant: int = 0) -> Iterator[Example]:
    """The examples of one split, in the files' order; a composed source is shuffled by its variant."""
    if source.split != split and not (source.split == "train" and split in source.held_out):
        return
    examples = _of_split(source, root, split, variant)
    compose = source.transform(Compose)
    if split == "train" and compose is not None:
        dialogues = (example for example in examples if isinstance(example, Dialogue))
        others = _interleaved_dialogues(source, compose.interleave_with, root)
        examples = composed(dialogues, compose, f"compose {variant} {source.name}", others)
    found = False
    for example in examples:
        found = True
        yield example
    # A small share of a small file may be empty by chance; a file of its own may not.
    if not found and split == source.split:
        template = "{source} gave no {split} example; check the file, keep, leave_out and held_out."
        raise DataError(template, source=source.path or source.format, split=split)


def held_out(source: Source, root: str, split: str) -> list[Example]:
    """Exactly the items of a source that training leaves out for `split` ("dev" or "test")."""
    return list(read_examples(source, root, split))


def source_files(source: Source, root: str) -> list[tuple[DataFile, ...]]:
    """The files behind a source; none for data that is generated."""
    return [] if FORMATS[source.format].read is None else locate(join(root, source.path))


def interleaved_files(source: Source, root: str) -> list[tuple[DataFile, ...]]:
    """The files of the dialogues that are interleaved with a source's own."""
    compose = source.transform(Compose)
    return locate(join(root, compose.interleave_with)) if compose is not None and compose.interleave_with else []


def source_bytes(source: Source, root: str) -> int:
    """About how much text is behind a source."""
    return sum(file.text_bytes for unit in source_files(source, root) for file in unit)


def split_of(text: str, held_out: dict[str, float]) -> str:
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


def reversed_words() -> Iterator[str]:
    """20,000 different words of 3 to 10 letters, always the same ones; the task is to reverse each."""
    rng = random.Random(_SEED)
    seen: set[str] = set()
    while len(seen) < _N_WORDS:
        word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(_SHORTEST, _LONGEST)))
        if word not in seen:
            seen.add(word)
            yield word


def _of_split(source: Source, root: str, split: str, variant: int) -> Iterator[Example]:
    wanted = re.compile(source.keep, re.IGNORECASE)
    unwanted = re.compile(source.leave_out, re.IGNORECASE) if source.leave_out else None
    records = read_all(source_files(source, root), source.format, source.name, again=variant > 0)
    for key, example in _MAKERS[source.format](source, records, variant):
        if (source.split == "train" and split_of(key, source.held_out) != split) or not wanted.search(key):
            continue
        if unwanted is None or not any(map(unwanted.search, texts_of(example))):
            yield example


def _pairs(source: Source, records: Iterable[tuple[str, str]], variant: int) -> Iterator[Keyed]:
    swapped = source.transform(SwapSides) is not None
    tag = source.transform(Tag)
    before = tag.text if tag is not None else ""
    in_order = sorted(source.transforms, key=lambda transform: list(TRANSFORMS).index(transform.name))
    for record in records:
        for a, b in transformed(record, in_order, variant) if in_order else (record,):
            yield record[0], Pair(before + b, a) if swapped else Pair(before + a, b)


def _reversed_words(source: Source, records: Iterable[Any], variant: int) -> Iterator[Keyed]:
    return ((word, Pair(word, word[::-1])) for word in reversed_words())


def _texts(source: Source, records: Iterable[str], variant: int) -> Iterator[Keyed]:
    return ((text, Text(text)) for text in records)


def _dialogues(source: Source, records: Iterable[Any], variant: int) -> Iterator[Keyed]:
    first = "assistant" if source.transform(AlternateRoles) is not None and variant % 2 else "user"
    for record in records:
        dialogue = _dialogue(record, first)
        yield " ".join(texts_of(dialogue)), dialogue


def _intents(source: Source, records: Iterable[Any], variant: int) -> Iterator[Keyed]:
    balance, analogies = source.transform(Balance), source.transform(UseAnalogies)
    return small_talk(
        list(records),
        variant,
        _is_trained_on(source),
        strength=balance.strength if balance is not None else 0.0,
        analogies=analogies.share if analogies is not None else 0.0,
        rephrased=source.transform(Rephrase) is not None,
    )


def _questions(source: Source, records: Iterable[str], variant: int) -> Iterator[Keyed]:
    kept = (text for text in records if re.search(source.keep, text, re.IGNORECASE))  # before the work, not after it
    rephrased = source.transform(Rephrase) is not None
    return unanswerable(kept, source.reply, variant, _is_trained_on(source), rephrased=rephrased)


def _stories(source: Source, records: Iterable[tuple[str, str]], variant: int) -> Iterator[Keyed]:
    is_recast = source.transform(Recast) is not None and variant > 0
    for story, title in records:
        rng = random.Random(f"{variant} {story[:200]}")
        text = recast(story, rng) if is_recast else story
        yield story, story_dialogue(text, "" if text != story else title, rng)  # the title names the first characters


# How the records of each format become examples.
_MAKERS: dict[str, Callable[[Source, Iterable[Any], int], Iterator[Keyed]]] = {
    "pairs": _pairs,
    "dialogues": _dialogues,
    "intents": _intents,
    "questions": _questions,
    "stories": _stories,
    "text": _texts,
    GENERATED: _reversed_words,
}


def _is_trained_on(source: Source) -> Callable[[str], bool]:
    return lambda text: split_of(text, source.held_out) == source.split


def _dialogue(record: Any, first: str = "user") -> Dialogue:
    if isinstance(record[0], tuple):
        return Dialogue(tuple(Message(role=role, content=content) for role, content in record))
    return turns(record, first=first)


def _interleaved_dialogues(source: Source, path: str, root: str) -> list[Dialogue]:
    """Dialogues that questions may come up in; those whose hash holds them out stay out here too."""
    found = map(_dialogue, read_all(interleaved_files(source, root), "dialogues", path, again=True))
    is_trained_on = _is_trained_on(source)
    return [d for d in found if _takes_turns(d) and is_trained_on(" ".join(texts_of(d)))]


def _takes_turns(dialogue: Dialogue) -> bool:
    """Whether the user begins and the two alternate: what is interleaved must not change who asks."""
    return all(message["role"] == ("user", "assistant")[i % 2] for i, message in enumerate(dialogue.messages))
