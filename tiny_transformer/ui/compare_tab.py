"""Compare: one prompt, all backends side by side, and the verdict anyone can check."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gradio as gr

from tiny_transformer.ui.chat_tab import EXAMPLES
from tiny_transformer.ui.desk import Desk
from tiny_transformer.ui.handlers import QUEUE, language_of, told
from tiny_transformer.ui.race_view import lanes, verdict
from tiny_transformer.ui.top import Top


class CompareTab:
    """The components of the comparison and what happens between them."""

    def __init__(self, desk: Desk, top: Top, i18n: gr.I18n) -> None:
        self._desk = desk
        gr.HTML(i18n("compare_intro"), elem_classes="tt-intro")
        with gr.Row(equal_height=True, elem_classes="tt-ask"):
            self.box = gr.Textbox(
                value=EXAMPLES[desk.shelf.entries[desk.shelf.default].task][0],
                label=i18n("compare_text"),
                show_label=False,
                placeholder=i18n("compare_hint"),
                elem_id="tt-compare-text",
                scale=5,
                max_lines=4,
            )
            self.run = gr.Button(
                i18n("compare_run"), variant="primary", elem_id="tt-compare-run", scale=1, min_width=120
            )
        self.status = gr.HTML(elem_id="tt-compare-status", elem_classes="tt-status", min_height=20)
        self.lanes = gr.HTML(elem_id="tt-lanes")
        self.verdict = gr.HTML(elem_id="tt-verdict")
        gr.on(
            [self.run.click, self.box.submit],
            told(self._race),
            [self.box, top.model],
            [self.lanes, self.verdict],
            show_progress="full",
            show_progress_on=[self.status],
            concurrency_id=QUEUE,
            concurrency_limit=desk.limits.running,
            trigger_mode="once",
            api_visibility="private",
        )
        quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
        top.model.change(self._example, top.model, [self.box, self.lanes, self.verdict], **quiet)

    def _race(self, text: object, name: str, request: gr.Request) -> Iterator[tuple[str, str]]:
        language = language_of(request)
        with closing(self._desk.race(name, text)) as states:
            for state in states:
                yield lanes(state, language), verdict(state, language)

    def _example(self, name: str) -> tuple[str, str, str]:
        return EXAMPLES[self._desk.shelf.entries[name].task][0], "", ""
