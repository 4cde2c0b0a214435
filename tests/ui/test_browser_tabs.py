"""The other tabs in a real Chromium: the comparison, the look inside, and what the model is."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.ui_browser import LAPTOP, box_of, browser, choose_model, open_page, page_served, send, visit
from tests.support.ui_fixtures import Served, models, served
from tiny_transformer.ui.header import EXAMPLES

__all__ = ["browser", "models", "page_served"]


def test_compare_runs_all_backends_to_a_verdict(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        page.get_by_role("tab", name="Compare").click()
        box_of(page, "compare").fill("compare this")
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
        box_of(page, "inside", "translate").fill("Guten Tag")
        page.locator("#tt-inside-run").click()
        expect(page.locator("#tt-read .tt-chip")).to_have_text([*"Guten␣Tag", "⟨end⟩"])
        chips = page.locator("#tt-written [data-chip]")
        expect(chips).to_have_count(48)
        expect(page.locator("#tt-read")).to_contain_text("This shows the first 48 tokens of the answer.")
        before = chips.all_inner_texts()
        chips.nth(3).click()
        expect(chips.nth(3)).to_have_attribute("aria-expanded", "true")
        panel = page.locator("[data-panel='3']")
        expect(panel.locator("button")).to_have_count(8)
        other = panel.locator("button").nth(1)
        name = other.locator("span").inner_text()
        other.focus()
        page.keyboard.press("Enter")
        expect(chips.nth(3)).to_have_text(name)
        expect(chips.nth(3)).to_be_focused()
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


def test_tabs_say_what_will_be_there_and_keep_what_a_visitor_wrote(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url, locale="zh-CN") as page:
        page.get_by_role("tab", name="看看内部").click()
        expect(page.locator("#tt-read")).to_have_text("词元、概率和注意力图会显示在这里。")
        page.get_by_role("tab", name="比较后端").click()
        expect(page.locator("#tt-lanes")).to_have_text("各后端的回答和结论会显示在这里。")
        box = box_of(page, "compare")
        choose_model(page, "翻译")
        expect(box).to_have_value(EXAMPLES["translate"][0])
        expect(page.locator("#tt-lanes")).to_have_text("各后端的回答和结论会显示在这里。")
        box.fill("Eigener Satz")
        choose_model(page, "聊天")
        expect(box).to_have_value(EXAMPLES["chat"][0])
        page.get_by_role("tab", name="看看内部").click()
        box_of(page, "inside")
        page.get_by_role("tab", name="比较后端").click()
        choose_model(page, "翻译")
        expect(box).to_have_value("Eigener Satz")


@pytest.mark.parametrize("tab", ["compare", "inside"])
def test_what_a_tab_cannot_answer_is_refused_at_once_in_the_visitors_language(
    browser: Browser, page_served: Served, tab: str
) -> None:
    with visit(browser, page_served.url, locale="zh-CN") as page:
        page.locator(f"[role=tab][data-tab-id={tab}]").click()
        box = box_of(page, tab)
        box.fill("")
        page.locator(f"#tt-{tab}-run").click()
        expect(box).to_be_focused()
        box.fill("x" * 301)
        page.locator(f"#tt-{tab}-run").click()
        expect(page.locator(f"#tt-{tab}-status .tt-refused")).to_contain_text("最多 300 个")
        expect(page.locator(".toast-body")).to_have_count(0)
        expect(page.locator("#tt-lanes .tt-lane, #tt-read .tt-chip")).to_have_count(0)


def test_about_describes_the_model_and_its_files(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        page.get_by_role("tab", name="About").click()
        expect(page.locator("#tt-about")).to_contain_text("Unverified")
        expect(page.locator("#tt-about .tt-facts")).to_contain_text("parameters")
        with page.expect_download() as download:
            page.get_by_role("link", name="config.json").click()
        assert "d_model" in download.value.path().read_text()


@pytest.mark.parametrize("width", [1280, 1200, 800, 390])
def test_every_size_fits_its_tile(browser: Browser, page_served: Served, width: int) -> None:
    with visit(browser, page_served.url, viewport={"width": width, "height": 800}) as page:
        choose_model(page, "Translate")
        page.get_by_role("tab", name="About").click()
        expect(page.locator("#tt-about .tt-facts")).to_contain_text("encoder-decoder")
        wide = "tiles => tiles.filter(tile => tile.scrollWidth > tile.clientWidth).map(tile => tile.innerText)"
        assert page.locator(".tt-facts div").evaluate_all(wide) == []


def test_missing_models_are_named_on_the_page(browser: Browser, tmp_path: Path) -> None:
    with (
        served([tmp_path / "chat", tmp_path / "translate"], tmp_path / "page") as found,
        visit(browser, found.url) as page,
    ):
        expect(page.locator(".tt-problem")).to_contain_text("is not a folder")
        send(page, "anyone there?")
        expect(page.locator("#tt-status .tt-refused")).to_contain_text("is not a folder")
        page.get_by_role("tab", name="About").click()
        expect(page.locator("#tt-about")).to_contain_text("is not a folder")


def test_programmers_read_what_each_parameter_is_and_no_command_that_fails(
    browser: Browser, page_served: Served
) -> None:
    """Without the usual watch over the console: Gradio's panel asks for MCP, which is not installed here."""
    context = browser.new_context(viewport=LAPTOP, locale="en-US")
    page = context.new_page()
    open_page(page, page_served.url)
    page.locator("footer .show-api").click()
    panel = page.locator(".api-docs")
    expect(panel).to_contain_text("What the user says.")
    ways = panel.locator(".snippets li")
    expect(ways).to_have_text(["Python", "JavaScript", "CLI", "cURL", "MCP"])
    expect(ways.nth(3)).to_be_hidden()  # its command loses the event's id in bash
    expect(ways.nth(4)).to_be_visible()
    context.close()
