"""What the tabs share: the head of the page with the choice of model and backend, and the box for one text."""

import html
import inspect
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import gradio as gr
from gradio.components import Component

from tiny_transformer.ui.handlers import QUIET, UNQUEUED, beside, in_turn, language_of, user_errors
from tiny_transformer.ui.i18n import Language, say, translated
from tiny_transformer.ui.markup import notes, said
from tiny_transformer.ui.models import ModelEntry, ModelStore
from tiny_transformer.ui.service import PageService

_ROOM = '<details class="tt-missing tt-room"><summary>&nbsp;</summary></details>'


@dataclass(frozen=True)
class Header:
    """The components every tab reads."""

    model: gr.Radio
    backend: gr.Dropdown
    # For each tab that takes a question over from the first one, what is pressed then, and where the question is.
    carry: dict[str, gr.Button]
    answers: list[Component] = field(default_factory=list)

    def recalled(self, page: gr.Blocks) -> Any:
        """When the page opens: the model that the visitor chose last time."""
        return page.load(None, self.model, self.model, js="(model) => [tt.preferredModel(model)]", **QUIET)


def build_header(service: PageService, page: gr.Blocks, i18n: gr.I18n) -> Header:
    """Title on the left, choices on the right; below them whatever is not available, and why."""
    store, first = service.store, service.store.default
    with gr.Row(elem_id="tt-top", equal_height=False):
        with gr.Column(scale=5, min_width=260):
            gr.HTML(i18n("heading"), elem_id="tt-title")
            gr.HTML(_page_choices(store, i18n, service.limits.characters), elem_id="tt-page-choices")
            carry = {tab: gr.Button("", elem_id=f"tt-carry-{tab}", visible="hidden") for tab in ("compare", "inside")}
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
            missing = gr.HTML(_ROOM if availability(store, first, "en") else "", elem_id="tt-availability")

    def on_model(name: str, wanted: object, request: gr.Request) -> tuple[gr.Dropdown, str]:
        language, runnable = language_of(request), _runnable(store, name)
        choices = [("backend_auto", "auto")] + [(f"backend_{b}", b) for b in runnable]
        named = [(say(language, key), value) for key, value in choices]
        return gr.Dropdown(named, value=wanted if wanted in runnable else "auto"), availability(store, name, language)

    # What was chosen is kept in the browser; which backend a model had there, the server checks again.
    chosen: dict[str, Any] = {
        "inputs": [model, backend],
        "outputs": [backend, missing],
        "js": RECALL_BACKEND,
        "preprocess": False,
    }
    model.change(user_errors(on_model), **chosen, **QUIET)
    page.load(user_errors(on_model), **chosen, **QUIET)
    model.input(None, model, None, js="(model) => { tt.prefer('model', model); }", **QUIET)
    keep = "(model, backend) => { tt.prefer('backend/' + model, backend); }"
    backend.input(None, [model, backend], None, js=keep, **QUIET)
    return Header(model, backend, carry)


RECALL_BACKEND = "(model, backend) => [model, tt.preferred('backend/' + model, 'auto')]"


def _page_choices(store: ModelStore, i18n: gr.I18n, characters: int) -> str:
    """Language and colors of the whole page; and for the browser how long a text may be and what a model is for."""
    languages = "".join(
        f'<button type="button" data-language="{tag}" lang="{tag}">{name}</button>' for tag, name in _LANGUAGES.items()
    )
    colors = f'<button type="button" data-colors><span class="tt-unseen">{i18n("colors")}</span></button>'
    tasks = html.escape(json.dumps({name: entry.task for name, entry in store.entries.items()}))
    heard = '<p id="tt-heard" class="tt-unseen" role="status"></p>'  # each answer once, when it is complete
    return f'<div data-characters="{characters}" data-tasks="{tasks}">{languages}{colors}</div>{heard}'


_LANGUAGES = {"en": "English", "zh": "中文"}  # each in its own words


def availability(store: ModelStore, name: str, language: Language) -> str:
    """What is wrong with the model, what self-tests found, and which backends cannot run it here and why."""
    entry = store.entry(name)
    if entry.problem is not None:
        sentence = say(language, "model_problem", problem=translated(entry.problem, language))
        return f'<p class="tt-problem" role="alert">{html.escape(sentence)}</p>'
    reasons = {backend: reason for backend, reason in store.backends(name).items() if reason is not None}
    warnings = [loaded.model.warning for loaded in store.loaded(name).values() if loaded.model.warning is not None]
    if not reasons:
        return notes(warnings, language)
    items = "".join(
        f"<li><b>{said(language, f'backend_{backend}')}</b>: {html.escape(translated(reason, language))}</li>"
        for backend, reason in reasons.items()
    )
    summary = said(language, "backend_missing", n=len(reasons))
    return (
        f'{notes(warnings, language)}<details class="tt-missing"><summary>{summary}</summary><ul>{items}</ul></details>'
    )


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


