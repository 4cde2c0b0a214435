"""Translated paraphrases: the right intent's, new to it, and nothing near what a model is evaluated by."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_transformer as tt
from tests.support.models import ROOT
from tests.support.training_fixtures import write_jsonl
from tiny_transformer.cli import main
from tiny_transformer.data.examples import read_examples
from tiny_transformer.errors import ConfigError, DataError
from tiny_transformer.training.distillation import TranslatedParaphrases
from tiny_transformer.training.recipe import load_recipe

AGE, NAME, FOOD = "I have no age.", "Call me Pip.", "I only eat electrons."
OWN = (
    (["How old are you?", "What is your age?", "Are you old?"], AGE),
    (["What is your name?", "Who are you?"], NAME),
    (["Are you hungry?", "Do you eat?"], FOOD),
)


def paraphrases(foreign: list[tuple[list[str], str]], held_out: tuple[str, ...] = ()) -> TranslatedParaphrases:
    return TranslatedParaphrases(OWN, held_out, tuple(foreign))


def added(work: TranslatedParaphrases, translations: dict[str, str]) -> dict[str, list[str]]:
    records = map(json.loads, work.lines(list(translations.items())))
    return {record["answer"]: record["questions"] for record in records}


def test_phrasings_go_to_the_intent_with_which_they_share_most():
    work = paraphrases([(["a", "b", "c", "d"], "Kein Alter."), (["e", "f"], "Ich bin Pip.")])
    translations = {
        "a": "how old are you",
        "b": "What is your age?",
        "c": "Since when do you exist?",
        "d": "Who are you?",  # one phrasing of another intent: outvoted
        "e": "What is your name?",
        "f": "What are you called?",
    }
    assert work.sources == ("a", "b", "c", "d", "e", "f")
    assert added(work, translations) == {AGE: ["Since when do you exist?"], NAME: ["What are you called?"]}


def test_an_intent_that_is_not_clearly_one_of_ours_adds_nothing():
    tie = paraphrases([(["a", "b", "c"], "?")])
    stranger = paraphrases([(["a"], "?")])
    with pytest.raises(DataError, match="none is a new phrasing"):
        added(tie, {"a": "How old are you?", "b": "Who are you?", "c": "Are you there?"})
    with pytest.raises(DataError, match="none is a new phrasing"):
        added(stranger, {"a": "Are you there?"})


def test_a_phrasing_counts_once_however_often_it_was_said():
    work = paraphrases([(["a", "b", "c", "d", "e", "f"], "?")])
    often = {"a": "Are you old?", "b": "are you old", "c": "Are you old?!"}
    rest = {"d": "Who are you?", "e": "What is your name?", "f": "What are you called?"}
    assert added(work, often | rest) == {NAME: ["What are you called?"]}


def test_of_two_intents_for_one_of_ours_the_nearer_is_taken():
    work = paraphrases([(["a", "b", "c"], "x"), (["d", "e"], "y")])
    translations = {
        "a": "Are you hungry?",
        "b": "Do you eat?",
        "c": "Would you like some cake?",
        "d": "Do you eat?",
        "e": "Goodbye then!",
    }
    assert added(work, translations) == {FOOD: ["Would you like some cake?"]}


def test_words_that_ask_for_two_answers_are_left_out():
    work = paraphrases([(["a", "b", "c"], "x"), (["d", "e", "f"], "y"), (["g"], "z")])
    translations = {
        "a": "How old are you?",
        "b": "Tell me about yourself.",
        "c": "When were you born?",
        "d": "Who are you?",
        "e": "tell me about yourself",
        "f": "How are you called?",
        "g": "how are you CALLED",  # of an intent that is none of ours
    }
    assert added(work, translations) == {AGE: ["When were you born?"]}


def test_nothing_near_a_held_out_phrasing_is_borrowed():
    foreign = [(["a", "b", "c", "d", "e"], "x")]
    translations = {
        "a": "How old are you?",
        "b": "how many years do you count",  # the very words
        "c": "Do you count how many years?",  # in another order
        "d": "So how many years do you really count?",  # six of eight words
        "e": "Were you born long ago?",
    }
    assert added(paraphrases(foreign, ("How many years do you count?",)), translations) == {AGE: [translations["e"]]}
    assert len(added(paraphrases(foreign), translations)[AGE]) == 4


def test_every_phrasing_comes_once_and_none_that_is_ours():
    work = paraphrases([(["a", "b", "c", "d"], "x")])
    translations = {"a": "Are you old?", "b": "are you AGED", "c": "Are you aged?", "d": "?!"}
    assert added(work, translations) == {AGE: ["Are you aged?"]}


def small_talk(path: Path, intents: Sequence[tuple[list[str], str]]) -> str:
    return str(write_jsonl(path, [{"questions": questions, "answer": answer} for questions, answer in intents]))


def toy_recipe(folder: Path, held_out: str) -> str:
    """A recipe that learns talk.jsonl."""
    path = folder / "toy.toml"
    source = ('name = "talk"', 'path = "talk.jsonl"', 'format = "intents"', f"held_out = {held_out}")
    path.write_text("\n".join(('task = "chat"', "training.max_steps = 1", "[[sources]]", *source)), encoding="utf-8")
    return str(path)


def test_what_is_held_out_is_what_the_recipe_holds_out(tmp_path: Path):
    recipe = load_recipe(toy_recipe(tmp_path, "{ dev = 0.1, test = 0.25 }"))
    small_talk(tmp_path / "talk.jsonl", [([f"{q} Number {i}" for i in range(20) for q in asks], a) for asks, a in OWN])
    foreign = small_talk(tmp_path / "foreign.jsonl", [(["Wie alt?", "Wie  alt?"], "Alt.")])
    work = TranslatedParaphrases.read(recipe, str(tmp_path), [foreign])
    (source,) = recipe.sources

    def asked(*splits: str) -> set[str]:
        return {e.messages[0]["content"] for split in splits for e in read_examples(source, str(tmp_path), split)}

    assert set(work.held_out) == asked("dev", "test")
    assert {question for questions, _ in work.own for question in questions} == asked("train")
    assert work.sources == ("Wie alt?",)


def test_what_other_sources_judge_by_is_held_out_too(tmp_path: Path):
    path = Path(toy_recipe(tmp_path, "{}"))
    more = "".join(
        f'\n[[sources]]\nname = "{name}"\npath = "{name}.jsonl"\nformat = "intents"\n{what}\n'
        for name, what in (("judge", 'split = "test"'), ("more", "held_out = { dev = 0.999 }"))
    )
    path.write_text(path.read_text(encoding="utf-8") + more, encoding="utf-8")
    small_talk(tmp_path / "talk.jsonl", OWN)
    small_talk(tmp_path / "judge.jsonl", [(["When were you born?"], AGE)])
    small_talk(tmp_path / "more.jsonl", [(["Since when are you here?"], AGE)])
    excluded = small_talk(tmp_path / "excluded.jsonl", [(["Were you born long ago?"], AGE)])
    foreign = small_talk(tmp_path / "foreign.jsonl", [(["a", "b", "c", "d", "e"], "x")])
    work = TranslatedParaphrases.read(load_recipe(str(path)), str(tmp_path), [foreign], [excluded])
    assert set(work.held_out) == {"When were you born?", "Since when are you here?", "Were you born long ago?"}
    translations = {
        "a": "How old are you?",
        "b": "when were you born",
        "c": "Since when are you here?",
        "d": "Were you born long ago?",
        "e": "How long have you existed?",
    }
    assert added(work, translations) == {AGE: [translations["e"]]}


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=7), min_size=1, max_size=12))
def test_nearness_is_found_as_by_comparing_all(bags: list[list[str]]):
    phrasing, *held_out = [" ".join(bag) for bag in bags]
    work = paraphrases([(["x", "y"], "?")], tuple(held_out))
    words = set(phrasing.split())
    near = any(10 * len(words & set(held.split())) >= 7 * len(words | set(held.split())) for held in held_out)
    if near:
        with pytest.raises(DataError, match="none is a new phrasing"):
            added(work, {"x": "Are you hungry?", "y": phrasing})
    else:
        assert added(work, {"x": "Are you hungry?", "y": phrasing}) == {FOOD: [phrasing]}


def test_the_command_writes_intents_that_train_takes_with_also(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    teacher = tt.load(ROOT / "checkpoints" / "translate", backend="onnx", threads=1)
    german = ["Wie alt bist du?", "Bist du alt?", "Wann bist du geboren?"]
    said = [result.text for result in teacher.generate_batch(german)]
    toy_recipe(tmp_path, "{ dev = 0.0 }")
    small_talk(tmp_path / "talk.jsonl", [(said[:2], AGE)])
    small_talk(tmp_path / "german.jsonl", [(german, "Ich habe kein Alter.")])
    command = ["distil", str(teacher.bundle.folder), "--data", "german.jsonl", "--for", "toy.toml", "."]
    assert main([*command, "--out", "more/german.jsonl", "--backend", "onnx"]) == 0
    told = capsys.readouterr().err
    assert "wrote 1 phrasings of 1 intents from 3 sources to more/german.jsonl" in told
    assert "train toy.toml --also more/german.jsonl" in told
    recipe = load_recipe("toy.toml", also=["more/german.jsonl"])
    (example,) = read_examples(recipe.sources[1], "", "train")
    assert [message["content"] for message in example.messages] == [said[2], AGE]
    assert recipe.of_split("dev") == recipe.sources[:1]  # nothing is judged by what a machine wrote
    small_talk(tmp_path / "judge.jsonl", [(said[2:], AGE)])
    assert main([*command, "--out", "none.jsonl", "--backend", "onnx", "--exclude", "judge.jsonl"]) == 2
    assert "none is a new phrasing" in capsys.readouterr().err


def test_wrong_files_and_recipes_are_told(tmp_path: Path):
    recipe = load_recipe(toy_recipe(tmp_path, "{}"))
    small_talk(tmp_path / "talk.jsonl", OWN)
    empty = small_talk(tmp_path / "empty.jsonl", [])
    with pytest.raises(DataError, match="holds no intents"):
        TranslatedParaphrases.read(recipe, str(tmp_path), [empty])
    with pytest.raises(ConfigError, match="The first source of recipe tiny teaches no intents"):
        TranslatedParaphrases.read(load_recipe("tiny"), "", [])
