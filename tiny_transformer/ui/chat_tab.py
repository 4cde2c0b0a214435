"""The chat: write, watch the answer come, stop it, try again, edit, start anew."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gradio as gr

from tiny_transformer.ui.browser import KEEP, RECALL
from tiny_transformer.ui.controls import NAMES, OF_THE_MODEL, build_controls, control_values, model_defaults
from tiny_transformer.ui.desk import Desk
from tiny_transformer.ui.examples import EXAMPLES
from tiny_transformer.ui.handlers import DOOR, QUIET, in_turn, language_of, told
from tiny_transformer.ui.strings import say
from tiny_transformer.ui.top import Top
from tiny_transformer.ui.transcript import (
    Shown,
    answer_line,
    from_model,
    from_visitor,
    message_text,
    original,
    pending_line,
    plain,
    stopped_line,
    turns,
    up_to_last_question,
)
from tiny_transformer.ui.wishes import Refused

RETRY_TEMPERATURE = 0.7  # a greedy answer would only come again

Begun = tuple[list[Shown], str, gr.Button, gr.Button]  # chat, box, send, stop


class ChatTab:
    """The components of the chat and what happens between them."""

    def __init__(self, desk: Desk, top: Top, page: gr.Blocks, i18n: gr.I18n) -> None:
        self._desk = desk
        first = desk.shelf.default
        with gr.Row(equal_height=False, elem_classes="tt-two"):
            with gr.Column(scale=7, min_width=300, elem_classes="tt-tight"):
                self.chat = gr.Chatbot(
                    label=i18n("chat_label"),
                    show_label=False,
                    elem_id="tt-chat",
                    layout="bubble",
                    buttons=["copy"],
                    editable="user",
                    render_markdown=False,
                    latex_delimiters=[],
                    feedback_options=None,
                    placeholder=str(i18n(f"{desk.shelf.entries[first].task}_placeholder")),
                    examples=examples(desk, first),
                )
                self.status = gr.HTML(elem_id="tt-status", min_height=20)
                with gr.Row(elem_id="tt-ask", elem_classes="tt-ask"):
                    self.box = gr.Textbox(
                        label=i18n("message"),
                        show_label=False,
                        container=False,
                        placeholder=i18n("message_hint"),
                        elem_id="tt-message",
                        lines=1,
                        max_lines=8,
                        scale=1,
                    )
                    self.send = gr.Button(i18n("send"), variant="primary", elem_id="tt-send", scale=0)
                    self.stop = gr.Button(i18n("stop"), variant="stop", elem_id="tt-stop", scale=0, visible=False)
            with gr.Column(scale=3, min_width=240), gr.Accordion(i18n("decoding"), open=True, elem_id="tt-decoding"):
                self.controls = build_controls(desk.shelf.entries[first].bundle, desk.limits, i18n)
        self._wire(top, page)

    def _wire(self, top: Top, page: gr.Blocks) -> None:
        """Each way to ask begins at once and then waits in the queue for its answer."""
        chat, box = self.chat, self.box
        begun = [chat, box, self.send, self.stop]
        running = [
            self._asks(
                gr.on([box.submit, self.send.click], told(self._send), [box, chat, top.model], begun, **DOOR), top
            ),
            self._asks(chat.example_select(told(self._example), [chat, top.model], begun, **DOOR), top),
            self._asks(chat.edit(told(self._edit), [chat, top.model], begun, **DOOR), top),
            self._asks(chat.retry(told(self._retry), [chat, top.model], begun, **DOOR), top, again=True),
        ]
        chat.undo(told(self._undo), chat, [chat, box], **QUIET)
        ready = [self.send, self.stop]
        # The work ends first: what was still on its way would otherwise come after the word that it was stopped.
        halted = self.stop.click(None, cancels=running, **QUIET)
        halted.then(told(self._stopped), chat, [chat, *ready], **QUIET)
        cleared = chat.clear(None, cancels=running, **QUIET)
        cleared.then(lambda: ([], *_ready()), None, [chat, *ready], **QUIET)
        # Each model has a dialogue of its own, kept in the browser: these never reach the server.
        chat.change(None, [chat, top.model], None, js=KEEP, **QUIET)
        left = top.model.change(None, cancels=running, **QUIET)
        of_the_model = [self.controls[NAMES.index(name)] for name in OF_THE_MODEL]
        dressed = left.then(told(self._dress), top.model, [chat, *ready, *of_the_model], **QUIET)
        dressed.then(None, top.model, chat, js=RECALL, **QUIET)
        page.load(None, top.model, chat, js=RECALL, **QUIET)

    def _asks(self, begun: Any, top: Top, *, again: bool = False) -> Any:
        """Answer after a beginning that was not refused; then the box is ready for the next message."""
        answered = begun.success(
            told(self._answer_again if again else self._answer),
            [self.chat, top.model, top.backend, *self.controls],
            self.chat,
            preprocess=False,
            **in_turn(self._desk.limits.running, self.status),
        )
        answered.then(_ready, None, [self.send, self.stop], **QUIET)
        return answered

    def _send(self, message: object, shown: object, name: str, request: gr.Request) -> Begun:
        return self._begin(message, plain(shown), name, request)

    def _example(self, shown: object, name: str, event: gr.SelectData, request: gr.Request) -> Begun:
        text = event.value.get("text") if isinstance(event.value, dict) else event.value
        return self._begin(text, plain(shown), name, request)

    def _edit(self, shown: object, name: str, event: gr.EditData, request: gr.Request) -> Begun:
        index = event.index[0] if isinstance(event.index, list | tuple) else event.index
        text = original(event.value) if isinstance(event.value, str) else event.value
        return self._begin(text, plain(shown)[: int(index)], name, request)

    def _retry(self, shown: object, name: str, request: gr.Request) -> Begun:
        kept = up_to_last_question(shown)
        if not kept:
            raise Refused("refused_empty")
        return self._begin(message_text(kept[-1]), kept[:-1], name, request)

    def _undo(self, shown: object) -> tuple[list[Shown], str]:
        """Take the last question back into the box."""
        kept = up_to_last_question(shown)
        return (kept[:-1], message_text(kept[-1]) or "") if kept else ([], "")

    def _begin(self, message: object, shown: list[Shown], name: str, request: gr.Request) -> Begun:
        """Show the message and the place of its answer; refuse what cannot be answered."""
        text = self._desk.text(message)
        self._desk.shelf.bundle(name)
        self._desk.check_queue()
        pending = from_model("", pending_line(language_of(request)))
        return [*shown, from_visitor(text), pending], "", gr.Button(visible=False), gr.Button(visible=True)

    def _answer(self, request: gr.Request, shown: list[Shown], name: str, backend: str, *values: Any) -> Iterator[Any]:
        yield from self._answers(shown, name, backend, control_values(values), request)

    def _answer_again(
        self, request: gr.Request, shown: list[Shown], name: str, backend: str, *values: Any
    ) -> Iterator[Any]:
        controls = control_values(values)
        drawn_at = None
        if not controls["temperature"] and (controls["num_beams"] or 1) <= 1:
            controls["temperature"] = drawn_at = RETRY_TEMPERATURE
        yield from self._answers(shown, name, backend, controls, request, drawn_at)

    def _answers(
        self,
        shown: list[Shown],
        name: str,
        backend: str,
        controls: dict[str, Any],
        request: gr.Request,
        drawn_at: float | None = None,
    ) -> Iterator[list[Shown]]:
        language = language_of(request)
        kept = up_to_last_question(shown)
        with closing(self._desk.answers(name, backend, turns(kept), controls)) as answers:
            for answer in answers:
                line = pending_line(language)
                if answer.finish_reason is not None:
                    line = answer_line(answer, language, seconds=self._desk.limits.seconds, drawn_at=drawn_at)
                text = answer.text
                if answer.finish_reason is not None and not text.strip():
                    text = say(language, "line_empty")
                yield [*kept, from_model(text, line)]

    def _stopped(self, shown: object, request: gr.Request) -> tuple[list[Shown], gr.Button, gr.Button]:
        """The work has ended already; keep what came of it and say so."""
        messages = plain(shown)
        if messages and messages[-1].get("role") == "assistant":
            messages[-1] = from_model(message_text(messages[-1]) or "", stopped_line(language_of(request)))
        return messages, *_ready()

    def _dress(self, name: str, request: gr.Request) -> tuple[Any, ...]:
        """The welcome, the examples and the defaults of another model."""
        entry = self._desk.shelf.entry(name)
        placeholder = say(language_of(request), f"{entry.task}_placeholder")
        dressed = gr.Chatbot(placeholder=placeholder, examples=examples(self._desk, name))
        return dressed, *_ready(), *model_defaults(entry.bundle, self._desk.limits)


def _ready() -> tuple[gr.Button, gr.Button]:
    """Send instead of stop."""
    return gr.Button(visible=True), gr.Button(visible=False)


def examples(desk: Desk, name: str) -> list[Any]:
    """Messages to begin with, by what the model is for."""
    return [{"text": text} for text in EXAMPLES[desk.shelf.entries[name].task]]
