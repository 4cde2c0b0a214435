"""transformers.js in headless Chromium: the transformers model with our weights, exported by optimum, as its users do.

Its interpreter needs optimum and playwright (`--python transformers-js=…`); there the model is exported when it is
first opened. The library and its runtime are those that `web/package-lock.json` pins, on one thread.
"""

import shutil
import threading
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tiny_transformer.backends.javascript import BROWSERS, WEB, engine
from tiny_transformer.bundle import Bundle

from . import transformers

RUNTIME = "playwright"
PAGE = Path(__file__).with_name("transformers_js.html")
COPY, EXPORTED = "ours", "transformers.js"  # folders below the model's
_OPEN = """async ([name, reads]) => {
  const kind = reads ? transformers.AutoModelForSeq2SeqLM : transformers.AutoModelForCausalLM;
  globalThis.model = await kind.from_pretrained(name, { dtype: "fp32", device: "wasm" });
}"""
_GENERATE = """async ([row, n, given]) => {
  const tensor = (values) => new transformers.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
  const found = await model.generate({
    inputs: tensor(row), attention_mask: tensor(row.map(() => 1)),
    min_new_tokens: n, max_new_tokens: n, do_sample: false,
  });
  return found.tolist()[0].slice(given).map(Number);
}"""


def convert(bundle: Bundle, folder: Path) -> None:
    """Our model, from which its own interpreter makes its own form."""
    shutil.copytree(bundle.folder, folder / COPY)


def open_model(folder: Path, precision: str, threads: int, device: str) -> "Page":
    """The exported model, exported now if it was not."""
    assert threads == 1, "a page has one thread"
    bundle = Bundle.open(folder / COPY)
    if not (folder / EXPORTED).is_dir():
        _export(bundle, folder)
    return Page(folder, encodes=bundle.config.is_encoder_decoder)


def _export(bundle: Bundle, folder: Path) -> None:
    """By optimum, in the files that the library asks for."""
    from optimum.exporters.onnx import main_export

    encodes = bundle.config.is_encoder_decoder
    transformers.convert(bundle, folder / "converted")
    task = "text2text-generation-with-past" if encodes else "text-generation-with-past"
    target = folder / EXPORTED / "model"
    main_export(str(folder / "converted"), target / "onnx", task=task, do_validation=False)
    for path in (target / "onnx").glob("*.json"):
        path.rename(target / path.name)


class Page:
    """`generate`, as its users call it, in a page."""

    def __init__(self, folder: Path, *, encodes: bool) -> None:
        from playwright.sync_api import sync_playwright

        (folder / "library").unlink(missing_ok=True)
        (folder / "library").symlink_to(WEB / "node_modules")
        shutil.copyfile(PAGE, folder / "index.html")
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        program = engine(BROWSERS)
        chromium = sync_playwright().start().chromium
        self.given = 1 if encodes else 0
        self.page = chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"]).new_page()
        self.page.goto(f"http://127.0.0.1:{server.server_port}/")
        self.page.wait_for_function("() => globalThis.transformers")
        self.page.set_default_timeout(300_000)
        self.page.evaluate(_OPEN, ["model", encodes])

    def generate(self, rows: Sequence[Sequence[int]], n_new: int) -> list[list[int]]:
        """Greedy, a forced number of tokens, one row after the other."""
        return [self.page.evaluate(_GENERATE, [list(row), n_new, self.given or len(row)]) for row in rows]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing between the answers."""
