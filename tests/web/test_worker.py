"""The library in a page: a worker computes, stop stops, every byte is checked, and a second visit needs no server."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.export_fixtures import Exported
from tests.support.ui_browser import browser
from tests.support.web_fixtures import WEB, published
from tiny_transformer.backends.javascript import RUNTIME
from tiny_transformer.bundle import WEIGHTS, Bundle
from tiny_transformer.text_model import load

__all__ = ["browser"]
CHAT = "decoder-only-rotary"


class Handler(SimpleHTTPRequestHandler):
    """Files of a folder; those under `blocked` cannot be had."""

    blocked: tuple[str, ...] = ()
    asked: list[str]
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript", ".js": "text/javascript"}

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if any(part in self.path for part in self.blocked):
            self.send_error(503)
        else:
            super().do_GET()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # so that what comes without the server comes from our cache
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class Site:
    """A site in a subfolder, as a static file server has it."""

    def __init__(self, folder: Path, bundle: Bundle) -> None:
        site = folder / "sub"
        copytree(WEB, site / "web", ignore=ignore_patterns("node_modules"))
        (site / "web" / "runtime").symlink_to(WEB / RUNTIME)
        self.model = published(bundle, site / "model")
        (site / "index.html").write_text('<!doctype html><link rel="icon" href="data:,">', encoding="utf-8")
        self.handler = type("OwnHandler", (Handler,), {"asked": []})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(self.handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/sub/index.html"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def site(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("site"), exported(CHAT))
    yield found
    found.close()


@pytest.fixture(scope="module")
def page(browser: Browser, site: Site) -> Iterator[Page]:
    context = browser.new_context()
    found = context.new_page()
    found.goto(site.url)
    yield found
    context.close()


def in_page(page: Page, body: str, data: Any = None) -> Any:
    return page.evaluate(
        f"""async (data) => {{
          const {{ loadModel }} = await import("./web/index.js");
          {body}
        }}""",
        data,
    )


def test_a_page_writes_what_python_writes_then_needs_no_server_and_stops(
    page: Page, site: Site, exported: Exported
) -> None:
    model = load(exported(CHAT).folder, "onnx")
    body = """
        const progress = [];
        const model = await loadModel("model", { onProgress: (event) => progress.push(event) });
        let streamed = "";
        const result = await model.generate("ab", {}, { onToken: (event) => (streamed += event.text) });
        const draws = await model.generate("ab", { temperature: 1, seed: 3 });
        const maps = await model.attention("ab", "c");
        const stopping = new AbortController();
        let tokens = 0;
        const onToken = () => ++tokens === 2 && stopping.abort();
        const ended = await model.generate("ab", { min_new_tokens: 9 }, { onToken, signal: stopping.signal }).then(
          () => "went on", (error) => error.name);
        const refused = await model.generate("", {}).catch((error) => [error.name, error.template]);
        await model.close();
        return { text: result.text, streamed, drawn: draws.text, ended, tokens, refused, last: progress.at(-1),
          task: model.task, target: maps.target };
    """
    found = in_page(page, body)
    assert found["text"] == found["streamed"] == model.generate("ab").text
    assert found["drawn"] == model.generate("ab", temperature=1, seed=3).text
    assert found["ended"] == "AbortError"
    assert found["tokens"] < 9, "a few may be on their way when stop is heard"
    assert found["refused"] == ["ModelError", "The last message is empty; write something."]
    assert found["task"] == "chat"
    assert found["target"] == model.attention("ab", "c").target
    assert found["last"]["loaded"] == found["last"]["total"] > exported(CHAT).folder.joinpath(WEIGHTS).stat().st_size

    site.handler.asked.clear()
    site.handler.blocked = ("/model/", "threaded.wasm")
    again = 'const model = await loadModel("model"); return (await model.generate("ab")).text;'
    assert in_page(page, again) == found["text"], "the second visit reads what the first one kept"
    assert not any(name in path for path in site.handler.asked for name in (WEIGHTS, ".onnx", "tokenizer.json"))
    site.handler.blocked = ()

    # What was kept is hashed again: a damaged copy is not used, and read anew.
    damage = """
        const cache = await caches.open("tiny-transformer");
        const [weights] = (await cache.keys()).filter(({ url }) => url.includes("model.safetensors"));
        await cache.put(weights, new Response(new Uint8Array(64)));
    """
    assert in_page(page, damage + again) == found["text"]
    assert any(WEIGHTS in path for path in site.handler.asked)


def test_a_wrong_byte_is_refused_by_name_in_the_page(page: Page, site: Site) -> None:
    path = site.model / WEIGHTS
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    body = """
        for (const name of await caches.keys()) await caches.delete(name);
        return loadModel("model").catch((error) => [error.name, error.message, error.values.file]);
    """
    name, message, file = in_page(page, body)
    assert (name, file) == ("ModelError", WEIGHTS)
    assert "is not the file that the parity report vouches for" in message
