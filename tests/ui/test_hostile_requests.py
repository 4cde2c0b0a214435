"""What a stranger may send: wrong types, odd texts, floods, files and functions that are not theirs to name."""

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from tests.support.models import ROOT
from tests.support.ui_fixtures import Served, client, models, page
from tiny_transformer.text_model import load
from tiny_transformer.ui.chat_tab import plain

__all__ = ["client", "models", "page"]


@pytest.mark.parametrize(
    ("endpoint", "arguments", "sentence"),
    [
        ("/chat", [5], "Expected text"),
        ("/chat", [None], "Expected text"),
        ("/chat", [["a"]], "Expected text"),
        ("/chat", [""], "no text yet"),
        ("/chat", ["x" * 501], "at most 500"),
        ("/chat", ["hi", "history"], "history must be"),
        ("/chat", ["hi", [{"role": "user", "content": 3}]], "content of a message must be text"),
        ("/chat", ["hi", None, "quantum"], "no backend 'quantum'"),
        ("/chat", ["hi", None, {"a": 1}], "no backend {'a': 1}"),
        ("/chat", ["hi", None, "auto", 10**9], "at most 60 tokens"),
        ("/chat", ["hi", None, "auto", "many"], "max_new_tokens is 'many'"),
        ("/chat", ["hi", None, "auto", 0], "max_new_tokens is 0"),
        ("/chat", ["hi", None, "auto", None, -1.0], "temperature is -1"),
        ("/chat", ["hi", None, "auto", None, 10**400], "temperature is 10000"),
        ("/chat", ["hi", None, "auto", None, 0.0, 0, 0.0], "top_p is 0"),
        ("/chat", ["hi", None, "auto", None, 0.0, 0, 1.0, None, 0], "num_beams is 0"),
        ("/chat", ["hi", None, "auto", None, 0.0, 0, 1.0, None, 1, -1], "seed is -1"),
        ("/chat", ["hi", None, "auto", None, 0.0, 0, 1.0, None, 1, 2**70], "seed is 1180591620717411303424"),
        ("/chat", ["hi", [{"role": "user", "content": "x"}] * 5_000], "at most 200 messages"),
        ("/chat", ["hi", [{"role": "r" * 1_000_000, "content": "x"}]], "…"),
        ("/chat", ["hi", None, "auto", None, 0.0, 0, 1.0, None, 99], "at most 8 beams"),
        ("/translate", [{"text": "x"}], "Expected text"),
        ("/compare", ["hi", "nowhere"], "no model 'nowhere'"),
        ("/compare", ["hi", 7], "no model 7"),
    ],
)
def test_wrong_input_is_refused_with_a_sentence(
    client: Client, endpoint: str, arguments: list[Any], sentence: str
) -> None:
    with pytest.raises(AppError, match=sentence):
        client.predict(*arguments, api_name=endpoint)


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "a\x00b", "#" * 400, "[](" * 100, "😀" * 100, "\u202e"])
def test_odd_text_is_answered_like_any_other(client: Client, models: dict[str, Path], text: str) -> None:
    expected = load(models["chat"], "onnx").generate(text, max_new_tokens=5).text
    assert client.predict(text, max_new_tokens=5, api_name="/chat") == expected


def call(url: str, endpoint: str, body: bytes, headers: dict[str, str] | None = None) -> str:
    """A call as the about tab shows it, with curl's two steps."""
    sent = {"content-type": "application/json", **(headers or {})}
    posted = httpx.post(f"{url}/gradio_api/call/v2/{endpoint}", content=body, headers=sent, timeout=30)
    if posted.status_code != 200:
        return f"error {posted.status_code} {posted.json()['detail']}"
    return httpx.get(f"{url}/gradio_api/call/{endpoint}/{posted.json()['event_id']}", timeout=30).text


def test_lone_surrogate_in_the_raw_request_is_refused(page: Served) -> None:
    assert "event: error" in call(page.url, "chat", b'{"message": "a\\ud800b"}')


