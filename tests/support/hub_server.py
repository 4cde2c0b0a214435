"""A Hugging Face Hub on loopback, for the real client over real HTTP: standard library only.

It keeps repos as lists of commits in memory, speaks the part of the Hub's API that a push and a pull use, and can be
told to fail at any request. Large files go through a second server on another port, as on the real Hub, so that tests
can see what is sent to a host that is not the endpoint.
"""

import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKENS = {"hf_writer": "write", "hf_reader": "read"}
USER = "ada"
Files = dict[str, bytes]


@dataclass
class Repo:
    """Every commit whole, and the names that point to them."""

    kind: str
    private: bool = False
    gated: bool = False
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pull_requests: dict[str, str] = field(default_factory=dict)
    hardware: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def add(self, branch: str, files: Files, message: str) -> str:
        """A new commit at the head of a branch."""
        oid = hashlib.sha1(f"{len(self.commits)} {message} {sorted(files)}".encode()).hexdigest()
        self.commits[oid] = files
        self.messages.append(message)
        self.branches[branch] = oid
        return oid

    def find(self, revision: str) -> str | None:
        """The commit behind a branch, tag, pull request or hash."""
        for names in (self.branches, self.tags, self.pull_requests):
            if revision in names:
                return names[revision]
        return revision if revision in self.commits else None


@dataclass
class Fault:
    """One thing that goes wrong: at the first `times` requests whose "METHOD path" matches."""

    match: str
    kind: str  # status, reset, cut, lost, corrupt, hold
    times: int = 1
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"error": "made to fail"}'
    reached: threading.Event = field(default_factory=threading.Event)
    action: Callable[[], None] | None = None  # what happens at the server before the request is handled


@dataclass(frozen=True)
class Seen:
    """One request, as it arrived."""

    port: int
    method: str
    path: str
    headers: dict[str, str]
    at: float = field(default_factory=time.monotonic)


class HubServer:
    """The Hub's state, its faults and its log, behind two ports: the endpoint and the storage."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.objects: Files = {}  # large files by SHA-256
        self.parts: dict[tuple[str, int], bytes] = {}
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.multipart_over = 1 << 30
        self.verify_uploads = False
        self.xet_store = ""  # address of a Xet store; empty: large files go over HTTP
        self.xet_hashes: dict[str, str] = {}  # SHA-256 → the name of the same bytes in that store
        self.lock = threading.RLock()
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), self._handler(place)) for place in ("hub", "storage")]
        self.port, self.storage_port = (server.server_address[1] for server in self._servers)
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.storage = f"http://127.0.0.1:{self.storage_port}"

    def _handler(self, place: str) -> type[BaseHTTPRequestHandler]:
        return type("Handler", (Handler,), {"hub": self, "place": place})

    @contextmanager
    def running(self) -> Iterator["HubServer"]:
        """Serve while the block runs."""
        threads = [threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True) for server in self._servers]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            for fault in self.faults:
                fault.reached.set()
            for server in self._servers:
                server.shutdown()
                server.server_close()

    def create(self, name: str, kind: str = "model", files: Files | None = None, **options: Any) -> Repo:
        """A repo with the first commit that the Hub makes itself."""
        repo = self.repos[kind, name] = Repo(kind, **options)
        repo.add("main", {".gitattributes": b"*.safetensors filter=lfs\n", **(files or {})}, "initial commit")
        return repo

    def files(self, name: str, kind: str = "model", revision: str = "main") -> Files:
        """What a revision holds, without the Hub's own file."""
        repo = self.repos[kind, name]
        commit = repo.find(revision)
        assert commit is not None
        return {path: data for path, data in repo.commits[commit].items() if path != ".gitattributes"}

    def fail(self, match: str, kind: str = "status", **options: Any) -> Fault:
        """Arrange for a fault."""
        fault = Fault(match, kind, **options)
        self.faults.append(fault)
        return fault

    def requests(self, pattern: str) -> list[Seen]:
        """The requests whose "METHOD path" matches."""
        return [seen for seen in self.seen if re.search(pattern, f"{seen.method} {seen.path}")]

    def take_fault(self, line: str) -> Fault | None:
        """The fault due at this request, counted."""
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.match, line):
                    fault.times -= 1
                    return fault
        return None


