"""How the page looks and sounds in a real Chromium: Chinese, phone width, light and dark, keyboard, no jumps."""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.models import ROOT
from tests.support.ui_browser import (
    PHONE,
    answered,
    browser,
    choose_model,
    limit_answers,
    page_served,
    send,
    translate,
    translated,
    visit,
)
from tests.support.ui_fixtures import Served, models

__all__ = ["browser", "models", "page_served"]


def test_chinese_browser_gets_a_chinese_page(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url, locale="zh-CN") as page:
        assert page.evaluate("document.documentElement.lang") == "zh"
        for text in ("聊天", "翻译"):
            expect(page.locator("#tt-model")).to_contain_text(text)
        for tab in ("试一试", "比较后端", "看看内部", "关于模型"):
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


@pytest.mark.parametrize(
    ("locale", "title"), [("zh-TW", "试一试"), pytest.param("ja-JP", "Try it", marks=pytest.mark.slow)]
)
def test_the_whole_page_is_in_one_language(browser: Browser, page_served: Served, locale: str, title: str) -> None:
    footer = {"试一试": "通过 API 使用", "Try it": "Use via API"}
    with visit(browser, page_served.url, locale=locale) as page:
        expect(page.get_by_role("tab").first).to_have_text(title)
        expect(page.locator("footer")).to_contain_text(footer[title])


@pytest.mark.slow
def test_the_chosen_language_reaches_every_tab_and_stays(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        page.get_by_role("button", name="中文").click()
        for _ in range(2):
            expect(page.get_by_role("tab")).to_have_text(["试一试", "比较后端", "看看内部", "关于模型"])
            page.reload()
        page.get_by_role("tab", name="关于模型").click()
        expect(page.locator("#tt-about")).to_contain_text("未验证")  # the server's own words
        page.locator("[data-colors]").click()
        page.reload()
        expect(page.locator("body.dark")).to_have_count(1)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_phone_shows_everything_without_scrolling_sideways(browser: Browser, page_served: Served, scheme: Any) -> None:
    look: dict[str, Any] = {"viewport": PHONE, "color_scheme": scheme, "has_touch": True}
    with visit(browser, page_served.url, **look) as page:
        send(page, "word " * 50)
        answered(page)
        boxes = [page.locator(part).bounding_box() for part in ("#tt-chat", "#tt-ask", "#tt-decoding")]
        assert all(box and box["width"] >= 320 for box in boxes), "side by side, nothing can be read"
        assert boxes[0]["y"] < boxes[1]["y"] < boxes[2]["y"]  # type: ignore[index]
        assert boxes[1]["y"] + boxes[1]["height"] <= PHONE["height"], "the box to write in is on the first screen"  # type: ignore[index]
        for name in ("Try it", "Compare", "Look inside", "About"):
            page.get_by_role("tab", name=name).click()
            if name != "Try it":
                page.wait_for_timeout(300)
            if name == "Compare":
                page.locator("#tt-compare-run").click()
                expect(page.locator(".tt-verdict")).to_be_visible()
            if name == "Look inside":
                page.locator("#tt-inside-run").click()
                expect(page.locator("#tt-map table")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        lightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
        assert (lightness < 60) == (scheme == "dark")


# What scrolls sideways within the page, as "id class", save what is made for it: wide maps, tables and code.
SCROLLERS = """() => [...document.querySelectorAll("*")]
  .filter(part => ["auto", "scroll"].includes(getComputedStyle(part).overflowX) && part.scrollWidth > part.clientWidth)
  .filter(part => part.clientWidth && !part.closest(".tt-scroll, .tt-map, .tt-code"))
  .map(part => `${part.id} ${part.className}`)"""


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 800])
def test_no_part_of_the_page_has_a_scroll_bar_below_it(browser: Browser, page_served: Served, width: int) -> None:
    with visit(browser, page_served.url, viewport={"width": width, "height": 800}) as page:
        expect(page.locator("#tt-more")).to_be_visible()
        for name in ("Try it", "Compare", "Look inside", "About"):
            page.get_by_role("tab", name=name).click()
            if name == "Look inside":
                page.locator("#tt-inside-run").click()
                expect(page.locator("#tt-map table")).to_be_visible()
            assert page.evaluate(SCROLLERS) == [], name


