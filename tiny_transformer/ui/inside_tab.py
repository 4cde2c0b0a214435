"""Look inside: tokens with their probabilities, other ways to go on, attention and positions."""

from typing import Any

import gradio as gr

from tiny_transformer.ui.ask import Ask
from tiny_transformer.ui.desk import Desk
from tiny_transformer.ui.handlers import QUIET, language_of, told
from tiny_transformer.ui.heatmap import SCRIPT as MAP_SCRIPT
from tiny_transformer.ui.inside import attention_maps, kinds_of, n_layers
from tiny_transformer.ui.languages import Language
from tiny_transformer.ui.markup import empty
from tiny_transformer.ui.pictures import ALL, AVERAGE, attention_pictures, position_picture
from tiny_transformer.ui.strings import say
from tiny_transformer.ui.tokens_view import SCRIPT as CHIP_SCRIPT
from tiny_transformer.ui.tokens_view import read_chips, written_chips
from tiny_transformer.ui.top import Top
from tiny_transformer.ui.wishes import Refused


class InsideTab:
    """The components and what happens between them. Of a visitor only the last text and its ids are kept."""

    def __init__(self, desk: Desk, top: Top, i18n: gr.I18n) -> None:
        self._desk = desk
        ask = Ask(desk, top, "inside", i18n)
        self.read = gr.HTML(empty(i18n("inside_empty")), elem_id="tt-read")
        self.written = gr.HTML(elem_id="tt-written", js_on_load=CHIP_SCRIPT)
        with gr.Column(visible=False, elem_id="tt-attention") as self.panel:
            self.heading = gr.HTML(f"<h3>{i18n('attention')}</h3>", elem_classes="tt-heading")
            with gr.Row(elem_classes="tt-picks"):
                self.kind = gr.Radio([], label=i18n("attention_kind"), elem_id="tt-kind", elem_classes="tt-choice")
                self.layer = gr.Radio([], label=i18n("attention_layer"), elem_id="tt-layer", elem_classes="tt-choice")
                self.head = gr.Radio([], label=i18n("attention_head"), elem_id="tt-head", elem_classes="tt-choice")
            self.map = gr.HTML(elem_id="tt-map", js_on_load=MAP_SCRIPT)
            self.positions = gr.HTML(elem_id="tt-positions")
        self.seen = gr.State(None)
        self._wire(top, ask)

    def _wire(self, top: Top, ask: Ask) -> None:
        shown = [
            self.read,
            self.written,
            self.seen,
            self.panel,
            self.kind,
            self.layer,
            self.head,
            self.map,
            self.positions,
        ]
        ask.answered_by(self._look, [ask.box, top.model, top.backend], shown)
        picked = [self.seen, self.kind, self.layer, self.head]
        self.written.select(told(self._other_way), picked, shown, **ask.work)
        quiet = {**ask.work, "show_progress": "hidden"}
        self.kind.input(told(self._other_kind), picked, [self.layer, self.map], **quiet)
        gr.on([self.layer.input, self.head.input], told(self._map), picked, self.map, **quiet)
        top.model.change(told(self._clear), None, [self.read, self.written, self.panel, self.seen], **QUIET)

    def _look(self, text: object, name: str, backend: str, request: gr.Request) -> tuple[Any, ...]:
        return self._shown({"text": self._desk.text(text), "name": name, "backend": backend, "ids": []}, request)

    def _other_way(
        self, seen: dict[str, Any] | None, kind: str, layer: str, head: str, event: gr.EventData, request: gr.Request
    ) -> tuple[Any, ...]:
        """Keep the answer up to a place, take another token there, and go on."""
        if seen is None:
            raise Refused("refused_empty")
        place, token = int(event.place), int(event.id)
        if not 0 <= place < len(seen["ids"]):
            raise Refused("refused_number", name="place", value=place)
        return self._shown({**seen, "ids": [*seen["ids"][:place], token]}, request, (kind, layer, head))

    def _shown(
        self, seen: dict[str, Any], request: gr.Request, picked: tuple[str, str, str] | None = None
    ) -> tuple[Any, ...]:
        language = language_of(request)
        model = self._desk.shelf.load(seen["name"], seen["backend"]).model
        found = self._desk.look(model, self._desk.asked(seen["name"], seen["text"]), seen["ids"])
        seen = {**seen, "ids": found.ids}
        kinds = kinds_of(model)
        kind, layer, head = picked or (kinds[0], str(n_layers(model, kinds[0])), AVERAGE)
        return (
            read_chips(found, language),
            written_chips(found, language),
            seen,
            gr.Column(visible=True),
            gr.Radio([(say(language, f"attention_{k}"), k) for k in kinds], value=kind),
            gr.Radio(_numbers(n_layers(model, kind)), value=layer),
            gr.Radio(_heads(model.config.n_heads, language), value=head),
            self._map(seen, kind, layer, head, request),
            position_picture(model, language),
        )

    def _other_kind(
        self, seen: dict[str, Any] | None, kind: str, layer: str, head: str, request: gr.Request
    ) -> tuple[gr.Radio, str]:
        if seen is None:
            raise Refused("refused_empty")
        count = n_layers(self._desk.shelf.load(seen["name"], seen["backend"]).model, kind)
        layer = str(min(int(layer), count))
        return gr.Radio(_numbers(count), value=layer), self._map(seen, kind, layer, head, request)

    def _map(self, seen: dict[str, Any] | None, kind: str, layer: str, head: str, request: gr.Request) -> str:
        if seen is None:
            raise Refused("refused_empty")
        model = self._desk.shelf.load(seen["name"], seen["backend"]).model
        maps = attention_maps(model, self._desk.asked(seen["name"], seen["text"]), seen["ids"], kind)
        return attention_pictures(maps, kind, int(layer), head, language_of(request))

    def _clear(self, request: gr.Request) -> tuple[str, str, gr.Column, None]:
        """Of another model nothing has been seen yet."""
        return empty(say(language_of(request), "inside_empty")), "", gr.Column(visible=False), None


def _numbers(count: int) -> list[str]:
    return [str(n) for n in range(1, count + 1)]


def _heads(count: int, language: Language) -> list[tuple[str, str]]:
    named = [(say(language, f"attention_{name}"), name) for name in (AVERAGE, ALL)]
    return named + [(n, n) for n in _numbers(count)]
