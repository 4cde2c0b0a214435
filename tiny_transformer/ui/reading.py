"""What there is to read, served by the page itself: the source and, in a checkout, documentation and the chapter."""

import html
import posixpath
import re
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from tiny_transformer.ui.i18n import Language

READ = "/read"
CHAPTER: dict[Language, str] = {"en": "docs/paper-to-code.md", "zh": "docs/paper-to-code.zh-CN.md"}
_PACKAGE = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\]\((?!\w+:|#|/)([^)#\s]+)(#[^)\s]*)?\)")


@cache
def readable() -> dict[str, Path]:
    """The files by their names in the checkout; no other file is ever served."""
    root = _PACKAGE.parent
    found = {f"{_PACKAGE.name}/{path.relative_to(_PACKAGE).as_posix()}": path for path in _PACKAGE.rglob("*.py")}
    if (root / "app.py").is_file():  # a checkout: an installed package has strangers beside it
        for pattern in ("README*.md", "docs/*.md", "docs/figures/*.p*"):
            found |= {path.relative_to(root).as_posix(): path for path in root.glob(pattern)}
    return dict(sorted(found.items()))


def chapter(language: Language) -> str:
    """The chapter as Markdown, its links and pictures taken from here; empty where there is none."""
    name = CHAPTER[language]
    path = readable().get(name)
    if path is None:
        return ""

    def here(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link[1]))
        return f"]({READ}/{target}{link[2] or ''})"

    return _LINK.sub(here, path.read_text(encoding="utf-8"))


def routes() -> list[Route]:
    """A list of the files, and each of them."""
    return [Route(READ, listed), Route(READ + "/{name:path}", file)]


def listed(request: Request) -> Response:
    """Every file as a link."""
    items = "".join(f'<li><a href="{READ}/{html.escape(name)}">{html.escape(name)}</a></li>' for name in readable())
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Tiny Transformer</title>'
    return HTMLResponse(f'<!doctype html><html lang="en">{head}<h1>Tiny Transformer</h1><ul>{items}</ul></html>')


def file(request: Request) -> Response:
    """One of the files: text as plain text, whatever it holds."""
    name = request.path_params["name"]
    path = readable().get(name)
    if not name:
        return listed(request)
    if path is None:
        return PlainTextResponse(f"There is no such file; {READ} lists those there are.", status_code=404)
    if path.suffix == ".png":
        return FileResponse(path)
    return PlainTextResponse(path.read_bytes(), headers={"X-Content-Type-Options": "nosniff"})
