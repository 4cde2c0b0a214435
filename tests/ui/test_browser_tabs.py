"""The other tabs in a real Chromium: the comparison, the look inside, and what the model is."""

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from tests.support.ui_browser import LAPTOP, box_of, browser, choose_model, open_page, page_served, send, visit
from tests.support.ui_fixtures import Served, models, served
from tiny_transformer.generation.sampling import probabilities
from tiny_transformer.text_model import load
from tiny_transformer.ui.header import EXAMPLES
from tiny_transformer.ui.inspection import attention_maps, inspect_answer, prompt_of
from tiny_transformer.ui.markup import percent
from tiny_transformer.ui.service import dialogue

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
        expect(rows.nth(1)).to_contain_text("exactly the same")
        page.locator("#tt-compare-text textarea").fill("x" * 301)
        page.locator("#tt-compare-run").click()
        expect(page.locator(".tt-verdict.tt-good")).to_be_hidden()  # it is not about this text


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
        expect(chips.nth(3)).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#tt-odds h3")).to_contain_text("Token 4")
        others = page.locator("#tt-odds [data-id]")
        expect(others).to_have_count(8)
        name = others.nth(1).locator("span").inner_text()
        others.nth(1).focus()
        page.keyboard.press("Enter")
        expect(chips.nth(3)).to_have_text(name)
        expect(chips.nth(3)).to_be_focused()
        after = chips.all_inner_texts()
        assert after[:3] == before[:3]
        assert after[3] != before[3]
        cells = page.locator("#tt-map td[data-v]")
        expect(cells).to_have_count(48 * 10)
        cells.nth(5).hover()
        expect(page.locator(".tt-tip")).to_contain_text("→")
        page.locator("#tt-kind").get_by_text("Encoder").click()
        expect(cells).to_have_count(10 * 10)
        page.locator("#tt-grid .tt-thumb").nth(3).click()
        expect(page.locator("#tt-layer .selected, #tt-head .selected")).to_have_text(["2", "2"])
        expect(page.locator("#tt-grid [aria-pressed=true]")).to_have_attribute("aria-label", "layer 2, head 2")
        page.locator("#tt-map th button").nth(4).click()
        expect(page.locator("#tt-steps h3")).to_contain_text("Encoder · layer 2, head 2 · n")
        expect(page.locator("#tt-steps canvas[data-drawn]")).to_have_count(2 * 10 + 2)  # keys, values, query and result
        expect(page.locator("#tt-positions canvas[data-drawn]")).to_be_visible()


def test_attention_is_read_by_keyboard(browser: Browser, page_served: Served, models: dict[str, Path]) -> None:
    """Each table is one stop of the Tab key; arrow keys lead to a cell, whose value is its name and is shown."""
    model = load(models["chat"], "onnx")
    prompt = prompt_of(model, dialogue([], "hello"))
    maps = attention_maps(model, prompt, inspect_answer(model, prompt).ids, "decoder")
    with visit(browser, page_served.url) as page:
        page.get_by_role("tab", name="Look inside").click()
        box_of(page, "inside").fill("hello")
        page.locator("#tt-inside-run").click()
        for part in ("#tt-map", "#tt-grid"):
            expect(
                page.locator(f"{part} table :is(button, td):not([tabindex='-1']):not(td:not([tabindex]))")
            ).to_have_count(1)

        def words(row: int, column: int) -> str:
            weight = float(maps.weights[-1].mean(axis=0)[row, column])
            return f"{maps.rows[row]} → {maps.columns[column]}: {percent(weight)}"

        page.locator("#tt-map table button").first.focus()
        for keys, row, column in (
            (["ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"], 3, 1),
            (["ArrowRight", "ArrowRight", "ArrowRight", "ArrowUp"], 3, 3),  # nothing to see beyond
            (["Home", "ArrowRight"], 3, 0),
            (["Tab", "Shift+Tab"], 3, 0),
            (["Control+End"], len(maps.rows) - 1, len(maps.columns) - 1),
            (["Control+Home", "ArrowDown", "ArrowDown", "ArrowDown", "End", "ArrowDown"], 4, 3),
        ):
            for key in keys:
                page.keyboard.press(key)
            cell = page.locator("#tt-map tbody tr").nth(row).locator("td").nth(column)
            expect(cell).to_be_focused()
            expect(cell).to_be_in_viewport(ratio=1)
            expect(cell).to_have_role("gridcell")
            expect(cell).to_have_accessible_name(words(row, column))
            expect(page.locator(".tt-tip")).to_have_text(words(row, column))
        page.keyboard.press("Enter")
        expect(page.locator("#tt-steps h3")).to_contain_text(f"· {maps.rows[4]} (")
        page.locator("#tt-grid [tabindex='0']").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(page.locator("#tt-head .selected")).to_have_text("2")
        thumb = page.get_by_role("button", name="layer 2, head 2")
        expect(thumb).to_have_attribute("aria-pressed", "true")  # it came anew
        expect(thumb).to_be_focused()