def test_nothing_moves_when_the_page_is_there_nor_while_an_answer_streams(
    browser: Browser, page_served: Served
) -> None:
    with visit(browser, page_served.url) as page:
        page.evaluate(
            """() => { window.shift = 0; new PerformanceObserver((list) => {
              for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
            }).observe({type: "layout-shift", buffered: false}); }"""
        )
        place = page.locator("#tt-ask").bounding_box()
        expect(page.locator("#tt-availability li").first).to_be_attached()  # what only now is in one's language
        assert page.locator("#tt-ask").bounding_box() == place
        send(page, "hold still")
        answered(page)
        assert page.locator("#tt-ask").bounding_box() == place
        assert page.evaluate("window.shift") < 0.1


AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
# What Gradio does and we cannot mend from outside, as "rule: part".
GRADIOS_OWN: set[str] = set()
# Rule and part of everything that axe-core finds wrong.
WRONG = """async (rules) => {
  // Of thousands of like cells some are enough: axe-core takes minutes over all of them.
  document.querySelectorAll('[role="tabpanel"] .html-container *:nth-child(n+9)').forEach((part) => part.remove());
  const found = await axe.run(document, rules.length ? { runOnly: rules } : {});
  return found.violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => `${id}: ${target.join(" ")}`));
}"""


def test_axe_finds_nothing_wrong_on_any_tab_light_or_dark(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url, reduced_motion="reduce") as page:
        page.evaluate(AXE.read_text(encoding="utf-8"))

        def check(*rules: str) -> None:
            assert set(page.evaluate(WRONG, list(rules))) - GRADIOS_OWN == set()

        def check_both() -> None:
            check()
            page.locator("[data-colors]").click()
            check("color-contrast")  # nothing else depends on the colors
            page.locator("[data-colors]").click()

        check_both()
        limit_answers(page, 5)
        send(page, "x" * 301)
        expect(page.locator("#tt-status .tt-refused")).to_be_visible()
        send(page, "hello")
        answered(page)
        page.locator("#tt-more button").first.click()
        check_both()
        for tab, shown in (("compare", "#tt-verdict .tt-verdict"), ("inside", "#tt-map table")):
            page.locator(f"[role=tab][data-tab-id={tab}]").click()
            page.locator(f"#tt-{tab}-run").click()
            expect(page.locator(shown).first).to_be_visible(timeout=60_000)  # PyTorch is loaded for the first
            check_both()
        page.locator("[role=tab][data-tab-id=about]").click()
        expect(page.locator("#tt-about .tt-facts")).to_be_visible()
        check_both()
        choose_model(page, "Translate")
        page.locator("[role=tab]").first.click()
        translate(page, "Guten Tag")
        translated(page)
        check_both()


