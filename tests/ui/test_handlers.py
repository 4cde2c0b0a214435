"""The handlers of the page, called as Gradio calls them, without a browser."""

import asyncio
import html
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from tests.support.models import tiny_config
from tests.support.ui_fixtures import models
from tiny_transformer.commands.init import random_bundle
from tiny_transformer.errors import InputError
from tiny_transformer.generation.options import OptionInfo
from tiny_transformer.text_model import load
from tiny_transformer.ui.about_tab import about
from tiny_transformer.ui.answer_line import working_line
from tiny_transformer.ui.api import with_options
from tiny_transformer.ui.chat_tab import ChatTab, from_model, from_visitor, seconds_waited, turns
from tiny_transformer.ui.compare_tab import CompareTab
from tiny_transformer.ui.controls import _control, defaults
from tiny_transformer.ui.handlers import beside, language_of, user_errors
from tiny_transformer.ui.header import availability, build_header
from tiny_transformer.ui.i18n import STRINGS
from tiny_transformer.ui.inside_tab import InsideTab
from tiny_transformer.ui.inspection import visible_tokens
from tiny_transformer.ui.models import ModelStore
from tiny_transformer.ui.page import build_page, translations
from tiny_transformer.ui.page_settings import Limits
from tiny_transformer.ui.service import OFFERED, PageService
from tiny_transformer.ui.streaming import Answer

__all__ = ["models"]

ENGLISH = gr.Request(headers={"accept-language": "en"})
CHINESE = gr.Request(headers={"accept-language": "zh-CN"})
FIRST = Answer(backend="onnx", first_ids=(70, 71), max_new_tokens=7)
CONTROLS: dict[str, Any] = dict.fromkeys(OFFERED) | {"temperature": 0, "max_new_tokens": 12, "num_beams": 1}


@pytest.fixture(scope="module")
def service(models: dict[str, Path]) -> PageService:
    return PageService(
        ModelStore([str(folder) for folder in models.values()]), Limits(characters=100, new_tokens=40, queue=4)
    )


def in_a_loop(make: Callable[[], Any]) -> Any:
    """What a function makes, made while an event loop runs: without one Gradio opens its own and never closes it."""

    async def run() -> Any:
        return make()

    return asyncio.run(run())


def build_tabs(service: PageService) -> dict[str, Any]:
    i18n = translations()
    with gr.Blocks() as page:
        header = build_header(service, page, i18n)
        return {
            "chat": ChatTab(service, header, page, i18n),
            "compare": CompareTab(service, header, i18n),
            "inside": InsideTab(service, header, i18n),
        }


@pytest.fixture(scope="module")
def tabs(service: PageService) -> dict[str, Any]:
    found: dict[str, Any] = in_a_loop(lambda: build_tabs(service))
    return found


@pytest.fixture
def chat(tabs: dict[str, Any]) -> ChatTab:
    found: ChatTab = tabs["chat"]
    return found


def answer_to(chat: ChatTab, shown: list[Any], name: str = "chat", **controls: Any) -> list[list[Any]]:
    values = (CONTROLS | controls).values()
    return list(chat._answer(ENGLISH, shown, name, "onnx", *values))


def test_a_turn_begins_with_a_place_for_the_answer_and_ends_with_it(chat: ChatTab, models: dict[str, Path]) -> None:
    shown, send, stop = chat._send("hello", [], "chat", ENGLISH)
    assert turns(shown) == [{"role": "user", "content": "hello"}, {"role": "assistant", "content": ""}]
    assert (send.visible, stop.visible) == (False, True)
    last = answer_to(chat, shown)[-1]
    assert turns(last)[-1]["content"] == load(models["chat"], "onnx").generate("hello", max_new_tokens=12).text
    assert "12 tokens" in last[-1]["content"][1]["text"]


def test_the_second_turn_reads_the_first(chat: ChatTab, models: dict[str, Path]) -> None:
    shown = answer_to(chat, chat._send("one", [], "chat", ENGLISH)[0])[-1]
    shown = answer_to(chat, chat._send("two", shown, "chat", ENGLISH)[0])[-1]
    expected = load(models["chat"], "onnx").reply(turns(shown)[:-1], max_new_tokens=12).text
    assert turns(shown)[-1]["content"] == expected
    assert len(turns(shown)) == 4


