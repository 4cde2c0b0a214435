"""Serving the page: `python app.py`."""

import logging
import os
import sys
import threading
from collections.abc import Sequence

from tiny_transformer.errors import TinyTransformerError
from tiny_transformer.ui.settings import Settings, parse_settings

# Read by gradio at its import: nothing about this page or its visitors leaves the machine.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted; the exit code of the program."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        serve(parse_settings(arguments)).block_thread()
    except TinyTransformerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def serve(settings: Settings):
    import gradio as gr

    from tiny_transformer.ui.desk import Desk
    from tiny_transformer.ui.page import build_page, translations
    from tiny_transformer.ui.shelf import Shelf
    from tiny_transformer.ui.theme import stylesheet, theme

    desk = Desk(Shelf(settings.models, settings.backend, settings.threads), settings.limits)
    i18n = translations()
    page = build_page(desk, i18n)
    page.queue(max_size=settings.limits.queue, default_concurrency_limit=settings.limits.running)
    page.launch(server_name=settings.host, server_port=settings.port, prevent_thread_lock=True, i18n=i18n, theme=theme(), css=stylesheet(), run_history=False, quiet=True)
    return page
