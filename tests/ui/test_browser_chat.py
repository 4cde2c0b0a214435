"""The chat in a real Chromium: what a visitor writes, watches, stops, takes back and finds again."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.support.ui_browser import (
    NEW_TOKENS,
    answer,
    answered,
    browser,
    choose_model,
    greedy,
    limit_answers,
    open_page,
    page_served,
    press,
    send,
    translate,
    translated,
    visit,
)
from tests.support.ui_fixtures import Served, models
from tiny_transformer.text_model import load
from tiny_transformer.ui.header import EXAMPLES
from tiny_transformer.ui.inspection import visible_tokens

__all__ = ["browser", "models", "page_served"]


def test_chat_streams_an_answer_and_says_what_it_cost(
    browser: Browser, page_served: Served, models: dict[str, Path]
) -> None:
    with visit(browser, page_served.url) as page:
        send(page, "hello there")
        expect(page.locator("#tt-chat .user")).to_have_text("hello there")
        expect(page.locator("#tt-stop")).to_be_visible()
        seen = set()
        while page.locator("#tt-stop").is_visible():
            seen.add(answer(page))
            page.wait_for_timeout(50)
        expected = greedy(models, "chat", "hello there")
        assert answered(page) == expected
        partial = [text for text in seen if 0 < len(text) < len(expected)]
        assert len(partial) >= 3, "it came in one piece"
        assert all(expected.startswith(text) for text in partial)
        line = page.locator("#tt-chat .tt-line")
        assert re.fullmatch(r"\d+ tokens in \d+\.\d s · stopped: .*", line.inner_text())
        line.locator("summary").click()
        assert re.search(r"ONNX Runtime · \d+ tokens/s · first word after \d+ ms", line.inner_text())
        expect(page.locator("#tt-message textarea")).to_have_value("")


def test_stop_ends_the_work_and_keeps_what_came(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        send(page, "stop me")
        expect(page.locator("#tt-chat .bot .message-content").first).to_have_text(re.compile("[A-Za-z]{4}"))
        page.locator("#tt-stop").click()
        expect(page.locator("#tt-chat .tt-line")).to_have_text("stopped")
        page.wait_for_timeout(300)
        text, steps = answer(page), page_served.n_steps
        page.wait_for_timeout(500)
        assert answer(page) == text
        assert 4 <= len(text) < NEW_TOKENS
        assert page_served.n_steps == steps, "the model went on writing"
        send(page, "again")
        answered(page, 2)


def test_retry_undo_edit_and_clear(browser: Browser, page_served: Served, models: dict[str, Path]) -> None:
    with visit(browser, page_served.url) as page:
        limit_answers(page, 12)
        send(page, "first")
        before = answered(page)
        press(page, "Retry")
        expect(page.locator("#tt-chat .tt-line")).to_contain_text("drawn at temperature 0.7")
        assert answered(page) != before
        press(page, "Edit")
        page.locator("#tt-chat textarea").fill("second <b>one</b> & more")
        press(page, "Submit")
        expect(page.locator("#tt-chat .user")).to_contain_text("second <\u2060b>one")
        expect(page.locator("#tt-chat .user b")).to_have_count(0)
        edited = load(models["chat"], "onnx").generate("second <b>one</b> & more", max_new_tokens=12).text
        assert answered(page) == edited
        press(page, "Undo")
        expect(page.locator("#tt-message textarea")).to_have_value("second <b>one</b> & more")
        expect(page.locator("#tt-chat .user")).to_have_count(0)
        send(page, "third")
        answered(page)
        press(page, "Clear")
        expect(page.locator("#tt-chat .example").first).to_be_visible()


def test_copy_takes_the_answer_alone(browser: Browser, page_served: Served, models: dict[str, Path]) -> None:
    with visit(browser, page_served.url, permissions=["clipboard-read", "clipboard-write"]) as page:
        send(page, "copy this")
        text = answered(page)
        press(page, "Copy message")
        assert page.evaluate("navigator.clipboard.readText()") == text


def test_reload_keeps_model_backend_and_the_dialogue_of_each_model(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        limit_answers(page, 6)
        send(page, "remember me")
        text = answered(page)
        page.locator("#tt-backend input").click()
        page.get_by_role("option", name="TorchScript", exact=True).click()
        choose_model(page, "Translate")
        expect(page.locator("#tt-backend input")).to_have_value("Backend: automatic")
        translate(page, "我明天要去北京。")
        translation = translated(page)
        open_page(page, page_served.url)
        expect(page.locator("#tt-source textarea")).to_have_value("我明天要去北京。")
        expect(page.locator("#tt-translation textarea")).to_have_value(translation)
        choose_model(page, "Chat")
        expect(page.locator("#tt-chat .user")).to_have_text("remember me")
        assert answer(page) == text
        expect(page.locator("#tt-backend input")).to_have_value("TorchScript")
    with visit(browser, page_served.url) as other:
        expect(other.locator("#tt-chat .user")).to_have_count(0), "another visitor sees nothing of it"


def test_leaving_a_model_in_the_middle_of_its_answer_leaves_nothing_behind(
    browser: Browser, page_served: Served
) -> None:
    with visit(browser, page_served.url) as page:
        send(page, "half an answer")
        expect(page.locator("#tt-chat .bot .message-content").first).to_have_text(re.compile("[A-Za-z]{4}"))
        choose_model(page, "Translate")
        expect(page.locator("#tt-translate")).to_be_visible()
        expect(page.locator("#tt-chat")).to_be_hidden()
        steps = page_served.n_steps
        page.wait_for_timeout(500)
        assert page_served.n_steps == steps
        choose_model(page, "Chat")
        expect(page.locator("#tt-send")).to_be_visible()
        expect(page.locator("#tt-chat .user")).to_have_text("half an answer")


def test_conversations_stand_in_a_list_and_can_be_opened_and_deleted(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        limit_answers(page, 3)
        said, kept = page.locator("#tt-chat .user"), page.locator("#tt-conversations [data-open]")
        send(page, "first <b>talk</b>")
        answered(page)
        page.locator("[data-fresh]").click()
        expect(page.locator("#tt-chat .example").first).to_be_visible()
        send(page, "second talk")
        answered(page)
        expect(kept).to_have_text(["second talk", "first <b>talk</b>"])
        kept.last.click()
        expect(said).to_contain_text("first")
        expect(kept.last).to_have_attribute("aria-current", "true")
        open_page(page, page_served.url)
        expect(said).to_contain_text("first")
        page.get_by_role("button", name="Delete: first <b>talk</b>").click()
        expect(page.locator("#tt-chat .example").first).to_be_visible()
        kept.click()
        expect(said).to_have_text("second talk")
        other = page.context.new_page()  # goes on with the same conversation
        open_page(other, page_served.url)
        expect(other.locator("#tt-chat .user")).to_have_text("second talk")
        send(other, "there")
        answered(other, 2)
        send(page, "here")
        answered(page, 2)
        open_page(other, page_served.url)
        expect(other.locator("#tt-chat .user")).to_have_text(["second talk", "there"])
        expect(other.locator("#tt-conversations [data-open]")).to_have_count(2)
        open_page(page, page_served.url)
        expect(said).to_have_text(["second talk", "here"])


def test_the_translator_keeps_paragraphs_and_its_text_can_be_copied(
    browser: Browser, page_served: Served, models: dict[str, Path]
) -> None:
    with visit(browser, page_served.url, permissions=["clipboard-read", "clipboard-write"]) as page:
        choose_model(page, "Translate")
        limit_answers(page, 6)
        expect(page.locator("#tt-translation-ways")).to_be_hidden()
        page.locator("#tt-translate").click()
        expect(page.locator("#tt-source textarea")).to_be_focused()  # it is empty: nothing was asked
        text = "Guten Tag.\n\nWie geht es dir? Gut."
        translate(page, text)
        expected = load(models["translate"], "onnx").generate(text, max_new_tokens=6).text
        assert expected.count("\n") == 2
        assert translated(page) == expected
        expect(page.locator("#tt-translation-line")).to_contain_text("German → English")
        page.locator("#tt-translation").get_by_role("button", name="Copy").click()
        assert page.evaluate("navigator.clipboard.readText()") == expected
        for n, example in enumerate(EXAMPLES["translate"][:2]):
            page.locator("#tt-another").click()
            expect(page.locator("#tt-source textarea")).to_have_value(example)
            expect(page.locator("#tt-conversations [data-open]")).to_have_count(n + 2)
            translated(page)


def test_no_earlier_translation_stands_there_as_that_of_another_text(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        choose_model(page, "Translate")
        limit_answers(page, 6)
        result = page.locator("#tt-translation textarea")
        for text, words in (("x" * 301, "at most 300"), (" ", "no text")):
            translate(page, "Guten Tag")
            assert translated(page) != ""
            translate(page, text)
            expect(page.locator("#tt-translate-status .tt-refused")).to_contain_text(words)
            expect(result).to_have_value("")
            expect(page.locator("#tt-translation-line .tt-line")).to_have_count(0)
            expect(page.locator("#tt-translation-ways")).to_be_hidden()
        expect(page.locator("#tt-conversations [data-open]")).to_have_count(2)  # where both translations are kept


@pytest.mark.slow
def test_a_text_that_is_sent_during_a_translation_waits(browser: Browser, page_served: Served) -> None:
    """On a quiet machine: what is typed must come before the translation's end."""
    with visit(browser, page_served.url) as page:
        choose_model(page, "Translate")
        source, result = page.locator("#tt-source textarea"), page.locator("#tt-translation textarea")
        limit_answers(page, 40)
        translate(page, "Guten Abend")
        expect(result).not_to_have_value("")
        for text in ("Ja", "x" * 301):  # while the other translation is still coming
            source.fill(text)
            source.press("Shift+Enter")
        assert len(translated(page)) == 40
        expect(page.locator("#tt-translate-status .tt-refused")).to_have_count(0)
        expect(page.locator("#tt-conversations [aria-current]")).to_have_text("Guten Abend")