def test_retry_draws_another_answer_and_says_so(chat: ChatTab) -> None:
    shown = answer_to(chat, chat._send("one", [], "chat", ENGLISH)[0])[-1]
    again, *_ = chat._retry(shown, "chat", ENGLISH)
    assert turns(again)[0]["content"] == "one"
    (*_, last) = chat._answer_again(ENGLISH, again, "chat", "onnx", *(CONTROLS | {"seed": 5}).values())
    assert turns(last) != turns(shown)
    assert "temperature 0.7" in last[-1]["content"][1]["text"]
    with pytest.raises(InputError):
        chat._retry([], "chat", ENGLISH)


def test_edit_replaces_a_message_and_all_after_it(chat: ChatTab) -> None:
    shown = answer_to(chat, chat._send("one", [], "chat", ENGLISH)[0])[-1]
    shown = answer_to(chat, chat._send("two", shown, "chat", ENGLISH)[0])[-1]
    event = gr.EditData(None, {"index": 0, "value": "<\u2060b> other", "previous_value": "one"})
    edited, *_ = chat._edit(shown, "chat", event, ENGLISH)
    assert [turn["content"] for turn in turns(edited)] == ["<b> other", ""]


def test_undo_gives_the_message_back(chat: ChatTab) -> None:
    shown = answer_to(chat, chat._send("a < b", [], "chat", ENGLISH)[0])[-1]
    assert chat._undo(shown) == ([], "a < b")
    assert chat._undo([]) == ([], "")


def test_stop_keeps_what_came(chat: ChatTab) -> None:
    states: Iterator[Any] = chat._answer(
        ENGLISH, chat._send("one", [], "chat", ENGLISH)[0], "chat", "onnx", *CONTROLS.values()
    )
    shown = next(states)
    shown, send, stop = chat._stopped(shown, CHINESE)
    assert "已停止" in shown[-1]["content"][1]["text"]
    assert (send.visible, stop.visible) == (True, False)


def test_model_change_brings_its_own_welcome(chat: ChatTab) -> None:
    shown, send, _, line, run, _, another, *controls = chat._show_model("translate", CHINESE)
    assert send.visible
    assert (line, run.visible, another.visible) == ("", True, True)
    values = dict(zip(OFFERED, controls, strict=True))
    assert (values["max_new_tokens"], values["repetition_penalty"]) == (40, 1.0)
    assert values["temperature"] == gr.skip(), "what is not the model's stays as the visitor set it"
    assert "中文或德语" in str(shown.placeholder)
    assert any("北京" in example["text"] for example in shown.examples)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("message", "name", "sentence"),
    [
        ("", "chat", "no text yet"),
        ("x" * 101, "chat", "at most 100"),
        ("hi", "nowhere", "no model"),
        (7, "chat", "Expected"),
    ],
)
def test_what_cannot_be_answered_is_refused_at_once(chat: ChatTab, message: Any, name: str, sentence: str) -> None:
    with pytest.raises(gr.Error, match=sentence):
        user_errors(chat._send)(message, [], name, ENGLISH)


def test_a_refusal_stands_beside_the_box_and_ends_the_turn(chat: ChatTab) -> None:
    states = beside(chat._send, 3)("", [], "chat", CHINESE)
    *unchanged, words = next(states)
    assert unchanged == [gr.skip()] * 3
    assert "还没有文字" in words
    with pytest.raises(gr.Error) as end:
        next(states)
    assert not end.value.visible, "a message of Gradio's own would cover the page"
    *_, words = next(beside(chat._send, 3)("hi", [], "chat", CHINESE))
    assert words == "", "the reason goes when a message is accepted"


