"""The static page in a real Chromium: the text that Python writes, stop, offline, wrong bytes, both languages, axe."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

import tiny_transformer as tt
from export.to_web import export_site
from tests.support.export_fixtures import Exported
from tests.support.hub_commands import SPACE, Client
from tests.support.hub_driver import stand_in_report
from tests.support.hub_server import HubServer
from tests.support.models import ROOT
from tests.support.ui_browser import LAPTOP, PHONE, browser
from tests.support.ui_fixtures import models
from tests.support.web_checkout import served_files
from tiny_transformer.bundle import PARITY, WEIGHTS, Bundle
from tiny_transformer.parity.report import write_report

__all__ = ["browser", "models"]

PACKAGES = ROOT / "web" / "node_modules"
AXE = PACKAGES / "axe-core" / "axe.min.js"


@dataclass(frozen=True)
class ServedSite:
    """A site below a folder of a server that has other things too."""

    url: str
    folder: Path
    asked: list[str]  # every path that the server was asked for
    models: dict[str, Path]


@pytest.fixture(scope="module")
def proved(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page's small models with a report that vouches for their files."""
    found = {}
    for task, folder in models.items():
        found[task] = tmp_path_factory.mktemp("proved") / task
        shutil.copytree(folder, found[task])
        bundle = Bundle.open(found[task])
        write_report(bundle, stand_in_report(bundle))
    return found


@pytest.fixture(scope="module")
def site(proved: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedSite]:
    root = tmp_path_factory.mktemp("server")
    export_site(proved, root / "some" / "where", stand_in_report)
    with served_files(root) as (url, asked):
        yield ServedSite(f"{url}/some/where/", root / "some" / "where", asked, proved)


@contextmanager
def visitor(browser: Browser, url: str, **look: Any) -> Iterator[BrowserContext]:
    """A browser of one's own; the page may not complain, nor ask another host for anything."""
    context = browser.new_context(**({"viewport": LAPTOP, "locale": "en-US"} | look))
    complaints: list[str] = []
    context.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    context.on(
        "request",
        lambda request: None if request.url.startswith((url, f"blob:{url}")) else complaints.append(request.url),
    )
    yield context
    context.close()
    assert complaints == []


def opened(context: BrowserContext, url: str) -> Page:
    page = context.new_page()
    page.goto(url)
    expect(page.locator("#loading")).to_be_hidden()
    return page


def answered(page: Page, form: str = "#chat-form") -> None:
    expect(page.locator(f"{form} .primary")).to_be_visible()