def test_bodies_that_are_too_large_or_make_no_sense_are_refused(page: Served) -> None:
    huge = json.dumps({"message": "x" * 5_000_000}).encode()
    assert "error 413" in call(page.url, "chat", huge)
    assert "larger than 4 MB" in call(page.url, "chat", huge)

    def chunks() -> Iterator[bytes]:
        for _ in range(50):
            yield b"x" * 100_000

    # Counted as it comes: no header says its length.
    assert httpx.post(f"{page.url}/gradio_api/call/chat", content=chunks(), timeout=20).status_code == 413
    for endpoint, body in (
        ("chat", b"{not json"),
        ("chat", b"[1]"),
        ("chat", b"null"),
        ("chat", b"{}"),
        ("chat", b'{"message": "hi", "nonsense": 1}'),
        ("chat", b'{"message": "hi", "history": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
        ("chat", b'{"message": "hi", "top_k": ' + b"9" * 5_000 + b"}"),
        ("nowhere", b"{}"),
    ):
        assert re.match(r"error 4\d\d", call(page.url, endpoint, body)), body[:40]
    assert "says what can be asked" in call(page.url, "nowhere", b"{}")
    assert httpx.get(f"{page.url}/health").status_code == 200, "and the page is still well"


@pytest.mark.parametrize("fn_index", [-1, 999, 10**12, "x", None, 1.5])
def test_functions_that_are_not_there_are_refused(page: Served, fn_index: Any) -> None:
    body = {"data": [], "fn_index": fn_index, "session_hash": "stranger"}
    sent = httpx.post(f"{page.url}/gradio_api/queue/join", json=body)
    assert 400 <= sent.status_code < 500
    assert "Traceback" not in sent.text


@pytest.mark.parametrize("spelling", ["gradio.FileData", "gr\\u0061dio.FileData"])
def test_no_file_can_be_named_in_a_request(page: Served, spelling: str) -> None:
    """Gradio would fetch it from wherever it is said to be, keep it, and hand it out."""
    with FetchCounter() as elsewhere:
        for path in ("/etc/passwd", elsewhere.address):
            file = f'{{"path": "{path}", "url": "{path}", "meta": {{"_type": "{spelling}"}}}}'
            for body in (f'{{"message": {file}}}', f'{{"message": "hi", "history": [{file}]}}'):
                assert "takes no files" in call(page.url, "chat", body.encode())
        assert elsewhere.n_requests == 0


class FetchCounter:
    """A server that counts who comes."""

    def __enter__(self) -> "FetchCounter":
        self.n_requests = 0
        counter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                counter.n_requests += 1
                self.send_error(404)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}/file"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_what_the_page_shows_again_is_text_alone() -> None:
    hostile: Any = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}], "metadata": {"title": "x"}},
        {"role": "assistant", "content": [{"type": "text", "text": "yes"}, {"type": "file", "file": {"path": "/x"}}]},
        {"role": "assistant", "content": [{"type": "component", "component": "file", "value": "/x"}]},
        {"role": "root", "content": "x"},
        "text",
    ]
    assert plain(hostile) == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "yes"}]},
    ]


JUNK: dict[str, list[Any]] = {"objects": [{"a": 1}] * 20, "texts": ["x"] * 20, "lists": [[["x"]]] * 20}
MORE_JUNK: dict[str, list[Any]] = {"nothing": [], "null": [None] * 20}


@pytest.mark.parametrize("junk", (JUNK | MORE_JUNK).values(), ids=(JUNK | MORE_JUNK).keys())
@pytest.mark.slow
def test_junk_for_every_function_of_the_page_is_survived(page: Served, junk: list[Any]) -> None:
    """Functions behind buttons can be called by anyone who reads the page's configuration."""
    found = httpx.get(f"{page.url}/config").json()["dependencies"]
    for function in found:
        body = {"data": junk, "fn_index": function["id"], "session_hash": f"junk{function['id']}"}
        joined = httpx.post(f"{page.url}/gradio_api/queue/join", json=body | {"event_data": {"index": "x"}})
        if joined.status_code != 200:
            assert 400 <= joined.status_code < 500
            continue
        last = last_message(page.url, str(body["session_hash"]))
        assert "Traceback" not in last
        assert str(ROOT) not in last
        assert "server's log" not in last, f"{function['api_name']} failed by itself"
    assert httpx.get(f"{page.url}/health").json()["waiting"] == 0


