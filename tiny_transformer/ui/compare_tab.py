"""Compare: one prompt, all backends side by side, and the verdict anyone can check."""

from collections.abc import Iterator
from contextlib import closing

import gradio as gr

from tiny_transformer.ui.ask import Ask
from tiny_transformer.ui.desk import Desk
from tiny_transformer.ui.handlers import QUIET, language_of, told
from tiny_transformer.ui.markup import empty
from tiny_transformer.ui.race_view import lanes, verdict
from tiny_transformer.ui.strings import say
from tiny_transformer.ui.top import Top


class CompareTab:
    """The components of the comparison and what happens between them."""

    def __init__(self, desk: Desk, top: Top, i18n: gr.I18n) -> None:
        self._desk = desk
        ask = Ask(desk, top, "compare", i18n)
        self.lanes = gr.HTML(empty(i18n("compare_empty")), elem_id="tt-lanes")
        self.verdict = gr.HTML(elem_id="tt-verdict")
        ask.answered_by(self._race, [ask.box, top.model], [self.lanes, self.verdict])
        top.model.change(told(self._clear), None, [self.lanes, self.verdict], **QUIET)

    def _race(self, text: object, name: str, request: gr.Request) -> Iterator[tuple[str, str]]:
        language = language_of(request)
        with closing(self._desk.race(name, text)) as states:
            for state in states:
                yield lanes(state, language), verdict(state, language)

    def _clear(self, request: gr.Request) -> tuple[str, str]:
        """Another model has not answered yet."""
        return empty(say(language_of(request), "compare_empty")), ""
