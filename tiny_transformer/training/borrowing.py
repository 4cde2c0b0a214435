"""Phrasings borrowed from another language: its small talk, translated, asks for the answers that are ours."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tiny_transformer.errors import ConfigError, DataError
from tiny_transformer.training.files import locate
from tiny_transformer.training.intents import Intent
from tiny_transformer.training.recipe import Recipe
from tiny_transformer.training.records import Faults, read_records
from tiny_transformer.training.settings import Source
from tiny_transformer.training.sources import plain_words, source_files, split_of

_NEAR = 0.7  # of all words in two phrasings are in both: too like one that is held out


@dataclass(frozen=True)
class Borrowing:
    """Intents of two languages, and the phrasings of ours that a model will be judged by."""

    own: tuple[Intent, ...]  # with the phrasings of the training split alone
    held_out: tuple[str, ...]
    foreign: tuple[Intent, ...]

    @classmethod
    def read(cls, recipe: Recipe, root: str, paths: Iterable[str]) -> "Borrowing":
        """For the small talk of a recipe, from files of the same form in another language."""
        source = next((s for s in recipe.of_split("train") if s.format == "intents"), None)
        if source is None:
            raise ConfigError(f"Recipe {recipe.name} learns no intents; name one that does, such as chat.")
        ours = list(_intents(source_files(source, root), source.path))
        own = tuple(([q for q in questions if _is_trained_on(q, source)], answer) for questions, answer in ours)
        held_out = tuple(q for questions, _ in ours for q in questions if not _is_trained_on(q, source))
        return cls(own, held_out, tuple(intent for path in paths for intent in _intents(locate(path), path)))

    @property
    def sources(self) -> tuple[str, ...]:
        """What is to be translated: every foreign question once."""
        return tuple(dict.fromkeys(_on_one_line(q) for questions, _ in self.foreign for q in questions))

    def lines(self, said: Sequence[tuple[str, str]]) -> list[str]:
        """Our intents as JSON lines, with the phrasings that translations of foreign questions add to them."""
        translations: dict[str, list[str]] = defaultdict(list)
        for question, translation in said:
            translations[question].append(translation)
        spoken = [[t for q in questions for t in translations[_on_one_line(q)]] for questions, _ in self.foreign]
        added: dict[int, dict[str, str]] = defaultdict(dict)  # by intent: plain words → phrasing
        for number, phrasings in zip(self._matched(spoken), spoken, strict=True):
            if number is not None:
                for phrasing in phrasings:
                    added[number].setdefault(plain_words(phrasing), phrasing)
        uses = Counter(words for phrasings in added.values() for words in phrasings)
        kept = {
            # Words that ask for two answers teach neither.
            number: [phrasing for words, phrasing in phrasings.items() if uses[words] == 1 and self._is_new(words)]
            for number, phrasings in sorted(added.items())
        }
        return [
            json.dumps({"answer": self.own[number][1], "questions": phrasings}, ensure_ascii=False)
            for number, phrasings in kept.items()
            if phrasings
        ]

    def _matched(self, spoken: Sequence[Sequence[str]]) -> list[int | None]:
        """For every foreign intent ours: the one with which it shares most phrasings, and no other shares more."""
        shared = [
            Counter(n for words in map(plain_words, phrasings) for n in self._asks.get(words, ()))
            for phrasings in spoken
        ]
        found: list[int | None] = []
        for counts in shared:
            ((number, most),) = counts.most_common(1) or [(0, 0)]
            is_clear = 2 * most > counts.total() and all(other[number] <= most for other in shared)
            found.append(number if is_clear else None)
        return found

    def _is_new(self, words: str) -> bool:
        """Whether a phrasing is in none of our intents yet, nor like one that is held out."""
        bag = frozenset(words.split())
        return bool(bag) and words not in self._asks and not any(_likeness(bag, held) >= _NEAR for held in self._bags)

    @cached_property
    def _asks(self) -> dict[str, list[int]]:
        """The intents of a trained phrasing, by its plain words."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, (questions, _) in enumerate(self.own):
            for words in {plain_words(question) for question in questions}:
                found[words].append(number)
        return dict(found)

    @cached_property
    def _bags(self) -> list[frozenset[str]]:
        return [frozenset(plain_words(question).split()) for question in self.held_out]


def _intents(units: Iterable[tuple[Any, ...]], name: str) -> Iterator[Intent]:
    faults, found = Faults(), False
    for unit in units:
        for questions, answer in read_records(unit, "intents", faults):
            found = True
            yield questions, answer
    faults.settle(name)
    if not found:
        raise DataError(f"{name} holds no intents; name a JSONL file of questions and answers.")


def _is_trained_on(question: str, source: Source) -> bool:
    return split_of(question, source.held_out) == source.split


def _likeness(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
