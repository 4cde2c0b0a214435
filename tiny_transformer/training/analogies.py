"""New phrasings by analogy: "can you sing" is to "are you able to sing" as "can you dance" is to one more.

Two pieces of wording that stand in the same places of an intent's phrasings may be exchanged in its other
phrasings; two that do so in several intents, in any phrasing.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

_LONGEST = 4  # words of a piece that is exchanged
_PLACES = 2  # that two pieces must share in an intent, to be exchanged there
_INTENTS = 3  # in which they must share a place, to be exchanged everywhere
_AROUND = 2  # words that make a place: "i'm …" alone fits anything
_CROWD = 24  # a place that fits more pieces than this says nothing about any two of them
_END = ".!?…"

Words = tuple[str, ...]
Swaps = Mapping[Words, Sequence[Words]]


@dataclass(frozen=True)
class Analogies:
    """What may be exchanged: in every phrasing, and in those of one intent (by its place in the list)."""

    everywhere: Swaps
    within: Sequence[Swaps]
    taken: Mapping[Words, int]  # phrasings that exist, and their intent

    @classmethod
    def learn(cls, intents: Sequence[Sequence[str]]) -> "Analogies":
        """From phrasings by intent: those of the training split alone."""
        shared: dict[tuple[Words, Words], Counter[int]] = defaultdict(Counter)
        for number, phrasings in enumerate(intents):
            for pair in _pairs_in_the_same_place(phrasings):
                shared[pair][number] += 1
        everywhere = [pair for pair, counts in shared.items() if len(counts) >= _INTENTS]
        within: list[list[tuple[Words, Words]]] = [[] for _ in intents]
        for pair, counts in shared.items():
            for number, count in counts.items():
                if count >= _PLACES:
                    within[number].append(pair)
        taken = {_words(text): number for number, phrasings in enumerate(intents) for text in phrasings}
        return cls(_both_ways(everywhere), [_both_ways(pairs) for pairs in within], taken)

    def phrasings(self, text: str, intent: int) -> list[str]:
        """Every phrasing that one exchange makes of a text and that no intent has yet; always in the same order."""
        words = _words(text)
        found: dict[Words, None] = {}
        for left, middle, right in _splits(words):
            for swaps in (self.within[intent], self.everywhere):
                for new in swaps.get(middle, ()):
                    found.setdefault((*left, *new, *right))
        return [_spelt(new, text) for new in found if new not in self.taken]

    def rephrase(self, text: str, intent: int, rng: random.Random, allowed: Callable[[str], bool]) -> str:
        """One of those, or the text itself where `allowed` refuses the choice."""
        choices = self.phrasings(text, intent)
        chosen = rng.choice(choices) if choices else text
        return chosen if allowed(chosen) else text


def _pairs_in_the_same_place(phrasings: Sequence[str]) -> Iterator[tuple[Words, Words]]:
    places: dict[tuple[Words, Words], set[Words]] = defaultdict(set)
    for text in phrasings:
        for left, middle, right in _splits(_words(text)):
            if len(left) + len(right) >= _AROUND:
                places[left, right].add(middle)
    for pieces in places.values():
        if len(pieces) <= _CROWD:
            for a, b in combinations(sorted(pieces), 2):
                # "am X" and "am so X" share "X", which shorter pieces tell better.
                if a[0] != b[0] and a[-1] != b[-1]:
                    yield a, b


def _splits(words: Words) -> Iterator[tuple[Words, Words, Words]]:
    """Every way to see a phrasing as a piece of up to four words and the rest around it."""
    for start in range(len(words)):
        for stop in range(start + 1, min(start + _LONGEST, len(words)) + 1):
            if stop - start < len(words):
                yield words[:start], words[start:stop], words[stop:]


def _both_ways(pairs: Sequence[tuple[Words, Words]]) -> dict[Words, list[Words]]:
    swaps: dict[Words, list[Words]] = defaultdict(list)
    for a, b in pairs:
        swaps[a].append(b)
        swaps[b].append(a)
    return {piece: sorted(others) for piece, others in swaps.items()}


def _words(text: str) -> Words:
    return tuple(text.lower().rstrip(_END).split())


def _spelt(words: Words, like: str) -> str:
    """Words as a sentence with the capital and the end of another one."""
    text = " ".join("I" + word[1:] if word in ("i", "i'm", "i'd", "i'll", "i've") else word for word in words)
    end = like[len(like.rstrip(_END)) :]
    return (text[:1].upper() + text[1:] if like[:1].isupper() else text) + end
