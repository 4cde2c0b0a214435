"""The first tab: the chat or the translator, the decoding controls, and the list of conversations."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import gradio as gr

from tiny_transformer.errors import InputError, TinyTransformerError
from tiny_transformer.tokenizer import Message
from tiny_transformer.ui.answer_line import answer_line, stopped_line, working_line
from tiny_transformer.ui.controls import build_controls, defaults
from tiny_transformer.ui.handlers import QUIET, UNQUEUED, beside, in_turn, language_of, tell_begun, user_errors
from tiny_transformer.ui.header import Header, examples
from tiny_transformer.ui.i18n import say
from tiny_transformer.ui.service import FROM_MODEL, NO_TEXT, OFFERED, PageService
from tiny_transformer.ui.translator import TranslatorPane

# The chat shows HTML. An invisible character after "<" and "&" makes both plain text, which reads,
# copies and edits as it was written, and it is taken out again on the way back.
_JOINER = "\u2060"

Shown = dict[str, Any]  # a message as the chat component holds it


def literal(text: str) -> str:
    """Text that shows as it is, whatever it says."""
    return text.replace("\x00", "\ufffd").replace("<", "<" + _JOINER).replace("&", "&" + _JOINER)


def original(text: str) -> str:
    """The inverse of `literal`."""
    return text.replace("<" + _JOINER, "<").replace("&" + _JOINER, "&")


def from_visitor(text: str) -> Shown:
    """A visitor's message."""
    return {"role": "user", "content": [{"type": "text", "text": literal(text)}]}


def from_model(text: str, line: str) -> Shown:
    """An answer and the line under it."""
    return {"role": "assistant", "content": [{"type": "text", "text": literal(text)}, {"type": "text", "text": line}]}


def turns(shown: object) -> list[Message]:
    """The dialogue behind what is shown; whatever is not a message of ours is left out."""
    found: list[Message] = []
    for message in shown if isinstance(shown, Sequence) and not isinstance(shown, str) else ():
        text = message_text(message)
        if text is not None:
            found.append({"role": message["role"], "content": text})
    return found


def message_text(message: object) -> str | None:
    """What a shown message says, without its line."""
    if not isinstance(message, Mapping) or message.get("role") not in ("user", "assistant"):
        return None
    content = message.get("content")
    first = content[0] if isinstance(content, list) and content else content
    text = first.get("text") if isinstance(first, Mapping) else first
    return original(text) if isinstance(text, str) else None


def plain(shown: object) -> list[Shown]:
    """The messages a browser sent back, with nothing in them but text: what is shown again must not be a file."""
    return [
        {"role": message["role"], "content": [{"type": "text", "text": text} for text in _texts(message)]}
        for message in (shown if isinstance(shown, list) else ())
        if message_text(message) is not None
    ]


def _texts(message: Mapping[str, Any]) -> list[str]:
    content = message["content"] if isinstance(message["content"], list) else [message["content"]]
    found = [block.get("text") if isinstance(block, Mapping) else block for block in content]
    return [text for text in found if isinstance(text, str)]


def up_to_last_question(shown: object) -> list[Shown]:
    """What is shown without the answers after the last of the visitor's messages."""
    messages = plain(shown)
    while messages and messages[-1].get("role") != "user":
        messages.pop()
    return messages


def seconds_waited(shown: object) -> float:
    """How long ago the last message was sent; 0 where a browser sent back something else."""
    last = plain(shown)[-1:]
    found = re.search(r'data-began="(\d{1,12}\.\d{3})"', _texts(last[0])[-1]) if last else None
    waited = time.time() - float(found[1]) if found else 0.0
    return waited if 0 <= waited < 3600 else 0.0


# What `conversations.js` does: keep what is shown, and show again what was kept.
KEEP = "(shown, model) => tt.keep(shown, model)"
RECALL = "(model) => tt.recall(model)"
CHOSEN = "() => tt.shown()"
# A click on the list of conversations. It is the browser's alone to say what that shows.
CHOOSE = """
element.addEventListener('click', (event) => {
  const button = event.target.closest('button');
  if (button && tt.choose(button.dataset)) trigger('select');
});
"""

# The page's script takes a message out of the box when it is sent; one that is refused comes back.
HEARD = "(shown) => tt.announceLast(shown)"
SENT = "(_, shown, model) => [window.ttSent, shown, model]"
BACK = "(typed) => [[window.ttSent, typed].filter(Boolean).join(' ')]"

