"""The translator: a text on the left, its translation on the right."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import gradio as gr
from gradio.components import Component

from tiny_transformer.ui.answer_line import answer_line, stopped_line, working_line
from tiny_transformer.ui.handlers import QUIET, UNQUEUED, beside, in_turn, language_of, tell_begun, user_errors
from tiny_transformer.ui.header import EXAMPLES, Header
from tiny_transformer.ui.service import OFFERED, PageService, dialogue

LINES = 9  # of both sides, before they grow with their text

# What is translated is a conversation of its own in the visitor's list.
BEGIN = "(source, model) => { tt.begin(source); return [source, model]; }"
KEEP = "(text, line, model) => tt.keepTranslation(text, line, model)"
HEARD = "(text) => tt.announce(text)"
ANOTHER = f"""(source) => {{
  const all = {json.dumps(EXAMPLES["translate"])};
  return [all[(all.indexOf(source) + 1) % all.length]];
}}"""


class TranslatorPane:
    """The components of the translator and what happens between them."""

    def __init__(self, service: PageService, i18n: gr.I18n, *, away: bool) -> None:
        self._service = service
        classes = ["tt-away"] if away else []
        with gr.Column(scale=7, min_width=300, elem_id="tt-translator", elem_classes=classes):
            gr.HTML(i18n("translate_placeholder"), elem_classes="tt-welcome")
            with gr.Row(elem_id="tt-panes"):
                self.source = gr.Textbox(
                    label=i18n("source"),
                    placeholder=i18n("source_hint"),
                    elem_id="tt-source",
                    lines=LINES,
                    max_lines=2 * LINES,
                )
                self.result = gr.Textbox(
                    label=i18n("translation"),
                    elem_id="tt-translation",
                    lines=LINES,
                    max_lines=2 * LINES,
                    interactive=False,
                    placeholder=" ",  # by which the style sheet knows that it is empty
                    buttons=["copy"],
                )
            with gr.Row(elem_id="tt-translate-row"):
                self.run = gr.Button(i18n("translate"), variant="primary", elem_id="tt-translate", scale=0)
                self.stop = gr.Button(i18n("stop"), variant="stop", elem_id="tt-translate-stop", scale=0, visible=False)
                self.another = gr.Button(i18n("another_example"), elem_id="tt-another", scale=0)
            self.status = gr.HTML(elem_id="tt-translate-status", elem_classes="tt-status")
            self.line = gr.HTML(elem_id="tt-translation-line")
            gr.HTML(i18n("ways_on"), elem_id="tt-translation-ways")
        self.rest = [self.line, self.run, self.stop, self.another]

    def wire(self, header: Header, controls: Sequence[Component]) -> list[Any]:
        """What happens on each event; the events whose work can be cancelled."""
        begun = [self.result, *self.rest, self.status]
        asked = [self.source, header.model]
        # What was refused has no translation, and that of the text before it stands in the visitor's list.
        begin = beside(self._begin, len(begun) - 1, ("", "", *[gr.skip()] * 3))
        asking = gr.on([self.run.click, self.source.submit], begin, asked, begun, js=BEGIN, **UNQUEUED)
        swapped = self.another.click(None, self.source, self.source, js=ANOTHER, **QUIET)
        tried = swapped.then(begin, asked, begun, js=BEGIN, **UNQUEUED)
        running = []
        for entered in (asking, tried):
            tell_begun(entered)
            translated = entered.success(
                beside(self._translate, 2, (gr.skip(), "")),
                [self.source, header.model, header.backend, *controls],
                [self.result, self.line, self.status],
                **in_turn(self._service.limits.running, self.status),
            )
            translated.then(self.ready, None, self.rest[1:], **QUIET)
            translated.then(None, self.result, None, js=HEARD, **QUIET)
            running.append(translated)
        halted = self.stop.click(None, cancels=running, **QUIET)
        halted.then(user_errors(self._stopped), self.line, self.rest, **QUIET)
        kept = [self.result, self.line, header.model]
        gr.on([self.result.change, self.line.change], None, kept, None, js=KEEP, **QUIET)
        return running

    @staticmethod
    def ready(*, running: bool = False) -> tuple[gr.Button, gr.Button, gr.Button]:
        """Translate instead of stop; while a translation is running, there is nothing but stop."""
        return gr.Button(visible=not running), gr.Button(visible=running), gr.Button(visible=not running)

    def _begin(self, source: object, name: str, request: gr.Request) -> tuple[Any, ...]:
        """An empty right side; what cannot be translated is refused at once."""
        self._service.text(source)
        self._service.store.bundle(name)
        self._service.check_queue()
        return "", working_line(language_of(request)), *self.ready(running=True)

    def _translate(
        self, request: gr.Request, source: object, name: str, backend: str, *values: Any
    ) -> Iterator[tuple[Any, Any]]:
        language, limit = language_of(request), self._service.limits.seconds
        controls = dict(zip(OFFERED, values, strict=True))
        with closing(
            self._service.answers(name, backend, dialogue([], self._service.text(source)), controls)
        ) as states:
            for answer in states:
                done = answer.finish_reason is not None
                line = answer_line(answer, language, seconds=limit) if done else working_line(language, answer)
                yield answer.text, line

    def _stopped(self, line: object, request: gr.Request) -> tuple[Any, ...]:
        return stopped_line(language_of(request), str(line)), *self.ready()
