"""The head of the page: title, the choice of model and backend, and what is wrong with a model."""

import html
from dataclasses import dataclass
from typing import Any

import gradio as gr

from tiny_transformer.ui.handlers import QUIET, language_of, user_errors
from tiny_transformer.ui.i18n import Language, say, translated
from tiny_transformer.ui.markup import said
from tiny_transformer.ui.models import ModelStore
from tiny_transformer.ui.service import PageService

_ROOM = '<details class="tt-missing tt-room"><summary>&nbsp;</summary></details>'


@dataclass(frozen=True)
class Header:
    """The components every tab reads."""

    model: gr.Radio
    backend: gr.Dropdown


def build_header(service: PageService, page: gr.Blocks, i18n: gr.I18n) -> Header:
    """Title on the left, choices on the right; below them whatever is not available, and why."""
    store, first = service.store, service.store.default
    with gr.Row(elem_id="tt-top", equal_height=False):
        with gr.Column(scale=5, min_width=260):
            gr.HTML(i18n("heading"), elem_id="tt-title")
        with gr.Column(scale=3, min_width=200):
            model = gr.Radio(
                _model_choices(store, i18n),
                value=first,
                label=i18n("model"),
                elem_id="tt-model",
                elem_classes="tt-choice",
                container=False,
            )
        with gr.Column(scale=2, min_width=190):
            backend = gr.Dropdown(
                _backend_choices(store, first, i18n),
                value="auto",
                label=i18n("backend"),
                elem_id="tt-backend",
                container=False,
                filterable=False,
            )
            # The words come with the visitor's language, their line is there from the start: nothing jumps then.
            notes = gr.HTML(_ROOM if availability(store, first, "en") else "", elem_id="tt-availability")

    def on_model(name: str, request: gr.Request) -> tuple[gr.Dropdown, str]:
        language = language_of(request)
        choices = [("backend_auto", "auto")] + [(f"backend_{b}", b) for b in _runnable(store, name)]
        named = [(say(language, key), value) for key, value in choices]
        return gr.Dropdown(named, value="auto"), availability(store, name, language)

    def on_load(name: str, request: gr.Request) -> str:
        return availability(store, name, language_of(request))

    model.change(user_errors(on_model), model, [backend, notes], **QUIET)
    page.load(user_errors(on_load), model, notes, **QUIET)
    return Header(model, backend)


def availability(store: ModelStore, name: str, language: Language) -> str:
    """What is wrong with the model, or which backends cannot run it here and why."""
    entry = store.entry(name)
    if entry.problem is not None:
        sentence = say(language, "model_problem", problem=translated(entry.problem, language))
        return f'<p class="tt-problem" role="alert">{html.escape(sentence)}</p>'
    reasons = {backend: reason for backend, reason in store.backends(name).items() if reason is not None}
    if not reasons:
        return ""
    items = "".join(
        f"<li><b>{said(language, f'backend_{backend}')}</b>: {html.escape(translated(reason, language))}</li>"
        for backend, reason in reasons.items()
    )
    summary = said(language, "backend_missing", n=len(reasons))
    return f'<details class="tt-missing"><summary>{summary}</summary><ul>{items}</ul></details>'


def _model_choices(store: ModelStore, i18n: gr.I18n) -> list[Any]:
    """By what a model is for; by its folder where several are for the same, or nobody knows."""
    tasks = [entry.task for entry in store.entries.values()]
    return [
        (i18n(f"task_{entry.task}") if entry.task and tasks.count(entry.task) == 1 else name, name)
        for name, entry in store.entries.items()
    ]


def _backend_choices(store: ModelStore, name: str, i18n: gr.I18n) -> list[Any]:
    return [(i18n("backend_auto"), "auto"), *((i18n(f"backend_{b}"), b) for b in _runnable(store, name))]


def _runnable(store: ModelStore, name: str) -> list[str]:
    return [backend for backend, reason in store.backends(name).items() if reason is None]
