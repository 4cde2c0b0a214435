"""OpenAI's protocol, spoken by OpenAI's own client: the library's texts, whole and streamed, in the page's queue."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.ui_fixtures import Served, models, page, served, until
from tiny_transformer.text_model import load

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["models", "page"]

HELLO: Any = [{"role": "user", "content": "hello"}]
DIALOGUE: Any = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": [{"type": "text", "text": "thr"}, {"type": "text", "text": "ee"}]},
]


@pytest.fixture(scope="module")
def client(page: Served) -> Iterator["OpenAI"]:
    from openai import OpenAI  # half a second that a worker without these tests need not spend

    with OpenAI(base_url=f"{page.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_models_are_listed_and_described(client: "OpenAI") -> None:
    import openai

    assert [model.id for model in client.models.list()] == ["chat", "translate"]
    assert client.models.retrieve("chat").object == "model"
    with pytest.raises(openai.NotFoundError, match="no model 'nowhere'"):
        client.models.retrieve("nowhere")


def test_a_completion_is_the_librarys_greedy_text(client: "OpenAI", models: dict[str, Path]) -> None:
    model = load(models["chat"], "onnx")
    turns: Any = [*DIALOGUE[:3], {"role": "user", "content": "three"}]
    expected = model.reply(turns, max_new_tokens=20)
    found = client.chat.completions.create(model="chat", messages=DIALOGUE, max_tokens=20)
    assert found.choices[0].message.content == expected.text
    assert found.choices[0].finish_reason == "length"
    assert found.usage is not None
    assert found.usage.prompt_tokens == expected.n_source_tokens
    assert found.usage.completion_tokens == len(expected.ids) == 20


def test_a_stream_is_the_same_in_pieces(client: "OpenAI", models: dict[str, Path]) -> None:
    expected = load(models["chat"], "onnx").reply(HELLO, max_new_tokens=40)
    usage: Any = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(
            model="chat", messages=HELLO, max_completion_tokens=40, stream=True, stream_options=usage
        )
    )
    *pieces, last = chunks
    assert pieces[0].choices[0].delta.role == "assistant"
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == expected.text
    assert [piece.choices[0].finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.total_tokens == expected.n_source_tokens + len(expected.ids)


def test_a_stream_ends_as_openais_does(page: Served) -> None:
    body = {"model": "chat", "messages": HELLO, "max_tokens": 3, "stream": True}
    answer = httpx.post(f"{page.url}/v1/chat/completions", json=body, timeout=30)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done, rest = answer.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert {json.loads(event.removeprefix("data: "))["object"] for event in events} == {"chat.completion.chunk"}


def test_a_translator_takes_the_last_message_and_says_what_it_notices(
    client: "OpenAI", models: dict[str, Path]
) -> None:
    text = "The weather is nice today and I want to go for a walk. Guten Tag, wie geht es dir heute und was machst du?"
    messages: Any = [{"role": "user", "content": "one"}, {"role": "user", "content": text}]
    expected = load(models["translate"], "onnx").generate(text, max_new_tokens=60)
    found: Any = client.chat.completions.create(model="translate", messages=messages)
    assert found.choices[0].message.content == expected.text
    assert found.notices == [str(notice) for notice in expected.notices]
    assert found.notices


def test_options_are_passed_on(client: "OpenAI", models: dict[str, Path]) -> None:
    model = load(models["chat"], "onnx")
    drawn = model.reply(HELLO, temperature=0.9, top_p=0.8, top_k=20, seed=5, max_new_tokens=20)
    found = client.chat.completions.create(
        model="chat", messages=HELLO, temperature=0.9, top_p=0.8, seed=5, max_tokens=20, extra_body={"top_k": 20}
    )
    assert found.choices[0].message.content == drawn.text
    stop = drawn.text[4:6]
    stopped = client.chat.completions.create(
        model="chat", messages=HELLO, temperature=0.9, top_p=0.8, seed=5, stop=[stop], extra_body={"top_k": 20}, n=1
    )
    assert stopped.choices[0].message.content == drawn.text[: drawn.text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    long = client.chat.completions.create(model="chat", messages=HELLO, max_tokens=100_000, seed=-1, user="me")
    assert long.usage is not None
    assert long.usage.completion_tokens == 60, "max_tokens is at most: the page's own limit holds"


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"model": "nowhere"}, 404, "no model 'nowhere'"),
        ({"model": ["chat"]}, 404, "no model"),
        ({"model": None}, 400, "lacks 'model'"),
        ({"messages": None}, 400, "lacks 'messages'"),
        ({"messages": []}, 400, "no text yet"),
        ({"messages": "hello"}, 400, "list of messages"),
        ({"messages": ["hello"]}, 400, "A message must be"),
        ({"messages": [{"role": "user", "content": ""}]}, 400, "no text yet"),
        ({"messages": [{"role": "user", "content": "x" * 501}]}, 400, "at most 500"),
        ({"messages": [{"role": "root", "content": "x"}]}, 400, "role 'root' is unknown"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "not text"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "x"}]}, 400, "no text yet"),
        ({"temperature": -1}, 400, "temperature is -1"),
        ({"temperature": "hot"}, 400, "temperature is 'hot'"),
        ({"max_tokens": 0}, 400, "max_new_tokens is 0"),
        ({"max_tokens": "many"}, 400, "max_new_tokens is 'many'"),
        ({"max_tokens": True}, 400, "max_new_tokens is True"),
        ({"seed": -(2**70)}, 400, "seed is -"),
        ({"stop": [1]}, 400, "stop is"),
        ({"n": 2}, 400, "n = 2"),
        ({"stream": "yes"}, 400, "stream is 'yes'"),
        ({"tools": [{"type": "function"}]}, 400, "tools ="),
        ({"response_format": {"type": "json_object"}}, 400, "response_format ="),
        ({"surprise": 1}, 400, "no parameter surprise"),
        ({"messages": [{"role": "user", "content": {"_type": "gradio.FileData"}}]}, 400, "takes no files"),
    ],
)
def test_what_cannot_be_done_is_refused_in_openais_form(
    page: Served, change: dict[str, Any], status: int, words: str
) -> None:
    for stream in (False, True):
        body = {"model": "chat", "messages": HELLO, "stream": stream} | change
        answer = httpx.post(f"{page.url}/v1/chat/completions", json=body, timeout=30)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert words in error["message"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"


def test_bodies_that_are_no_request_are_refused_in_openais_form(page: Served) -> None:
    url = f"{page.url}/v1/chat/completions"
    for body in (b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000):
        answer = httpx.post(url, content=body, timeout=30)
        assert answer.status_code == 400, body[:20]
        assert "must be a JSON object" in answer.json()["error"]["message"]
    huge = httpx.post(url, json={"model": "chat", "messages": HELLO, "user": "x" * 5_000_000}, timeout=30)
    assert huge.status_code == 413
    assert "larger than 4 MB" in huge.json()["error"]["message"]
    chinese = httpx.post(url, json={}, headers={"accept-language": "zh-CN"}, timeout=30)
    assert "请求缺少" in chinese.json()["error"]["message"]


def test_other_addresses_say_what_there_is(page: Served) -> None:
    for method, path, status in (
        ("GET", "chat/completions", 405),
        ("POST", "embeddings", 404),
        ("POST", "models", 405),
    ):
        answer = httpx.request(method, f"{page.url}/v1/{path}")
        assert answer.status_code == status
        assert "use POST /v1/chat/completions" in answer.json()["error"]["message"]


def test_many_clients_get_what_each_would_get_alone(client: "OpenAI", models: dict[str, Path]) -> None:
    model = load(models["chat"], "onnx")
    texts = [f"{chr(65 + n)} {n * 7919}" for n in range(12)]

    def ask(text: str) -> str | None:
        messages: Any = [{"role": "user", "content": text}]
        return client.chat.completions.create(model="chat", messages=messages, max_tokens=20).choices[0].message.content

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, texts)) == [model.generate(text, max_new_tokens=20).text for text in texts]


@pytest.fixture(scope="module")
def slow_page(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One request at a time, a queue of two, and a model that takes its time."""
    limits = ("--max-running", "1", "--max-queue", "2")
    with served([models["chat"]], tmp_path_factory.mktemp("slow"), *limits, delay=0.05) as found:
        yield found


