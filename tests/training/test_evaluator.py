"""Metrics, questions from files, and the command that measures a model folder."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu
import torch

from tests.support.training_fixtures import small_recipe, write_jsonl, write_pairs
from tiny_transformer.cli import main
from tiny_transformer.errors import DataError, InputError
from tiny_transformer.evaluation import (
    Question,
    accuracy,
    bleu,
    chrf,
    evaluate_model,
    evaluate_paragraphs,
    evaluation_line,
    exact_match,
    perplexity,
    read_evaluation,
)
from tiny_transformer.generation import GenerationOptions
from tiny_transformer.text_model import load
from tiny_transformer.training import finish
from tiny_transformer.training import recipe as recipe_module
from tiny_transformer.training.evaluation_data import QuestionSet, read_questions, sampled
from tiny_transformer.training.evaluator import Evaluator
from tiny_transformer.training.run import train, with_user_data

HYPOTHESES = ["the cat sat on the mat today", "he goes home now , slowly"]
REFERENCES = ["the cat sat on the red mat today", "he goes home now , slowly"]


class Parrot:
    """Answers with what it was told to, and keeps what it was asked."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers, self.asked, self.options = answers, [], {}

    def generate_batch(self, texts: Sequence[str], **options: Any) -> list[SimpleNamespace]:
        self.asked.append(list(texts))
        self.options = options
        return [SimpleNamespace(text=self.answers[text]) for text in texts]

    def reply(self, history: Sequence[Any], **options: Any) -> SimpleNamespace:
        self.asked.append([message["content"] for message in history])
        return SimpleNamespace(text=self.answers[history[-1]["content"]])


def test_bleu_and_chrf_are_sacrebleus() -> None:
    assert bleu(HYPOTHESES, REFERENCES).value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert bleu(HYPOTHESES, REFERENCES, "none").value == pytest.approx(
        sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize="none", force=True).score
    )
    assert "tok:none" in bleu(HYPOTHESES, REFERENCES, "none").signature
    assert chrf(HYPOTHESES, REFERENCES).value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score


def test_shares_are_in_percent_and_accuracy_forgives_spacing_and_case() -> None:
    assert exact_match(["a", "b "], ["a", "b"]) == 100.0
    assert exact_match(["a", "B"], ["a", "b"]) == 50.0
    assert accuracy(["Hello  there!", "no"], ["hello there!", "yes"]) == 50.0
    assert perplexity(math.log(50)) == pytest.approx(50)
    with pytest.raises(InputError, match="cannot be compared"):
        exact_match(["a"], [])


def test_translations_are_judged_in_the_order_of_their_sources() -> None:
    parrot = Parrot({"eins zwei drei vier": REFERENCES[0], "x": REFERENCES[1]})
    found = evaluate_model(
        parrot, [Question("eins zwei drei vier", REFERENCES[0]), Question("x", REFERENCES[1])], num_beams=5
    )
    assert found.examples == 2
    assert found.metrics["bleu"] == pytest.approx(100.0)
    assert found.metrics["exact_match"] == 100.0
    assert "nrefs:1" in found.signatures["bleu"]
    assert parrot.options == {"num_beams": 5, "split": False}, "the model's own figures"


def test_paragraphs_are_measured_beside_their_sentences() -> None:
    german = {"Das ist gut.": "that is good", "Er geht.": "he goes home now", "Ja.": "yes"}
    chinese = {"你好。": "hello my dear friend", "再见！": "see you"}
    joined = {"Das ist gut. Er geht.": "that is bad", "Ja. 你好。": "yes hello", "再见！": "see you"}
    parrot = Parrot(german | chinese | joined)
    questions = [Question(source, target) for source, target in (german | chinese).items()]
    found = evaluate_paragraphs(parrot, questions, 2, num_beams=5)
    assert found.examples == 3
    assert found.metrics["bleu_alone"] == pytest.approx(100.0)
    assert found.metrics["bleu"] < 90
    assert parrot.asked == [[*german, *chinese], list(joined)]
    assert parrot.options == {"num_beams": 5}, "split, as it is served"
    assert evaluate_paragraphs(Parrot(chinese | {"你好。再见！": "x"}), questions[3:], 2).examples == 1
    with pytest.raises(InputError, match="dialogues"):
        evaluate_paragraphs(parrot, [Question(({"role": "user", "content": "a"},), "b")], 2)
    with pytest.raises(DataError, match="nothing to evaluate"):
        evaluate_paragraphs(parrot, [], 2)


def test_many_questions_are_put_in_portions_that_are_told() -> None:
    parrot = Parrot({f"text {i}": f"answer {i}" for i in range(600)})
    told: list[int] = []
    questions = [Question(f"text {i}", f"answer {i}") for i in range(600)]
    assert evaluate_model(parrot, questions, progress=told.append).metrics["exact_match"] == 100.0
    assert told == [len(texts) for texts in parrot.asked] == [256, 256, 88]
    assert list(parrot.options["numbers"]) == list(range(512, 600)), "each text draws by its own number"


