"""The whole page: its head, its tabs, and the endpoints behind it."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Self

import gradio as gr
from gradio.data_classes import PredictBodyInternal
from gradio.server_messages import ProcessCompletedMessage, ProcessGeneratingMessage
from gradio.utils import get_function_description
from starlette.requests import ClientDisconnect, Request

from tiny_transformer.errors import Sentence
from tiny_transformer.ui.about_tab import build_about_tab
from tiny_transformer.ui.api import RESULTS, add_endpoints
from tiny_transformer.ui.chat_tab import ChatTab
from tiny_transformer.ui.compare_tab import CompareTab
from tiny_transformer.ui.handlers import language_of
from tiny_transformer.ui.header import build_header
from tiny_transformer.ui.i18n import dictionary, say, translated
from tiny_transformer.ui.inside_tab import InsideTab
from tiny_transformer.ui.openai_api import CallFailedError, QueueFullError
from tiny_transformer.ui.page_settings import Limits
from tiny_transformer.ui.reading import chapter
from tiny_transformer.ui.routes import SENSELESS, STATUS, STUMBLES
from tiny_transformer.ui.service import QUEUE_FULL, PageService

logger = logging.getLogger(__name__)

SECONDS_TO_NOTICE = 0.25  # at most, until a waiting request whose client has left is dropped


class Page(gr.Blocks):
    """A page whose queue has its bounds from birth: setting them later makes Gradio build its whole server again."""

    def __init__(self, limits: Limits, **options: Any) -> None:
        self._limits = limits
        super().__init__(**options)

    def queue(self, *arguments: Any, **options: Any) -> Self:
        """Gradio's own constructor asks for the queue and leaves its bounds open."""
        bounds = {
            "max_size": self._limits.queue + self._limits.running,
            "default_concurrency_limit": self._limits.running,
            "api_open": False,  # what waits in the queue cannot be called around it
        }
        super().queue(*arguments, **(bounds | options))
        return self

    def validate_inputs(self, block_fn: Any, inputs: list[Any]) -> None:
        """What a caller leaves out at the end gets its default."""
        inputs.extend(map(default_of, block_fn.inputs[len(inputs) :]))

    async def process_api(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Call a function; one that cannot be called so is refused in a sentence, where Gradio has no words."""
        try:
            return await super().process_api(*arguments, **options)
        except gr.Error:  # it has its sentence; to Python it is a ValueError
            raise
        except STUMBLES as error:
            request = options.get("request")
            logger.warning("A request does not fit: %r", error)
            if isinstance(request, gr.Request) and request.request is not None:
                request.request.scope[STATUS] = 400
            language = language_of(request)
            words = translated(Sentence(SENSELESS), language)
            raise gr.Error(words, title=say(language, "refused"), print_exception=False) from None

    def get_api_info(self, *arguments: Any, **options: Any) -> Any:
        """What Gradio tells of the endpoints, with our words for each parameter."""
        info = super().get_api_info(*arguments, **options)
        functions = {f"/{function.api_name}": function.fn for function in self.fns.values() if function.fn}
        for name, endpoint in info["named_endpoints"].items():
            _, described, _ = get_function_description(functions[name])
            for parameter in endpoint["parameters"]:
                words = {"description": described[parameter["parameter_name"]]}
                parameter["label"] = parameter["parameter_name"]
                parameter["type"] = parameter["type"] | words
                parameter["python_type"] = parameter["python_type"] | words
            for result in endpoint["returns"]:
                result["label"] = RESULTS[name.removeprefix("/")]
        return info

    async def states(
        self, api_name: str, values: Mapping[str, Any], request: Request
    ) -> AsyncGenerator[dict[str, Any]]:
        """States of an endpoint's result, called through the page's own queue. Closing the iterator ends the work.

        This is what Gradio's /call/NAME does, in this process: it has no public way, hence `_queue`.
        """
        function = next(fn for fn in self.fns.values() if fn.api_name == api_name)
        assert function.fn is not None, "an endpoint has a function"
        names = [name for name in inspect.signature(function.fn).parameters if name != "request"]
        defaults = dict(zip(names, map(default_of, function.inputs), strict=True))
        # Gradio looks at the address of a call.
        call = Request({**request.scope, "path": f"/gradio_api/call/{api_name}"}, request.receive)
        data = list({**defaults, **values}.values())
        body = PredictBodyInternal(data=data, fn_index=function._id, simple_format=True, request=call)
        queue = self._queue
        if queue.server_app is None:
            queue.set_server_app(self.app)
        pushed, session, _ = await queue.push(body, call, None)
        if not pushed or not isinstance(session, str):
            raise QueueFullError(QUEUE_FULL, n=len(queue))
        messages = queue.pending_messages_per_session[session]

        async def end() -> None:
            await queue.clean_events(session_hash=session)
            queue.pending_messages_per_session.pop(session, None)
            queue.pending_event_ids_session.pop(session, None)
            self.state_holder.session_data.pop(session, None)
            self.state_holder.time_last_used.pop(session, None)

        try:
            while not queue.stopped:
                try:
                    message = await asyncio.wait_for(messages.get(), SECONDS_TO_NOTICE)
                except TimeoutError:
                    message = None
                if await request.is_disconnected():
                    raise ClientDisconnect
                if isinstance(message, ProcessGeneratingMessage | ProcessCompletedMessage):
                    if not message.success:
                        raise CallFailedError(message.output["error"])
                    yield message.output["data"][0]
                if isinstance(message, ProcessCompletedMessage):
                    return
        finally:
            await asyncio.shield(end())  # also where this task is being cancelled


def default_of(block: Any) -> Any:
    """The value of an input that a caller left out: a control's first one, an endpoint's default."""
    return getattr(block, "value", None)


def translations() -> gr.I18n:
    """Our sentences for the browser, under every name a Chinese browser may give its language."""
    chinese = dictionary("zh")
    return gr.I18n(en=dictionary("en"), **dict.fromkeys(("zh", "zh-CN", "zh-TW"), chinese))


def build_page(service: PageService, i18n: gr.I18n) -> Page:
    """The page, not yet served."""
    with Page(service.limits, title="Tiny Transformer", analytics_enabled=False, fill_width=True) as page:
        header = build_header(service, page, i18n)
        with gr.Tabs(elem_id="tt-tabs"):
            with gr.Tab(i18n("tab_chat"), id="chat"):
                ChatTab(service, header, page, i18n)
            with gr.Tab(i18n("tab_compare"), id="compare"):
                CompareTab(service, header, i18n)
            with gr.Tab(i18n("tab_inside"), id="inside"):
                InsideTab(service, header, i18n)
            with gr.Tab(i18n("tab_about"), id="about") as about:
                build_about_tab(service, header, about, i18n)
        gr.HTML(i18n("links_checkout" if chapter("en") else "links"), elem_id="tt-links")
        add_endpoints(service)
    return page