def test_an_answer_that_fails_leaves_the_question_and_its_reason(chat: ChatTab) -> None:
    shown = chat._send("one", [], "chat", ENGLISH)[0]
    states = list(_until_error(beside(chat._answer, 1)(ENGLISH, shown, "chat", "nonsense", *CONTROLS.values())))
    assert turns(states[-2][0]) == [{"role": "user", "content": "one"}]
    assert states[-1][0] == gr.skip()
    assert "There is no backend" in states[-1][1]


def _until_error(states: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from states
    except gr.Error:
        return


def test_the_wait_is_counted_from_the_message(chat: ChatTab) -> None:
    shown = chat._send("one", [], "chat", ENGLISH)[0]
    line = shown[-1]["content"][1]["text"]
    began = float(re.search(r'data-began="([\d.]+)"', line)[1])  # type: ignore[index]
    shown[-1]["content"][1]["text"] = line.replace(f"{began:.3f}", f"{began - 7:.3f}")
    assert "after 7." in answer_to(chat, shown)[-1][-1]["content"][1]["text"]
    assert (
        "in the queue" not in answer_to(chat, chat._send("one", [], "chat", ENGLISH)[0])[-1][-1]["content"][1]["text"]
    )
    for forged in ("", "99999999999.000", "0.000", "x", "1" * 500 + ".000"):
        shown[-1]["content"][1]["text"] = f'<span data-began="{forged}">'
        assert seconds_waited(shown) == 0.0


def test_refusals_are_in_the_visitors_language(chat: ChatTab) -> None:
    with pytest.raises(gr.Error, match="还没有文字"):
        user_errors(chat._send)("", [], "chat", CHINESE)
    assert language_of(None) == "en"


def test_a_failure_of_ours_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: gr.Request) -> None:
        raise RuntimeError("secret detail")

    with pytest.raises(gr.Error) as shown:
        user_errors(broken)(ENGLISH)
    assert "secret" not in str(shown.value)
    assert "secret detail" in caplog.text


def test_comparison_streams_cards_and_ends_with_a_verdict(tabs: dict[str, Any]) -> None:
    states = list(tabs["compare"]._compare("hello", "chat", CHINESE))
    assert len(states) > 2
    assert states[0][1] == ""
    assert "文字相同" in states[-1][1]
    with pytest.raises(InputError):
        list(tabs["compare"]._compare("", "chat", ENGLISH))


def test_look_inside_fills_every_part_and_goes_another_way(tabs: dict[str, Any]) -> None:
    inside: InsideTab = tabs["inside"]
    read, written, seen, panel, kind, layer, _, grid, picture, positions, *views = inside._inspect(
        "Guten Tag", "translate", "onnx", "", ENGLISH
    )
    assert read.count("tt-chip") > 5
    assert written.count("data-chip") == len(seen["ids"]) == 48
    assert panel.visible
    assert kind.value == "cross"
    assert [choice[1] for choice in layer.choices] == ["1", "2"]
    assert grid.count("data-heat") == 2 * 2
    assert picture.count("data-v") == 48 * len("Guten Tag ")
    assert "<canvas" in positions
    lens, boxes, board, without, odds, steps, lens_one, box = views
    assert lens.count("<tr>") == 1 + 1 + 2
    assert boxes.count("data-ask") == 2 + 2 * 2 + 3 * 2
    assert board.count("data-part") == 3 * 2 * 2 + 2 * 2
    assert without == ""
    assert odds.count("data-rank") == 8
    assert steps.count("data-strip") == 2 + 2 * len("Guten Tag ")
    assert lens_one.count("tt-cell") == 3 * 5
    assert "class Embedding(nn.Module)" in box
    event = gr.EventData(None, {"position": 2, "id": seen["ids"][5]})
    other = inside._other_way(seen, "encoder", "1", "2", event, ENGLISH)
    assert other[2]["ids"][:3] == [*seen["ids"][:2], seen["ids"][5]]
    assert other[4].value == "encoder"
    _, radio, *_ = inside._other_kind(seen, "decoder", "2", "average", ENGLISH)
    assert radio.value == "2"


