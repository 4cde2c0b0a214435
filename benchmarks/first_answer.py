"""From the load of an exported page to the first word of its first answer, in headless Chromium.

    python -m benchmarks.first_answer SITE [--rounds 5] [--json FILE]

SITE is what `python -m export web` wrote; a server on this machine hands it out, uncompressed. Every round is a visitor
with an empty cache, who asks the first example as soon as it is there. Beside the seconds on the clock stand the
processor's seconds of all processes of the browser, and of its busiest thread, which the others wait for: on a busy
machine the first are longer, the others are not.
"""

import argparse
import json
import os
import statistics
import threading
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from benchmarks.machine import describe
from tiny_transformer.backends.javascript import BROWSERS, engine

LIMIT = 120_000  # milliseconds for one answer
# Asks the first example that is shown, and notes when the first word of the answer is there.
_VISITOR = """
new MutationObserver(() => {
  const example = [...document.querySelectorAll(".example")].find((button) => button.checkVisibility());
  if (example && !globalThis.asked) (globalThis.asked = performance.now()), example.click();
  const answer = [...document.querySelectorAll(".turn.assistant .answer, #target")].some((part) => part.textContent);
  if (globalThis.asked && answer) globalThis.first ??= performance.now();
}).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
"""


class _Files(SimpleHTTPRequestHandler):
    """Serves a folder and keeps what was asked for."""

    def __init__(self, *arguments: Any, asked: set[str], **keywords: Any) -> None:
        self._asked = asked
        super().__init__(*arguments, **keywords)

    def do_GET(self) -> None:
        """A file."""
        self._asked.add(self.path.partition("?")[0].lstrip("/") or "index.html")
        super().do_GET()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing on the terminal."""


def measure(site: Path, rounds: int) -> dict[str, Any]:
    """Model → bytes of the files that were read, and medians of the seconds."""
    described = json.loads((site / "site.json").read_text(encoding="utf-8"))
    asked: set[str] = set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(site), asked=asked))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=engine(BROWSERS), args=["--no-sandbox", "--disable-gpu"])
        for model in described["models"]:
            visits = [_visit(browser, f"{url}#{model['name']}", asked, site) for _ in range(rounds)]
            seconds, processor, thread, sizes = zip(*visits, strict=True)
            found[model["name"]] = {
                "backend": model["backend"],
                "megabytes": round(max(sizes) / 1e6, 1),
                "seconds": round(statistics.median(seconds), 2),
                "fastest": round(min(seconds), 2),
                "processor_seconds": round(statistics.median(processor), 2),
                "thread_seconds": round(statistics.median(thread), 2),
            }
        browser.close()
    server.shutdown()
    return found


def _visit(browser: Browser, url: str, asked: set[str], site: Path) -> tuple[float, float, float, int]:
    """Seconds to the first word, the processor's, those of the busiest thread, and bytes, of one visitor."""
    asked.clear()
    session = browser.new_browser_cdp_session()
    context = browser.new_context()
    context.add_init_script(_VISITOR)
    page = context.new_page()
    before, threads_before = _used(session)
    page.goto(url)
    page.wait_for_function("() => globalThis.first", timeout=LIMIT)
    after, threads = _used(session)
    busiest = max((seconds - threads_before.get(name, 0.0) for name, seconds in threads.items()), default=0.0)
    milliseconds = page.evaluate("() => globalThis.first")
    n_bytes = sum((site / name).stat().st_size for name in asked if (site / name).is_file())
    context.close()
    session.detach()
    return milliseconds / 1000, after - before, busiest, n_bytes


def _used(session: Any) -> tuple[float, dict[str, float]]:
    """The processor's seconds of all processes of the browser, and of each thread where /proc tells them."""
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    threads = {}
    for process in processes:
        for path in Path(f"/proc/{process['id']}/task").glob("*/stat"):
            with suppress(OSError):  # it has just ended
                user, system = path.read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
                threads[str(path)] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return float(sum(process["cpuTime"] for process in processes)), threads


def main() -> None:
    """Measure every model of the site and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", metavar="SITE", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="keep the figures in this file, beside those of benchmarks.web")
    options = parser.parse_args()
    found = measure(options.site, options.rounds)
    print(f"{'model':<10} {'backend':<9} {'MB':>6} {'seconds':>8} {'fastest':>8} {'processor':>10} {'thread':>7}")
    for name, figures in found.items():
        numbers = f"{figures['megabytes']:>6.1f} {figures['seconds']:>8.2f} {figures['fastest']:>8.2f}"
        used = f"{figures['processor_seconds']:>10.2f} {figures['thread_seconds']:>7.2f}"
        print(f"{name:<10} {figures['backend']:<9} {numbers} {used}")
    if options.json:
        kept = json.loads(options.json.read_text(encoding="utf-8")) if options.json.is_file() else {}
        kept |= {"machine": describe(), "first_answer": found}
        options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
