"""Every sentence of the library that a visitor can meet has a Chinese form, looked up by its template."""

import os
import re
import time
from collections import Counter
from pathlib import Path
from string import Formatter

import pytest

from tests.support.ui_provocations import provoke_all
from tiny_transformer.backends import BACKENDS
from tiny_transformer.errors import BackendError, InputError, Sentence
from tiny_transformer.ui.i18n import CHINESE, LONGEST, explained, say, translated

HAN = re.compile(r"[\u4e00-\u9fff]")
QUOTED = say("zh", "quoted", sentence="")


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sentence]:
    return provoke_all(tmp_path_factory.mktemp("provoked"))


def listed(templates: set[str]) -> str:
    """One template per line, as it must stand in the table."""
    return "".join(f"\n    {template!r}" for template in sorted(templates))


def test_every_sentence_a_visitor_can_meet_has_a_chinese_form(met: dict[str, Sentence]) -> None:
    missing = met.keys() - CHINESE.keys()
    assert not missing, f"tiny_transformer/ui/sentences.toml lacks the keys:{listed(missing)}"
    for sentence in met.values():
        chinese = translated(sentence, "zh")
        assert HAN.search(chinese) or sentence.template == "{where}: {reason}"
        assert not chinese.startswith(QUOTED)
        assert translated(sentence, "en")


def test_no_translation_is_left_over(met: dict[str, Sentence]) -> None:
    unmet = CHINESE.keys() - met.keys()
    assert not unmet, f"no test meets these keys of tiny_transformer/ui/sentences.toml:{listed(unmet)}"


def fields(template: str) -> Counter[str]:
    return Counter(name for _, name, _, _ in Formatter().parse(template) if name is not None)


@pytest.mark.parametrize(("english", "chinese"), CHINESE.items())
def test_a_translation_has_the_fields_of_its_template(english: str, chinese: str) -> None:
    assert fields(chinese) == fields(english)


def test_numbers_and_names_are_kept(met: dict[str, Sentence]) -> None:
    for sentence in met.values():
        shown = {name: value for name, value in sentence.values.items() if name in fields(sentence.template)}
        kept = [str(value) for value in shown.values() if type(value) is int and value < 1000]
        kept += [str(shown[name]) for name in ("name", "task", "backend") if name in shown]
        assert all(value in translated(sentence, "zh") for value in kept), sentence


def test_a_sentence_inside_another_is_translated_too() -> None:
    reason = Sentence(
        "the package {name} is missing, get it with: {command}", name="torch", command="pip install torch"
    )
    outer = BackendError("The backend {name} cannot run {folder}: {reason}.", name="onnx", folder="chat", reason=reason)
    assert "缺少 torch 包" in explained(outer, "zh")
    unknown = BackendError("The backend {name} cannot run {folder}: {reason}.", name="onnx", folder="x", reason=outer)
    assert "缺少 torch 包" in explained(unknown, "zh"), "at any depth, errors too"


def test_an_unknown_sentence_is_quoted() -> None:
    for unknown in ("Nobody knows this.", Sentence("Nobody knows {what}.", what="this")):
        assert translated(unknown, "zh") == f"{QUOTED}Nobody knows this."
        assert translated(unknown, "en") == "Nobody knows this."


def test_a_value_that_looks_like_a_template_is_only_a_value() -> None:
    sentence = Sentence("The role {role!r} is unknown; choose one of {roles}.", role="{roles} {0}", roles="user")
    assert "'{roles} {0}'" in translated(sentence, "zh")
    assert "'{roles} {0}'" in translated(sentence, "en")


def test_a_sentence_that_quotes_a_flood_is_cut_and_costs_nothing() -> None:
    flood = Sentence("The role {role!r} is unknown; choose one of {roles}.", role="x; is " * 500_000, roles="user")
    start = time.process_time()
    assert len(translated(flood, "zh")) <= LONGEST
    assert len(translated(flood, "en")) <= LONGEST
    assert time.process_time() - start < 1


def test_where_the_page_was_started_is_not_shown() -> None:
    path = Path(os.getcwd()) / "models" / "chat"
    for value in (path, str(path)):
        sentence = Sentence("{path} lacks the keys {keys}; add them.", path=value, keys="a")
        assert translated(sentence, "en").startswith("models/chat lacks")
        assert translated(sentence, "zh").startswith("models/chat 缺少")


def test_where_models_lie_elsewhere_is_not_shown() -> None:
    folder = Path("/home/ada/private/models/chat")
    reason = f"Load model from {folder}/decoder_model.onnx failed, see https://host/a/b/c"
    template = "ONNX Runtime cannot run {path} ({reason}); make it again with: python -m export all {parent}"
    sentence = Sentence(template, path=folder / "decoder_model.onnx", reason=reason, parent=folder)
    for language in ("en", "zh"):
        shown = translated(sentence, language)
        assert "ada" not in shown
        assert "private" not in shown
        assert shown.count("chat/decoder_model.onnx") == 2
        assert "https://host/a/b/c" in shown


def test_unexpected_failure_is_explained_without_its_text() -> None:
    assert "secret" not in explained(RuntimeError("secret path"), "en")
    assert HAN.search(explained(RuntimeError("secret path"), "zh"))
    assert explained(InputError("What, where, what to do."), "en") == "What, where, what to do."


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_has_a_name_in_both_languages(backend: str) -> None:
    assert say("en", f"backend_{backend}")
    assert say("zh", f"backend_{backend}")
