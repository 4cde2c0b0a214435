"""The few addresses beside the page: whether it is well, and the files of its models."""

from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tiny_transformer import __version__
from tiny_transformer.bundle import TORCHSCRIPT
from tiny_transformer.ui.about import FILES, downloads
from tiny_transformer.ui.archive import write_archive
from tiny_transformer.ui.desk import Desk

MAX_BODY = 4 * 1024 * 1024  # bytes of one request: room for a long dialogue, none for a flood


def routes(desk: Desk, workspace: Path) -> list[Route]:
    """For the server, ahead of Gradio's own; files made on request are kept in the workspace."""
    return [
        Route("/health", partial(health, desk)),
        Route(FILES + "/{name}/{file}", partial(file, desk, workspace)),
    ]


def health(desk: Desk, request: Request) -> Response:
    """200 while at least one model can answer; 503 with the reasons otherwise."""
    models: dict[str, Any] = {}
    for name, entry in desk.shelf.entries.items():
        loaded = desk.shelf.loaded(name)
        models[name] = {
            "task": entry.task,
            "usable": entry.bundle is not None,
            "problem": entry.problem,
            "loaded": sorted(loaded),
            "verified": any(found.model.verified for found in loaded.values()),
        }
    well = any(model["usable"] for model in models.values())
    body = {"status": "ok" if well else "no model", "version": __version__, "waiting": desk.waiting(), "models": models}
    return JSONResponse(body, status_code=200 if well else 503)


def file(desk: Desk, workspace: Path, request: Request) -> Response:
    """One of the files that the page lists, and no other."""
    entry = desk.shelf.entries.get(request.path_params["name"])
    wanted = request.path_params["file"]
    if entry is None or entry.bundle is None or wanted not in downloads(entry.bundle):
        return PlainTextResponse("There is no such file; the page lists those there are.", status_code=404)
    path = entry.bundle.folder / wanted
    if wanted == TORCHSCRIPT and not path.is_file():
        path = workspace / f"{entry.name}.ts.pt"
        if not path.is_file():
            write_archive(entry.bundle, path)
    return FileResponse(path, filename=wanted)


class BodyLimit:
    """Refuses requests whose body is larger than any the page sends."""

    def __init__(self, app: ASGIApp, limit: int = MAX_BODY) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what comes, whatever the header says."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._limit:
            await PlainTextResponse("The request is too large.", status_code=413)(scope, receive, send)
            return
        n_bytes = 0

        async def counted() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > self._limit:
                return {"type": "http.disconnect"}
            return message

        await self._app(scope, counted, send)
