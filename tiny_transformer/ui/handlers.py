"""What every handler shares: the visitor's language, and failures as one sentence in it."""

import html
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import wraps
from typing import Any

import gradio as gr
from gradio.components import Component

from tiny_transformer.errors import TinyTransformerError
from tiny_transformer.ui.i18n import Language, explained, page_language, say

logger = logging.getLogger(__name__)

# All work of the models shares one queue, so that a position in it means something.
QUEUE = "models"
# What takes no time and never waits.
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
# Checks that may refuse: Gradio shows a refusal only for events of its queue, but these do not wait in it.
UNQUEUED: dict[str, Any] = {"concurrency_limit": None, "show_progress": "hidden", "api_visibility": "private"}


def in_turn(running: int, status: Component) -> dict[str, Any]:
    """Work of a model: it waits in the queue, and the position in it is shown in `status`."""
    return {
        "show_progress": "full",
        "show_progress_on": [status],
        "concurrency_id": QUEUE,
        "concurrency_limit": running,
        "api_visibility": "private",
    }


def tell_begun(event: Any) -> None:
    """Tell the browser that the server has begun or refused what `page.js` let pass: the next question may come."""
    for after in (event.success, event.failure):
        after(None, None, None, js="() => { window.ttAsked = 0; }", **QUIET)


def language_of(request: gr.Request | None) -> Language:
    """The language the visitor's browser asks for."""
    headers = getattr(request, "headers", None)
    return page_language(headers.get("accept-language") if headers is not None else None)


def user_errors(handler: Callable[..., Any]) -> Callable[..., Any]:
    """A handler whose failures reach the visitor as a sentence, and the log if they are ours."""
    if inspect.isgeneratorfunction(handler):

        @wraps(handler)
        def stream(*values: Any, **named: Any) -> Iterator[Any]:
            try:
                yield from handler(*values, **named)
            except Exception as error:
                raise _shown(error, values, named) from None

        return stream

    @wraps(handler)
    def call(*values: Any, **named: Any) -> Any:
        try:
            return handler(*values, **named)
        except Exception as error:
            raise _shown(error, values, named) from None

    return call


def beside(handler: Callable[..., Any], n_outputs: int, refused: Sequence[Any] = ()) -> Callable[..., Any]:
    """A handler with one output more, the last, where a failure's sentence stays until the next try succeeds.

    `refused` is what the other outputs then become; without it they stay as they are.
    """

    @wraps(handler)
    def stream(*values: Any, **named: Any) -> Iterator[Any]:
        found = handler(*values, **named) if inspect.isgeneratorfunction(handler) else None
        try:
            if found is None:
                yield _and_words(handler(*values, **named), n_outputs)
            else:
                with closing(found):
                    for state in found:
                        yield _and_words(state, n_outputs)
        except Exception as error:
            shown = _shown(error, values, named)
            words = f'<p class="tt-refused" role="alert">{html.escape(shown.message)}</p>'
            yield words if n_outputs == 0 else (*(refused or [gr.skip()] * n_outputs), words)
            # Ends the chain of events. Gradio's own message would cover the page and go away by itself.
            raise gr.Error(shown.message, visible=False, print_exception=False) from None

    return stream


def _and_words(outputs: Any, n_outputs: int) -> Any:
    if n_outputs == 0:
        return ""
    return (outputs, "") if n_outputs == 1 else (*outputs, "")


def _shown(error: Exception, values: tuple[Any, ...], named: dict[str, Any]) -> gr.Error:
    if isinstance(error, gr.Error):
        return error
    request = next((value for value in (*values, *named.values()) if isinstance(value, gr.Request)), None)
    language = language_of(request)
    if not isinstance(error, TinyTransformerError):
        logger.error("A handler failed", exc_info=error)
    return gr.Error(explained(error, language), title=say(language, "refused"), print_exception=False)
