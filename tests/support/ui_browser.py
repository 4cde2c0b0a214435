"""A real Chromium for the tests of the page, and what a visitor does in it."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.support.ui_fixtures import Served, served
from tiny_transformer.text_model import load
from tiny_transformer.ui.header import EXAMPLES

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
    assert complaints == [], complaints
    context.close()


def _own(address: str, url: str) -> bool:
    return address.startswith((url, "data:", "blob:"))


def open_page(page: Page, url: str) -> None:
    """The page, once it is ready."""
    page.goto(url)
    # The conversation has been recalled. A machine with more to do takes its time until then.
    expect(page.locator("body[data-task]")).to_have_count(1, timeout=60_000)
    # From then on the page is ready. A model that cannot be used has no examples.
    ready = "#tt-chat .example, #tt-chat .message, .tt-problem, #tt-source textarea"
    expect(page.locator(ready).filter(visible=True).first).to_be_visible()


def choose_model(page: Page, name: str) -> None:
    """Another model."""
    page.locator("#tt-model label").filter(has_text=name).click()


def box_of(page: Page, tab: str, task: str = "chat") -> Locator:
    """Where a tab takes its text, once its example stays: a tab that is just being made may write it a second time."""
    box = page.locator(f"#tt-{tab}-text textarea")
    expect(box).to_have_value(EXAMPLES[task][0])
    page.wait_for_timeout(200)  # sooner than anybody types
    return box


def press(page: Page, name: str) -> None:
    """The last button of a name: those of the newest message."""
    page.get_by_role("button", name=name, exact=True).last.click()


def send(page: Page, text: str) -> None:
    """Write a message and press Enter."""
    page.locator("#tt-message textarea").fill(text)
    page.keyboard.press("Enter")


def answered(page: Page, count: int = 1) -> str:
    """Wait for the end of the answer; its text."""
    expect(page.locator("#tt-chat .bot .tt-line")).to_have_count(count)
    expect(page.locator("#tt-chat .bot .tt-line").last).to_contain_text(re.compile("tokens|词元|stopped|已停止"))
    expect(page.locator("#tt-send")).to_be_visible()
    return answer(page)


def translate(page: Page, text: str) -> None:
    """Write a text into the translator and press its button."""
    page.locator("#tt-source textarea").fill(text)
    page.locator("#tt-translate").click()


def translated(page: Page) -> str:
    """Wait for the end of the translation; its text."""
    expect(page.locator("#tt-translation-line .tt-line")).to_contain_text(re.compile("tokens|词元"))
    expect(page.locator("#tt-translate")).to_be_visible()
    return page.locator("#tt-translation textarea").input_value()


def answer(page: Page) -> str:
    """The newest answer's text, complete or not."""
    return page.locator("#tt-chat .bot").last.locator(".message-content").first.inner_text()


def greedy(models: dict[str, Path], task: str, text: str) -> str:
    """What the model says when nobody watches."""
    return load(models[task], "onnx").generate(text, max_new_tokens=NEW_TOKENS).text


def limit_answers(page: Page, tokens: int) -> None:
    """Set the longest answer."""
    box = page.locator("#tt-max-new-tokens input[type=number]")
    box.fill(str(tokens))
    box.press("Tab")
