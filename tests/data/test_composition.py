"""Talks made of dialogues: jokes, stories, small talk and passes in one, nothing told twice, nothing held out."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.training_fixtures import write_jsonl
from tiny_transformer.data.augment import Compose, GiveWay, Reanswer, Rephrase, small_talk
from tiny_transformer.data.augment.characters import CASTS, HEROES
from tiny_transformer.data.augment.composition import MAX_CHARACTERS, composed, in_mid_talk
from tiny_transformer.data.augment.stories import (
    ABOUT,
    ANY,
    BARE,
    REQUESTS_HELD_OUT,
    request_forms,
    story_dialogue,
    story_requests,
)
from tiny_transformer.data.examples import read_examples
from tiny_transformer.data.records import plain_words, split_of, texts_of, turns
from tiny_transformer.data.source import Source
from tiny_transformer.errors import ConfigError
from tiny_transformer.evaluation import is_story

STORY = "Once there was a fox by the sea. The fox saw a whale in the sea. " + "They played all day long. " * 20
JOKES = [f"Why number {i}? Because {i}." for i in range(40)]
REQUESTS = [f"{verb} me joke {i}" for verb in ("Tell", "Give", "Send") for i in range(5)]
MORE = [f"{word} {i}" for word in ("Another one", "More") for i in range(6)]


def sources(tmp_path: Path) -> list[Source]:
    """Small talk, our own intents, jokes and stories, all of which may stand in one dialogue."""
    talk = [{"questions": [f"question {i} {j}" for j in range(40)], "answer": f"answer {i}"} for i in range(3)]
    own = [{"questions": [f"own {i} {j}" for j in range(20)], "answer": f"ours {i}"} for i in range(3)]
    names = ("talk", "own", "jokes", "tales")
    compose = {
        name: Compose(up_to=5, share=0.8, mix_with=tuple(other for other in names if other != name)) for name in names
    }
    held_out = {"dev": 0.1, "test": 0.2}
    files = {
        "talk": write_jsonl(tmp_path / "talk.jsonl", talk),
        "own": write_jsonl(tmp_path / "own.jsonl", own),
        "jokes": write_jsonl(tmp_path / "jokes.jsonl", [{"requests": REQUESTS, "more": MORE, "jokes": JOKES}]),
        "tales": write_jsonl(tmp_path / "tales.jsonl", [{"story": f"Tale {i}. {STORY}"} for i in range(30)]),
    }
    formats = {"talk": "intents", "own": "intents", "jokes": "jokes", "tales": "stories"}
    return [
        Source(
            name=name,
            path=str(path),
            format=formats[name],
            held_out=held_out,
            transforms=(Rephrase(), compose[name]),
            variants=6,
        )
        for name, path in files.items()
    ]


def trained(found: list[Source]) -> list[list[str]]:
    return [
        texts_of(example)
        for source in found
        for variant in range(6)
        for example in read_examples(source, "", "train", variant, found)
    ]


def kind(reply: str) -> str:
    return "story" if is_story(reply) else "joke" if reply in JOKES else reply.split()[0]


def test_every_kind_follows_every_other_and_answers_stay_with_their_questions(tmp_path: Path) -> None:
    dialogues = trained(sources(tmp_path))
    pairs = Counter()
    for texts in dialogues:
        kinds = [kind(reply) for reply in texts[1::2]]
        pairs.update(pairwise(kinds))
        for asked, reply in zip(texts[::2], texts[1::2], strict=True):
            if kind(reply) == "story":
                continue
            words = plain_words(asked)
            # Slips of a finger are rare: most questions still say what they are.
            if "question" in words:
                assert reply.startswith("answer")
            if "joke" in words or "another" in words:
                assert reply in JOKES
    assert {(a, b) for a in ("answer", "ours", "joke", "story") for b in ("answer", "ours", "joke")} <= pairs.keys()
    assert pairs["answer", "story"] > 20
    assert max(sum(map(len, texts)) for texts in dialogues) <= MAX_CHARACTERS


def test_no_joke_is_told_twice_in_a_dialogue(tmp_path: Path) -> None:
    told = [[reply for reply in texts[1::2] if reply in JOKES] for texts in trained(sources(tmp_path))]
    assert all(len(set(jokes)) == len(jokes) for jokes in told)
    assert {joke for jokes in told for joke in jokes} == set(JOKES)
    assert max(map(len, told)) >= 4


def test_nothing_that_is_held_out_comes_in_by_another_source(tmp_path: Path) -> None:
    found = sources(tmp_path)
    held_out = {
        plain_words(texts_of(example)[-2])
        for source in found
        if source.format != "stories"
        for split in ("dev", "test")
        for example in read_examples(source, "", split, among=found)
    }
    asked = {plain_words(text) for texts in trained(found) for text in texts[::2]}
    assert len(held_out) > 30
    assert not held_out & asked


def test_held_out_wishes_for_more_come_after_a_trained_request(tmp_path: Path) -> None:
    source = next(source for source in sources(tmp_path) if source.name == "jokes")
    examples = [texts_of(example) for example in read_examples(source, "", "test")]
    assert {len(texts) for texts in examples} == {2, 4}
    for first, _, *rest in examples:
        assert (split_of(first, source.held_out) == "test") == (not rest)
        if rest:
            assert split_of(rest[0], source.held_out) == "test"


def test_another_one_after_a_joke_is_never_a_story() -> None:
    short = STORY[:300]
    tales = [turns((request, f"{short} The end {i}.")) for i in range(40) for request in BARE]
    jokes = [turns((request, JOKES[0])) for request in REQUESTS]
    found = list(composed(iter(tales), Compose(up_to=4, share=1.0, mixed=0.5), "seed", pools=[jokes], jokes=JOKES))
    asked = Counter()
    for dialogue in found:
        texts = texts_of(dialogue)
        for before, request, reply in zip(texts[1::2], texts[2::2], texts[3::2], strict=False):
            if is_story(reply):
                asked[is_story(before), request in BARE] += 1
    assert asked[True, True] > 20  # after a story it asks for a story
    assert asked[False, False] > 20  # after a joke the word story is said
    assert not asked[False, True]


def test_our_phrasings_and_answers_take_precedence(tmp_path: Path) -> None:
    published = [
        {"questions": ["Who are you?", "What's your name?"], "answer": "No name."},
        {"questions": ["Bye"], "answer": "Bye."},
    ]
    path = write_jsonl(tmp_path / "published.jsonl", published)
    own = Source(
        name="own",
        path=str(write_jsonl(tmp_path / "own.jsonl", [{"questions": ["who are you"], "answer": "Pip."}])),
        format="intents",
    )
    transforms = (GiveWay(to=("own",)), Reanswer(answers={"No name.": "Pip."}))
    source = Source(name="published", path=str(path), format="intents", transforms=transforms)
    found = [texts_of(example) for example in read_examples(source, "", "train", 0, [source, own])]
    assert found == [["What's your name?", "Pip."], ["Bye", "Bye."]]
    with pytest.raises(ConfigError, match="give_way needs the names of sources"):
        GiveWay()


def test_requests_for_stories_are_many_and_some_are_held_out() -> None:
    forms = (*ABOUT, *ANY)
    assert len(forms) >= 60
    assert len({plain_words(form) for form in forms}) == len(forms)
    for group in (ABOUT, ANY):
        splits = Counter(split_of(form, REQUESTS_HELD_OUT) for form in group)
        assert splits["test"] >= 5
        assert splits["dev"] >= 2
        assert sum(len(request_forms(group, split)) for split in splits) == len(group)


def test_no_story_is_asked_for_in_a_held_out_form(monkeypatch: pytest.MonkeyPatch) -> None:
    held_out = {plain_words(form) for split in ("dev", "test") for form in request_forms(ANY, split)}

    def asked() -> set[str]:
        dialogues = (story_dialogue(STORY, "", random.Random(seed), rephrased=True) for seed in range(500))
        return {plain_words(texts_of(dialogue)[0]) for dialogue in dialogues}

    assert not asked() & held_out
    assert asked() & {plain_words(form) for form in request_forms(ANY)}
    # Even if chance spells a request just like one that is held out.
    monkeypatch.setattr(small_talk, "rephrase", lambda text, rng: request_forms(ANY, "test")[0])
    assert not asked() & held_out


def test_stories_are_asked_for_by_what_they_are_about() -> None:
    asked = Counter(texts_of(story_dialogue(STORY, "", random.Random(seed)))[0] for seed in range(600))
    about = [request for request in asked if "fox" in request or "whale" in request or "sea" in request]
    assert len(about) > 300
    for part in ("a fox", "my fox", "foxes", "fox and", "and a"):
        assert any(part in request for request in about), part


def test_held_out_requests_name_hundreds_of_things() -> None:
    requests = story_requests("test", 200)
    assert requests == story_requests("test", 200)
    known = {who for cast in CASTS for who in cast} | set(HEROES)
    assert len(known) > 300
    counts = Counter(len(things) for _, things in requests)
    assert counts[0] == 25
    assert counts[2] > 40
    for request, things in requests:
        assert all(thing in request and thing in known for thing in things)
    assert len({thing for _, things in requests for thing in things}) > 120
    assert {request for request, _ in requests}.isdisjoint(request for request, _ in story_requests("dev", 64))


def test_a_question_in_mid_talk_stands_after_two_to_four_exchanges_of_others() -> None:
    asked = [turns((f"question {i}", f"answer {i}")) for i in range(60)]
    free = [turns([f"{i} {turn}" for turn in "abcdefghij"]) for i in range(9)]
    found = in_mid_talk(asked, [asked, free], "seed")
    assert found == in_mid_talk(asked, [asked, free], "seed")
    assert found != in_mid_talk(asked, [asked, free], "other")
    for dialogue, alone in zip(found, asked, strict=True):
        assert dialogue.messages[-2:] == alone.messages
        history = dialogue.messages[:-2]
        assert 4 <= len(history) <= 8
        assert [m["role"] for m in history] == ["user", "assistant"] * (len(history) // 2)
        assert alone.messages[1] not in history  # never the same intent
