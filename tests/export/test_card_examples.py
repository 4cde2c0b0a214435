"""The card's examples are what the model says, and nothing that it learned from."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tiny_transformer as tt
from export.commands import main
from export.model_card import DIALOGUES, SENTENCES, examples, has_examples
from tests.support.models import ROOT
from tiny_transformer.bundle import CARD, DECODER_ONNX, PARITY, TRAINING, Bundle, copy_bundle
from tiny_transformer.evaluation import Question
from tiny_transformer.tokenizer import Message
from tiny_transformer.training.evaluation_data import read_questions

TRANSLATE, CHAT = (ROOT / "checkpoints" / name for name in ("translate", "chat"))
REQUIRED = ("Guten Morgen!", "Wie komme ich zum Bahnhof?", "今天天气真好。", "我喜欢你。")


def section(folder: Path) -> str:
    card = (folder / CARD).read_text(encoding="utf-8")
    found = re.search(r"^## Examples\n(.*?)^## ", card, re.MULTILINE | re.DOTALL)
    assert found, f"{folder / CARD} has no examples; write it anew: python -m export card {folder}"
    return found[1]


def test_there_are_enough_prompts_and_the_promised_ones_are_among_them() -> None:
    sentences = [text for texts in SENTENCES.values() for text in texts]
    assert set(REQUIRED) <= set(sentences)
    assert 8 <= len(sentences) <= 12
    assert 8 <= len(DIALOGUES["en"]) <= 12
    assert sum(len(sayings) > 1 for sayings in DIALOGUES["en"]) >= 3
    assert any("story" in saying for sayings in DIALOGUES["en"] for saying in sayings)


def test_the_shipped_translators_card_shows_what_it_says() -> None:
    shown = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", section(TRANSLATE), re.MULTILINE)[2:])
    model = tt.load(TRANSLATE, backend="onnx")
    wanted = [text for language in ("de", "zh") for text in SENTENCES[language]]
    assert shown == {text: model.generate(text).text for text in wanted}


@pytest.mark.long
def test_the_shipped_chat_models_card_shows_what_it_says() -> None:
    model = tt.load(CHAT, backend="onnx")
    blocks = re.findall(r"^```text\n(.*?)\n```$", section(CHAT), re.MULTILINE | re.DOTALL)
    assert len(blocks) == len(DIALOGUES["en"])
    for sayings, block in zip(DIALOGUES["en"], blocks, strict=True):
        history: list[Message] = []
        lines = []
        for saying in sayings:
            history.append({"role": "user", "content": saying})
            history.append({"role": "assistant", "content": model.reply(history).text})
            lines += [f"you:   {saying}", f"model: {history[-1]['content']}"]
        assert block == "\n".join(lines)


def test_no_prompt_but_the_promised_ones_is_in_the_test_data() -> None:
    asked: set[str] = set()
    for folder in (TRANSLATE, CHAT):
        asked |= {last_text(question) for question in read_questions([folder / "evaluation.jsonl"])}
    prompts = [text for texts in SENTENCES.values() for text in texts]
    prompts += [saying for sayings in DIALOGUES["en"] for saying in sayings]
    assert not (set(prompts) - set(REQUIRED)) & asked


def last_text(question: Question) -> str:
    return question.prompt if isinstance(question.prompt, str) else question.prompt[-1]["content"]


def test_the_card_is_written_anew_without_another_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copy_bundle(TRANSLATE, tmp_path / "copy").folder
    before = (folder / PARITY).read_bytes()
    (folder / CARD).unlink()
    assert main(["card", str(folder)]) == 0
    assert (folder / PARITY).read_bytes() == before
    assert section(folder) == section(TRANSLATE)
    (folder / PARITY).unlink()
    assert main(["card", str(folder)]) == 2
    assert "has no parity report; make it first: python -m export all" in capsys.readouterr().err


@pytest.mark.parametrize("missing", [TRAINING, DECODER_ONNX])
def test_a_model_that_was_not_trained_or_exported_has_no_examples(
    exported: Callable[[str], Bundle], tmp_path: Path, missing: str
) -> None:
    made = copy_bundle(exported("encoder-decoder-sinusoidal").folder, tmp_path / "copy")
    (made.folder / TRAINING).write_text("{}", encoding="utf-8")
    bundle = replace(made, generation=replace(made.generation, source_languages=("de",), target_language="en"))
    assert has_examples(bundle)
    assert [turn.said for (turn,) in examples(bundle)] == list(SENTENCES["de"])
    assert not has_examples(replace(bundle, generation=replace(bundle.generation, source_languages=("fi",))))
    (made.folder / missing).unlink()
    assert not has_examples(bundle)
