"""From the files of a source to examples: which split each belongs to, and what the source's transforms make of it."""

import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from tiny_transformer.data.augment import (
    TRANSFORMS,
    AlternateRoles,
    Balance,
    Compose,
    GiveWay,
    Reanswer,
    Recast,
    Rephrase,
    SwapSides,
    Tag,
    UseAnalogies,
)
from tiny_transformer.data.augment.characters import recast
from tiny_transformer.data.augment.composition import composed, joke_dialogues
from tiny_transformer.data.augment.pairs import transformed
from tiny_transformer.data.augment.small_talk import small_talk, unanswerable
from tiny_transformer.data.augment.stories import story_dialogue
from tiny_transformer.data.files import DataFile, join, locate
from tiny_transformer.data.records import (
    FORMATS,
    GENERATED,
    Dialogue,
    Example,
    Jokes,
    Pair,
    Text,
    plain_words,
    read_all,
    split_of,
    texts_of,
    turns,
)
from tiny_transformer.data.source import Source, named_sources
from tiny_transformer.errors import DataError
from tiny_transformer.tokenizer import Message

Keyed = tuple[str, Example]  # an example after the text that decides its split
_N_WORDS, _SHORTEST, _LONGEST, _SEED = 20_000, 3, 10, 2017  # of the generated words; lengths in letters


def read_examples(
    source: Source, root: str, split: str, variant: int = 0, among: Sequence[Source] = ()
) -> Iterator[Example]:
    """The examples of one split, in the files' order; a composed source is shuffled by its variant.

    `among` are the sources of the recipe, of which transforms may name some.
    """
    if source.split != split and not (source.split == "train" and split in source.held_out):
        return
    examples = _of_split(source, root, split, variant, among)
    compose = source.transform(Compose)
    if split == "train" and compose is not None:
        examples = _composed(source, compose, examples, root, variant, among)
    found = False
    for example in examples:
        found = True
        yield example
    # A small share of a small file may be empty by chance; a file of its own may not.
    if not found and split == source.split:
        template = "{source} gave no {split} example; check the file, keep, leave_out and held_out."
        raise DataError(template, source=source.path or source.format, split=split)


def held_out(source: Source, root: str, split: str, among: Sequence[Source] = ()) -> list[Example]:
    """Exactly the items of a source that training leaves out for `split` ("dev" or "test")."""
    return list(read_examples(source, root, split, among=among))


def partners(source: Source, among: Sequence[Source]) -> list[Source]:
    """The other sources of the recipe that the transforms of a source name."""
    return [other for other in among if other.name in named_sources(source) and other.name != source.name]


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


@cache
def reversed_words() -> tuple[str, ...]:
    """20,000 different words of 3 to 10 letters, always the same ones; the task is to reverse each."""
    rng = random.Random(_SEED)
    found: dict[str, None] = {}
    while len(found) < _N_WORDS:
        found["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(_SHORTEST, _LONGEST)))] = None
    return tuple(found)


def _of_split(source: Source, root: str, split: str, variant: int, among: Sequence[Source] = ()) -> Iterator[Example]:
    wanted = re.compile(source.keep, re.IGNORECASE)
    unwanted = re.compile(source.leave_out, re.IGNORECASE) if source.leave_out else None
    taken = _answered_by_others(source, root, among)
    records = read_all(source_files(source, root), source.format, source.name, again=variant > 0)
    for key, example in _MAKERS[source.format](source, records, variant):
        if (source.split == "train" and split_of(key, source.held_out) != split) or not wanted.search(key):
            continue
        if plain_words(key) in taken or plain_words(texts_of(example)[0]) in taken:
            continue
        if unwanted is None or not any(map(unwanted.search, texts_of(example))):
            yield example


def _answered_by_others(source: Source, root: str, among: Sequence[Source]) -> Collection[str]:
    """The plain words of every phrasing that the source leaves to others, in whatever split it is there."""
    give_way = source.transform(GiveWay)
    if give_way is None:
        return ()
    found: set[str] = set()
    for other in among:
        if other.name in give_way.to and other.name != source.name:
            for record in read_all(source_files(other, root), other.format, other.name, again=True):
                found.update(map(plain_words, record.requests if isinstance(record, Jokes) else record[0]))
    return found - {""}


def _composed(
    source: Source, compose: Compose, examples: Iterator[Example], root: str, variant: int, among: Sequence[Source]
) -> Iterator[Example]:
    mixed = [other for other in partners(source, among) if other.name in compose.mix_with]
    pools = [
        [example for example in _of_split(other, root, "train", variant, among) if isinstance(example, Dialogue)]
        for other in mixed
    ]
    jokes = [
        joke
        for other in (source, *mixed)
        if other.format == "jokes"
        for record in read_all(source_files(other, root), other.format, other.name, again=True)
        for joke in record.jokes
    ]
    return composed(
        (example for example in examples if isinstance(example, Dialogue)),
        compose,
        f"compose {variant} {source.name}",
        _interleaved_dialogues(source, compose.interleave_with, root),
        [pool for pool in pools if pool],
        jokes,
    )


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
    reanswer = source.transform(Reanswer)
    answers = reanswer.answers if reanswer is not None else {}
    return small_talk(
        [(questions, answers.get(answer, answer)) for questions, answer in records],
        variant,
        _is_trained_on(source),
        strength=balance.strength if balance is not None else 0.0,
        analogies=analogies.share if analogies is not None else 0.0,
        rephrased=source.transform(Rephrase) is not None,
    )


def _jokes(source: Source, records: Iterable[Jokes], variant: int) -> Iterator[Keyed]:
    rephrased = source.transform(Rephrase) is not None
    return joke_dialogues(list(records), variant, _is_trained_on(source), rephrased=rephrased)


def _questions(source: Source, records: Iterable[str], variant: int) -> Iterator[Keyed]:
    kept = (text for text in records if re.search(source.keep, text, re.IGNORECASE))  # before the work, not after it
    rephrased = source.transform(Rephrase) is not None
    return unanswerable(kept, source.reply, variant, _is_trained_on(source), rephrased=rephrased)


def _stories(source: Source, records: Iterable[tuple[str, str]], variant: int) -> Iterator[Keyed]:
    is_recast = source.transform(Recast) is not None and variant > 0
    rephrased = source.transform(Rephrase) is not None and variant > 0
    unwanted = re.compile(source.leave_out or "(?!)", re.IGNORECASE)  # before the work, not after it
    for story, title in ((story, title) for story, title in records if not unwanted.search(story)):
        rng = random.Random(f"{variant} {story[:200]}")
        text = recast(story, rng) if is_recast else story
        title = title if text == story else ""  # it names the first characters
        yield story, story_dialogue(text, title, rng, rephrased=rephrased)


# How the records of each format become examples.
_MAKERS: dict[str, Callable[[Source, Iterable[Any], int], Iterator[Keyed]]] = {
    "pairs": _pairs,
    "dialogues": _dialogues,
    "intents": _intents,
    "jokes": _jokes,
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
    return [d for d in found if takes_turns(d) and is_trained_on(" ".join(texts_of(d)))]


def takes_turns(dialogue: Dialogue) -> bool:
    """Whether the user begins and the two alternate: what is interleaved must not change who asks."""
    return all(message["role"] == ("user", "assistant")[i % 2] for i, message in enumerate(dialogue.messages))
