"""Splits, roles, composition, stories, and data on the Hub."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.training_fixtures import write_jsonl
from tiny_transformer.data import files
from tiny_transformer.data.augment import AlternateRoles, Compose, Rephrase
from tiny_transformer.data.augment.stories import story_dialogue, topics
from tiny_transformer.data.examples import held_out, read_examples, split_of
from tiny_transformer.data.records import Pair, texts_of
from tiny_transformer.data.source import Source

FOX = (
    "A clever fox lived in the forest. One day the fox met a crow. The crow had a cheese. "
    "The fox praised the crow, and the crow sang. The cheese fell."
)


def intents(tmp_path: Path, **options: object) -> Source:
    records = [{"questions": [f"question {i} {j}" for j in range(250)], "answer": f"answer {i}"} for i in range(4)]
    path = write_jsonl(tmp_path / "i.jsonl", records)
    return replace(Source(name="talk", path=str(path), format="intents"), **options)


def phrasings(examples: list) -> Counter:
    return Counter(message["content"] for e in examples for message in e.messages if message["role"] == "user")


def test_the_splits_share_no_phrasing_and_lose_none(tmp_path: Path) -> None:
    source = intents(tmp_path, held_out={"dev": 0.1, "test": 0.2})
    splits = {split: phrasings(list(read_examples(source, "", split))) for split in ("train", "dev", "test")}
    whole = phrasings(list(read_examples(replace(source, held_out={}), "", "train")))
    assert sum(splits.values(), Counter()) == whole
    assert max(whole.values()) == 1
    assert 150 < len(splits["test"]) < 250
    assert 70 < len(splits["dev"]) < 130
    assert phrasings(held_out(source, "", "test")) == splits["test"]


def test_a_phrasing_cannot_be_given_away_by_case_or_punctuation() -> None:
    share = {"dev": 0.5}
    for i in range(50):
        assert split_of(f"Who are you {i}?", share) == split_of(f"who are  you, {i}!!", share)
    assert len({split_of(f"text {i}", share) for i in range(50)}) == 2


def test_composed_dialogues_use_every_phrasing_once_and_answer_in_later_turns(tmp_path: Path) -> None:
    source = intents(tmp_path, transforms=(Compose(up_to=3),), variants=4)
    first, second = (list(read_examples(source, "", "train", variant)) for variant in (0, 1))
    assert phrasings(first) == phrasings(second) == phrasings(list(read_examples(intents(tmp_path), "", "train")))
    assert {len(example.messages) for example in first} == {2, 4, 6}
    assert first != second
    assert first == list(read_examples(source, "", "train", 0))
    for example in first:
        for question, answer in zip(example.messages[::2], example.messages[1::2], strict=True):
            assert question["content"].split()[1] == answer["content"].split()[1]


def test_rephrasing_leaves_the_first_variant_the_answers_and_the_split_alone(tmp_path: Path) -> None:
    plain = intents(tmp_path, held_out={"test": 0.3})
    source = replace(plain, transforms=(Rephrase(),), variants=2)
    train = [list(read_examples(source, "", "train", variant)) for variant in (0, 1)]
    assert train[0] == list(read_examples(plain, "", "train"))
    assert held_out(source, "", "test") == held_out(plain, "", "test")
    assert train[1] != train[0]
    assert [e.messages[-1] for e in train[1]] == [e.messages[-1] for e in train[0]]


def test_evaluation_is_never_composed(tmp_path: Path) -> None:
    source = intents(tmp_path, transforms=(Compose(up_to=3, share=1.0),), held_out={"dev": 0.5})
    assert {len(example.messages) for example in held_out(source, "", "dev")} == {2}


def test_alternate_roles_make_either_speaker_the_assistant(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "d.jsonl", [{"turns": ["a", "b", "c"]}])
    source = Source(name="d", path=str(path), format="dialogues", transforms=(AlternateRoles(),), variants=2)
    roles = [[m["role"] for m in next(read_examples(source, "", "train", v)).messages] for v in (0, 1, 2)]
    assert roles == [["user", "assistant", "user"], ["assistant", "user", "assistant"], ["user", "assistant", "user"]]


def test_a_story_is_the_answer_to_a_request_for_something_in_it() -> None:
    assert topics(FOX)[:2] in (["the crow", "the fox"], ["a crow", "a fox"], ["a fox", "a crow"])
    requests = set()
    for seed in range(40):
        request, story = texts_of(story_dialogue(FOX, "", random.Random(seed)))
        assert story == FOX
        requests.add(request)
    assert len(requests) > 10
    assert any("fox" in request for request in requests)
    assert any("crow" in request for request in requests)
    titled = {texts_of(story_dialogue(FOX, "The Sly Fox!", random.Random(seed)))[0] for seed in range(20)}
    assert any("the Sly Fox" in request for request in titled)


class FakeHub:
    """As much of HfFileSystem as reading needs, over a dict of files."""

    def __init__(self, content: dict[str, str]) -> None:
        self.content, self.version, self.fetched = content, "1", 0

    def exists(self, path: str) -> bool:
        return any(name.startswith(path) for name in self.content)

    def isdir(self, path: str) -> bool:
        return path not in self.content

    def find(self, path: str) -> list[str]:
        return [name.removeprefix("hf://") for name in self.content if name.startswith(path)]

    def info(self, path: str) -> dict[str, str]:
        return {"blob_id": self.version}

    def get_file(self, path: str, local: str) -> None:
        self.fetched += 1
        Path(local).write_text(self.content[path], encoding="utf-8")


def test_a_dataset_on_the_hub_is_fetched_once_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub({"hf://datasets/someone/pairs/a.tsv": "x\ty\n", "hf://datasets/someone/pairs/b.tsv": "u\tv\n"})
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path))
    monkeypatch.setattr(files, "_hub", lambda: hub)
    source = Source(name="hub", path="hf://datasets/someone/pairs")
    for _ in range(2):
        assert list(read_examples(source, "", "train")) == [Pair("x", "y"), Pair("u", "v")]
    assert hub.fetched == 2
    hub.version = "2"
    hub.content["hf://datasets/someone/pairs/a.tsv"] = "new\ty\n"
    assert next(read_examples(source, "elsewhere", "train")) == Pair("new", "y")
