"""The modules of `web/` as a backend of the judge: in headless Chromium where there is one, else in Node.

A server on this machine hands the modules, the runtime and the model folder to the page (or to Node), which then asks
it for one call after the other. So the judge measures the JavaScript that a visitor's browser runs.
"""

import json
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from secrets import token_urlsafe
from typing import Any

import numpy as np

from tiny_transformer.backends.base import AttentionArrays, Batch, check_capacity, check_inputs, check_slots, check_step
from tiny_transformer.bundle import PARITY, Bundle
from tiny_transformer.errors import BackendError, Sentence

PACKAGE = Path(__file__).parents[1]
# Of a checkout, or of the installed package.
WEB = next((folder for folder in (PACKAGE.parent / "web", PACKAGE / "web") if folder.is_dir()), PACKAGE / "web")
RUNTIME = "node_modules/onnxruntime-web/dist"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".json": "application/json", ".wasm": "application/wasm"}
_PAGE = b'<!doctype html><meta charset="utf-8"><script type="module" src="web/witness.js"></script>'
NODE_FLAGS: tuple[str, ...] = ()
POLL = 5.0  # seconds that a request for a call waits for one
LIMIT = 300.0  # seconds for one call: a text of a large model on a slow machine


def obstacle(web: Path | None = None) -> Sentence | None:
    """Why the JavaScript cannot run here, and what to do; None if it can."""
    web = web or WEB
    if not (web / "witness.js").is_file():
        return Sentence("the folder {folder} is missing, which a checkout of the project has", folder=web)
    if not (web / RUNTIME).is_dir():
        template = "the package {name} is missing, get it with: {command}"
        return Sentence(template, name="onnxruntime-web", command=f"npm ci --prefix {web} --ignore-scripts")
    if not engine():
        return Sentence("neither Chromium nor Node is on the PATH, install one of them")
    return None


def engine(names: Sequence[str] = (*BROWSERS, "node")) -> str | None:
    """The program that runs the JavaScript: the first that is there."""
    return next((found for found in map(shutil.which, names) if found), None)


@dataclass
class JavaScriptState:
    """A state that lies in the JavaScript, by its number; when it is dropped here, it is dropped there."""

    number: int
    lengths: list[int]
    capacity: int
    forget: list[int] = field(repr=False)

    def __del__(self) -> None:
        self.forget.append(self.number)