def test_it_chats_translates_streams_and_stops_as_python_writes(browser: Browser, site: ServedSite) -> None:
    with visitor(browser, site.url) as context:
        page = context.new_page()
        page.goto(site.url)
        page.locator("#message").fill("hello")  # before the model is there
        page.keyboard.press("Enter")
        expect(page.locator("#log .line")).to_contain_text("tokens/s")
        chat = tt.load(site.models["chat"], "onnx")
        said = chat.generate([{"role": "user", "content": "hello"}]).text
        assert page.locator(".answer").inner_text() == said
        # The second turn: history goes with it.
        page.locator("#message").fill("again")
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#log .line")).to_have_count(2)
        expect(page.locator("#log .line").last).to_contain_text("tokens/s")
        turns = [("user", "hello"), ("assistant", said), ("user", "again")]
        dialogue = [{"role": role, "content": content} for role, content in turns]
        assert page.locator(".answer").last.inner_text() == chat.generate(dialogue).text
        page.get_by_role("button", name="how sure it was").last.click()
        page.locator(".chips button").nth(1).click()
        expect(page.locator(".choices tr")).to_have_count(5)
        expect(page.locator(".choices th").first).to_contain_text("✓")  # greedy: the likeliest was taken
        # Stop, by key and by button: it is there while it writes, and what came so far stays.
        stops = 'document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }))', "form.children[2].click()"
        for n, stop in enumerate(stops, start=3):
            page.locator("#message").fill("once more")
            page.evaluate(
                f'() => {{ const form = document.getElementById("chat-form"); form.requestSubmit(); {stop}; }}'
            )
            expect(page.locator("#log .line")).to_have_count(n)
            expect(page.locator("#log .line").last).to_have_text("stopped")
            answered(page)
        page.get_by_role("button", name="New conversation").click()
        expect(page.locator(".example:visible")).to_have_count(3)

        page.get_by_role("radio", name="Chat").press("ArrowRight")
        page.locator("#source").fill("Guten Morgen! Wie geht es dir?")
        page.locator("#source").press("Control+Enter")
        expect(page.locator("#target-line")).to_contain_text("tokens/s")
        translate = tt.load(site.models["translate"], "onnx")
        assert page.locator("#target").inner_text() == translate.generate("Guten Morgen! Wie geht es dir?").text
        # Where it looked, in the first of the two sentences: a cell for each written token and each source token.
        page.get_by_role("button", name="where it looked").click()
        expect(page.locator("#target-tokens svg")).to_be_visible()
        n_rows = page.locator("#target-tokens svg text[x]").count()
        n_columns = page.locator("#target-tokens svg text[transform]").count()
        assert n_columns == len(Bundle.open(site.models["translate"]).tokenizer.encode("Guten Morgen!")) + 1
        expect(page.locator("#target-tokens rect")).to_have_count(n_rows * n_columns)
        page.get_by_label("Layer").select_option("2")
        expect(page.locator(".links li")).to_have_count(n_rows)
        # The proof is a click away, and has the hashes of the files.
        page.get_by_role("button", name="Proved equal to PyTorch").click()
        report = json.loads((site.models["translate"] / PARITY).read_text())
        expect(page.locator("dialog")).to_contain_text(report["files"][WEIGHTS])
        for name, address in (
            ("Report on this page", "parity.json"),
            ("Report on the other backends", "parity-folder.json"),
        ):
            link = page.get_by_role("link", name=name)
            expect(link).to_have_attribute("href", f"models/translate/{address}")
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_be_hidden()


def test_a_second_visit_needs_no_network(browser: Browser, site: ServedSite) -> None:
    with visitor(browser, site.url) as context:
        page = opened(context, site.url)
        expect(page.locator("#facts")).to_contain_text("downloaded")
        page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
        assert site.asked.count("/some/where/models/chat/model.safetensors") >= 1
        context.set_offline(True)
        del site.asked[:]
        page.reload()
        expect(page.locator("#loading")).to_be_hidden()
        expect(page.locator("#facts")).to_contain_text("works offline")
        page.locator(".example:visible").first.click()
        expect(page.locator("#log .line")).to_contain_text("tokens/s")
        page.get_by_role("button", name="Proved equal to PyTorch").click()
        expect(page.locator("dialog table").first).to_be_visible()
        # Chromium asks for a newer version of the page, and would go on without an answer.
        assert set(site.asked) <= {"/some/where/service-worker.js"}


def test_a_wrong_byte_is_refused_by_name_in_the_visitors_language(
    browser: Browser, site: ServedSite, tmp_path: Path
) -> None:
    shutil.copytree(site.folder, tmp_path / "site")
    weights = tmp_path / "site" / "models" / "chat" / WEIGHTS
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with served_files(tmp_path / "site") as (url, _), visitor(browser, url, locale="zh-CN") as context:
        page = context.new_page()
        page.goto(url)
        expect(page.locator("#problem")).to_have_text(f"{WEIGHTS} 与验证报告中的文件不一致；请重新加载。")
        expect(page.get_by_role("button", name="再试一次")).to_be_visible()
        data[-1] ^= 1
        weights.write_bytes(data)
        page.get_by_role("button", name="再试一次").click()
        expect(page.locator("#loading")).to_be_hidden()
        expect(page.locator("#problem")).to_be_hidden()


def faults(page: Page) -> list[str]:
    """What axe finds, one line for each rule and element."""
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [f"{rule['id']}: {node['html']}" for rule in found["violations"] for node in rule["nodes"]]


