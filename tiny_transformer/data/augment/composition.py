"""Several dialogues as one: small talk, jokes, stories and free talk after one another, as visitors bring them up."""

import random
from collections.abc import Callable, Iterator, Sequence

from tiny_transformer.data.augment import Compose
from tiny_transformer.data.augment.small_talk import as_typed
from tiny_transformer.data.augment.stories import fitting_request
from tiny_transformer.data.records import Dialogue, Jokes, turns
from tiny_transformer.evaluation import is_story
from tiny_transformer.tokenizer import Message

_INTERLEAVED_SHARE = 0.3  # of the composed dialogues hold a few turns about something else
_INTERLEAVED_TURNS = (2, 4, 6)  # whole exchanges, so that the question comes from the user
# Of all messages of a composed dialogue: 512 tokens of 3.7 characters, less the tokens around each message.
MAX_CHARACTERS = 1_700
_CHAIN = (1, 1, 1, 2, 2, 3, 4)  # jokes that are told in a row, as likely as they stand here


def composed(
    dialogues: Iterator[Dialogue],
    compose: Compose,
    seed: str,
    others: Sequence[Dialogue] = (),
    pools: Sequence[Sequence[Dialogue]] = (),
    jokes: Sequence[str] = (),
) -> Iterator[Dialogue]:
    """Each dialogue once, some alone and some joined to others, in an order of the seed's own.

    A share of what is joined to a dialogue comes from the `pools`, each of which is as likely as the next. A few turns
    of one of the `others` stand before, between or after some of them. The first of the `jokes` in a dialogue may be
    any of them; each further one is the next of the list, so that none is told twice.
    """
    items = list(dialogues)
    rng = random.Random(seed)
    rng.shuffle(items)
    while items:
        count = rng.randint(2, compose.up_to) if rng.random() < compose.share else 1
        joined = [items.pop()]
        room = MAX_CHARACTERS - _characters(joined[0])
        for _ in range(count - 1):
            if pools and rng.random() < compose.mixed:
                candidate, own = rng.choice(rng.choice(pools)), False
            elif items:
                candidate, own = items[-1], True
            else:
                break
            if _characters(candidate) > room:
                continue
            joined.append(items.pop() if own else candidate)
            room -= _characters(candidate)
        if pools:
            rng.shuffle(joined)
        if others and rng.random() < _INTERLEAVED_SHARE:
            other = rng.choice(others).messages
            other = other[: min(rng.choice(_INTERLEAVED_TURNS), len(other) // 2 * 2)]
            if len(joined) == 1 or _characters(Dialogue(other)) <= room:
                joined.insert(rng.randint(0, len(joined)), Dialogue(other))
        yield Dialogue(tuple(_in_sequence(joined, jokes, rng)))


def _in_sequence(joined: Sequence[Dialogue], jokes: Sequence[str], rng: random.Random) -> Iterator[Message]:
    """The messages of all dialogues; what depends on what was said before is made to fit."""
    after = dict(zip(jokes, (*jokes[1:], *jokes[:1]), strict=True))
    previous = last_joke = ""
    for dialogue in joined:
        asks_for_a_story = len(dialogue.messages) > 1 and is_story(dialogue.messages[1]["content"])
        for message in dialogue.messages:
            content = message["content"]
            if message["role"] == "user" and asks_for_a_story:
                content = fitting_request(content, previous, rng)
            if message["role"] == "assistant":
                if content in after:
                    content = last_joke = after.get(last_joke, content)
                previous = content
            yield Message(role=message["role"], content=content)


def _characters(dialogue: Dialogue) -> int:
    return sum(len(message["content"]) for message in dialogue.messages)


def joke_dialogues(
    records: Sequence[Jokes], variant: int, is_trained_on: Callable[[str], bool], *, rephrased: bool
) -> Iterator[tuple[str, Dialogue]]:
    """Every request with a joke, and every wish for more with the next joke, beside the text that decides its split.

    The next joke is the next of the list: a model that has learned the list by heart never tells one twice in a row.
    In training one request may be followed by several wishes for more. What is held out is asked for once, last.
    """
    for record in records:
        requests, more = (list(filter(is_trained_on, texts)) for texts in (record.requests, record.more))
        for key in (*record.requests, *record.more):
            rng = random.Random(f"{variant} {key}")
            asked = [key] if key in record.requests else [rng.choice(requests or record.requests), key]
            if is_trained_on(key):
                asked += [rng.choice(more or record.more) for _ in range(rng.choice(_CHAIN) - 1)]
            if rephrased and variant:
                asked = [as_typed(text, rng, is_trained_on) for text in asked]
            first = rng.randrange(len(record.jokes))
            told = [record.jokes[(first + i) % len(record.jokes)] for i in range(len(asked))]
            yield key, turns([text for pair in zip(asked, told, strict=True) for text in pair])


def in_mid_talk(asked: Sequence[Dialogue], pools: Sequence[Sequence[Dialogue]], seed: str) -> list[Dialogue]:
    """Each dialogue after two to four exchanges of others, the same ones every time.

    Whole dialogues are drawn, each pool being as likely as the next; long free talk is cut after three exchanges.
    """
    found = []
    for number, dialogue in enumerate(asked):
        rng = random.Random(f"{seed} {number}")
        said = {message["content"] for message in dialogue.messages}
        history: list[Message] = []
        wanted = 2 * rng.randint(2, 4)
        for _ in range(100):  # a pool may hold nothing but what is asked
            if len(history) >= wanted:
                break
            other = rng.choice(rng.choice(pools)).messages[: min(wanted - len(history), 6)]
            if len(other) % 2 == 0 and not said & {message["content"] for message in other}:
                history += other
        found.append(Dialogue((*history, *dialogue.messages)))
    return found