class JavaScriptBackend:
    """The protocol of `backends/base.py`, each call answered by `web/witness.js`."""

    max_rows = 1  # so generation never joins states

    def __init__(self, bundle: Bundle, name: str, program: str | None = None, web: Path | None = None) -> None:
        web = web or WEB
        reason = obstacle(web)
        program = program or engine()
        if reason is not None or program is None:
            template = "The backend {name} cannot run {folder}: {reason}."
            raise BackendError(template, name=name, folder=bundle.folder, reason=reason)
        self.name, self.config = name, bundle.config
        self._forget: list[int] = []
        self._witness = _Witness(bundle, web, program)
        weakref.finalize(self, self._witness.close)  # at the interpreter's end too: no browser is left behind
        opened = {"url": self._witness.url + "model/", "backend": name, "threads": 1}
        try:
            where, _ = self._call("open", **opened)
        except BackendError:
            self.close()
            raise
        runtime = json.loads((web / "runtime.json").read_text(encoding="utf-8"))
        self.versions = {runtime["package"]: runtime["version"], "JavaScript": str(where)}

    def start(self, prefix: Batch, source: Batch | None, capacity: int) -> tuple[np.ndarray, JavaScriptState]:
        """Read source and prefix; logits (B, V) after each row's last prefix token."""
        check_inputs(self.config, prefix, source)
        check_capacity(self.config, prefix, capacity)
        number, (logits,) = self._call("start", prefix=_rows(prefix), source=_rows(source))
        return logits, JavaScriptState(number, prefix.lengths.tolist(), capacity, self._forget)

    def step(self, ids: np.ndarray, state: JavaScriptState) -> tuple[np.ndarray, JavaScriptState]:
        """Add tokens (B, T) to every row; logits (B, V) after the last. T > 1 for a single row only."""
        check_step(self.config, ids, len(state.lengths))
        state.lengths = [length + ids.shape[1] for length in state.lengths]
        check_slots(state.capacity, max(state.lengths))
        _, (logits,) = self._call("step", ids=ids.tolist(), state=state.number)
        return logits, state

    def reorder(self, state: JavaScriptState, rows: np.ndarray) -> JavaScriptState:
        """The state whose row i was row rows[i]; rows may be repeated or left out."""
        order = [int(row) for row in rows]
        number, _ = self._call("reorder", state=state.number, rows=order)
        return JavaScriptState(number, [state.lengths[row] for row in order], state.capacity, self._forget)

    def join(self, state: JavaScriptState, other: JavaScriptState) -> JavaScriptState:
        """Never asked for: the JavaScript writes one text at a time."""
        raise BackendError("The backend {name} runs one text at a time and joins none.", name=self.name)

    def side_by_side(self, n_rows: int) -> list["JavaScriptBackend"]:
        """This one alone."""
        return [self]

    def logits(self, target: Batch, source: Batch | None) -> np.ndarray:
        """Logits (B, T, V) of a whole target at once; values at padding mean nothing."""
        check_inputs(self.config, target, source)
        _, (logits,) = self._call("logits", target=_rows(target), source=_rows(source))
        return logits

    def attention(self, target: Batch, source: Batch | None) -> AttentionArrays:
        """Every attention weight of one pass over the whole target."""
        check_inputs(self.config, target, source)
        _, maps = self._call("attention", target=_rows(target), source=_rows(source))
        return AttentionArrays(None, maps[0], None) if source is None else AttentionArrays(*maps)

    def written(self, content: str | Sequence[Mapping[str, object]], max_new_tokens: int) -> tuple[list[int], str]:
        """Ids and finish reason of what the JavaScript itself writes: its own tokenizer, prompt and loop."""
        options = {"max_new_tokens": max_new_tokens}
        found, _ = self._call("generate", content=content, options=options, split=False)
        return found["ids"], found["finishReason"]

    def continued(self, prefix: Sequence[int], source: Sequence[int] | None, n_new: int) -> list[int]:
        """So many new ids behind a prefix, by the JavaScript's own loop."""
        options = {"min_new_tokens": n_new, "max_new_tokens": n_new}
        found, _ = self._call("continued", prefix=list(prefix), source=source and list(source), options=options)
        ids: list[int] = found
        return ids

    def close(self) -> None:
        """End the page and the server."""
        self._witness.close()

    def _call(self, call: str, **values: Any) -> tuple[Any, list[np.ndarray]]:
        forget, self._forget[:] = list(self._forget), []
        return self._witness.ask({"call": call, "forget": forget, **values})


def open_javascript(
    bundle: Bundle, device: str | None = None, threads: int | None = None, *, name: str = "web"
) -> JavaScriptBackend:
    """The folder's graphs in ONNX Runtime for the web, one thread, as a visitor has it."""
    return JavaScriptBackend(bundle, name)


