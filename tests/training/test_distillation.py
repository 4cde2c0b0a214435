"""Distillation: what the teacher says to every source, nothing of dev or test in it, however often it is stopped."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tiny_transformer as tt
from tests.support.models import ROOT
from tests.support.training_fixtures import small_recipe, write_pairs
from tiny_transformer.cli import main
from tiny_transformer.data.examples import plain_words, read_examples
from tiny_transformer.errors import DataError, InputError
from tiny_transformer.generation import GenerationOptions
from tiny_transformer.text_model import TextModel
from tiny_transformer.training import distillation as module
from tiny_transformer.training.distillation import Distillation, distil, read_forbidden, read_sources
from tiny_transformer.training.recipe import load_recipe
from tiny_transformer.training.run import with_user_data

SOURCES = (
    "Guten Morgen!",
    "Ich weiß nicht, wo meine Schuhe sind.",
    "我喜欢你。",
    "Wie spät ist es?",
    "Das ist mein Hund.",
    "Hast du Hunger?",
)


@pytest.fixture(scope="module")
def teacher() -> TextModel:
    return tt.load(ROOT / "checkpoints" / "translate", backend="onnx", threads=1)


@pytest.fixture
def work(teacher: TextModel) -> Distillation:
    return Distillation(teacher, SOURCES, GenerationOptions(logprobs=False), batch_rows=2)


def lines(path: Path) -> list[tuple[str, ...]]:
    return [tuple(line.split("\t")) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_source_gets_what_the_teacher_says_alone(work: Distillation, tmp_path: Path) -> None:
    assert len(distil(work, tmp_path / "d.tsv")) == len(SOURCES)
    alone = [(source, work.teacher.generate(source).text) for source in SOURCES]
    assert lines(tmp_path / "d.tsv") == alone
    assert [path.name for path in tmp_path.iterdir()] == ["d.tsv"]
    with pytest.raises(DataError, match="add --overwrite"):
        distil(work, tmp_path / "d.tsv")


def test_n_best_gives_several_targets_a_source(work: Distillation, tmp_path: Path) -> None:
    options = GenerationOptions(num_beams=3, n_best=3, logprobs=False)
    distil(replace(work, options=options, sources=SOURCES[:2]), tmp_path / "d.tsv")
    found = lines(tmp_path / "d.tsv")
    best = work.teacher.generate(SOURCES[0], num_beams=3, n_best=3)
    assert [target for source, target in found if source == SOURCES[0]] == [best.text, *(o.text for o in best.others)]
    assert len(set(found)) == len(found)


def test_a_stopped_run_goes_on_and_asks_nothing_twice(
    work: Distillation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = module._answers, []

    def breaking(work, prompts, numbers):
        if len(asked) == 4:
            raise KeyboardInterrupt
        asked.extend(numbers)
        return real(work, prompts, numbers)

    monkeypatch.setattr(module, "_answers", breaking)
    with pytest.raises(KeyboardInterrupt):
        distil(work, tmp_path / "d.tsv")
    partial = tmp_path / "d.tsv.partial"
    assert not (tmp_path / "d.tsv").exists()
    with partial.open("ab") as file:
        file.write('[0, ["cut shé'.encode()[:-1])  # in the midst of a character
    with pytest.raises(DataError, match="begun with another teacher"):
        distil(replace(work, sources=SOURCES[1:]), tmp_path / "d.tsv")
    first = list(asked)
    monkeypatch.setattr(module, "_answers", lambda work, p, numbers: (asked.extend(numbers), real(work, p, numbers))[1])
    distil(work, tmp_path / "d.tsv")
    assert sorted(asked) == list(range(len(SOURCES)))
    assert len(first) == 4
    assert lines(tmp_path / "d.tsv") == [(source, work.teacher.generate(source).text) for source in SOURCES]
    assert not partial.exists()


def test_no_sentence_of_dev_or_test_is_used(work: Distillation, tmp_path: Path) -> None:
    said = work.teacher.generate(SOURCES[4]).text
    write_pairs(tmp_path / "test.tsv", [("anything", said.upper().rstrip(".") + " !")])
    forbidden = read_forbidden([str(tmp_path / "test.tsv")])
    assert len(distil(replace(work, forbidden=forbidden), tmp_path / "d.tsv")) == len(SOURCES) - 1
    assert SOURCES[4] not in {source for source, _ in lines(tmp_path / "d.tsv")}
    forbidden = frozenset({plain_words(SOURCES[5])})
    assert len(distil(replace(work, forbidden=forbidden), tmp_path / "e.tsv")) == len(SOURCES) - 1
    assert SOURCES[5] not in {source for source, _ in lines(tmp_path / "e.tsv")}


def test_back_translation_reads_the_second_side_and_puts_it_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tag is read by the teacher and stands in no file; what people wrote is the target."""
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "train.tsv", [(f"other {i}", text) for i, text in enumerate(SOURCES)])
    folder = ROOT / "checkpoints" / "translate"
    command = ["distil", str(folder), "--data", "train.tsv", "--backend", "onnx", "--out", "back.tsv"]
    assert main([*command, "--back-translate", "--tag", "Tom sagt: "]) == 0
    teacher = tt.load(folder, backend="onnx")
    assert lines(tmp_path / "back.tsv") == [(teacher.generate("Tom sagt: " + text).text, text) for text in SOURCES]


