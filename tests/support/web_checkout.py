"""What the tests of the static page share: a checkout whose runtime is a few bytes, and a server of plain files."""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.models import ROOT


def add_web(root: Path) -> Path:
    """The checkout's `web/` in another one, with stand-ins for the runtime, so that nothing is installed."""
    shutil.copytree(ROOT / "web", root / "web", ignore=shutil.ignore_patterns("node_modules"))
    described = json.loads((root / "web" / "runtime.json").read_text())
    package = root / "web" / "node_modules" / "onnxruntime-web"
    (package / "dist").mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"version": described["version"]}))
    for name in described["sha256"]:
        (package / "dist" / name).write_bytes(f"stands for {name}".encode())
        described["sha256"][name] = sha256(f"stands for {name}".encode()).hexdigest()
    (root / "web" / "runtime.json").write_text(json.dumps(described))
    return root


class _Files(SimpleHTTPRequestHandler):
    """Serves a folder and keeps what was asked for."""

    def __init__(self, *arguments: Any, asked: list[str], **keywords: Any) -> None:
        self._asked = asked
        super().__init__(*arguments, **keywords)

    def do_GET(self) -> None:
        self._asked.append(self.path)
        with suppress(ConnectionError):  # the visitor left
            super().do_GET()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing on the terminal."""


@contextmanager
def served_files(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Any static file server: its address, and the paths that it was asked for so far."""
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder), asked=asked))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
