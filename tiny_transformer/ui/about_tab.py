"""About this model: filled in when it is first looked at, since hashing files takes a moment."""

import html

import gradio as gr

from tiny_transformer.ui.about import about, card
from tiny_transformer.ui.desk import Desk
from tiny_transformer.ui.handlers import QUIET, language_of, told
from tiny_transformer.ui.notices import translated
from tiny_transformer.ui.strings import say
from tiny_transformer.ui.top import Top


def build_about_tab(desk: Desk, top: Top, tab: gr.Tab, i18n: gr.I18n) -> None:
    """Facts first, then the card."""
    facts = gr.HTML(elem_id="tt-about")
    with gr.Accordion(i18n("about_card"), open=False, elem_id="tt-card"):
        text = gr.Markdown(elem_id="tt-card-text")

    def describe(name: str, request: gr.Request) -> tuple[str, str]:
        language = language_of(request)
        entry = desk.shelf.entry(name)
        if entry.bundle is None:
            problem = translated(entry.problem or "", language)
            sentence = say(language, "model_problem", problem=problem)
            return f'<p class="tt-problem">{html.escape(sentence)}</p>', ""
        address = str(request.request.base_url).rstrip("/") if request.request else ""
        return about(name, entry.bundle, language, address), card(name, entry.bundle, language)

    gr.on(
        [tab.select, top.model.change],
        told(describe),
        top.model,
        [facts, text],
        **QUIET,
    )
