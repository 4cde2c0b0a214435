"""What every request passes before Gradio sees it: its body is small, and names no file."""

import json
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tiny_transformer.ui.languages import page_language
from tiny_transformer.ui.strings import say

MAX_BODY = 4 * 1024 * 1024  # bytes of one request: room for a long dialogue, none for a flood
# How Gradio marks a file in a request. It would fetch one from any address, keep it and serve it.
_FILE = "gradio.FileData"


class Door:
    """Refuses what the page never sends."""

    def __init__(self, app: ASGIApp, limit: int = MAX_BODY) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a body before anyone else does, and hand it on."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await _body(receive, self._limit)
        refusal = (413, "refused_size") if body is None else (400, "refused_file") if names_file(body) else None
        if refusal is not None:
            accepted = dict(scope["headers"]).get(b"accept-language", b"").decode("latin-1")
            words = say(page_language(accepted), refusal[1], limit=self._limit // 2**20)
            await JSONResponse({"detail": words}, status_code=refusal[0])(scope, receive, send)
            return
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, replayed, send)


def names_file(body: bytes) -> bool:
    """Whether some object of a JSON body says that it is a file, in whatever spelling JSON allows."""
    found = False

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        found = found or ("_type", _FILE) in pairs
        return dict(pairs)

    try:
        json.loads(body, object_pairs_hook=look)
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