EXAMPLES = {
    "chat": ("Hello! How are you today?", "Tell me a joke.", "Tell me a story."),
    "translate": (
        "Guten Morgen! Wie geht es dir?",
        "我明天要去北京。",
        "Der Hund schläft unter dem Tisch.",
        "Vielen Dank für deinen Brief!\n\nWir kommen am Samstag. Die Kinder freuen sich schon sehr.\n\nBis bald",
    ),
    "complete": ("Once upon a time", "The little fox", "One day"),
}


def examples(entry: ModelEntry) -> tuple[str, ...]:
    """Texts to begin with, by what the model is for; none for a folder that does not open."""
    return EXAMPLES[entry.task] if entry.task else ()


def swap_script(store: ModelStore, tab: str) -> str:
    """For the browser, when another model is chosen: the text that the visitor had for it, at first its example."""
    first = {name: next(iter(examples(entry)), "") for name, entry in store.entries.items()}
    return f"""(text, model) => {{
      const tabs = window.ttTexts ??= {{}};
      const tab = tabs[{json.dumps(tab)}] ??= {{ texts: {json.dumps(first)}, model: {json.dumps(store.default)} }};
      tab.texts[tab.model] = text;
      tab.model = model;
      return [tab.texts[model]];
    }}"""


CARRIED = "(shown, source, model) => tt.question(shown, source, model)"
SEEN = "(before) => ({ visible: Boolean(before), __type__: 'update' })"


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
        self.before = gr.Textbox(visible="hidden", label=i18n(f"{name}_text"))  # what was said before it, as JSON
        self.answer = gr.Textbox(visible="hidden", label=i18n(f"{name}_text"))  # whose tokens came with it, as JSON
        self.alone = gr.Button(i18n("carried"), elem_id=f"tt-{name}-alone", elem_classes="tt-carried", visible=False)
        self.status = gr.HTML(elem_id=f"tt-{name}-status", elem_classes="tt-status")
        self._carried = header.carry[name].click(
            None, [*header.answers, header.model], [self.box, self.before, self.answer], js=CARRIED, **QUIET
        )
        self.before.change(None, self.before, self.alone, js=SEEN, **QUIET)
        gr.on([self.alone.click, header.model.change], None, None, self.before, js="() => ['']", **QUIET)
        # In the browser, at once: what a visitor writes meanwhile must not be overwritten.
        swap = swap_script(service.store, name)
        header.model.change(None, [self.box, header.model], self.box, js=swap, **QUIET)

    def answered_by(
        self, handler: Callable[..., Any], inputs: Sequence[Component], outputs: Sequence[Component]
    ) -> None:
        """Refuse what cannot be answered at once; whatever may enter gets its answer in turn.

        The first input is the box. Where a conversation came with its text, the handler gets both as one dialogue.
        """
        answer = beside(self._with_conversation(handler), len(outputs))
        asks = [self.run.click, self.box.submit]
        asked = [self.box, self.before]
        entered = gr.on(asks, beside(self._enter_anew, 1), asked, [self.answer, self.status], **UNQUEUED)
        carried = self._carried.then(beside(self._enter, 0), asked, self.status, **UNQUEUED)
        for entering in (entered, carried):
            entering.success(answer, [*inputs, self.before], [*outputs, self.status], **self.work)

    def _with_conversation(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """The handler with one input more, the last: what was said before."""

        def asked(values: tuple[Any, ...]) -> list[Any]:
            *given, before = values
            place = next(n for n, value in enumerate(given) if not isinstance(value, gr.Request))
            given[place] = self._asked(given[place], before)
            return given

        if inspect.isgeneratorfunction(handler):

            @wraps(handler)
            def answer(*values: Any) -> Any:
                with closing(handler(*asked(values))) as states:
                    yield from states
        else:

            @wraps(handler)
            def answer(*values: Any) -> Any:
                return handler(*asked(values))

        own = inspect.signature(handler)
        last = inspect.Parameter("before", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        answer.__signature__ = own.replace(parameters=[*own.parameters.values(), last])  # type: ignore[attr-defined]
        return answer

    def _asked(self, text: object, before: object) -> object:
        if not isinstance(before, str) or not before:
            return text
        try:
            return [*json.loads(before), {"role": "user", "content": text}]
        except (ValueError, TypeError, RecursionError):
            return text  # a browser sent something else than it was given

    @property
    def work(self) -> dict[str, Any]:
        """How the tab's work waits."""
        return in_turn(self._service.limits.running, self.status)

    def _enter_anew(self, text: object, before: object, request: gr.Request) -> str:
        """A text that was typed has no answer yet."""
        self._enter(text, before, request)
        return ""

    def _enter(self, text: object, before: object, request: gr.Request) -> None:
        self._service.question(self._asked(text, before))
        self._service.check_queue()