def test_look_inside_shows_the_answer_that_came_with_its_question(tabs: dict[str, Any], chat: ChatTab) -> None:
    """Not one token more, whatever is chosen then; another token at a position goes on from there."""
    inside: InsideTab = tabs["inside"]
    shown = answer_to(chat, chat._send("one", [], "chat", ENGLISH)[0], temperature=1.0, seed=4)[-1]
    room, ids = re.findall(r'data-room="(\d+)" data-ids="([\d ]+)"', shown[-1]["content"][1]["text"])[0]
    answer = json.dumps({"room": int(room), "ids": [int(i) for i in ids.split()]})
    read, written, seen, *_ = inside._inspect([*turns(shown)[:-1]], "chat", "onnx", answer, ENGLISH)
    chips = re.findall(r"data-chip=.*?>(.*?)</button>", written)
    tokenizer = inside._service.store.bundle("chat").tokenizer
    assert tokenizer.decode(seen["ids"]) == turns(shown)[-1]["content"]
    assert [html.unescape(chip) for chip in chips] == [*visible_tokens(tokenizer, seen["ids"])]
    assert len(seen["ids"]) == int(room) == 12
    assert "tt-note" not in read
    assert (
        inside._token(seen, "decoder", "1", "2", gr.EventData(None, {"position": 11}), ENGLISH)[0]["ids"] == seen["ids"]
    )
    without = inside._switched(seen, gr.EventData(None, {"off": ["decoder.1"]}), ENGLISH)
    assert without.count("<li") == 2 * 48, "what was drawn is no measure: both write greedily"
    event = gr.EventData(None, {"position": 2, "id": seen["ids"][5]})
    other = inside._other_way(seen, "decoder", "1", "2", event, ENGLISH)[2]
    assert other["ids"][:3] == [*seen["ids"][:2], seen["ids"][5]]
    assert len(other["ids"]) == 48
    stopped = chat._stopped([*shown[:-1], from_model("ab", working_line("en", FIRST))], ENGLISH)[0][-1]["content"][1][
        "text"
    ]
    assert 'data-room="7" data-ids="70 71"' in stopped
    assert "tt-carry-inside" in stopped


@pytest.mark.parametrize(
    "answer",
    [
        "{}", "[]", "x", "7", '{"room": 9, "ids": []}', '{"room": 9, "ids": [262]}', '{"room": 9, "ids": [-1]}',
        '{"room": 9, "ids": "70"}', '{"room": 0, "ids": [70]}', '{"room": true, "ids": [70]}', '{"ids": [70]}',
        '{"room": 1e99, "ids": [70]}', "[" * 100_000, ["70"],
    ],
)  # fmt: skip
def test_tokens_that_are_no_answer_are_not_shown_as_one(tabs: dict[str, Any], answer: Any) -> None:
    read, _, seen, *_ = tabs["inside"]._inspect("hello", "chat", "onnx", answer, ENGLISH)
    assert len(seen["ids"]) == 48
    assert "The tokens of that answer are not known" in read
    assert "not known" not in tabs["inside"]._inspect("hello", "chat", "onnx", "", ENGLISH)[0]


def test_more_tokens_than_fit_are_cut(tabs: dict[str, Any]) -> None:
    answer = json.dumps({"room": 1, "ids": [70] * 1000})
    seen = tabs["inside"]._inspect("x" * 90, "chat", "onnx", answer, ENGLISH)[2]
    assert seen["ids"] == [70] * 3, "the context has 96 slots, 93 of them read"


@pytest.mark.parametrize(
    "event",
    [{"position": -1, "id": 3}, {"position": 999, "id": 3}, {"position": 1, "id": "x"}, {"position": 1, "id": 262}],
)
def test_look_inside_refuses_a_position_that_is_not_there(tabs: dict[str, Any], event: dict[str, Any]) -> None:
    inside: InsideTab = tabs["inside"]
    seen = inside._inspect("Guten Tag", "translate", "onnx", "", ENGLISH)[2]
    with pytest.raises(gr.Error):
        user_errors(inside._other_way)(seen, "cross", "1", "2", gr.EventData(None, event), ENGLISH)
    with pytest.raises(gr.Error):
        user_errors(inside._other_way)(None, "cross", "1", "2", gr.EventData(None, event), ENGLISH)


