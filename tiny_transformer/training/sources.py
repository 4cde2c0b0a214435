"""From a recipe's source to examples: splits, roles, composition, and the items kept out of training."""

import hashlib
import random
import re
from collections.abc import Iterator
from typing import Any

from tiny_transformer.errors import DataError
from tiny_transformer.tokenizer import Message
from tiny_transformer.training.examples import Dialogue, Example, Pair, Text, texts_of, turns
from tiny_transformer.training.files import DataFile, join, locate
from tiny_transformer.training.records import Faults, read_records
from tiny_transformer.training.rephrasing import rephrase
from tiny_transformer.training.settings import Source
from tiny_transformer.training.stories import story_dialogue
from tiny_transformer.training.words import reversed_words


def read_examples(source: Source, root: str, split: str, variant: int = 0) -> Iterator[Example]:
    """The examples of one split, in the files' order; a composed source is shuffled by its variant."""
    if source.split != split and not (source.split == "train" and split in source.held_out):
        return
    examples = _of_split(source, root, split, variant)
    if split == "train" and source.compose > 1:
        examples = _composed(examples, source, variant)
    found = False
    for example in examples:
        found = True
        yield example
    # A small share of a small file may be empty by chance; a file of its own may not.
    if not found and split == source.split:
        raise DataError(f"{source.path or source.format} gave no {split} example; check the file and held_out.")


def held_out(source: Source, root: str, split: str) -> list[Example]:
    """Exactly the items of a source that training leaves out for `split` ("dev" or "test")."""
    return list(read_examples(source, root, split))


def source_files(source: Source, root: str) -> list[tuple[DataFile, ...]]:
    """The files behind a source; none for data that is generated."""
    return [] if source.format == "reversed-words" else locate(join(root, source.path))


def source_bytes(source: Source, root: str) -> int:
    """How much text is behind a source."""
    return sum(file.path.stat().st_size for unit in source_files(source, root) for file in unit)


def split_of(text: str, held_out: dict[str, float]) -> str:
    """Which split a text belongs to, by its hash alone: the same on every machine, whatever else is in the file."""
    # Case and punctuation are no difference: "Bye" in training would give "bye!" away.
    plain = re.sub(r"[\W_]+", " ", text.lower()).strip()
    place = int.from_bytes(hashlib.sha256(plain.encode()).digest()[:8], "big") / 2**64
    for split in ("test", "dev"):
        place -= held_out.get(split, 0.0)
        if place < 0:
            return split
    return "train"


def _of_split(source: Source, root: str, split: str, variant: int) -> Iterator[Example]:
    if source.format == "reversed-words":
        candidates: Iterator[tuple[str, Example]] = ((word, Pair(word, word[::-1])) for word in reversed_words())
    else:
        candidates = _candidates(source, root, split, variant)
    for key, example in candidates:
        if source.split != "train" or split_of(key, source.held_out) == split:
            yield example


def _candidates(source: Source, root: str, split: str, variant: int) -> Iterator[tuple[str, Example]]:
    """Every example with the text that decides its split."""
    faults = Faults()
    for unit in source_files(source, root):
        for record in read_records(unit, source.format, faults):
            yield from _examples(source, record, variant)
    faults.settle(source.name)


def _examples(source: Source, record: Any, variant: int) -> Iterator[tuple[str, Example]]:
    if source.format == "pairs":
        a, b = record
        yield a, Pair(b, a) if source.swap else Pair(a, b)
    elif source.format == "intents":
        questions, answer = record
        for question in questions:
            asked = question
            if source.rephrase and variant:
                asked = rephrase(question, random.Random(f"{variant} {question}"))
            yield question, turns((asked, answer))  # the split is the question's own, however it is spelt
    elif source.format == "dialogues":
        dialogue = _dialogue(source, record, variant)
        yield " ".join(texts_of(dialogue)), dialogue
    elif source.format == "stories":
        story, title = record
        rng = random.Random(f"{variant} {story[:200]}")
        yield story, story_dialogue(story, title, rng)
    else:
        yield record, Text(record)


def _dialogue(source: Source, record: Any, variant: int) -> Dialogue:
    if isinstance(record[0], tuple):
        return Dialogue(tuple(Message(role=role, content=content) for role, content in record))
    first = "assistant" if source.roles == "alternate" and variant % 2 else "user"
    return turns(record, first=first)


def _composed(examples: Iterator[Example], source: Source, variant: int) -> Iterator[Example]:
    """Each dialogue once, some alone and some joined to others, in an order of this variant's own."""
    items = [example for example in examples if isinstance(example, Dialogue)]
    rng = random.Random(f"compose {variant} {source.name}")
    rng.shuffle(items)
    while items:
        count = rng.randint(2, source.compose) if rng.random() < source.compose_share else 1
        taken = [items.pop() for _ in range(min(count, len(items)))]
        yield Dialogue(tuple(message for dialogue in taken for message in dialogue.messages))
