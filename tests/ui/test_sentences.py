"""Every sentence of the library that a visitor may meet has a Chinese form: those in its code, and those provoked."""

import ast
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from tests.support.models import ROOT
from tiny_transformer import backends, errors, hub
from tiny_transformer.errors import InputError, TinyTransformerError
from tiny_transformer.generation.options import GenerationOptions
from tiny_transformer.generation.prompt import checked_ids, prompt_for
from tiny_transformer.ui.chinese import OF_FOLDERS, OF_REQUESTS
from tiny_transformer.ui.i18n import LONGEST, Refused, explained, say, translated
from tiny_transformer.ui.models import Shelf
from tiny_transformer.ui.page_settings import Limits
from tiny_transformer.ui.service import Desk, dialogue, last_of

HAN = re.compile(r"[\u4e00-\u9fff]")
QUOTED = say("zh", "quoted", sentence="")
LIBRARY = ROOT / "tiny_transformer"
# All that stands between a folder, or a visitor's text, and an answer.
SPEAKING = [
    *(LIBRARY / "backends").glob("*.py"),
    *(LIBRARY / "generation").glob("*.py"),
    *(LIBRARY / f"{name}.py" for name in ("bundle", "config", "hub", "text_model", "tokenizer", "weights")),
    LIBRARY / "model" / "loading.py",
    LIBRARY / "parity" / "report.py",
    LIBRARY / "ui" / "models.py",
]
# For those who write code or train: the page calls none of these with anything a visitor chose.
NOT_FOR_VISITORS = {
    "base.check", "base.check_inputs", "base.of", "bundle._stored", "bundle.check_target", "eager._check_step",
    "eager.longest_with", "eager.start", "options.__post_init__", "options._check_together", "options._stop_strings",
    "options.from_keywords", "ort._decode", "ort.start", "ort.step", "request.__post_init__", "text.result",
    "text_model.generate_batch", "text_model.generate_ids", "text_model.resolve", "tokenizer.synthetic",
    "tokenizer.train",
}  # fmt: skip
# Gaps that hold more than a value.
PHRASES = {"again": "make it again with: 7", "other": "another 7", "wanted": "a number from 0 to 7"}
FAMILY = {name for name, kind in vars(errors).items() if isinstance(kind, type)}


def sentences_of(path: Path) -> Iterator[tuple[str, str]]:
    """Each sentence that a file may raise, with values filled in, and the function around it."""
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                text = said_by(node)
                if text is not None:
                    yield f"{path.stem}.{function.name}", text


def said_by(node: ast.AST) -> str | None:
    """The sentence of an error that is made here."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
        return None
    if node.func.id == "require":
        return filled(node.args[1])
    return filled(node.args[0]) if node.func.id in FAMILY else None


def filled(node: ast.expr) -> str | None:
    """The text of an f-string with something in each gap; None for what is no text, or only hands a text on."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    gaps = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
    text = "".join(str(p.value) if isinstance(p, ast.Constant) else PHRASES.get(ast.unparse(p), "7") for p in gaps)
    return text if re.search("[a-z]{2}", text) else None


SAID = [(where, text) for path in SPEAKING for where, text in sentences_of(path) if where not in NOT_FOR_VISITORS]


def chinese(sentence: str) -> str:
    """The Chinese form, which must be one."""
    found = translated(sentence, "zh")
    assert HAN.search(found), sentence
    assert not found.startswith(QUOTED), f"tiny_transformer/ui/chinese.py has no Chinese for: {sentence}"
    return found


def test_the_library_was_read() -> None:
    assert len(SAID) > 80
    assert {where for where, _ in SAID} >= {"bundle.open", "options._whole", "tokenizer.message_parts", "hub.pull"}
    functions = {where for path in SPEAKING for where, _ in sentences_of(path)}
    assert functions >= NOT_FOR_VISITORS, f"gone: {NOT_FOR_VISITORS - functions}"


@pytest.mark.parametrize(("where", "text"), SAID, ids=[where for where, _ in SAID])
def test_every_sentence_of_the_library_has_a_chinese_form(where: str, text: str) -> None:
    chinese(text)


def test_every_answer_of_the_hub_has_a_chinese_form() -> None:
    for template in hub._SENTENCES.values():
        chinese(template.format(about="a/b", endpoint="https://hub", detail="why", wait="5 seconds", status=500))


@pytest.mark.parametrize(("english", "form"), [*OF_REQUESTS, *OF_FOLDERS])
def test_no_template_is_hidden_by_one_before_it(english: str, form: str) -> None:
    fields = {name for _, name, _, _ in Formatter().parse(english) if name}
    assert {name for _, name, _, _ in Formatter().parse(form) if name} <= fields
    values = {name: f"«{name}»" for name in fields}
    assert translated(english.format(**values), "zh") == form.format(**values)


