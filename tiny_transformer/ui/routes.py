"""What every request passes before Gradio sees it: it names a host, its body is small, and names no file."""

import json
import logging
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gradio.route_utils import FnIndexInferError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tiny_transformer import __version__
from tiny_transformer.bundle import TORCHSCRIPT
from tiny_transformer.errors import Sentence
from tiny_transformer.ui import reading
from tiny_transformer.ui.about_tab import FILES, downloads
from tiny_transformer.ui.i18n import page_language, translated
from tiny_transformer.ui.openai_api import PREFIX, Call, error_response, openai_routes
from tiny_transformer.ui.service import QUEUE_FULL, PageService

MAX_BODY = 4 * 1024 * 1024  # bytes of one request: room for a long dialogue, none for a flood
# How Gradio marks a file in a request. It would fetch one from any address, keep it and serve it.
_FILE = "gradio.FileData"
_HOST = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?", re.ASCII)
# What Gradio offers beyond this page's needs: files from strangers, a visitor's state kept on the disk, an editor.
_CLOSED = (
    "upload",
    "upload_progress",
    "process_recording",
    "deep_link",
    "dev/reload",
    "vibe-edit",
    "undo-vibe-edit",
    "vibe-code",
    "vibe-starter-queries",
)
# What Gradio raises over a request that does not fit: a function, an argument or a choice that is not there.
STUMBLES = (AttributeError, LookupError, TypeError, ValueError, FnIndexInferError)
SENSELESS = "This request makes no sense here; GET /gradio_api/info says what can be asked."
STATUS = "tiny_transformer.status"  # in the scope of a request: what Gradio answers with 500 is the caller's mistake


