"""Small talk: many ways to ask for one answer, put as other people would put them, alone and in the midst of talk."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from tiny_transformer.training.analogies import Analogies
from tiny_transformer.training.examples import Dialogue, turns
from tiny_transformer.training.rephrasing import rephrase
from tiny_transformer.training.settings import Source

Intent = tuple[list[str], str]  # phrasings and the answer they all get
_TALK_SHARE = 0.3  # of the composed dialogues hold talk about something else
_TALK_TURNS = (2, 4, 6)  # of that talk: whole exchanges, so that the question comes from the user


def small_talk(
    source: Source, intents: Sequence[Intent], variant: int, is_trained_on: Callable[[str], bool]
) -> Iterator[tuple[str, Dialogue]]:
    """Every phrasing with its answer, beside the phrasing as it stands in the file: the text that decides its split.

    In every variant but the first, `rephrase` puts the training questions in other words, never in those of a
    question that is held out, and `balance` shows questions of small intents more than once.
    """
    trained = tuple(tuple(filter(is_trained_on, questions)) for questions, _ in intents)
    largest = max(map(len, trained), default=0)
    for number, (questions, answer) in enumerate(intents):
        copies = (largest / len(trained[number])) ** source.balance if variant and trained[number] else 1.0
        for question in questions:
            rng = random.Random(f"{variant} {question}")
            for _ in range(int(copies) + (rng.random() < copies % 1)):
                asked = question
                if source.rephrase and variant:
                    if rng.random() < source.analogies:
                        asked = _learnt(trained).rephrase(question, number, rng, is_trained_on)
                    asked = _as_typed(asked, rng, is_trained_on)
                yield question, turns((asked, answer))


def unanswerable(
    source: Source, questions: Iterable[str], variant: int, is_trained_on: Callable[[str], bool]
) -> Iterator[tuple[str, Dialogue]]:
    """Questions beyond what the model can know, all with the reply that says so."""
    for question in questions:
        asked = question
        if source.rephrase and variant:
            asked = _as_typed(question, random.Random(f"{variant} {question}"), is_trained_on)
        yield question, turns((asked, source.reply))


def composed(
    dialogues: Iterator[Dialogue], source: Source, variant: int, talks: Sequence[Dialogue] = ()
) -> Iterator[Dialogue]:
    """Each dialogue once, some alone and some joined to others, in an order of this variant's own.

    A few turns of one of the `talks` stand before, between or after some of them.
    """
    items = list(dialogues)
    rng = random.Random(f"compose {variant} {source.name}")
    rng.shuffle(items)
    while items:
        count = rng.randint(2, source.compose) if rng.random() < source.compose_share else 1
        taken = [items.pop() for _ in range(min(count, len(items)))]
        if talks and rng.random() < _TALK_SHARE:
            talk = rng.choice(talks).messages
            talk = talk[: min(rng.choice(_TALK_TURNS), len(talk) // 2 * 2)]
            taken.insert(rng.randint(0, len(taken)), Dialogue(talk))
        yield Dialogue(tuple(message for dialogue in taken for message in dialogue.messages))


def _as_typed(question: str, rng: random.Random, is_trained_on: Callable[[str], bool]) -> str:
    """As someone may type it, but never in the words of a question that is held out, as chance may have it."""
    typed = rephrase(question, rng)
    return typed if is_trained_on(typed) else question


@lru_cache(maxsize=4)
def _learnt(phrasings: tuple[tuple[str, ...], ...]) -> Analogies:
    return Analogies.learn(phrasings)
