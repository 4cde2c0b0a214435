"""Pictures of the page, taken in a real browser: `python -m docs.screenshots` writes docs/page.png.

With `--all FOLDER` every tab is taken, light, dark, at phone width and in Chinese, to look at before a release.
"""

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tiny_transformer.ui.header import EXAMPLES
from tiny_transformer.ui.page_settings import Settings
from tiny_transformer.ui.server import serve

ROOT = Path(__file__).resolve().parents[1]
WIDE, PHONE = {"width": 1200, "height": 800}, {"width": 390, "height": 740}
LOOKS = {
    "light": {"viewport": WIDE, "color_scheme": "light"},
    "dark": {"viewport": WIDE, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "has_touch": True},
    "phone-dark": {"viewport": PHONE, "color_scheme": "dark", "has_touch": True},
    "chinese": {"viewport": WIDE, "color_scheme": "light", "locale": "zh-CN"},
    "phone-chinese": {"viewport": PHONE, "color_scheme": "dark", "has_touch": True, "locale": "zh-CN"},
}


def main() -> None:
    """Serve the page on a free port, photograph it, and stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", metavar="FOLDER", type=Path, help="take every tab in every look")
    parser.add_argument("--model", action="append", help="a model folder; may be repeated")
    options = parser.parse_args()
    settings = Settings(port=0, **({"models": tuple(options.model)} if options.model else {}))
    page = serve(settings)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        if options.all is None:
            take(browser, page.local_url, "light", chat, ROOT / "docs" / "page.png")
        else:
            for look in LOOKS:
                for tab in (empty, chat, translate, before, compare, inside, about):
                    take(browser, page.local_url, look, tab, options.all / f"{tab.__name__}-{look}.png")
    page.close(verbose=False)


def take(browser: Browser, url: str, look: str, show: Callable[[Page], None], target: Path) -> None:
    """One picture; whatever the browser complains about is printed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(**LOOKS[look])
    page = context.new_page()
    page.on("console", lambda message: complain(target, message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complain(target, str(error)))
    page.goto(url)
    page.locator("#tt-message textarea").wait_for()
    page.wait_for_timeout(800)
    show(page)
    page.wait_for_timeout(500)
    page.screenshot(path=target, full_page=show not in (chat, empty, translate))
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if overflow > 0:
        complain(target, f"is {overflow} pixels too wide")
    context.close()


def complain(target: Path, words: str) -> None:
    """What someone should look at."""
    sys.stderr.write(f"{target.name}: {words}\n")


def empty(page: Page) -> None:
    """The page as it opens."""


def chat(page: Page) -> None:
    """Two turns."""
    for n, text in enumerate(("Hello! How are you today?", "Tell me a joke.")):
        page.locator("#tt-message textarea").fill(text)
        page.keyboard.press("Enter")
        page.locator("#tt-chat .bot details").nth(n).wait_for(timeout=60_000)  # the line under a complete answer
        page.locator("#tt-send").wait_for(timeout=60_000)
        page.wait_for_timeout(300)


def translate(page: Page) -> None:
    """A letter of three paragraphs."""
    choose_translator(page)
    page.locator("#tt-source textarea").fill(EXAMPLES["translate"][-1])
    page.locator("#tt-translate").click()
    page.locator("#tt-translation-line details").wait_for(timeout=60_000)
    page.wait_for_timeout(300)


def before(page: Page) -> None:
    """A tab that has not been asked anything."""
    page.get_by_role("tab").nth(1).click()


def compare(page: Page) -> None:
    """All backends and the verdict."""
    choose_translator(page)
    page.get_by_role("tab").nth(1).click()
    page.locator("#tt-compare-run").click()
    page.locator(".tt-verdict").first.wait_for(timeout=60_000)


def inside(page: Page) -> None:
    """Tokens, alternatives and the alignment of a translation."""
    choose_translator(page)
    page.get_by_role("tab").nth(2).click()
    page.locator("#tt-inside-run").click()
    page.locator("#tt-map table").wait_for(timeout=60_000)
    page.locator("[data-chip]").nth(1).click()


def about(page: Page) -> None:
    """The model's own page."""
    page.get_by_role("tab").nth(3).click()
    page.locator("#tt-about .tt-facts").wait_for(timeout=60_000)


def choose_translator(page: Page) -> None:
    """The second model."""
    page.locator("#tt-model label").nth(1).click()
    page.wait_for_timeout(500)


if __name__ == "__main__":
    main()
