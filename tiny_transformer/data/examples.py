"""Data for the first lesson: random words, to be written backwards."""

import hashlib
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from tiny_transformer.data.augment.small_talk import composed, small_talk, unanswerable
from tiny_transformer.data.augment.stories import recast, story_dialogue
from tiny_transformer.data.files import DataFile, join, locate
from tiny_transformer.data.records import Dialogue, Example, Pair, Text, read_all, texts_of, turns
from tiny_transformer.errors import DataError
from tiny_transformer.tokenizer import Message
from tiny_transformer.training.settings import GENERATED, Source

N_WORDS = 20_000
LONGEST = 10
_SEED = 2017


def reversed_words() -> Iterator[str]:
    """Different words of 3 to 10 letters, always the same ones; the task is to reverse each."""
    rng = random.Random(_SEED)
    seen: set[str] = set()
    while len(seen) < N_WORDS:
        word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, LONGEST)))
        if word not in seen:
            seen.add(word)
            yield word


def read_examples(source: Source, root: str, split: str, variant: int = 0) -> Iterator[Example]:
    """The examples of one split, in the files' order; a composed source is shuffled by its variant."""
    if source.split != split and not (source.split == "train" and split in source.held_out):
        return
    examples = _of_split(source, root, split, variant)
    if split == "train" and source.compose > 1:
        dialogues = (example for example in examples if isinstance(example, Dialogue))
        examples = composed(dialogues, source, variant, _talks(source, root))
    found = False
    for example in examples:
        found = True
        yield example
    # A small share of a small file may be empty by chance; a file of its own may not.
    if not found and split == source.split:
        what = source.path or source.format
        raise DataError(
            "{what} gave no {split} example; check the file, keep, leave_out and held_out.", what=what, split=split
        )


def held_out(source: Source, root: str, split: str) -> list[Example]:
    """Exactly the items of a source that training leaves out for `split` ("dev" or "test")."""
    return list(read_examples(source, root, split))


def source_files(source: Source, root: str) -> list[tuple[DataFile, ...]]:
    """The files behind a source; none for data that is generated."""
    return [] if source.format == GENERATED else locate(join(root, source.path))


def source_bytes(source: Source, root: str) -> int:
    """How much text is behind a source."""
    return sum(file.path.stat().st_size for unit in source_files(source, root) for file in unit)


def split_of(text: str, held_out: dict[str, float]) -> str:
    """Which split a text belongs to, by its hash alone: the same on every machine, whatever else is in the file."""
    # Case and punctuation are no difference: "Bye" in training would give "bye!" away.
    place = int.from_bytes(hashlib.sha256(plain_words(text).encode()).digest()[:8], "big") / 2**64
    for split in ("test", "dev"):
        place -= held_out.get(split, 0.0)
        if place < 0:
            return split
    return "train"


def plain_words(text: str) -> str:
    """A text without regard to case, punctuation and spacing: what counts when two are the same."""
    return re.sub(r"[\W_]+", " ", text.lower()).strip()


def talk_files(source: Source, root: str) -> list[tuple[DataFile, ...]]:
    """The files of the dialogues that may stand amid a source's own."""
    return locate(join(root, source.amid)) if source.amid else []


def _of_split(source: Source, root: str, split: str, variant: int) -> Iterator[Example]:
    wanted = re.compile(source.keep, re.IGNORECASE)
    unwanted = re.compile(source.leave_out, re.IGNORECASE) if source.leave_out else None
    for key, example in _candidates(source, root, variant):
        if (source.split == "train" and split_of(key, source.held_out) != split) or not wanted.search(key):
            continue
        if unwanted is None or not any(map(unwanted.search, texts_of(example))):
            yield example


def _candidates(source: Source, root: str, variant: int) -> Iterator[tuple[str, Example]]:
    """Every example with the text that decides its split."""
    if source.format == GENERATED:
        yield from ((word, Pair(word, word[::-1])) for word in reversed_words())
        return
    records = read_all(source_files(source, root), source.format, source.name, again=variant > 0)
    if source.format == "intents":
        yield from small_talk(source, list(records), variant, _is_trained_on(source))
    elif source.format == "questions":
        wanted = (text for text in records if re.search(source.keep, text, re.IGNORECASE))  # few of them, as it may be
        yield from unanswerable(source, wanted, variant, _is_trained_on(source))
    else:
        for record in records:
            yield _example(source, record, variant)


def _is_trained_on(source: Source) -> Callable[[str], bool]:
    return lambda text: split_of(text, source.held_out) == source.split


def _example(source: Source, record: Any, variant: int) -> tuple[str, Example]:
    if source.format == "pairs":
        a, b = record
        return a, Pair(b, a) if source.swap else Pair(a, b)
    if source.format == "dialogues":
        dialogue = _dialogue(source, record, variant)
        return " ".join(texts_of(dialogue)), dialogue
    if source.format == "stories":
        story, title = record
        rng = random.Random(f"{variant} {story[:200]}")
        told = recast(story, rng) if source.recast and variant else story
        return story, story_dialogue(told, "" if told != story else title, rng)  # the title names the first cast
    return record, Text(record)


def _dialogue(source: Source, record: Any, variant: int) -> Dialogue:
    if isinstance(record[0], tuple):
        return Dialogue(tuple(Message(role=role, content=content) for role, content in record))
    first = "assistant" if source.roles == "alternate" and variant % 2 else "user"
    return turns(record, first=first)


def _talks(source: Source, root: str) -> list[Dialogue]:
    """Dialogues that questions may come up in; those whose hash holds them out stay out here too."""
    records = read_all(talk_files(source, root), "dialogues", source.amid, again=True)
    found = (_dialogue(Source(format="dialogues"), record, 0) for record in records)
    return [d for d in found if _takes_turns(d) and split_of(" ".join(texts_of(d)), source.held_out) == source.split]


def _takes_turns(dialogue: Dialogue) -> bool:
    """Whether the user begins and the two alternate: what stands amid other questions must not change who asks."""
    return all(message["role"] == ("user", "assistant")[i % 2] for i, message in enumerate(dialogue.messages))