def test_a_run_on_the_cpu_leaves_out_test_sets_that_take_long(caplog: pytest.LogCaptureFixture) -> None:
    small, large = (QuestionSet(name, (Question("a", "b"),) * n) for name, n in (("s", 5_000), ("l", 5_001)))
    assert finish._measured_here([small, large], torch.device("cuda")) == [small, large]
    with caplog.at_level("INFO"):
        assert finish._measured_here([small, large], torch.device("cpu")) == [small]
    assert "measure them with evaluate --sources l" in caplog.text


def test_a_dialogue_of_several_turns_is_put_to_the_model_whole() -> None:
    history = tuple(
        {"role": role, "content": text} for role, text in (("user", "a"), ("assistant", "b"), ("user", "c"))
    )
    parrot = Parrot({"c": "Right"})
    found = evaluate_model(parrot, [Question(history, "right")])
    assert found.metrics == {"accuracy": 100.0}
    assert parrot.asked == [["a", "b", "c"]]


def test_questions_come_from_every_kind_of_file(tmp_path: Path) -> None:
    pair = [Question("a", "b")]
    assert read_questions([write_pairs(tmp_path / "t.tsv", [("a", "b")])]) == pair
    assert read_questions([write_jsonl(tmp_path / "p.jsonl", [{"source": "a", "target": "b"}])]) == pair
    for name, text in (("x.de", "a\n"), ("x.en", "b\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_questions([tmp_path / "x.de", tmp_path / "x.en"]) == pair
    asked = [Question(({"role": "user", "content": "q"},), "r")]
    assert read_questions([write_jsonl(tmp_path / "i.jsonl", [{"questions": ["q"], "answer": "r"}])]) == asked
    record = {"messages": [{"role": "user", "content": "q"}], "answer": "r"}
    assert read_questions([write_jsonl(tmp_path / "e.jsonl", [record])]) == asked
    with pytest.raises(DataError, match=r"e\.jsonl:2 is neither"):
        read_questions([write_jsonl(tmp_path / "e.jsonl", [record, {"messages": []}])])


def test_a_sample_is_the_same_every_time_and_equal_between_sets() -> None:
    groups = [QuestionSet(n, tuple(Question(f"{n}{i}", "") for i in range(k))) for n, k in (("a", 1000), ("b", 90))]
    found = sampled(groups, 100)
    assert [len(group.questions) for group in found] == [50, 50]
    assert found == sampled(groups, 100)
    assert len(set(found[0].questions)) == 50


@pytest.mark.long
def test_evaluate_prints_the_figures_that_training_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    data = write_pairs(tmp_path / "mine.tsv", [(f"{i} ja", f"yes {i} it is") for i in range(400)])
    recipe = small_recipe("training.max_steps=25", "evaluation.test=true", "evaluation.max_new_tokens=16")
    train(recipe, str(data), tmp_path / "model")
    story = json.loads((tmp_path / "model" / "training.json").read_text(encoding="utf-8"))
    (wanted,) = story["results"]["test"].values()
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "model"), "--backend", "eager", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == wanted
    assert main(["evaluate", str(tmp_path / "model"), "--backend", "eager"]) == 0
    table = capsys.readouterr().out
    assert f"chrf         {wanted['metrics']['chrf']:6.2f}  nrefs:1" in table


@pytest.mark.long
def test_evaluate_over_the_data_folder_gives_the_figures_of_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data"
    (data / "tatoeba").mkdir(parents=True)
    for language in ("de", "zh"):
        for split in ("train", "dev", "test", "public"):
            pairs = [(f"{language} {split} {i} ja", f"yes {i} it is so") for i in range(20)]
            write_pairs(data / "tatoeba" / f"{language}-en.{split}.tsv", pairs)
    (data / "synthetic").mkdir()
    for language in ("de", "zh"):
        write_pairs(data / "synthetic" / f"{language}-en.back.tsv", [(f"{language} ja", "yes")])
    for name in ("zh-en.distilled", "dictionary"):
        write_pairs(data / "synthetic" / f"{name}.tsv", [("nein", "no")])
    (data / "own").mkdir()
    write_pairs(data / "own" / "words.tsv", [("ja", "yes")])
    write_pairs(data / "own" / "templates.tsv", [("{person} sagt ja", "{person} says yes")])
    small = ["training.max_minutes=0", "training.max_steps=3", "tokenizer.vocab_size=300", "training.compile=off"]
    small += ["model.max_length=32", "evaluation.num_beams=2", "sources.de-en.variants=1", "sources.zh-en.variants=1"]
    recipe = small_recipe(*small, "evaluation.test=true", "evaluation.max_new_tokens=8", name="translate")
    train(recipe, str(data), tmp_path / "model", device="cpu")
    story = json.loads((tmp_path / "model" / "training.json").read_text(encoding="utf-8"))
    assert set(story["results"]["test"]) == {"de-en.test", "zh-en.test", "de-en.public", "zh-en.public"}
    capsys.readouterr()
    monkeypatch.setattr(recipe_module, "shipped_data", lambda: str(data))  # as the checkout's own
    command = ["evaluate", str(tmp_path / "model"), "--backend", "eager", "--json", "--sources"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == story["results"]["test"]
    assert main([*command, "zh-en.public"]) == 0
    assert json.loads(capsys.readouterr().out) == {"zh-en.public": story["results"]["test"]["zh-en.public"]}
    assert main([*command, "zh-en.dev"]) == 2
    assert "has no test set zh-en.dev; choose among de-en.test, zh-en.test, de-en" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "model"), "--data", str(data), "--backend", "eager", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == story["results"]["test"]
    assert main(["evaluate", str(tmp_path / "model"), "--data", str(data), "--backend", "eager"]) == 0
    chrf = story["results"]["test"]["zh-en.test"]["metrics"]["chrf"]
    assert f"zh-en.test       chrf         {chrf:6.2f}  nrefs:1" in capsys.readouterr().out
    cases = write_jsonl(tmp_path / "c.jsonl", [{"group": "words", "source": "ja", "accept": ["{x|z} y"]}])
    command = ["evaluate", str(tmp_path / "model"), "--cases", str(cases), "--backend", "eager"]
    assert main([*command, "--failures"]) == 0
    printed = capsys.readouterr().out
    assert "words              0.00  0 of 1\nall                0.00  0 of 1\n" in printed
    assert "wanted x y" in printed
    assert (
        main(["evaluate", str(tmp_path / "model"), "--cases", str(cases), "--backend", "eager", "--json", "--save"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["failures"][0]["source"] == "ja"
    assert json.loads((tmp_path / "model" / "cases.json").read_text(encoding="utf-8"))["groups"] == {"words": [0, 1]}
    for wrong in ('{"recipe": null}', '{"recipe": []}', '{"recipe": 3}', '{"recipe": "x"}', "[]"):
        (tmp_path / "model" / "training.json").write_text(wrong, encoding="utf-8")
        assert main(["evaluate", str(tmp_path / "model"), "--data", str(data), "--backend", "eager"]) == 2
        assert "training.json is not what training writes" in capsys.readouterr().err
    (tmp_path / "model" / "training.json").unlink()
    assert main(["evaluate", str(tmp_path / "model"), "--data", str(data), "--backend", "eager"]) == 2
    assert "has no training.json that names its test data" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{", "[1]", '{"source": "a"}', '{"messages": [{"role": "x"}], "answer": ""}', ""])
def test_a_damaged_line_of_an_evaluation_file_is_one_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "evaluation.jsonl"
    path.write_text('{"source": "a", "target": "b"}\n' + content + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"evaluation\.jsonl:2"):
        read_evaluation(path)
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match="cannot be read"):
        read_evaluation(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_evaluation(tmp_path / "nowhere.jsonl")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    questions = [Question("a", "b"), Question(({"role": "user", "content": "ü"},), "c")]
    path = tmp_path / "evaluation.jsonl"
    path.write_text("".join(map(evaluation_line, questions)), encoding="utf-8")
    assert read_evaluation(path) == questions


def test_the_evaluator_asks_as_the_served_model_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dialogue longer than the context loses whole turns, not the half of one."""
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    dialogues = write_jsonl(tmp_path / "d.jsonl", [{"turns": [f"question {i}", f"answer {i}"]} for i in range(60)])
    small = ["training.max_minutes=0", "training.max_steps=1", "tokenizer.vocab_size=270", "model.max_length=64"]
    recipe = small_recipe(*small, "model.n_encoder_layers=0", "training.compile=off", name="chat")
    bundle = train(recipe, str(dialogues), tmp_path / "model", device="cpu")
    assert bundle is not None
    served = load(bundle.folder, "eager", device="cpu")
    recipe, root = with_user_data(recipe, str(dialogues))
    evaluator = Evaluator(recipe, root, bundle.tokenizer, bundle.config, torch.device("cpu"))
    turns = [{"role": ("user", "assistant")[i % 2], "content": f"turn {i} of a long talk"} for i in range(9)]
    for length in (1, 3, 9):
        question = Question(tuple(turns[:length]), "")
        found = evaluator.prompt(question, GenerationOptions(max_new_tokens=20))
        wanted = served.prompt(turns[:length], max_new_tokens=20)
        assert (found.prefix, found.source) == (wanted.prefix, wanted.source)
        assert found.prefix[0] == bundle.tokenizer.roles["user"]  # the start of a turn
    assert found.notices