@pytest.mark.parametrize(
    ("handler", "event"),
    [
        ("_token", {"position": 48}),
        ("_token", {}),
        ("_other_head", {"layer": 3, "head": 1}),
        ("_other_head", {"layer": 1, "head": 0}),
        ("_other_head", {"layer": 1}),
        ("_other_row", {"query": -1}),
        ("_other_row", {"query": 60}),
        ("_other_row", {"query": "0"}),
        ("_other_box", {"box": "decoder.2.attention"}),
        ("_other_box", {"box": ["embedding"]}),
        ("_switched", {"off": "decoder.0"}),
        ("_switched", {"off": ["decoder.2"]}),
        ("_switched", {"off": ["cross.0"]}),
        ("_switched", {"off": ["decoder.0"] * 1000}),
        ("_switched", {"off": [{"decoder": 0}]}),
    ],
)
def test_look_inside_refuses_a_part_that_is_not_there(
    tabs: dict[str, Any], handler: str, event: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    inside: InsideTab = tabs["inside"]
    seen = {"text": "Guten Tag", "name": "translate", "backend": "onnx", "ids": [70] * 48}
    seen |= {"given": False, "room": 48, "position": 3, "query": None, "box": "embedding"}
    picked = () if handler in ("_other_box", "_switched") else ("cross", "1", "2")
    with pytest.raises(gr.Error):
        user_errors(getattr(inside, handler))(seen, *picked, gr.EventData(None, event), ENGLISH)
    assert not caplog.records, "refused, not failed"


def test_a_folder_without_the_inner_graph_says_what_adds_it(tmp_path: Path, models: dict[str, Path]) -> None:
    folder = tmp_path / "chat"
    shutil.copytree(models["chat"], folder, ignore=shutil.ignore_patterns("inside.onnx"))
    service = PageService(ModelStore([str(folder)], "onnx"), Limits())
    inside: InsideTab = in_a_loop(lambda: build_tabs(service))["inside"]
    for request, words in ((ENGLISH, "has no inside.onnx yet"), (CHINESE, "还没有 inside.onnx")):
        *_, grid, picture, _, lens, boxes, board, without, odds, steps, lens_one, box = inside._inspect(
            "hello", "chat", "onnx", "", request
        )
        for view in (grid, lens, boxes, board, steps):
            assert words in view
            assert "python -m export all" in view
        assert picture == lens_one == box == without == ""
        assert "data-rank" in odds, "what needs no such graph is there"
    assert "data-heat" in inside._inspect("hello", "chat", "eager", "", ENGLISH)[7], "PyTorch needs no graph"


def test_only_a_token_that_can_be_written_can_be_chosen(tmp_path: Path) -> None:
    bundle = random_bundle(tmp_path / "translate", tiny_config(output_vocab_size=270), "translate")
    service = PageService(ModelStore([str(bundle.folder)], "eager"), Limits())
    inside: InsideTab = in_a_loop(lambda: build_tabs(service))["inside"]
    seen = inside._inspect("Guten Tag", "translate", "eager", "", ENGLISH)[2]
    for token in (270, 299):
        event = gr.EventData(None, {"position": 0, "id": token})
        with pytest.raises(gr.Error, match="269"):
            user_errors(inside._other_way)(seen, "cross", "1", "2", event, ENGLISH)
    event = gr.EventData(None, {"position": 0, "id": 269})
    assert inside._other_way(seen, "cross", "1", "2", event, ENGLISH)[2]["ids"][0] == 269
    facts = about("translate", bundle, "en", "")
    assert "of these it writes" in facts
    assert ">270<" in facts


def test_full_queue_is_refused_before_the_message_is_shown(service: PageService) -> None:
    full = PageService(service.store, service.limits, waiting=lambda: 4)
    chat = in_a_loop(lambda: build_tabs(full))["chat"]
    with pytest.raises(gr.Error, match="4 requests are waiting"):
        user_errors(chat._send)("hi", [], "chat", ENGLISH)


def test_availability_tells_reasons_and_problems(service: PageService, tmp_path: Path) -> None:
    assert "model_int8.safetensors" in availability(service.store, "chat", "en")
    assert "文件夹中没有" in availability(service.store, "chat", "zh")
    broken = ModelStore([str(tmp_path / "<b>nowhere</b>")])
    shown = availability(broken, broken.default, "en")
    assert "is not a folder" in shown
    assert "<b>" not in shown


def test_there_is_one_control_for_each_option_offered(chat: ChatTab) -> None:
    named = {control.elem_id: control for control in chat.controls}
    assert list(named) == [f"tt-{name.replace('_', '-')}" for name in OFFERED]
    longest, seed = named["tt-max-new-tokens"], named["tt-seed"]
    assert (longest.minimum, longest.maximum, longest.step) == (1, 40, 1)  # type: ignore[attr-defined]
    assert seed.value == "", "an unset seed is no 0"  # type: ignore[attr-defined]


def test_a_new_option_needs_nothing_but_its_declaration() -> None:
    info = OptionInfo(name="min_p", default=0.0, kind=float, low=0, high=1, help="Draw.", slider=(0, 1, 0.05))
    control: Any = in_a_loop(lambda: _control(info, 0.0, Limits(), translations()))
    assert (control.minimum, control.maximum, control.step, control.elem_id) == (0, 1, 0.05, "tt-min-p")

    def answer(request: gr.Request, text: str, **options: Any) -> Iterator[dict[str, Any]]:
        """Answer.

        Args:
            text: Any.
        """
        yield {"text": text, **options}

    endpoint = with_options(answer, [info])
    assert endpoint.__annotations__["min_p"] is float
    assert "    min_p: Draw." in str(endpoint.__doc__)
    assert next(endpoint(ENGLISH, "hi", 0.2)) == {"text": "hi", "min_p": 0.2}
    assert next(endpoint(ENGLISH, "hi", min_p=0.3)) == {"text": "hi", "min_p": 0.3}


def test_a_folder_that_does_not_open_has_a_page_that_says_why(make_bundle: Any) -> None:
    """Its task is not known, whatever its name is: nothing on the page may depend on it."""
    damaged = make_bundle(name="translate")
    (damaged.folder / "config.json").write_text("{")
    alone = PageService(ModelStore([str(damaged.folder)], "eager"), Limits())
    assert alone.store.entries["translate"].task is None
    chat = in_a_loop(lambda: build_tabs(alone))["chat"]
    shown, *_ = chat._show_model("translate", ENGLISH)
    assert (shown.placeholder, shown.examples) == ("", [])
    for ask in (lambda: chat._send("hi", [], "translate", ENGLISH), lambda: alone.store.first("chat")):
        with pytest.raises(InputError, match=r"config\.json is not readable JSON"):
            ask()
    in_a_loop(lambda: build_page(alone, translations()))
    good = make_bundle("decoder-only", name="chat")
    both = ModelStore([str(damaged.folder), str(good.folder)], "eager")
    assert both.first("chat") == both.default == "chat"
    assert defaults(None, Limits())["max_new_tokens"] == 128


def test_every_label_of_the_page_is_a_sentence_of_ours(service: PageService) -> None:
    """A label that is plain text would stay English for everyone."""
    page = in_a_loop(lambda: build_page(service, translations()))
    plain = []
    for component in page.get_config_file()["components"]:
        for name in ("label", "info", "placeholder", "value"):
            text = component["props"].get(name)
            is_text = isinstance(text, str) and re.search(r"[A-Za-z]{3}", re.sub(r"<[^>]*>|&nbsp;", "", text))
            if is_text and component["type"] not in ("state", "api", "textbox") and "__i18n__" not in text:
                plain.append((component["type"], name, text))
    allowed = {"auto", "chat", "Chatbot", "HTML", "Html", "Markdown", "Textbox", "Api", "api"}
    assert [entry for entry in plain if entry[2] not in allowed] == []


def test_messages_keep_nothing_but_their_text() -> None:
    assert from_visitor("x")["content"] == [{"type": "text", "text": "x"}]
    assert STRINGS["stop"][1] == "停止"
