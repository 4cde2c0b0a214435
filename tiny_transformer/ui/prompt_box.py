"""Texts to begin with, by what a model is for."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from tiny_transformer.ui.handlers import QUIET, UNQUEUED, in_turn, user_errors
from tiny_transformer.ui.header import Header
from tiny_transformer.ui.models import ModelEntry
from tiny_transformer.ui.service import PageService

EXAMPLES = {
    "chat": ("Hello! How are you today?", "Tell me a joke.", "Tell me a story."),
    "translate": ("Guten Morgen! Wie geht es dir?", "Der Hund schläft unter dem Tisch.", "我明天要去北京。"),
    "complete": ("Once upon a time", "The little fox", "One day"),
}


def examples(entry: ModelEntry) -> tuple[str, ...]:
    """Texts to begin with, by what the model is for; none for a folder that does not open."""
    return EXAMPLES[entry.task] if entry.task else ()


def swap_script(entries: Mapping[str, ModelEntry]) -> str:
    """For the browser, when another model is chosen: its first example, unless the text is the visitor's own."""
    first = {name: next(iter(examples(entry)), "") for name, entry in entries.items()}
    every = [text for texts in EXAMPLES.values() for text in texts]
    return f"(text, model) => [text.trim() && !{json.dumps(every)}.includes(text) ? text : {json.dumps(first)}[model]]"


class PromptBox:
    """The components at the top of such a tab; `name` begins the keys of its sentences."""

    def __init__(self, service: PageService, header: Header, name: str, i18n: gr.I18n) -> None:
        self._service = service
        gr.HTML(i18n(f"{name}_intro"), elem_classes="tt-intro")
        with gr.Row(elem_classes="tt-ask"):
            self.box = gr.Textbox(
                value=next(iter(examples(service.store.entry(service.store.default))), ""),
                label=i18n(f"{name}_text"),
                show_label=False,
                container=False,
                placeholder=i18n(f"{name}_hint"),
                elem_id=f"tt-{name}-text",
                lines=1,
                max_lines=4,
                scale=1,
            )
            self.run = gr.Button(i18n(f"{name}_run"), variant="primary", elem_id=f"tt-{name}-run", scale=0)
        self.status = gr.HTML(elem_id=f"tt-{name}-status", elem_classes="tt-status", min_height=20)
        # In the browser, at once: what a visitor writes meanwhile must not be overwritten.
        swap = swap_script(service.store.entries)
        header.model.change(None, [self.box, header.model], self.box, js=swap, **QUIET)

    def answered_by(
        self, handler: Callable[..., Any], inputs: Sequence[Component], outputs: Sequence[Component]
    ) -> Any:
        """Refuse what cannot be answered at once; whatever may enter gets its answer in turn."""
        entered = gr.on([self.run.click, self.box.submit], user_errors(self._enter), self.box, None, **UNQUEUED)
        return entered.success(user_errors(handler), list(inputs), list(outputs), **self.work)

    @property
    def work(self) -> dict[str, Any]:
        """How the tab's work waits."""
        return in_turn(self._service.limits.running, self.status)

    def _enter(self, text: object, request: gr.Request) -> None:
        self._service.text(text)
        self._service.check_queue()