def _rows(batch: Batch | None) -> list[list[int]] | None:
    return None if batch is None else batch.rows


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a program that was ended leaves its connections open."""


class _Witness:
    """The server, and the program that asks it for calls."""

    def __init__(self, bundle: Bundle, web: Path, program: str) -> None:
        self.bundle, self.web = bundle, web
        # What is judged now has no report yet: its own hashes stand in for one, so that the check of bytes runs too.
        self.report = json.dumps({"verdict": "verified", "files": bundle.hashes()}).encode()
        self.calls: Queue[bytes] = Queue()
        self.answers: Queue[bytes] = Queue()
        self.closed = False
        self._lock = threading.Lock()
        witness = self

        class Handler(_Handler):
            owner = witness

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.secret = token_urlsafe(16)  # so that no other page on this machine can answer
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/{self.secret}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._profile = tempfile.TemporaryDirectory(prefix="witness-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            self._command(program), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _command(self, program: str) -> list[str]:
        if Path(program).name.startswith("node"):
            return [program, *NODE_FLAGS, str(self.web / "witness.js"), self.url]
        quiet = ("--no-first-run", "--disable-gpu", "--disable-extensions", "--disable-background-networking")
        # The sandbox needs rights that containers withhold; the page is our own.
        flags = ("--headless=new", "--no-sandbox", f"--user-data-dir={self._profile.name}", "--remote-debugging-port=0")
        return [program, *flags, *quiet, self.url]

    def ask(self, call: dict[str, Any]) -> tuple[Any, list[np.ndarray]]:
        """One call and its answer; threads take turns."""
        with self._lock:
            self.calls.put(json.dumps(call).encode())
            return _unpacked(self._answer(call["call"]))

    def _answer(self, name: str) -> bytes:
        waited = 0.0
        while waited < LIMIT:
            with suppress(Empty):
                return self.answers.get(timeout=1.0)
            waited += 1.0
            if self._process.poll() is not None:
                break
        self.close()
        raise BackendError("The JavaScript gave no answer to {call}; run it again.", call=name)

    def close(self) -> None:
        """End the program, then the server."""
        if self.closed:
            return
        self.closed = True
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        threading.Thread(target=self._server.shutdown, daemon=True).start()
        self._server.server_close()
        self._profile.cleanup()


def _unpacked(answer: bytes) -> tuple[Any, list[np.ndarray]]:
    """The value and the arrays of an answer."""
    length = int.from_bytes(answer[:4], "little")
    header = json.loads(answer[4 : 4 + length])
    if header["error"] is not None:
        raise BackendError("The JavaScript failed ({reason}).", reason=header["error"])
    arrays, at = [], 4 + length
    for dims in header["dims"]:
        array = np.frombuffer(answer, dtype="<f4", count=int(np.prod(dims)), offset=at).reshape(dims)
        arrays.append(array)
        at += array.nbytes
    return header["value"], arrays


class _Handler(BaseHTTPRequestHandler):
    """Files for the page, calls for it, and its answers."""

    owner: _Witness
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """A call, or a file."""
        path = self._path()
        if path == "call":
            return self._send_call()
        if path == "":
            return self._send(200, _PAGE, "text/html")
        found = self._content(path)
        if found is None:
            return self._send(404, b"", "text/plain")
        return self._send(200, found, _TYPES.get(Path(path or "").suffix, "application/octet-stream"))

    def do_POST(self) -> None:
        """An answer."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if self._path() == "answer":
            self.owner.answers.put(body)
        self._send(204, b"", "text/plain")

    def _path(self) -> str | None:
        _, secret, *rest = self.path.partition("?")[0].split("/")
        return "/".join(rest) if secret == self.owner.secret else None

    def _send_call(self) -> None:
        if self.owner.closed:
            return self._send(410, b"", "text/plain")
        try:
            return self._send(200, self.owner.calls.get(timeout=POLL), "application/json")
        except Empty:
            return self._send(204, b"", "text/plain")

    def _content(self, path: str | None) -> bytes | None:
        """A module, a file of the runtime, or a file of the model folder; nothing else."""
        owner = self.owner
        if path is None or ".." in path.split("/"):
            return None
        if path == f"model/{PARITY}":
            return owner.report
        part, _, name = path.partition("/")
        folder = {"model": owner.bundle.folder, "web": owner.web}.get(part)
        if part == "web" and name.startswith("runtime/"):
            folder, name = owner.web / RUNTIME, name.removeprefix("runtime/")
        file = None if folder is None else folder / name
        return file.read_bytes() if file is not None and file.is_file() else None

    def _send(self, status: int, body: bytes, kind: str) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: a file that is not there shows as an error of the page."""