def last_message(url: str, session: str) -> str:
    with httpx.stream("GET", f"{url}/gradio_api/queue/data", params={"session_hash": session}, timeout=20) as stream:
        for line in stream.iter_lines():
            if "process_completed" in line:
                return line
    return ""


def test_refusals_speak_the_callers_language(page: Served) -> None:
    for body, words in (('{"message": ""}', "还没有文字"), ('{"message": "hi", "seed": -1}', "请选择 0 到")):
        text = call(page.url, "chat", body.encode(), {"accept-language": "zh-CN"})
        assert words in json.loads(text.split("data: ", 1)[1].strip())["error"]
    assert "本页不接收文件" in call(
        page.url, "chat", b'{"message": {"_type": "gradio.FileData"}}', {"accept-language": "zh"}
    )


def test_files_of_the_models_are_served_and_no_others(page: Served, models: dict[str, Path]) -> None:
    got = httpx.get(f"{page.url}/files/chat/model.safetensors")
    assert got.content == (models["chat"] / "model.safetensors").read_bytes()
    (models["chat"].parent / "secret").write_text("secret")
    for path in (
        "/files/chat/../secret",
        "/files/chat/..%2Fsecret",
        "/files/chat/%2e%2e%2fsecret",
        "/files/../chat/config.json",
        "/files/nowhere/config.json",
        "/files/chat/nothing.json",
        "/gradio_api/file=/etc/passwd",
        f"/gradio_api/file={models['chat'] / 'config.json'}",
        "/gradio_api/file=app.py",
        "/static/../../app.py",
        "/static/%2e%2e/%2e%2e/routes.py",
        "/assets/..%2f..%2fapp.py",
        "/gradio_api/file=/proc/self/environ",
        "/gradio_api/file=../../../etc/passwd",
        "/gradio_api/custom_component/a/client/x/y",
        "/monitoring",
        "/docs",
    ):
        found = httpx.get(page.url + path)
        assert found.status_code in (403, 404), path
        assert "secret" not in found.text.replace(path, "")


@pytest.mark.parametrize("path", ["upload", "upload/", "process_recording", "vibe-edit/", "dev/reload", "deep_link"])
def test_what_the_page_has_no_use_for_is_closed(page: Served, path: str) -> None:
    for method in ("GET", "POST"):
        files = {"files": ("a.txt", b"1")} if method == "POST" else None
        answer = httpx.request(method, f"{page.url}/gradio_api/{path}", files=files, timeout=10)
        assert answer.status_code == 404
        assert "does not serve" in answer.json()["detail"]


def test_no_caller_says_how_the_page_is_reached_for_others(page: Served) -> None:
    for path in ("info", "openapi.json", "info?all_endpoints=true"):
        stranger = httpx.get(f"{page.url}/gradio_api/{path}", headers={"host": "evil.example"})
        assert stranger.status_code == 200
        found = httpx.get(f"{page.url}/gradio_api/{path}")
        assert found.json()
        assert "evil.example" not in found.text
    for headers in (
        {"host": "a/../<script>"},
        {"host": "user@evil.example"},
        {"x-forwarded-host": "evil.example/path"},
        {"x-gradio-server": "http://evil.example"},
    ):
        answer = httpx.get(page.url, headers=headers)
        assert answer.status_code == 400, headers
        assert "evil" not in answer.text
    assert httpx.get(page.url, headers={"host": "[::1]:7860"}).status_code == 200


def test_functions_that_do_not_wait_refuse_junk_with_a_sentence(page: Served) -> None:
    """The page calls them directly; what Gradio stumbles over is the caller's mistake, and gets words."""
    found = httpx.get(f"{page.url}/config").json()["dependencies"]
    junk: list[Any] = [[], [{"a": 1}] * 20, [7] * 20, [[["x"]]] * 20]
    with httpx.Client(base_url=page.url, timeout=30) as client:  # one for all: each would read the certificates anew
        for function, data in product(found, junk):
            body = {"data": data, "fn_index": function["id"], "event_data": {"index": "x"}}
            answer = client.post(f"/gradio_api/run/{function['api_name']}", json=body)
            assert "Traceback" not in answer.text
            if answer.status_code == 500:
                assert answer.json()["error"], f"{function['api_name']} {data}"
            if function["queue"]:
                assert answer.status_code in (400, 404), f"{function['api_name']} was called around the queue"
