"""Small talk in other words: as other people type it, and by analogy with other phrasings."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from tiny_transformer.data.records import Dialogue, turns

_CONTRACTIONS = (
    ("are not", "aren't"),
    ("can not", "can't"),
    ("cannot", "can't"),
    ("could not", "couldn't"),
    ("did not", "didn't"),
    ("do not", "don't"),
    ("does not", "doesn't"),
    ("have not", "haven't"),
    ("how is", "how's"),
    ("I am", "I'm"),
    ("I will", "I'll"),
    ("I would", "I'd"),
    ("is not", "isn't"),
    ("it is", "it's"),
    ("let us", "let's"),
    ("should not", "shouldn't"),
    ("that is", "that's"),
    ("they are", "they're"),
    ("was not", "wasn't"),
    ("we are", "we're"),
    ("what is", "what's"),
    ("where is", "where's"),
    ("who is", "who's"),
    ("will not", "won't"),
    ("would not", "wouldn't"),
    ("you are", "you're"),
    ("you will", "you'll"),
)
_OPENINGS = ("hey", "hey there", "so", "well", "ok", "okay", "hm", "um", "by the way", "now", "oh", "bot")
_SHORT_FORMS = (("you are", "ur"), ("you", "u"), ("are", "r"), ("please", "pls"), ("because", "cuz"))


def rephrase(text: str, rng: random.Random) -> str:
    """Another spelling of the same words; often the very same."""
    if rng.random() < 0.3:
        text = _exchange(text, _CONTRACTIONS, rng)
    if rng.random() < 0.1:
        first_person = re.match(r"I\b", text)
        text = f"{rng.choice(_OPENINGS)}, {text if first_person else text[:1].lower() + text[1:]}"
    if rng.random() < 0.3:
        text = text.rstrip(".!?")
    elif rng.random() < 0.1:
        text = text.rstrip(".!?") + rng.choice((".", "!", "?", "??", "!!", "..."))
    if rng.random() < 0.3:
        text = text.lower()
    if rng.random() < 0.04:
        text = _exchange(text, _SHORT_FORMS, rng)
    if rng.random() < 0.08:
        text = _slip(text, rng)
    if rng.random() < 0.05:
        text = text.replace("'", "")
    if rng.random() < 0.06:
        text = _swallow(text, rng)
    if rng.random() < 0.03:
        text = text.upper()
    return text


def _exchange(text: str, pairs: tuple[tuple[str, str], ...], rng: random.Random) -> str:
    """Long forms become short, or short ones long."""
    shorten = rng.random() < 0.5
    for long, short in pairs:
        old, new = (long, short) if shorten else (short, long)
        for found in reversed(list(re.finditer(rf"\b{re.escape(old)}\b", text, flags=re.IGNORECASE))):
            text = text[: found.start()] + _like(found.group(), new) + text[found.end() :]
    return text


def _like(old: str, new: str) -> str:
    """`new` with a capital where `old` has one."""
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def _swallow(text: str, rng: random.Random) -> str:
    """One word of a longer question missing."""
    words = text.split()
    if len(words) < 5:
        return text
    del words[rng.randrange(1, len(words) - 1)]
    return " ".join(words)


def _slip(text: str, rng: random.Random) -> str:
    """One letter missing, doubled, or changed places with its neighbor."""
    if len(text) < 5:
        return text
    i = rng.randrange(1, len(text) - 1)
    return rng.choice(
        (text[:i] + text[i + 1 :], text[:i] + text[i] + text[i:], text[:i] + text[i + 1] + text[i] + text[i + 2 :])
    )


_MAX_PIECE_WORDS = 4  # of a piece that is exchanged
_MIN_CONTEXTS = 2  # that two pieces must share in an intent, to be exchanged there
_MIN_INTENTS = 3  # in which they must share a context, to be exchanged everywhere
_MIN_CONTEXT_WORDS = 2  # around a piece: "i'm …" alone fits anything
_MAX_PIECES = 24  # a context that fits more pieces than this says nothing about any two of them
_END = ".!?…"

Words = tuple[str, ...]
Swaps = Mapping[Words, Sequence[Words]]


@dataclass(frozen=True)
class Analogies:
    """What may be exchanged: in every phrasing, and in those of one intent, by its number."""

    everywhere: Swaps
    within: Sequence[Swaps]
    taken: Mapping[Words, int]  # phrasings that exist, and their intent

    @classmethod
    def learn(cls, intents: Sequence[Sequence[str]]) -> "Analogies":
        """From phrasings by intent: those of the training split alone."""
        shared: dict[tuple[Words, Words], Counter[int]] = defaultdict(Counter)
        for number, phrasings in enumerate(intents):
            for pair in _pairs_in_the_same_context(phrasings):
                shared[pair][number] += 1
        everywhere = [pair for pair, counts in shared.items() if len(counts) >= _MIN_INTENTS]
        within: list[list[tuple[Words, Words]]] = [[] for _ in intents]
        for pair, counts in shared.items():
            for number, count in counts.items():
                if count >= _MIN_CONTEXTS:
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


def _pairs_in_the_same_context(phrasings: Sequence[str]) -> Iterator[tuple[Words, Words]]:
    contexts: dict[tuple[Words, Words], set[Words]] = defaultdict(set)
    for text in phrasings:
        for left, middle, right in _splits(_words(text)):
            if len(left) + len(right) >= _MIN_CONTEXT_WORDS:
                contexts[left, right].add(middle)
    for pieces in contexts.values():
        if len(pieces) <= _MAX_PIECES:
            for a, b in combinations(sorted(pieces), 2):
                # "am X" and "am so X" share "X", which shorter pieces tell better.
                if a[0] != b[0] and a[-1] != b[-1]:
                    yield a, b


def _splits(words: Words) -> Iterator[tuple[Words, Words, Words]]:
    """Every way to see a phrasing as a piece of up to four words and the rest around it."""
    for start in range(len(words)):
        for stop in range(start + 1, min(start + _MAX_PIECE_WORDS, len(words)) + 1):
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


Intent = tuple[list[str], str]  # phrasings and the answer they all get


def small_talk(
    intents: Sequence[Intent],
    variant: int,
    is_trained_on: Callable[[str], bool],
    *,
    strength: float,
    analogies: float,
    rephrased: bool,
) -> Iterator[tuple[str, Dialogue]]:
    """Every phrasing with its answer, beside the phrasing as it stands in the file: the text that decides its split.

    In every variant but the first, questions are put in other words, never in those of a question that is held out:
    a share of them by `analogies`, all of them as other people type where they are `rephrased`. Questions of small
    intents are shown more than once, by the `strength` of the balance.
    """
    trained = tuple(tuple(filter(is_trained_on, questions)) for questions, _ in intents)
    largest = max(map(len, trained), default=0)
    for number, (questions, answer) in enumerate(intents):
        copies = (largest / len(trained[number])) ** strength if variant and trained[number] else 1.0
        for question in questions:
            rng = random.Random(f"{variant} {question}")
            for _ in range(int(copies) + (rng.random() < copies % 1)):
                asked = question
                if variant and (rephrased or analogies):
                    if rng.random() < analogies:
                        asked = _learned_analogies(trained).rephrase(question, number, rng, is_trained_on)
                    if rephrased:
                        asked = as_typed(asked, rng, is_trained_on)
                yield question, turns((asked, answer))


def unanswerable(
    questions: Iterable[str], reply: str, variant: int, is_trained_on: Callable[[str], bool], *, rephrased: bool
) -> Iterator[tuple[str, Dialogue]]:
    """Questions beyond what the model can know, all with the reply that says so."""
    for question in questions:
        asked = question
        if rephrased and variant:
            asked = as_typed(question, random.Random(f"{variant} {question}"), is_trained_on)
        yield question, turns((asked, reply))


def as_typed(question: str, rng: random.Random, is_trained_on: Callable[[str], bool]) -> str:
    """As someone may type it, but never in the words of a question that is held out, as chance may have it."""
    typed = rephrase(question, rng)
    return typed if is_trained_on(typed) else question


@lru_cache(maxsize=4)
def _learned_analogies(phrasings: tuple[tuple[str, ...], ...]) -> Analogies:
    return Analogies.learn(phrasings)