class Refused(Exception):  # noqa: N818 - it is an answer, not an error
    """An answer other than success."""

    def __init__(self, status: int, code: str = "", message: str = "", **body: Any) -> None:
        self.status, self.code, self.message, self.body = status, code, message, body


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    hub: HubServer
    place: str

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def handle(self) -> None:
        """A client that goes away is no error here: tests kill clients."""
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        self.route, self.query = unquote(parts.path), parse_qs(parts.query)
        self.fault = self.hub.take_fault(f"{self.command} {self.path}")
        kind = self.fault.kind if self.fault else ""
        if self.fault and kind == "reset":
            self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 100))
            return self._reset()
        self.body = self._read_body()
        with self.hub.lock:
            port = self.hub.port if self.place == "hub" else self.hub.storage_port
            self.hub.seen.append(Seen(port, self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
        if self.fault and kind == "status":
            return self._send(self.fault.status, self.fault.body, self.fault.headers)
        if self.fault and kind == "hold":
            self.fault.reached.set()
            threading.Event().wait(30)  # longer than any test waits before it kills the client
            return self._reset()
        if self.fault and self.fault.action:
            self.fault.action()
        try:
            with self.hub.lock:
                status, body, headers = self._answer()
        except Refused as refused:
            headers = {"X-Error-Code": refused.code, "X-Error-Message": refused.message}
            body = json.dumps(refused.body or {"error": refused.message}).encode()
            return self._send(refused.status, body, {k: v for k, v in headers.items() if v})
        if kind == "lost":
            return self._reset()
        if kind == "corrupt":
            body = body[:-1] + bytes([body[-1] ^ 1])
        return self._send(status, body, headers)

    do_GET = do_HEAD = do_POST = do_PUT = _serve  # noqa: N815

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault and self.fault.kind == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if self.fault and self.fault.kind == "reset-body":
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self._reset()
            return
        self.wfile.write(body)

    def _reset(self) -> None:
        """Close the connection the hard way: the client sees a reset, not an end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True
        self.wfile = self.rfile = open("/dev/null", "r+b", buffering=0)  # noqa: SIM115 - closed with the handler

    def _answer(self) -> tuple[int, bytes, dict[str, str]]:
        from tests.support.hub_routes import HUB, STORAGE  # the routes need this module's types

        routes = STORAGE if self.place == "storage" else HUB
        line = f"{'GET' if self.command == 'HEAD' else self.command} {self.route}"
        for pattern, handle in routes:
            match = re.fullmatch(pattern, line)
            if match:
                return handle(self, **match.groupdict())
        raise Refused(404, message=f"no such route: {line}")

    # Who is asking, and for what

    def role(self) -> str | None:
        """The token's right; a token nobody knows is refused at once, no token is nobody."""
        header = self.headers.get("Authorization")
        if header is None:
            return None
        role = TOKENS.get(header.removeprefix("Bearer "))
        if role is None:
            raise Refused(401, message="Invalid credentials in Authorization header")
        return role

    def writer(self, name: str) -> None:
        """Only the owner, with a token that may write."""
        if self.role() is None:
            raise Refused(401, message="Unauthorized")
        if self.role() != "write" or name.split("/")[0] != USER:
            raise Refused(403, message="You don't have the rights to write here")

    def repo(self, kind: str, name: str) -> Repo:
        """A repo the caller may see; any other looks as if it were not there."""
        repo = self.hub.repos.get((kind.removesuffix("s"), name))
        owner = self.role() is not None and name.startswith(f"{USER}/")
        if repo is None or (repo.private and not owner):
            raise Refused(404 if self.role() else 401, "RepoNotFound", "Repository not found")
        return repo

    def commit(self, repo: Repo, revision: str) -> str:
        """The commit behind a revision."""
        found = repo.find(revision)
        if found is None:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return found

    def json(self) -> Any:
        """The request's body."""
        return json.loads(self.body)
