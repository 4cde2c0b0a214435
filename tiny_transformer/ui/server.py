"""Serving the page: `python app.py`."""

import json
import logging
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiny_transformer.errors import ConfigError, TinyTransformerError
from tiny_transformer.ui.page_settings import Settings, parse_settings

if TYPE_CHECKING:
    import gradio as gr

    from tiny_transformer.ui.models import ModelStore

# Read by gradio when it is imported. Nothing about the page or its visitors leaves the machine, and its
# statistics, kept in memory, would otherwise be those of ten thousand requests.
_GRADIO = {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_ANALYTICS_MAX_EVENTS": "100"}

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted; the exit code of the program."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    try:
        settings = parse_settings(arguments)
        page = serve(settings)
    except TinyTransformerError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stderr.write(f"Tiny Transformer is at {page.local_url}\n")
    page.block_thread()
    return 0


def serve(settings: Settings) -> "gr.Blocks":
    """Start the server in the background and return the page, whose `local_url` says where it is."""
    for name, value in _GRADIO.items():
        os.environ.setdefault(name, value)
    from tiny_transformer.ui.models import open_store

    store = open_store(settings)
    if not any(entry.bundle for entry in store.entries.values()):
        problems = " ".join(str(entry.problem) for entry in store.entries.values())
        raise ConfigError("There is no model to serve. {problems}", problems=problems)
    page = start(store, settings)
    # A moment later: the page itself comes first, and nobody types that fast.
    warm_up = threading.Timer(0.5, _warm, [store])
    warm_up.daemon = True
    warm_up.start()
    return page


def start(store: "ModelStore", settings: Settings) -> "gr.Blocks":
    """Put a page around some models and serve it."""
    from starlette.middleware import Middleware

    from tiny_transformer.ui.page import build_page, translations
    from tiny_transformer.ui.routes import RequestLimits, failures, routes
    from tiny_transformer.ui.service import PageService
    from tiny_transformer.ui.theme import START, EarlyScript, stylesheet, theme

    # The page's own check comes first and is friendlier; Gradio's bound also holds those who go around the page.
    # Gradio has no public way to ask how many requests wait: hence `_queue`.
    service = PageService(store, settings.limits, waiting=lambda: len(page._queue))
    i18n = translations()
    workspace = tempfile.TemporaryDirectory(prefix="tiny-transformer-")
    weakref.finalize(service, workspace.cleanup)
    page = build_page(service, i18n)
    try:
        page.launch(
            server_name=settings.host,
            server_port=settings.port or None,
            prevent_thread_lock=True,
            quiet=True,
            i18n=i18n,
            theme=theme(),
            css=stylesheet(),
            js=START,
            footer_links=["api"],  # language and colors are chosen at the top
            run_history=False,
            enable_monitoring=False,
            ssr_mode=False,
            mcp_server=has_mcp(),
            max_file_size=1,  # bytes: the page takes no files
            app_kwargs={
                "routes": routes(service, Path(workspace.name), page.states),
                "middleware": [Middleware(RequestLimits), Middleware(EarlyScript)],
                "exception_handlers": failures(service),
            },
        )
    except OSError as error:
        raise ConfigError(
            "The page cannot listen on {host}:{port} ({reason}).", host=settings.host, port=settings.port, reason=error
        ) from None
    if page.mcp_server_obj is not None:
        tell_json(page.mcp_server_obj)
    return page


def tell_json(server: Any) -> None:
    """Let the tools of an MCP server give objects as JSON, where Gradio writes them as Python does."""
    as_content = server.postprocess_output_data

    def with_json(data: Sequence[Any], root_url: str) -> Any:
        return as_content([json.dumps(v, ensure_ascii=False) if isinstance(v, dict) else v for v in data], root_url)

    server.postprocess_output_data = with_json


def has_mcp() -> bool:
    """Whether the packages of the extra `mcp` are there, in the version that Gradio speaks."""
    try:
        return version("mcp").partition(".")[0] == "1"
    except PackageNotFoundError:
        return False


def _warm(store: "ModelStore") -> None:
    """What the first answer need not wait for; a model that fails here says so again to whoever asks it."""
    try:
        store.warm_up()
    except TinyTransformerError as error:
        logger.warning("%s", error)
