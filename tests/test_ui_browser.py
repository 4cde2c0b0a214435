"""The page in a real Chromium: what a visitor sees and does, on a laptop and on a phone."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from ui_fixtures import Served, models, served

from tiny_transformer.text_model import load

__all__ = ["models"]

LAPTOP, PHONE = {"width": 1200, "height": 800}, {"width": 360, "height": 740}
NEW_TOKENS = 50
expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def page_served(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Slow enough that an answer can be watched, stopped and waited for."""
    limits = ("--max-new-tokens", str(NEW_TOKENS), "--max-characters", "300", "--max-running", "1")
    with served(models.values(), tmp_path_factory.mktemp("browser"), *limits, delay=0.03) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, or the one that Playwright brought."""
    with sync_playwright() as playwright:
        options: dict[str, Any] = {"args": ["--no-sandbox", "--disable-gpu"]}
        chromium = shutil.which("chromium")
        if chromium:
            options["executable_path"] = chromium
        found = playwright.chromium.launch(**options)
        yield found
        found.close()


@contextmanager
def visit(browser: Browser, url: str, **look: Any) -> Iterator[Page]:
    """A visitor with a browser of their own, who leaves without an error and without asking another host."""
    context = browser.new_context(**({"viewport": LAPTOP, "locale": "en-US"} | look))
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if _own(request.url, url) else complaints.append(request.url))
    open_page(page, url)
    yield page
    assert complaints == []
    context.close()


def _own(address: str, url: str) -> bool:
    return address.startswith((url, "data:", "blob:"))


def open_page(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.locator("#tt-message textarea")).to_be_visible()
    # The examples come with the recalled dialogue: from then on the page is ready.
    expect(page.locator("#tt-chat .example, #tt-chat .message").first).to_be_visible()


def choose_model(page: Page, name: str) -> None:
    page.locator("#tt-model label").filter(has_text=name).click()


def press(page: Page, name: str) -> None:
    """The last button of a name: those of the newest message."""
    page.get_by_role("button", name=name, exact=True).last.click()


def send(page: Page, text: str) -> None:
    page.locator("#tt-message textarea").fill(text)
    page.keyboard.press("Enter")


def answered(page: Page, count: int = 1) -> str:
    """Wait for the end of the answer; its text."""
    expect(page.locator("#tt-chat .bot .tt-line")).to_have_count(count)
    expect(page.locator("#tt-chat .bot .tt-line").last).to_contain_text(re.compile("tokens|词元|stopped|已停止"))
    expect(page.locator("#tt-send")).to_be_visible()
    return answer(page)


def answer(page: Page) -> str:
    return page.locator("#tt-chat .bot").last.locator(".message-content").first.inner_text()


def greedy(models: dict[str, Path], task: str, text: str) -> str:
    return load(models[task], "onnx").generate(text, max_new_tokens=NEW_TOKENS).text


def limit_answers(page: Page, tokens: int) -> None:
    box = page.locator("#tt-max-new-tokens input[type=number]")
    box.fill(str(tokens))
    box.press("Tab")


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
        line = page.locator("#tt-chat .tt-line").inner_text()
        assert re.search(r"ONNX Runtime · \d+ tokens · \d+ tokens/s · first after \d+ ms", line)
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


def test_reload_keeps_the_dialogue_of_each_model(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        limit_answers(page, 6)
        send(page, "remember me")
        text = answered(page)
        choose_model(page, "Translate")
        expect(page.locator("#tt-chat")).to_contain_text("Write German or Chinese")
        page.locator("#tt-chat .example").last.click()
        answered(page)
        expect(page.locator("#tt-chat .tt-line")).to_contain_text("read as Chinese")
        open_page(page, page_served.url)
        expect(page.locator("#tt-chat .user")).to_have_text("remember me")
        assert answer(page) == text
        choose_model(page, "Translate")
        expect(page.locator("#tt-chat .user")).to_have_text("我明天要去北京。")
    with visit(browser, page_served.url) as other:
        expect(other.locator("#tt-chat .user")).to_have_count(0), "another visitor sees nothing of it"


def test_leaving_a_model_in_the_middle_of_its_answer_leaves_nothing_behind(
    browser: Browser, page_served: Served
) -> None:
    with visit(browser, page_served.url) as page:
        send(page, "half an answer")
        expect(page.locator("#tt-chat .bot .message-content").first).to_have_text(re.compile("[A-Za-z]{4}"))
        choose_model(page, "Translate")
        expect(page.locator("#tt-chat .example").first).to_be_visible()
        steps = page_served.n_steps
        page.wait_for_timeout(500)
        assert page_served.n_steps == steps
        expect(page.locator("#tt-chat .user")).to_have_count(0)
        expect(page.locator("#tt-send")).to_be_visible()
        choose_model(page, "Chat")
        expect(page.locator("#tt-chat .user")).to_have_text("half an answer")


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
            expect(page.locator("#tt-chat .tt-line")).to_contain_text(f"{name} ·")
            press(page, "Undo")
            expect(page.locator("#tt-chat .user")).to_have_count(0)
        assert texts == [load(models["chat"], "eager").generate("same", max_new_tokens=10).text] * 3


def test_compare_races_all_backends_to_a_verdict(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        page.get_by_role("tab", name="Compare").click()
        page.locator("#tt-compare-text textarea").fill("race this")
        page.locator("#tt-compare-run").click()
        expect(page.locator(".tt-lane")).to_have_count(3)
        expect(page.locator(".tt-verdict.tt-good")).to_contain_text("Same text, same numbers: 3 backends agree")
        rows = page.locator("#tt-verdict tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.nth(2)).to_contain_text("equal")
        expect(rows.nth(1)).to_contain_text("must be exact")


def test_look_inside_shows_tokens_alternatives_and_attention(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        choose_model(page, "Translate")
        page.get_by_role("tab", name="Look inside").click()
        page.locator("#tt-inside-text textarea").fill("Guten Tag")
        page.locator("#tt-inside-run").click()
        expect(page.locator("#tt-read .tt-chip")).to_have_text([*"Guten␣Tag", "⟨end⟩"])
        chips = page.locator("#tt-written [data-chip]")
        expect(chips).to_have_count(48)
        before = chips.all_inner_texts()
        chips.nth(3).click()
        expect(chips.nth(3)).to_have_attribute("aria-expanded", "true")
        panel = page.locator("[data-panel='3']")
        expect(panel.locator("button")).to_have_count(8)
        other = panel.locator("button").nth(1)
        name = other.locator("span").inner_text()
        other.click()
        expect(chips.nth(3)).to_have_text(name)
        after = chips.all_inner_texts()
        assert after[:3] == before[:3]
        assert after[3] != before[3]
        cells = page.locator("#tt-map rect[data-words]")
        expect(cells).to_have_count(48 * 10)
        cells.nth(5).hover()
        expect(page.locator("#tt-map .tt-words")).to_contain_text("→")
        page.locator("#tt-kind").get_by_text("Encoder").click()
        expect(cells).to_have_count(10 * 10)
        page.locator("#tt-head").get_by_text("all").click()
        expect(page.locator("#tt-map figure")).to_have_count(2)
        expect(page.locator("#tt-positions svg")).to_be_visible()


def test_about_describes_the_model_and_its_files(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        page.get_by_role("tab", name="About").click()
        expect(page.locator("#tt-about")).to_contain_text("Unverified")
        expect(page.locator("#tt-about .tt-facts")).to_contain_text("parameters")
        with page.expect_download() as download:
            page.get_by_role("link", name="config.json").click()
        assert "d_model" in download.value.path().read_text()


def test_chinese_browser_gets_a_chinese_page(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url, locale="zh-CN") as page:
        assert page.evaluate("document.documentElement.lang") == "zh"
        for text in ("聊天", "翻译"):
            expect(page.locator("#tt-model")).to_contain_text(text)
        for tab in ("对话", "比较后端", "看看内部", "关于模型"):
            expect(page.get_by_role("tab", name=tab, exact=True)).to_be_visible()
        expect(page.locator("#tt-send")).to_have_text("发送")
        expect(page.locator("#tt-decoding")).to_contain_text("温度")
        expect(page.locator("#tt-availability")).to_contain_text("不可用")
        send(page, "x" * 301)
        expect(page.get_by_text("最多 300 个")).to_be_visible()
        send(page, "hello")
        answered(page)
        expect(page.locator("#tt-chat .tt-line")).to_contain_text("词元/秒")
        page.get_by_role("tab", name="比较后端").click()
        page.locator("#tt-compare-run").click()
        expect(page.locator(".tt-verdict")).to_contain_text("文字相同，数字相同")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_shows_everything_without_scrolling_sideways(browser: Browser, page_served: Served, scheme: Any) -> None:
    look: dict[str, Any] = {"viewport": PHONE, "color_scheme": scheme, "has_touch": True}
    with visit(browser, page_served.url, **look) as page:
        send(page, "word " * 50)
        answered(page)
        boxes = [page.locator(part).bounding_box() for part in ("#tt-chat", "#tt-ask", "#tt-decoding")]
        assert all(box and box["width"] >= 320 for box in boxes), "side by side, nothing can be read"
        assert boxes[0]["y"] < boxes[1]["y"] < boxes[2]["y"]  # type: ignore[index]
        assert boxes[1]["y"] + boxes[1]["height"] <= PHONE["height"], "the box to write in is on the first screen"  # type: ignore[index]
        for name in ("Chat", "Compare", "Look inside", "About"):
            page.get_by_role("tab", name=name).click()
            if name != "Chat":
                page.wait_for_timeout(300)
            if name == "Compare":
                page.locator("#tt-compare-run").click()
                expect(page.locator(".tt-verdict")).to_be_visible()
            if name == "Look inside":
                page.locator("#tt-inside-run").click()
                expect(page.locator("#tt-map svg").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        lightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
        assert (lightness < 60) == (scheme == "dark")


def test_nothing_moves_while_an_answer_streams(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        page.evaluate(
            """() => { window.shift = 0; new PerformanceObserver((list) => {
              for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
            }).observe({type: "layout-shift", buffered: false}); }"""
        )
        place = page.locator("#tt-ask").bounding_box()
        send(page, "hold still")
        answered(page)
        assert page.locator("#tt-ask").bounding_box() == place
        assert page.evaluate("window.shift") < 0.1


def test_refusals_reach_the_visitor_and_the_text_stays(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        send(page, "y" * 301)
        expect(page.get_by_text("at most 300 fit")).to_be_visible()
        expect(page.locator("#tt-message textarea")).to_have_value("y" * 301)
        expect(page.locator("#tt-chat .user")).to_have_count(0)


@pytest.mark.parametrize(
    "text",
    [
        "<script>window.hacked = 1</script>",
        "<img src=x onerror='window.hacked = 1'>",
        "[link](javascript:alert(1)) ![](http://example.com/a.png)",
        "&lt;b&gt; **bold** $$x^2$$",
        "a\x00b",
    ],
)
def test_hostile_text_is_shown_as_it_is(browser: Browser, page_served: Served, text: str) -> None:
    with visit(browser, page_served.url) as page:
        limit_answers(page, 3)
        send(page, text)
        answered(page)
        shown = page.locator("#tt-chat .user .message-content").inner_text().replace("\u2060", "")
        assert shown == text.replace("\x00", "\ufffd")
        assert page.evaluate("window.hacked") is None


def test_two_visitors_wait_in_line_and_see_their_place(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as first, visit(browser, page_served.url) as second:
        send(first, "one")
        expect(first.locator("#tt-chat .bot .message-content").first).to_have_text(re.compile("[A-Za-z]"))
        send(second, "two")
        expect(second.locator("#tt-status")).to_contain_text("queue: 1/1")
        expect(second.locator("#tt-chat .user")).to_have_text("two")
        answered(first)
        answered(second)


def test_page_works_with_the_keyboard_and_names_its_controls(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        page.locator("#tt-message textarea").focus()
        page.keyboard.type("hello")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "tt-send"
        page.keyboard.press("Enter")
        answered(page)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('button, input, textarea, select')].filter((e) => {
              if (!e.offsetParent) return false;
              const label = e.getAttribute('aria-label') || e.title || e.innerText || e.placeholder
                || e.getAttribute('aria-labelledby') || (e.labels && [...e.labels].map((l) => l.innerText).join(''))
                || (e.closest('label') && e.closest('label').innerText);
              return !label || !label.trim();
            }).map((e) => e.outerHTML.slice(0, 120))"""
        )
        assert nameless == []


def test_missing_models_are_named_on_the_page(browser: Browser, tmp_path: Path) -> None:
    with (
        served([tmp_path / "chat", tmp_path / "translate"], tmp_path / "page") as found,
        visit(browser, found.url) as page,
    ):
        expect(page.locator(".tt-problem")).to_contain_text("is not a folder")
        send(page, "anyone there?")
        expect(page.locator(".toast-body, [role=alert]").last).to_contain_text("is not a folder")
        page.get_by_role("tab", name="About").click()
        expect(page.locator("#tt-about")).to_contain_text("is not a folder")
