"""Phrasings borrowed from another language: its small talk, translated, asks for the answers that are ours."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from tiny_transformer.errors import ConfigError, DataError
from tiny_transformer.training.files import DataFile, locate
from tiny_transformer.training.intents import Intent
from tiny_transformer.training.recipe import Recipe
from tiny_transformer.training.records import on_one_line, read_all
from tiny_transformer.training.settings import Source
from tiny_transformer.training.sources import plain_words, source_files, split_of

_NEAR = 0.7  # of all words in two phrasings are in both: too like one that is held out
_ALSO = "train --also reads files like a recipe's first source"


@dataclass(frozen=True)
class Borrowing:
    """Intents of two languages, and the phrasings of ours that a model will be judged by."""

    own: tuple[Intent, ...]  # with the phrasings of the training split alone
    held_out: tuple[str, ...]
    foreign: tuple[Intent, ...]

    @classmethod
    def read(cls, recipe: Recipe, root: str, paths: Iterable[str], excluded: Iterable[str] = ()) -> "Borrowing":
        """For the small talk of a recipe, from files of the same form in another language.

        Held out is whatever the recipe judges by, and every phrasing of the files that are `excluded`.
        """
        first = recipe.sources[0]
        if first.format != "intents" or first.split != "train":
            raise ConfigError(f"The first source of recipe {recipe.name} teaches no intents, and {_ALSO}; name chat.")
        held_out = [q for path in excluded for questions, _ in _intents(locate(path), path) for q in questions]
        for source in (source for source in recipe.sources if source.format == "intents"):
            intents = _intents(source_files(source, root), source.path)
            held_out += [q for questions, _ in intents for q in questions if not _is_trained_on(q, source)]
            if source == first:
                own = tuple(
                    ([q for q in questions if _is_trained_on(q, source)], answer) for questions, answer in intents
                )
        return cls(own, tuple(held_out), tuple(intent for path in paths for intent in _intents(locate(path), path)))

    @property
    def sources(self) -> tuple[str, ...]:
        """What is to be translated: every foreign question once."""
        return tuple(dict.fromkeys(on_one_line(q) for questions, _ in self.foreign for q in questions))

    def lines(self, said: Sequence[tuple[str, str]]) -> list[str]:
        """Our intents as JSON lines, with the phrasings that translations of foreign questions add to them."""
        translations: dict[str, list[str]] = defaultdict(list)
        for question, translation in said:
            translations[question].append(translation)
        spoken = [  # by foreign intent: plain words → phrasing
            {plain_words(t): t for question in questions for t in translations[on_one_line(question)]}
            for questions, _ in self.foreign
        ]
        uses = Counter(words for phrasings in spoken for words in phrasings)
        kept: dict[int, list[str]] = defaultdict(list)
        for number, phrasings in zip(self._matched(spoken), spoken, strict=True):
            if number is not None:
                # Words that ask for two answers teach neither.
                kept[number] += [t for words, t in phrasings.items() if uses[words] == 1 and self._is_new(words)]
        if not any(kept.values()):
            raise DataError(
                f"Of {len(said):,} translations none is a new phrasing: each belongs to no intent of ours, is ours "
                "already, or comes near one that is held out; check that both files hold the same small talk."
            )
        return [
            json.dumps({"answer": self.own[number][1], "questions": phrasings}, ensure_ascii=False)
            for number, phrasings in sorted(kept.items())
            if phrasings
        ]

    def _matched(self, spoken: Sequence[Iterable[str]]) -> list[int | None]:
        """For every foreign intent ours: the one with which it shares most phrasings, and no other shares more."""
        shared = [Counter(n for words in phrasings for n in self._asks.get(words, ())) for phrasings in spoken]
        highest: Counter[int] = Counter()
        for counts in shared:
            highest |= counts
        found: list[int | None] = []
        for counts in shared:
            ((number, most),) = counts.most_common(1) or [(0, 0)]
            found.append(number if 2 * most > counts.total() and most == highest[number] else None)
        return found

    def _is_new(self, words: str) -> bool:
        """Whether a phrasing is in none of our intents yet, nor like one that is held out."""
        bag = frozenset(words.split())
        if not bag or words in self._asks:
            return False
        # Too like is only what shares so many words that one of these, the rarest, is among them.
        rarest = sorted(bag, key=lambda word: len(self._held.get(word, ())))[: len(bag) - ceil(_NEAR * len(bag)) + 1]
        return not any(_likeness(bag, held) >= _NEAR for word in rarest for held in self._held.get(word, ()))

    @cached_property
    def _asks(self) -> dict[str, list[int]]:
        """The intents of a trained phrasing, by its plain words."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, (questions, _) in enumerate(self.own):
            for words in {plain_words(question) for question in questions}:
                found[words].append(number)
        return dict(found)

    @cached_property
    def _held(self) -> dict[str, list[frozenset[str]]]:
        """The words of every held-out phrasing, by each of them."""
        found: dict[str, list[frozenset[str]]] = defaultdict(list)
        for bag in {frozenset(plain_words(question).split()) for question in self.held_out}:
            for word in bag:
                found[word].append(bag)
        return dict(found)


def count_phrasings(lines: Iterable[str]) -> int:
    """How many questions are in lines of intents."""
    return sum(len(json.loads(line)["questions"]) for line in lines)


def _intents(units: Iterable[tuple[DataFile, ...]], name: str) -> list[Intent]:
    found: list[Intent] = list(read_all(units, "intents", name))
    if not found:
        raise DataError(f"{name} holds no intents; name a JSONL file of questions and answers.")
    return found


def _is_trained_on(question: str, source: Source) -> bool:
    return source.split == "train" and split_of(question, source.held_out) == "train"


def _likeness(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b)
