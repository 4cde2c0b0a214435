"""What a chat model is measured by: questions alone and in mid-talk, jokes that were not told yet, stories."""

import json
from pathlib import Path

import pytest

from tests.support.training_fixtures import small_recipe, write_jsonl
from tiny_transformer.cli import main
from tiny_transformer.errors import ConfigError
from tiny_transformer.evaluation import Question, is_right, is_story, reply_metrics
from tiny_transformer.training import finish
from tiny_transformer.training.evaluation_data import QuestionSet, question_sets
from tiny_transformer.training.recipe import Recipe, load_recipe
from tiny_transformer.training.run import train

FOX = (
    "Once there was a fox. The fox lived by the sea. One day it met a whale, and they sang. " * 3 + "That was the end."
)
JOKES = [f"Why {i}? So {i}." for i in range(5)]
RECIPE = """
task = "chat"
[tokenizer]
vocab_size = 300
[model]
d_model = 16
n_heads = 2
n_decoder_layers = 1
d_ff = 16
max_length = 128
[training]
max_steps = 2
batch_tokens = 512
compile = "off"
precision = "fp32"
[evaluation]
metric = "accuracy"
max_new_tokens = 4
max_examples = 16
[[sources]]
name = "talk"
path = "talk.jsonl"
format = "intents"
held_out = { dev = 0.2, test = 0.2 }
transforms = [{ name = "compose", up_to = 3, mix_with = ["jokes", "tales"] }]
[[sources]]
name = "jokes"
path = "jokes.jsonl"
format = "jokes"
held_out = { dev = 0.2, test = 0.3 }
[[sources]]
name = "tales"
path = "tales.jsonl"
format = "stories"
held_out = { dev = 0.2, test = 0.2 }
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    talk = [{"questions": [f"question {i} {j}" for j in range(30)], "answer": f"answer {i}"} for i in range(3)]
    write_jsonl(tmp_path / "talk.jsonl", talk)
    record = {"requests": [f"joke {i}" for i in range(30)], "more": [f"more {i}" for i in range(30)], "jokes": JOKES}
    write_jsonl(tmp_path / "jokes.jsonl", [record])
    write_jsonl(tmp_path / "tales.jsonl", [{"story": f"Tale {i}. {FOX}"} for i in range(40)])
    (tmp_path / "small.toml").write_text(RECIPE, encoding="utf-8")
    return load_recipe(str(tmp_path / "small.toml"))


SETS = [
    "talk",
    "talk in mid-talk",
    "jokes",
    "jokes in mid-talk",
    "jokes, another one",
    "jokes, another one in mid-talk",
    "stories",
    "stories in mid-talk",
]


def test_everything_is_asked_alone_and_in_mid_talk(tmp_path: Path, recipe: Recipe) -> None:
    groups = {group.name: group.questions for group in question_sets(recipe, str(tmp_path), "test")}
    assert list(groups) == SETS
    assert groups == {group.name: group.questions for group in question_sets(recipe, str(tmp_path), "test")}
    for alone, later in zip(SETS[::2], SETS[1::2], strict=True):
        assert len(groups[alone]) == len(groups[later]) > 3
        for first, second in zip(groups[alone], groups[later], strict=True):
            asked = len(first.prompt)
            assert second.prompt[-asked:] == first.prompt
            assert 4 <= len(second.prompt) - asked <= 8  # two to four exchanges stand before it
    for question in groups["jokes, another one in mid-talk"]:
        told = {message["content"] for message in question.prompt}
        assert set(question.also_right) == set(JOKES) - told
        assert question.answer not in told or len(question.also_right) < len(JOKES) - 1
    chosen = question_sets(recipe, str(tmp_path), "test", ["stories"])
    assert [group.name for group in chosen] == ["stories", "stories in mid-talk"]


def test_a_story_has_a_length_a_form_and_an_end() -> None:
    assert is_story(FOX)
    assert not is_story(FOX[:-1])  # cut off
    assert not is_story(FOX[:150] + ".")
    assert not is_story("word " * 60 + "and that was all. No more.")
    assert is_story(FOX + ' "Good night!"')


def test_a_reply_is_right_by_the_rule_of_its_question() -> None:
    asked = ({"role": "user", "content": "q"},)
    joke = Question(asked, JOKES[0], tuple(JOKES[1:3]))
    assert [is_right(reply, joke) for reply in (JOKES[0], JOKES[2].upper(), JOKES[3], "")] == [True, True, False, False]
    assert not joke.has_one_answer
    foxes = Question(asked, "", story_of=(("fox", "foxes"),))
    both = Question(asked, "", story_of=(("fox", "foxes"), ("bear", "bears")))
    assert is_right(FOX, foxes)
    assert is_right(FOX.replace("fox", "foxes"), foxes)
    assert not is_right(FOX, both)
    assert is_right(FOX.replace("whale", "bear"), both)
    assert not is_right("A fox.", foxes)
    assert not is_right(FOX.replace("fox", "foxtrot"), foxes)


def test_stories_are_counted_as_stories_and_as_about_the_thing() -> None:
    asked = ({"role": "user", "content": "q"},)
    questions = [Question(asked, "", story_of=((thing,),)) for thing in ("fox", "bear", "fox", "fox")]
    found = reply_metrics([FOX, FOX, "No.", FOX], questions)
    assert found.metrics == {"accuracy": 50.0, "stories": 75.0}
    assert found.examples == 4
    assert reply_metrics(["a", "b"], [Question(asked, "A"), Question(asked, "c")]).metrics == {"accuracy": 50.0}


@pytest.mark.long
def test_a_run_measures_every_set_and_its_sample_holds_what_has_one_answer(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    train(recipe, str(tmp_path), folder, device="cpu")
    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    assert list(record["results"]["test"]) == list(record["results"]["dev_by_source"]) == SETS
    assert all("accuracy" in found["metrics"] for found in record["results"]["test"].values())
    lines = (folder / "evaluation.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["answer"] for line in lines} == {f"answer {i}" for i in range(3)}
    capsys.readouterr()
    command = [
        "evaluate",
        str(folder),
        "--data",
        str(tmp_path),
        "--backend",
        "eager",
        "--json",
        "--max-new-tokens",
        "4",
    ]
    assert main([*command, "--sources", "talk"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {name: record["results"]["test"][name] for name in SETS[:2]}
    assert main([*command, "--sources", "jokes", "--recipe", str(tmp_path / "small.toml")]) == 0
    assert list(json.loads(capsys.readouterr().out)) == SETS[2:6]


def test_sets_with_several_right_answers_are_not_in_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ({"role": "user", "content": "q"},)
    groups = [
        QuestionSet("a", (Question(asked, "x"),)),
        QuestionSet("b", (Question(asked, "x", ("y",)),)),
        QuestionSet("c", (Question(asked, "", story_of=()),)),
    ]
    monkeypatch.setattr(finish, "question_sets", lambda *_: groups)
    run = finish.Finished(small_recipe(), "", None, None, tmp_path, None, 1)  # type: ignore[arg-type]
    assert finish.evaluation_questions(run) == [Question(asked, "x")]


def test_a_transform_that_names_an_unknown_source_is_refused(tmp_path: Path, recipe: Recipe) -> None:
    text = RECIPE.replace('["jokes", "tales"]', '["jokes", "fables"]')
    (tmp_path / "wrong.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="a transform of talk names the unknown source fables"):
        load_recipe(str(tmp_path / "wrong.toml"))
