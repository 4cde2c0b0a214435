"""The whole page: its head, its tabs, and the endpoints behind it."""

from typing import Any, Self

import gradio as gr

from tiny_transformer.ui.about_tab import build_about_tab
from tiny_transformer.ui.api import add_endpoints
from tiny_transformer.ui.chat_tab import ChatTab
from tiny_transformer.ui.compare_tab import CompareTab
from tiny_transformer.ui.header import build_header
from tiny_transformer.ui.i18n import dictionary
from tiny_transformer.ui.inside_tab import InsideTab
from tiny_transformer.ui.page_settings import Limits
from tiny_transformer.ui.service import PageService


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
        }
        super().queue(*arguments, **(bounds | options))
        return self


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
        add_endpoints(service)
    return page