def sent(url: str, **changes: Any) -> socket.socket:
    """A request on its way; its answer is for whoever reads it."""
    body = json.dumps({"model": "chat", "messages": HELLO, "max_tokens": 90} | changes).encode()
    address = httpx.URL(url)
    connection = socket.create_connection((address.host, address.port or 80))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.host}\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_a_closed_connection_ends_the_work(slow_page: Served, stream: bool) -> None:
    before = slow_page.n_steps
    connection = sent(slow_page.url, stream=stream)
    assert until(lambda: slow_page.n_steps > before + 3, 30)
    connection.close()
    body = {"model": "chat", "messages": HELLO, "max_tokens": 1}
    httpx.post(f"{slow_page.url}/v1/chat/completions", json=body, timeout=30).raise_for_status()
    assert slow_page.n_steps - before < 60, "the answer nobody waits for was written to its end"


def test_a_full_queue_is_said_and_those_who_leave_it_make_room(slow_page: Served) -> None:
    """The queue is that of the page: its length is the one that /health tells."""
    url = f"{slow_page.url}/v1/chat/completions"
    body = {"model": "chat", "messages": HELLO, "max_tokens": 2}
    before = slow_page.n_steps
    waiting = [sent(slow_page.url)]
    assert until(lambda: slow_page.n_steps > before, 30), "the first one has its turn"
    waiting += [sent(slow_page.url) for _ in range(5)]
    assert until(lambda: slow_page.health["waiting"] >= 3, 30)
    refused = httpx.post(url, json=body, timeout=30)
    for connection in waiting:
        connection.close()
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "queue_full"
    assert refused.headers["retry-after"].isdigit()
    assert until(lambda: slow_page.health["waiting"] == 0, 10), "those who left are still waiting"
    assert httpx.post(url, json=body, timeout=30).status_code == 200
    assert slow_page.n_steps - before < 2 * 90, "answers that nobody waits for were written"