def test_the_odds_under_the_sliders_are_those_that_generation_draws_from(
    browser: Browser, page_served: Served, models: dict[str, Path]
) -> None:
    model = load(models["chat"], "onnx")
    asked = dialogue([], "hello")
    found = inspect_answer(model, prompt_of(model, asked))
    with visit(browser, page_served.url) as page:
        page.get_by_role("tab", name="Look inside").click()
        box_of(page, "inside").fill("hello")
        page.locator("#tt-inside-run").click()
        for position in (3, 7):  # the second list comes in the place of the first
            page.locator("#tt-written [data-chip]").nth(position).click()
            expect(page.locator("#tt-odds h3")).to_contain_text(f"Token {position + 1} ")
        for temperature, k, p in (
            (1.0, 0, 1.0),
            (0.3, 0, 1.0),
            (2.0, 5, 1.0),
            (1.5, 0, 0.6),
            (0.7, 40, 0.9),
            (0.0, 0, 1.0),
        ):
            for name, value in (("temperature", temperature), ("top_k", k), ("top_p", p)):
                knob = page.locator(f"#tt-odds [data-knob={name}]")
                knob.evaluate(
                    "(knob, value) => { knob.value = value; knob.dispatchEvent(new Event('input', {bubbles: true})); }",
                    value,
                )
            wanted = np.eye(1, len(found.logits[7]), int(found.logits[7].argmax()))[0]
            if temperature:
                wanted = probabilities(found.logits[7], temperature, k, p)
            rows = page.locator("#tt-odds [data-id]")
            shown = [int(i) for i in rows.evaluate_all("rows => rows.map(row => row.dataset.id)")]
            shares = [
                float(w)
                for w in rows.evaluate_all("rows => rows.map(row => parseFloat(row.querySelector('i').style.width))")
            ]
            np.testing.assert_allclose(shares, 100 * wanted[shown], atol=1e-3)
            rest = page.locator("#tt-odds .tt-others i").evaluate("bar => parseFloat(bar.style.width)")
            assert abs(rest - 100 * (1 - wanted[shown].sum())) < 1e-3
            kept = int((wanted > 0).sum())
            words = "All 262 tokens" if kept == 262 else f"{kept} of 262 tokens"
            expect(page.locator("#tt-odds .tt-kept")).to_contain_text(words)


def test_the_laboratory_shows_layers_the_models_map_and_what_is_left_without_a_part(
    browser: Browser, page_served: Served, models: dict[str, Path]
) -> None:
    with visit(browser, page_served.url) as page:
        page.get_by_role("tab", name="Look inside").click()
        box_of(page, "inside").fill("hello")
        page.locator("#tt-inside-run").click()
        expect(page.locator("#tt-steps .tt-steps")).to_have_attribute("data-stage", "6")
        page.locator("#tt-steps [data-stage-to='3']").click()
        expect(page.locator("#tt-steps .tt-formula")).to_be_visible()
        expect(page.locator("#tt-steps td.tt-s4").first).to_be_hidden()
        page.get_by_role("tab", name="Layers").click()
        expect(page.locator("#tt-lens tbody tr")).to_have_count(3)
        page.locator("#tt-lens thead button").nth(4).click()
        expect(page.locator("#tt-written [data-chip='4']")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#tt-odds h3")).to_contain_text("Token 5")
        expect(page.locator("#tt-lens-one tbody tr")).to_have_count(3)
        page.get_by_role("tab", name="Map").click()
        page.locator("#tt-boxes .tt-box-feed_forward").first.click()
        expect(page.locator("#tt-box h3")).to_have_text("Layers · Layer 2 · Feed-forward")
        page.locator("#tt-box summary").click()
        expect(page.locator("#tt-box pre")).to_contain_text("class FeedForward(nn.Module):")
        page.get_by_role("tab", name="Switch off").click()
        page.locator("#tt-board [data-part='decoder.1']").click()
        expect(page.locator("#tt-without .tt-lane")).to_have_count(2)
        lanes = page.locator("#tt-without .tt-lane")
        whole, left = (lanes.nth(i).locator("li").all_inner_texts() for i in (0, 1))
        assert whole == page.locator("#tt-written [data-chip]").all_inner_texts()
        assert left != whole
        page.locator("#tt-board [data-all-on]").click()
        expect(lanes).to_have_count(0)


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


def test_what_a_tab_cannot_answer_is_refused_at_once_in_the_visitors_language(
    browser: Browser, page_served: Served
) -> None:
    with visit(browser, page_served.url, locale="zh-CN") as page:
        for tab in ("compare", "inside"):
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
        box.fill("你好")
        page.locator("#tt-inside-run").click()
        expect(page.locator("#tt-read .tt-chip, #tt-map td").filter(visible=True).last).to_be_visible()
        box.fill("x" * 301)
        page.locator("#tt-inside-run").click()
        expect(page.locator("#tt-read .tt-chip, #tt-odds h3, #tt-map td").filter(visible=True)).to_have_count(0)


def test_about_describes_the_model_and_its_files(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        page.get_by_role("tab", name="About").click()
        expect(page.locator("#tt-about")).to_contain_text("Unverified")
        expect(page.locator("#tt-about .tt-facts")).to_contain_text("parameters")
        with page.expect_download() as download:
            page.get_by_role("link", name="config.json").click()
        assert "d_model" in download.value.path().read_text()


def test_every_size_fits_its_tile(browser: Browser, page_served: Served) -> None:
    with visit(browser, page_served.url) as page:
        choose_model(page, "Translate")
        page.get_by_role("tab", name="About").click()
        expect(page.locator("#tt-about .tt-facts")).to_contain_text("encoder-decoder")
        wide = "tiles => tiles.filter(tile => tile.scrollWidth > tile.clientWidth).map(tile => tile.innerText)"
        for width in (1280, 1200, 800, 390):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.locator(".tt-facts div").evaluate_all(wide) == [], width


@pytest.mark.slow
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
    expect(panel).to_contain_text('in the "translation"')
    expect(panel).not_to_contain_text("1st")
    ways = panel.locator(".snippets li")
    expect(ways).to_have_text(["Python", "JavaScript", "CLI", "cURL", "MCP"])
    expect(ways.nth(3)).to_be_hidden()  # its command loses the event's id in bash
    expect(ways.nth(4)).to_be_visible()
    context.close()