# The controls that a visitor has moved, by model.
KEEP_CONTROLS = """(model, ...values) => {
  try { localStorage.setItem("tiny-transformer.page/controls/" + model, JSON.stringify(values)); } catch (error) { }
}"""
RECALL_CONTROLS = """(model, ...values) => {
  try {
    const kept = JSON.parse(localStorage.getItem("tiny-transformer.page/controls/" + model));
    return Array.isArray(kept) && kept.length === values.length ? kept : values;
  } catch (error) { return values; }
}"""

RETRY_TEMPERATURE = 0.7  # a greedy answer would only come again

Begun = tuple[list[Shown], gr.Button, gr.Button]  # chat, send, stop


class ChatTab:
    """The components of the chat and what happens between them."""

    def __init__(self, service: PageService, header: Header, page: gr.Blocks, i18n: gr.I18n) -> None:
        self._service = service
        first = service.store.entry(service.store.default)
        with gr.Row(equal_height=False, elem_classes="tt-two"):
            away = ["tt-away"] if first.task == "translate" else []
            with gr.Column(scale=7, min_width=300, elem_id="tt-talk", elem_classes=["tt-tight", *away]):
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
                    placeholder=str(i18n(f"{first.task}_placeholder")) if first.task else "",
                    examples=[{"text": text} for text in examples(first)],
                )
                self.status = gr.HTML(elem_id="tt-status", elem_classes="tt-status")
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
            self.translator = TranslatorPane(service, i18n, away=first.task != "translate")
            with gr.Column(scale=3, min_width=240):
                with gr.Accordion(i18n("decoding"), open=True, elem_id="tt-decoding"):
                    self.controls = build_controls(first.bundle, service.limits, i18n)
                with gr.Accordion(i18n("conversations"), open=True, elem_id="tt-kept"):
                    self.list = gr.HTML(i18n("conversation_list"), elem_id="tt-conversations", js_on_load=CHOOSE)
        header.answers.extend([self.chat, self.translator.source])
        self._wire(header, page)

    def _wire(self, header: Header, page: gr.Blocks) -> None:
        """Each way to ask begins at once and then waits in the queue for its answer."""
        chat, box = self.chat, self.box
        begun = [chat, self.send, self.stop, self.status]

        def begins(handler: Callable[..., Begun]) -> Callable[..., Any]:
            return beside(handler, len(begun) - 1)

        asking = [box.submit, self.send.click]
        sent = gr.on(asking, begins(self._send), [box, chat, header.model], begun, js=SENT, **UNQUEUED)
        sent.failure(None, box, box, js=BACK, **QUIET)
        tell_begun(sent)
        asked = [chat, header.model]
        running = [
            self._answer_after(sent, header),
            self._answer_after(chat.example_select(begins(self._example), asked, begun, **UNQUEUED), header),
            self._answer_after(chat.edit(begins(self._edit), asked, begun, **UNQUEUED), header),
            self._answer_after(chat.retry(begins(self._retry), asked, begun, **UNQUEUED), header, again=True),
        ]
        chat.undo(user_errors(self._undo), chat, [chat, box], **QUIET)
        ready = [self.send, self.stop]
        # The work ends first: what was still on its way would otherwise come after the word that it was stopped.
        halted = self.stop.click(None, cancels=running, **QUIET)
        halted.then(user_errors(self._stopped), chat, [chat, *ready], **QUIET)
        cleared = chat.clear(None, cancels=running, **QUIET)
        cleared.then(lambda: ([], *_ready()), None, [chat, *ready], **QUIET)
        # Each model has conversations and controls of its own, kept in the browser: these never reach the server.
        chat.change(None, asked, None, js=KEEP, **QUIET)
        controls: list[Any] = self.controls
        moved = [control.input for control in controls]
        moved += [control.release for control in controls if isinstance(control, gr.Slider)]
        gr.on(moved, None, [header.model, *self.controls], None, js=KEEP_CONTROLS, **QUIET)
        running += self.translator.wire(header, self.controls)
        recalled = [chat, self.translator.source, self.translator.result]
        left = header.model.change(None, cancels=running, **QUIET)
        changed = [chat, *ready, *self.translator.rest, *self.controls]
        shown = left.then(user_errors(self._show_model), header.model, changed, **QUIET)
        # First the model that the visitor chose last time, then what was said with it.
        for opened in (shown.then, header.recalled(page).then):
            opened(None, header.model, recalled, js=RECALL, **QUIET)
            opened(None, [header.model, *self.controls], self.controls, js=RECALL_CONTROLS, **QUIET)
        chosen = self.list.select(None, cancels=running, **QUIET)
        chosen = chosen.then(None, None, recalled, js=CHOSEN, **QUIET)
        chosen.then(lambda: (*_ready(), "", *self.translator.ready()), None, [*ready, *self.translator.rest], **QUIET)

    def _answer_after(self, begun: Any, header: Header, *, again: bool = False) -> Any:
        """Answer after a beginning that was not refused; then the box is ready for the next message."""
        answered = begun.success(
            beside(self._answer_again if again else self._answer, 1),
            [self.chat, header.model, header.backend, *self.controls],
            [self.chat, self.status],
            preprocess=False,
            **in_turn(self._service.limits.running, self.status),
        )
        answered.then(_ready, None, [self.send, self.stop], **QUIET)
        answered.then(None, self.chat, None, js=HEARD, **QUIET)
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
            raise InputError(NO_TEXT)
        return self._begin(message_text(kept[-1]), kept[:-1], name, request)

    def _undo(self, shown: object) -> tuple[list[Shown], str]:
        """Take the last question back into the box."""
        kept = up_to_last_question(shown)
        return (kept[:-1], message_text(kept[-1]) or "") if kept else ([], "")

    def _begin(self, message: object, shown: list[Shown], name: str, request: gr.Request) -> Begun:
        """Show the message and an empty answer; refuse what cannot be answered."""
        text = self._service.text(message)
        self._service.store.bundle(name)
        self._service.check_queue()
        pending = from_model("", working_line(language_of(request), began=time.time()))
        return [*shown, from_visitor(text), pending], gr.Button(visible=False), gr.Button(visible=True)

    def _answer(self, request: gr.Request, shown: list[Shown], name: str, backend: str, *values: Any) -> Iterator[Any]:
        yield from self._answers(shown, name, backend, dict(zip(OFFERED, values, strict=True)), request)

    def _answer_again(
        self, request: gr.Request, shown: list[Shown], name: str, backend: str, *values: Any
    ) -> Iterator[Any]:
        controls = dict(zip(OFFERED, values, strict=True))
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
        waited, began = seconds_waited(shown), time.time()
        try:
            with closing(self._service.answers(name, backend, turns(kept), controls)) as answers:
                for answer in answers:
                    line = working_line(language, answer, began - waited)
                    if answer.finish_reason is not None:
                        limit = self._service.limits.seconds
                        line = answer_line(answer, language, seconds=limit, drawn_at=drawn_at, waited=waited)
                        line += say(language, "ways_on")
                    text = answer.text
                    if answer.finish_reason is not None and not text.strip():
                        text = say(language, "line_empty")
                    yield [*kept, from_model(text, line)]
        except TinyTransformerError:
            yield kept  # no answer stands there as if it were still coming
            raise

    def _stopped(self, shown: object, request: gr.Request) -> tuple[list[Shown], gr.Button, gr.Button]:
        """The work has ended already; keep what came of it and say so."""
        language, messages = language_of(request), plain(shown)
        if messages and messages[-1].get("role") == "assistant":
            text, *lines = _texts(messages[-1])
            line = stopped_line(language, "".join(lines))
            messages[-1] = from_model(original(text), line + (say(language, "ways_on") if text.strip() else ""))
        return messages, *_ready()

    def _show_model(self, name: str, request: gr.Request) -> tuple[Any, ...]:
        """The welcome, the examples and the defaults of another model."""
        entry = self._service.store.entry(name)
        placeholder = say(language_of(request), f"{entry.task}_placeholder") if entry.task else ""
        chat = gr.Chatbot(placeholder=placeholder, examples=[{"text": text} for text in examples(entry)])
        values = defaults(entry.bundle, self._service.limits)
        controls = (value if name in FROM_MODEL else gr.skip() for name, value in values.items())
        return chat, *_ready(), "", *self.translator.ready(), *controls


def _ready() -> tuple[gr.Button, gr.Button]:
    """Send instead of stop."""
    return gr.Button(visible=True), gr.Button(visible=False)
