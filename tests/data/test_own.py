"""The text that we wrote for the chat: its form, no phrasing with two answers, no answer that promises too much."""

import json
import re
from collections import Counter, defaultdict
from functools import cache

import pytest

from tests.support.models import ROOT
from tiny_transformer.data.augment import Compose
from tiny_transformer.data.examples import read_examples
from tiny_transformer.data.records import plain_words, split_of, texts_of
from tiny_transformer.evaluation import is_story
from tiny_transformer.training.recipe import load_recipe

OWN = ROOT / "datasets" / "own"
DATA = str(ROOT / "datasets")
MAX_WORDS = 30  # of an answer: only stories are longer


def read(name: str) -> list[dict]:
    return [json.loads(line) for line in (OWN / name).read_text(encoding="utf-8").splitlines()]


INTENTS = read("intents.jsonl")
(JOKES,) = read("jokes.jsonl")
TALKS = read("talks.jsonl")


def test_intents_have_many_phrasings_and_a_short_answer_of_their_own() -> None:
    assert len(INTENTS) >= 60
    assert len({intent["answer"] for intent in INTENTS}) == len(INTENTS)
    for intent in INTENTS:
        assert 40 <= len(intent["questions"]) <= 150, intent["answer"]
        assert len(intent["answer"].split()) < MAX_WORDS
        assert not is_story(intent["answer"])
        assert not re.search(r"\d{3}", intent["answer"])  # no telephone number, above all


def test_no_phrasing_has_two_answers_and_none_stands_twice() -> None:
    answers = defaultdict(list)
    for intent in INTENTS:
        for question in intent["questions"]:
            answers[plain_words(question) or question].append(intent["answer"])
    for text in (*JOKES["requests"], *JOKES["more"]):
        answers[plain_words(text)].append("a joke")
    assert [question for question, found in answers.items() if len(found) > 1] == []


def test_every_intent_is_trained_on_and_most_are_measured() -> None:
    (source,) = (source for source in load_recipe("chat").sources if source.name == "own")
    measured = 0
    for intent in INTENTS:
        splits = Counter(split_of(question, source.held_out) for question in intent["questions"])
        assert splits["train"] >= 30, intent["answer"]
        measured += bool(splits["test"])
    assert measured >= 0.95 * len(INTENTS)


def test_jokes_are_many_short_and_different() -> None:
    assert len(set(map(plain_words, JOKES["jokes"]))) == len(JOKES["jokes"]) >= 30
    assert all(len(joke.split()) < MAX_WORDS for joke in JOKES["jokes"])
    assert len(JOKES["requests"]) >= 60
    assert len(JOKES["more"]) >= 40


def test_talks_are_ten_of_ten_turns() -> None:
    assert [len(talk["turns"]) for talk in TALKS] == [10] * 10


@cache
def fixed(split: str, variant: int = 0) -> list[tuple[str, list[str]]]:
    """Source and texts of every example whose answer is fixed, as the recipe makes them before they are composed."""
    recipe = load_recipe("chat")
    return [
        (source.name, texts_of(example))
        for source in recipe.sources
        if source.format in ("intents", "questions", "jokes")
        for example in read_examples(source.without(Compose), DATA, split, variant, recipe.sources)
    ]


@pytest.mark.long
def test_no_question_of_the_recipe_has_two_answers() -> None:
    """Over all sources with fixed answers, in every split; what we wrote takes precedence over what is published."""
    answers = defaultdict(set)
    for name, texts in (*fixed("train"), *fixed("dev"), *fixed("test")):
        if name != "jokes":
            answers[plain_words(texts[0]) or texts[0]].add(texts[1])
    assert len(answers) > 15_000
    assert [question for question, found in answers.items() if len(found) > 1] == []
    said = {answer for found in answers.values() for answer in found}
    assert not any("800-273" in answer or "Lifeline" in answer for answer in said)
    assert not answers.keys() & {plain_words(text) for text in JOKES["requests"]}


@pytest.mark.long
def test_what_is_held_out_is_not_trained_on_by_any_source() -> None:
    held_out = {plain_words(texts[-2]) for split in ("dev", "test") for _, texts in fixed(split)}
    trained = {plain_words(text) for variant in (0, 1) for _, texts in fixed("train", variant) for text in texts[::2]}
    assert len(held_out) > 2_000
    assert sorted(held_out & trained - {""})[:5] == []