@pytest.mark.parametrize("look", ["laptop", pytest.param("phone", marks=pytest.mark.slow)])
def test_axe_finds_nothing_and_nothing_scrolls_sideways(browser: Browser, site: ServedSite, look: str) -> None:
    looks: dict[str, dict[str, Any]] = {
        "laptop": {"color_scheme": "light"},
        "phone": {"color_scheme": "dark", "viewport": PHONE, "has_touch": True, "locale": "zh-CN"},
    }
    # axe is a script of the test's, which the page's own policy would refuse.
    with visitor(browser, site.url, bypass_csp=True, **looks[look]) as context:
        page = opened(context, site.url)
        page.add_script_tag(path=str(AXE))
        width = looks[look].get("viewport", LAPTOP)["width"]
        page.locator("#options summary").click()
        page.locator(".example:visible").first.click()
        expect(page.locator("#log .line")).to_contain_text(re.compile("tokens/s|词元/秒"))
        page.locator("#log .line button").first.click()
        page.locator(".chips button").first.click()
        assert faults(page) == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        page.locator("#proof").click()
        expect(page.locator("dialog table").first).to_be_visible()
        assert faults(page) == []
        page.locator("#report-close").click()
        page.get_by_role("radio").last.click()
        page.locator(".example:visible").first.click()
        expect(page.locator("#target-line")).to_contain_text(re.compile("tokens/s|词元/秒"))
        page.locator("#target-line button").last.click()
        expect(page.locator("#target-tokens svg")).to_be_visible()
        assert faults(page) == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_the_chosen_language_and_colors_stay(browser: Browser, site: ServedSite) -> None:
    with visitor(browser, site.url) as context:
        page = opened(context, site.url)
        page.get_by_role("button", name="中文").click()
        page.locator("#colors").click()
        for _ in range(2):
            expect(page.locator("#chat-form .primary")).to_have_text("发送")
            assert page.evaluate("() => getComputedStyle(document.documentElement).colorScheme") == "dark"
            page.reload()
        assert page.evaluate("() => document.documentElement.lang") == "zh-CN"


def test_transformers_js_opens_the_exported_folder_and_writes_the_same_text(
    browser: Browser, exported: Exported, tmp_path: Path
) -> None:
    """With the runtime that the library chooses, which has no float64; the cache is made from the axes' names."""
    assert (PACKAGES / "@huggingface").is_dir(), "run `npm ci --prefix web --ignore-scripts` first; make test does it"
    folder = shutil.copytree(exported("decoder-only-rotary").folder, tmp_path / "chat")
    write_report(Bundle.open(folder), stand_in_report(Bundle.open(folder)))
    export_site({"chat": folder}, tmp_path / "site", stand_in_report, transformers_js=True)
    (tmp_path / "site" / "library").symlink_to(PACKAGES)
    shutil.copyfile(ROOT / "benchmarks/engines/transformers_js.html", tmp_path / "site" / "peer.html")
    dialogue = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    dialogue.append({"role": "user", "content": "ä"})
    with served_files(tmp_path / "site") as (url, _), visitor(browser, url) as context:
        page = context.new_page()
        page.goto(f"{url}/peer.html")
        page.wait_for_function("() => globalThis.transformers")
        found = page.evaluate(
            """async ([dialogue, max_new_tokens]) => {
              const model = await transformers.pipeline("text-generation", "chat");
              const [{ generated_text: turns }] = await model(dialogue, { max_new_tokens });
              return turns.at(-1).content;
            }""",
            [dialogue, 5],
        )
    wanted = tt.load(folder, "onnx").generate(dialogue, max_new_tokens=5, repetition_penalty=1.0)
    assert wanted.notices == ()
    assert found == wanted.text


@pytest.mark.slow
def test_exactly_the_files_of_a_pushed_space_run_in_a_browser(
    browser: Browser, hub: HubServer, client: Client, proved: dict[str, Path], tmp_path: Path
) -> None:
    client.checkout = ROOT
    done = client.push(proved["translate"], "--static-space", SPACE)
    assert done.code == 0, done.err
    for name, data in hub.files(SPACE, "space").items():
        path = tmp_path / "space" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    with served_files(tmp_path / "space") as (url, _), visitor(browser, url) as context:
        page = opened(context, url)
        page.locator("#source").fill("Guten Morgen!")
        page.get_by_role("button", name="Translate").click()
        expect(page.locator("#target-line")).to_contain_text("tokens/s")
        wanted = tt.load(proved["translate"], "onnx").generate("Guten Morgen!").text
        assert page.locator("#target").inner_text() == wanted