@pytest.mark.parametrize(
    "controls",
    [
        {"max_new_tokens": 0},
        {"temperature": -1},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 2},
        {"repetition_penalty": 0},
        {"num_beams": 0},
        {"seed": -1},
        {"seed": 2**70},
    ],
)
def test_options_a_visitor_may_get_wrong(desk: Desk, controls: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        last_of(desk.answers("chat", "eager", dialogue([], "hi"), controls))
    (name,) = controls
    assert name in chinese(str(refused.value)), "an option keeps its name"


def test_requests_a_visitor_may_get_wrong(desk: Desk, make_bundle: Any) -> None:
    chat = desk.shelf.bundle("chat")
    for wrong in (
        lambda: desk.content("nowhere", []),
        lambda: desk.content("chat", [{"role": "root", "content": "x"}]),
        lambda: desk.content("chat", [{"role": "user", "content": 3}]),
        lambda: desk.content("chat", [7]),
        lambda: desk.shelf.first("translate"),
        lambda: desk.shelf.chosen("chat", "quantum"),
        lambda: desk.shelf.chosen("chat", "onnx-int8"),
        lambda: desk.shelf.chosen("chat", 7),  # type: ignore[arg-type]
        lambda: checked_ids([10**6], 262),
        lambda: prompt_for(chat.tokenizer, chat.config, chat.generation, [{"role": "assistant", "content": "x"}]),
        lambda: GenerationOptions(num_beams=2, temperature=1.0),
    ):
        with pytest.raises(TinyTransformerError) as refused:
            wrong()
        chinese(str(refused.value))


def test_damage_to_a_folder_is_told_in_chinese(make_bundle: Any) -> None:
    for number, (file, content) in enumerate(
        (
            ("config.json", None),
            ("config.json", "{"),
            ("config.json", "[]"),
            ("config.json", "{}"),
            ("generation.json", '{"task": 3}'),
            ("tokenizer.json", "{}"),
            ("model.safetensors", "short"),
        )
    ):
        bundle = make_bundle("decoder-only", name=f"damaged-{number}")
        path = bundle.folder / file
        path.unlink() if content is None else path.write_text(content)
        problem = Shelf([str(bundle.folder)], "eager").entries[bundle.folder.name].problem
        assert problem is not None
        chinese(problem)


def test_notices_and_reasons_have_a_chinese_form(make_bundle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = make_bundle("decoder-only", name="chat", max_length=32)
    translator = make_bundle(name="translate")
    long = [{"role": "user", "content": "x" * 9}, {"role": "assistant", "content": "y" * 9}] * 3
    prompts = [
        prompt_for(
            chat.tokenizer, chat.config, chat.generation, [*long, {"role": "user", "content": "z"}], max_new_tokens=8
        ),
        prompt_for(
            chat.tokenizer,
            chat.config,
            chat.generation,
            [*long[:2], {"role": "user", "content": "z"}],
            max_new_tokens=8,
        ),
        prompt_for(
            chat.tokenizer,
            chat.config,
            chat.generation,
            [{"role": "system", "content": "s" * 60}, {"role": "user", "content": "z"}],
            max_new_tokens=8,
        ),
        prompt_for(chat.tokenizer, chat.config, chat.generation, "word " * 40, max_new_tokens=8),
        prompt_for(chat.tokenizer, chat.config, chat.generation, "word " * 40, raw=True, max_new_tokens=8),
        prompt_for(translator.tokenizer, translator.config, translator.generation, "word " * 40),
    ]
    notices = [notice for prompt in prompts for notice in prompt.notices]
    assert len(notices) >= 6
    for notice in notices:
        assert re.findall(r"\d+", chinese(notice)), "the numbers are kept"
        assert translated(notice, "en") == notice
    reasons = [reason for reason in backends.available(chat).values() if reason]
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    reasons += [reason for reason in backends.available(chat).values() if reason]
    assert len(reasons) >= 5
    for reason in reasons:
        chinese(reason)


def test_a_sentence_inside_another_is_translated_too() -> None:
    told = chinese("The backend onnx cannot run here: the package torch is missing, get it with: pip install torch.")
    assert "缺少 torch 包" in told
    assert "应为 整数" in chinese("config.json: d_model must be a whole number, not 'x'; correct it.")


def test_an_unknown_sentence_is_quoted() -> None:
    assert translated("Nobody knows this.", "zh") == f"{QUOTED}Nobody knows this."
    assert translated("Nobody knows this.", "en") == "Nobody knows this."


def test_a_sentence_that_quotes_a_flood_is_cut_and_costs_nothing() -> None:
    flood = f"The role '{'; choose one of is from to ' * 100_000}' is unknown; choose one of user, assistant."
    start = time.process_time()
    assert len(translated(flood, "zh")) < 2 * LONGEST
    assert len(translated(flood, "en")) <= LONGEST
    assert time.process_time() - start < 1


def test_where_the_page_was_started_is_not_told() -> None:
    told = translated(f"{os.getcwd()}/models/chat is not a folder; name a model folder such as x.", "en")
    assert told.startswith("models/chat is not")


def test_unexpected_failure_is_explained_without_its_text() -> None:
    assert "secret" not in explained(RuntimeError("secret path"), "en")
    assert HAN.search(explained(RuntimeError("secret path"), "zh"))
    assert explained(InputError("What, where, what to do."), "en") == "What, where, what to do."
    assert explained(Refused("refused_time", seconds=3), "zh") == "用时超过了 3 秒的上限；请换短一些的文本。"


@pytest.fixture
def desk(make_bundle: Any) -> Desk:
    """A chat model that answers, if only nonsense."""
    bundle = make_bundle("decoder-only", name="chat")
    return Desk(Shelf([str(bundle.folder)], "eager"), Limits())