class RequestLimits:
    """Refuses what the page never sends."""

    def __init__(self, app: ASGIApp, limit: int = MAX_BODY) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a body before anyone else does, and hand it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not names_host(scope):
            sentence = Sentence("The request names no host; send a Host header such as localhost:7860.")
            await refusal(Request(scope), 400, sentence)(scope, receive, send)
            return
        if scope["method"] != "POST":
            await self._app(_for_this_caller(scope), receive, send)
            return
        body = await _body(receive, self._limit)
        if body is None:
            sentence = Sentence("The request is larger than {limit} MB; send less.", limit=self._limit // 2**20)
            await refusal(Request(scope), 413, sentence)(scope, receive, send)
            return
        if names_file(body):
            sentence = Sentence("This page takes no files; send text.")
            await refusal(Request(scope), 400, sentence)(scope, receive, send)
            return
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        async def with_status(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 500:
                message["status"] = scope.get(STATUS, 500)
            await send(message)

        await self._app(scope, replayed, with_status)


def names_host(scope: Scope) -> bool:
    """Whether the headers from which Gradio makes the page's address hold host names, and nothing else."""
    headers = Headers(scope=scope)
    named = [headers.get("host", ""), *headers.get("x-forwarded-host", "").split(",")[:1]]
    return all(_HOST.fullmatch(name.strip()) for name in named if name) and "x-gradio-server" not in headers


def _for_this_caller(scope: Scope) -> Scope:
    """Gradio describes its endpoints once for all, with the address by which the first caller came.

    With the name of a page it does so for each caller anew; the name of ours is empty.
    """
    if scope["path"].rstrip("/") == "/gradio_api/info" and b"page=" not in scope["query_string"]:
        return {**scope, "query_string": b"&".join(filter(None, (scope["query_string"], b"page=")))}
    return scope


def names_file(body: bytes) -> bool:
    """Whether some object of a JSON body says that it is a file, in whatever spelling JSON allows."""
    found = False

    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        found = found or ("_type", _FILE) in pairs
        return dict(pairs)

    try:
        json.loads(body, object_pairs_hook=check)
    except (ValueError, RecursionError):
        return False  # Gradio reads it no better, and says so
    return found


async def _body(receive: Receive, limit: int) -> bytes | None:
    """What was sent, whatever the header says of its length; None if it is too much."""
    chunks: list[bytes] = []
    n_bytes, more = 0, True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        n_bytes += len(chunks[-1])
        if n_bytes > limit:
            return None
        more = message.get("more_body", False)
    return b"".join(chunks)


logger = logging.getLogger(__name__)


def routes(service: PageService, workspace: Path, call: Call) -> list[Route]:
    """For the server, ahead of Gradio's own; files made on request are kept in the workspace."""
    return [
        *openai_routes(service, call),
        *(Route(f"/gradio_api/{path}{end}", closed, methods=["GET", "POST"]) for path in _CLOSED for end in ("", "/")),
        Route("/health", partial(health, service)),
        *reading.routes(),
        Route(FILES + "/{name}/{file}", partial(file, service, workspace)),
    ]


def failures(service: PageService) -> dict[int | type[Exception], Any]:
    """What a program reads where Gradio would speak of itself: the queue is full, or a request makes no sense."""
    return {503: partial(busy, service), **dict.fromkeys(STUMBLES, senseless)}


async def closed(request: Request) -> Response:
    """An address of Gradio's that this page has no use for."""
    template = "This page does not serve {path}; GET /gradio_api/info says what can be asked."
    return refusal(request, 404, Sentence(template, path=str(request.url.path)[:80]))


def busy(service: PageService, request: Request, error: Exception) -> Response:
    """The queue is full; in the words the page uses."""
    return refusal(request, 503, Sentence(QUEUE_FULL, n=service.waiting()), {"Retry-After": "5"})


def senseless(request: Request, error: Exception) -> Response:
    """Gradio stumbled over a request: an endpoint, an argument or a function that is not there."""
    logger.warning("%s %s: %r", request.method, request.url.path[:80], error)
    return refusal(request, 400, Sentence(SENSELESS))


def refusal(
    request: Request, status: int, sentence: Sentence, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """A sentence in the language that the request asks for, under the key that Gradio's own refusals have."""
    if request.url.path.startswith(PREFIX):
        return error_response(request, status, sentence, headers=headers)
    words = translated(sentence, page_language(request.headers.get("accept-language")))
    return JSONResponse({"detail": words}, status_code=status, headers=headers)


def health(service: PageService, request: Request) -> Response:
    """200 while at least one model can answer; 503 with the reasons otherwise."""
    language = page_language(request.headers.get("accept-language"))
    models: dict[str, Any] = {}
    for name, entry in service.store.entries.items():
        loaded = service.store.loaded(name)
        models[name] = {
            "task": entry.task,
            "usable": entry.bundle is not None,
            "problem": entry.problem and translated(entry.problem, language),
            "loaded": sorted(loaded),
            # Files are checked when they are loaded: before that nobody knows.
            "verified": all(found.model.verified for found in loaded.values()) if loaded else None,
        }
    well = any(model["usable"] for model in models.values())
    body = {
        "status": "ok" if well else "no model",
        "version": __version__,
        "waiting": service.waiting(),
        "models": models,
    }
    return JSONResponse(body, status_code=200 if well else 503)


def file(service: PageService, workspace: Path, request: Request) -> Response:
    """One of the files that the page lists, and no other."""
    entry = service.store.entries.get(request.path_params["name"])
    wanted = request.path_params["file"]
    if entry is None or entry.bundle is None or wanted not in downloads(entry.bundle):
        return PlainTextResponse("There is no such file; the page lists those there are.", status_code=404)
    path = entry.bundle.folder / wanted
    if wanted == TORCHSCRIPT and not path.is_file():
        path = workspace / f"{entry.name}.ts.pt"
        if not path.is_file():
            from tiny_transformer.backends.torchscript import write_archive  # imports torch

            write_archive(entry.bundle, path)
    return FileResponse(path, filename=wanted)