def test_enter_while_an_answer_is_coming_keeps_what_was_typed(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        box, said = page.locator("#tt-message textarea"), page.locator("#tt-chat .user")
        send(page, "one")
        send(page, "two")  # before the server has begun, perhaps
        expect(page.locator("#tt-stop")).to_be_visible()
        page.keyboard.press("Enter")
        expect(box).to_have_value("two")
        answered(page)
        page.keyboard.press("Enter")
        answered(page, 2)
        expect(said).to_have_text(["one", "two"])
        expect(box).to_have_value("")


def drawn(line: Locator) -> list[int]:
    """The tokens of an answer, by the line under it."""
    return [int(i) for i in (line.get_attribute("data-ids") or "").split()]


def test_an_answer_goes_to_the_other_tabs_with_its_conversation(
    browser: Browser, page_served: Served, models: dict[str, Path]
) -> None:
    tokenizer = load(models["chat"], "onnx").tokenizer  # both have the same: bytes
    with visit(browser, page_served.url) as page:
        limit_answers(page, 6)
        send(page, "one")
        first = answered(page)
        page.locator("#tt-more button").first.click()
        for control, value in (("#tt-temperature input[type=number]", "1"), ("#tt-seed :is(input, textarea)", "5")):
            page.locator(control).fill(value)
            page.locator(control).press("Tab")
        send(page, "two")
        answered(page, 2)
        open_page(page, page_served.url)  # a kept answer has its tokens, too
        page.get_by_role("button", name="Look inside this answer").last.click()
        expect(page.locator("#tt-inside-text textarea")).to_have_value("two")
        turns: Any = [("user", "one"), ("assistant", first), ("user", "two")]
        dialogue: Any = [{"role": role, "content": text} for role, text in turns]
        model = load(models["chat"], "onnx")
        expected = model.reply(dialogue, max_new_tokens=48)
        ids = model.reply(dialogue, max_new_tokens=6, temperature=1.0, seed=5).ids
        assert len(ids) == 6
        assert ids != expected.ids[:6]
        chips = page.locator("#tt-written [data-chip]")
        expect(chips).to_have_text(visible_tokens(tokenizer, ids))
        expect(page.locator("#tt-read .tt-note")).to_have_count(0)
        page.locator("#tt-inside-run").click()  # asked anew, the model writes
        expect(chips).to_have_count(len(expected.ids))
        assert "".join(chips.all_inner_texts()).replace("⟨end⟩", "") == expected.text
        page.locator("#tt-inside-alone").click()
        expect(page.locator("#tt-inside-alone")).to_be_hidden()
        choose_model(page, "Translate")
        page.get_by_role("tab").first.click()
        limit_answers(page, 6)
        translate(page, "Guten Tag. Wie geht es dir?")
        translated(page)
        ids = drawn(page.locator("#tt-translation-line .tt-line"))
        open_page(page, page_served.url)
        expect(page.locator("#tt-translation textarea")).not_to_have_value("")
        page.locator("#tt-translation-ways .tt-carry-inside").click()
        expect(page.locator("#tt-read")).to_contain_text("This shows the first of 2 sentences.")
        expect(chips).to_have_text(visible_tokens(tokenizer, ids))
        assert 1 < len(ids) <= 6
        choose_model(page, "Chat")
        page.get_by_role("tab").first.click()
        page.get_by_role("button", name="Compare this").first.click()
        expect(page.locator("#tt-compare-text textarea")).to_have_value("one")
        expect(page.locator("#tt-compare-alone")).to_be_hidden()
        expect(page.locator(".tt-verdict")).to_be_visible(timeout=60_000)  # PyTorch is loaded for it
        expect(page.locator(".tt-lane p").first).to_have_text(greedy(models, "chat", "one"))


@pytest.mark.slow
def test_every_backend_can_be_picked_and_says_the_same(
    browser: Browser, page_served: Served, models: dict[str, Path]
) -> None:
    with visit(browser, page_served.url) as page:
        page.locator("#tt-availability summary").click()
        expect(page.locator("#tt-availability")).to_contain_text("python -m export all")
        texts = []
        for name in ("PyTorch", "TorchScript", "ONNX Runtime"):
            page.locator("#tt-backend input").click()
            page.get_by_role("option", name=name, exact=True).click()
            limit_answers(page, 10)
            send(page, "same")
            texts.append(answered(page))
            expect(page.locator("#tt-chat .tt-line")).to_contain_text(f"{name} · ")
            press(page, "Undo")
            expect(page.locator("#tt-chat .user")).to_have_count(0)
        assert texts == [load(models["chat"], "eager").generate("same", max_new_tokens=10).text] * 3


def test_a_refusal_stays_beside_the_box_and_covers_nothing(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        box, chat = page.locator("#tt-message textarea"), page.locator("#tt-chat")
        for _ in range(2):  # by Enter, then by the button
            box.focus()
            page.keyboard.press("Enter")
            page.locator("#tt-send").click()
        expect(chat.locator(".example")).to_have_count(3)
        limit_answers(page, 3)
        send(page, "one")
        answered(page)
        send(page, "  ")
        send(page, "y" * 301)
        reason = page.locator("#tt-status .tt-refused")
        expect(reason).to_have_text("The text has 301 characters; at most 300 fit. Please shorten it.")
        expect(box).to_have_value("y" * 301)
        expect(page.locator("#tt-ask")).to_have_attribute("data-count", "301 / 300")
        for part in (page.locator("#tt-send"), reason, chat.locator(".user")):
            expect(part).to_be_in_viewport(ratio=1)
        expect(chat.locator(".user")).to_have_count(1)
        expect(page.locator(".toast-body")).to_have_count(0)
        expect(chat.locator("[data-testid=status-tracker]")).to_be_hidden()
        send(page, "two")
        answered(page, 2)
        expect(reason).to_have_count(0)
        expect(page.locator("#tt-ask")).to_have_attribute("data-count", "")


def test_what_is_typed_right_after_enter_is_the_next_message(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        limit_answers(page, 3)
        send(page, "one")
        page.keyboard.type("two")
        answered(page)
        expect(page.locator("#tt-chat .user")).to_have_text("one")
        expect(page.locator("#tt-message textarea")).to_have_value("two")


def test_enter_submits_an_edit_that_holds_what_was_written(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        limit_answers(page, 3)
        send(page, "a < b & c")
        answered(page)
        press(page, "Edit")
        edited = page.locator("#tt-chat textarea")
        expect(edited).to_have_value("a < b & c")
        edited.press("End")
        edited.press("Shift+Enter")
        page.keyboard.type("more")
        edited.press("Enter")
        expect(page.locator("#tt-chat .user .message-content")).to_have_text("a <\u2060 b &\u2060 c\nmore")
        answered(page)


@pytest.mark.slow
def test_two_tabs_and_the_settings_survive_a_reload(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        limit_answers(page, 3)
        other = page.context.new_page()
        open_page(other, page_served.url)
        for tab, text in ((page, "in the first"), (other, "in the second")):
            send(tab, text)
            answered(tab)
        for tab, text in ((page, "in the first"), (other, "in the second")):
            open_page(tab, page_served.url)
            expect(tab.locator("#tt-chat .user")).to_have_text(text)
            expect(tab.locator("#tt-max-new-tokens input[type=number]")).to_have_value("3")
        page.locator("#tt-more button").first.click()
        expect(page.locator("#tt-seed").get_by_label("Seed")).to_have_value("")


HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "[link](javascript:alert(1)) ![](http://example.com/a.png)",
    "&lt;b&gt; **bold** $$x^2$$",
    "a\x00b",
]


def test_hostile_text_is_shown_as_it_is(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        limit_answers(page, 3)
        for count, text in enumerate(HOSTILE, start=1):
            send(page, text)
            answered(page, count)
            shown = page.locator("#tt-chat .user .message-content").last.inner_text().replace("\u2060", "")
            assert shown == text.replace("\x00", "\ufffd")
            assert page.evaluate("window.hacked") is None


# Words about the wait that a visitor really sees: they have room, and no other part lies over them.
WAIT_SEEN = """(words) => {
  const said = document.querySelector("#tt-status .tt-wait");
  if (!said || !said.textContent.includes(words)) return false;
  const box = said.getBoundingClientRect();
  return box.height > 10 && said.contains(document.elementFromPoint(box.right - 4, box.top + box.height / 2));
}"""


def test_two_visitors_wait_in_line_and_see_their_place(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as first, visit(browser, page_served.url) as second:
        send(first, "one")
        expect(first.locator("#tt-chat .bot .message-content").first).to_have_text(re.compile("[A-Za-z]"))
        send(second, "two")
        second.wait_for_function(WAIT_SEEN, arg="You are next · ")
        expect(second.locator("#tt-chat .user")).to_have_text("two")
        answered(first)
        answered(second)
        expect(second.locator("#tt-status .tt-wait")).to_be_empty()