def test_what_the_teacher_cannot_read_or_finish_is_left_out(work: Distillation, tmp_path: Path) -> None:
    long = "Das ist gut und " * 60
    assert len(distil(replace(work, sources=(*SOURCES, long)), tmp_path / "d.tsv")) == len(SOURCES)
    cut = replace(work, options=GenerationOptions(max_new_tokens=2, logprobs=False))
    with pytest.raises(DataError, match="no usable target"):
        distil(cut, tmp_path / "e.tsv")


def test_sources_are_each_read_once(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a.tsv", [("eins", "one"), ("zwei", "two"), ("eins", "a one")])
    (tmp_path / "b.txt").write_text("drei\nvier\n\nzwei\n", encoding="utf-8")
    assert read_sources([str(tmp_path / "a.tsv"), str(tmp_path / "b.txt")]) == ("eins", "zwei", "drei", "vier")


def test_a_chat_model_teaches_no_translation(tmp_path: Path) -> None:
    chat = tt.load(ROOT / "checkpoints" / "chat", backend="onnx", threads=1)
    with pytest.raises(InputError, match="The teacher is for chat"):
        Distillation(chat, SOURCES, GenerationOptions())


def test_the_command_writes_what_train_takes_with_also(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = [(source, f"target {i}") for i, source in enumerate(SOURCES)]
    write_pairs(tmp_path / "train.tsv", pairs)
    teacher = str(ROOT / "checkpoints" / "translate")
    command = ["distil", teacher, "--data", "train.tsv", "--backend", "onnx"]
    assert main([*command, "--out", "more/de-en.distilled.tsv"]) == 0
    assert "wrote 6 pairs from 6 sources" in capsys.readouterr().err
    said = lines(tmp_path / "more" / "de-en.distilled.tsv")[0][1]
    write_pairs(tmp_path / "test.tsv", [("x", said)])
    assert main([*command, "--out", "fewer.tsv", "--exclude", "test.tsv"]) == 0
    assert "wrote 5 pairs from 6 sources" in capsys.readouterr().err
    (tmp_path / "test.tsv").write_text("no pairs\n")
    assert main([*command, "--out", "none.tsv", "--exclude", "test.tsv"]) == 2
    assert "lines of test.tsv are malformed" in capsys.readouterr().err
    also = ["more/de-en.distilled.tsv"]
    recipe, root = with_user_data(load_recipe("translate", ["sources.de-en-distilled.repeat=2"], also), "train.tsv")
    own, added = recipe.sources
    assert (own.name, added.name, added.repeat, added.format) == ("train.tsv", "de-en-distilled", 2.0, "pairs")
    assert recipe.of_split("test") == (own,)  # nothing is judged by what a machine wrote,
    asked = {e.source for e in read_examples(own, root, "test")} | {e.source for e in read_examples(own, root, "dev")}
    assert not asked & {e.source for e in read_examples(added, root, "train")}  # nor is what is asked given away


@pytest.mark.long
def test_added_data_is_named_without_its_place_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_transformer.training.run import train

    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    path = write_pairs(tmp_path / "more.tsv", [(f"wort {i}", f"word {i}") for i in range(50)])
    recipe = small_recipe("training.max_steps=2", also=(str(path),))
    train(recipe, "", tmp_path / "model", device="cpu")
    story = (tmp_path / "model" / "training.json").read_text(encoding="utf-8")
    assert str(tmp_path) not in story
    assert list(json.loads(story)["data"]) == ["more.tsv"]
    assert [source["path"] for source in json.loads(story)["recipe"]["sources"]] == ["", "more.tsv"]