# What a screen reader would say: each text that comes into a part of the page that is announced when it changes.
LISTEN = """() => {
  window.heard = [];
  const live = '[role="status"], [role="alert"], :is([aria-live], [role="log"]):not([aria-live="off"])';
  new MutationObserver((changes) => changes.forEach((change) => {
    const part = change.target.nodeType === 1 ? change.target : change.target.parentElement;
    const region = part?.closest(live);
    const text = region?.checkVisibility() ? region.textContent.trim() : "";
    if (text) window.heard.push(text);
  })).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""

HEARD = "window.heard.filter((text) => !['Loading', 'common.complete'].includes(text))"  # which Gradio says


def test_a_screen_reader_hears_a_streamed_answer_once(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        page.evaluate(LISTEN)
        send(page, "a < b")
        text = answered(page)
        page.wait_for_function(f"{HEARD}.length > 0")
        page.wait_for_timeout(300)
        assert page.evaluate(HEARD) == [text]
        page.evaluate("window.heard = []")
        choose_model(page, "Translate")
        translate(page, "Guten Tag")
        text = translated(page)
        page.wait_for_function(f"{HEARD}.length > 0")
        page.wait_for_timeout(300)
        assert page.evaluate(HEARD) == [text]


def test_the_start_text_keeps_off_the_frame_of_a_phone(browser: Browser, page_served: Served) -> None:
    for locale in ("en-US", "zh-CN"):
        with visit(browser, page_served.url, viewport={"width": 390, "height": 740}, locale=locale) as page:
            frame = page.locator("#tt-chat").bounding_box()
            text = page.locator("#tt-chat .placeholder p")
            inner = text.evaluate(
                """(part) => { const range = document.createRange(); range.selectNodeContents(part);
                  const box = range.getBoundingClientRect(); return [box.left, box.right]; }"""
            )
            assert frame is not None
            assert inner[0] - frame["x"] >= 12
            assert frame["x"] + frame["width"] - inner[1] >= 12
            title, choices = page.locator("#tt-title h1"), page.locator("#tt-page-choices button").first
            words = title.evaluate(
                """(part) => { const range = document.createRange(); range.selectNodeContents(part);
                  const box = range.getBoundingClientRect(); return [box.right, box.bottom]; }"""
            )
            corner = choices.bounding_box()
            assert corner is not None
            assert words[0] < corner["x"] or words[1] <= corner["y"], "the title lies over the choice of language"


# Whether the focused part, or what stands for it, has a ring that nothing cuts off.
RING = """() => {
  const at = document.activeElement;
  const part = at.matches("[type=radio]") ? at.closest("label") : at;
  const style = getComputedStyle(part);
  const name = at.outerHTML.slice(0, 150);
  if (style.outlineStyle !== "solid" || parseFloat(style.outlineWidth) < 2) return "no ring: " + name;
  const grown = parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth);
  const box = part.getBoundingClientRect();
  for (let around = part.parentElement; around !== document.body; around = around.parentElement) {
    const looks = getComputedStyle(around);
    const room = around.getBoundingClientRect();
    const left = box.left - grown < room.left - 1 || box.right + grown > room.right + 1;
    const above = box.top - grown < room.top - 1 || box.bottom + grown > room.bottom + 1;
    if ((left && looks.overflowX !== "visible") || (above && looks.overflowY !== "visible"))
      return `${JSON.stringify([box, room])} cut off by ${around.className}: ${name}`;
  }
  return "";
}"""


def test_the_keyboard_is_seen_wherever_it_is_and_leaves_no_list_behind(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        page.locator("#tt-more button").first.click()
        seed = page.locator("#tt-seed").get_by_label("Seed")
        expect(seed).to_have_value("")  # 0 would be a seed
        assert seed.evaluate("field => getComputedStyle(field).borderTopWidth") == "1px", "one sees where to write"
        page.locator("[data-language=en]").focus()
        unseen, seen = [], 0
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement === document.body || document.activeElement.closest('footer')"):
                break
            seen += 1
            unseen += filter(None, [page.evaluate(RING)])
            if not page.evaluate("document.activeElement.closest('#tt-backend')"):
                expect(page.get_by_role("option")).to_have_count(0)
        assert seen > 20
        assert unseen == []


def test_page_works_with_the_keyboard_and_names_its_controls(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        page.locator("#tt-message textarea").focus()
        page.keyboard.type("hello")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "tt-send"
        page.keyboard.press("Enter")
        answered(page)
        page.get_by_role("tab").first.focus()
        for key, name in (
            ("ArrowRight", "Compare"),
            ("ArrowLeft", "Try it"),
            ("ArrowLeft", "About"),
            ("ArrowRight", "Try it"),
        ):
            page.keyboard.press(key)
            expect(page.get_by_role("tab", name=name, selected=True)).to_be_focused()
        page.locator("#tt-model input").first.focus()
        expect(page.get_by_role("group", name="Model")).to_have_count(1)
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Tab")
        focused = page.locator("#tt-model label:has(input:focus-visible)")
        assert focused.evaluate("e => getComputedStyle(e).outlineStyle") == "solid", "one sees where the keyboard is"
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
