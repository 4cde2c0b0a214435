"""Tokens as chips: what was read, and what was written with how sure the model was of it."""

import html
from typing import Any

import gradio as gr

from tiny_transformer.checks import check_whole
from tiny_transformer.errors import InputError
from tiny_transformer.text_model import TextModel
from tiny_transformer.ui.handlers import QUIET, language_of, user_errors
from tiny_transformer.ui.header import Header, PromptBox
from tiny_transformer.ui.i18n import Language, say
from tiny_transformer.ui.inspection import Inspection, Maps, Written, attention_maps, kinds_of, n_layers, position_table
from tiny_transformer.ui.markup import SCRIPT as MAP_SCRIPT
from tiny_transformer.ui.markup import attention_map, empty, notes, percent, said, section, signed_map, thumbnail
from tiny_transformer.ui.service import NO_TEXT, PageService

# A chip opens the list of its alternatives; an alternative asks the server to go on from it. The list then closes,
# so the keyboard is led back to the chip.
CHIP_SCRIPT = """
element.addEventListener('click', (event) => {
  const other = event.target.closest('[data-id]');
  if (other) {
    trigger('select', {position: Number(other.dataset.position), id: Number(other.dataset.id)});
    element.querySelector(`[data-chip="${other.dataset.position}"]`).focus();
    return;
  }
  const chip = event.target.closest('[data-chip]');
  if (!chip) return;
  const open = chip.getAttribute('aria-expanded') === 'true';
  element.querySelectorAll('[data-chip]').forEach((c) => c.setAttribute('aria-expanded', 'false'));
  element.querySelectorAll('[data-panel]').forEach((p) => { p.hidden = true; });
  if (open) return;
  chip.setAttribute('aria-expanded', 'true');
  const panel = element.querySelector(`[data-panel="${chip.dataset.chip}"]`);
  if (panel) panel.hidden = false;
});
"""


def read_chips(inspection: Inspection, language: Language) -> str:
    """How the text was cut."""
    chips = "".join(f'<li class="tt-chip">{html.escape(token)}</li>' for token in inspection.read)
    body = f'<ol class="tt-chips">{chips}</ol>{notes(inspection.notices, language)}'
    return section(say(language, "inside_read"), body, said(language, "inside_read_info"))


def written_chips(inspection: Inspection, language: Language) -> str:
    """The answer, colored by doubt; each token with a list of alternatives that stays closed until asked for."""
    chips = "".join(_chip(position, token, language) for position, token in enumerate(inspection.written))
    panels = "".join(_panel(position, token, language) for position, token in enumerate(inspection.written))
    ends = said(language, "inside_sure"), said(language, "inside_unsure")
    legend = f'<p class="tt-legend" aria-hidden="true">{ends[0]}<i></i>{ends[1]}</p>'
    body = f'{legend}<ol class="tt-chips">{chips}</ol>{panels}'
    return section(say(language, "inside_written"), body, said(language, "inside_written_info"))


def _chip(position: int, token: Written, language: Language) -> str:
    name = html.escape(token.chosen.text)
    words = html.escape(
        say(language, "inside_token", token=token.chosen.text, percent=percent(token.chosen.probability))
    )
    return (
        f'<li><button type="button" class="tt-chip" data-chip="{position}" aria-expanded="false" title="{words}" '
        f'aria-label="{words}" style="--doubt:{1 - token.chosen.probability:.3f}">{name}</button></li>'
    )


def _panel(position: int, token: Written, language: Language) -> str:
    rows = "".join(
        f'<li><button type="button" data-position="{position}" data-id="{choice.id}"'
        f"{' class=tt-chosen' if choice.id == token.chosen.id else ''}>"
        f"<span>{html.escape(choice.text)}</span><i style='width:{100 * choice.probability:.1f}%'></i>"
        f"<b>{percent(choice.probability)}</b></button></li>"
        for choice in token.alternatives
    )
    title = said(language, "alternatives", token=token.chosen.text)
    return (
        f'<div class="tt-panel" data-panel="{position}" hidden><h3>{title}</h3>'
        f'<p class="tt-intro">{said(language, "alternatives_info")}</p><ol>{rows}</ol></div>'
    )


AVERAGE, ALL = "average", "all"  # instead of the number of one head


def attention_pictures(maps: Maps, kind: str, layer: int, head: str, language: Language) -> str:
    """The chosen head large, or every head small."""
    weights = maps.weights[layer - 1]  # H T S
    if head == ALL:
        names = [f"{say(language, 'attention_head')} {n}" for n in range(1, len(weights) + 1)]
        pictures = "".join(thumbnail(w, name) for w, name in zip(weights, names, strict=True))
        body = f'<div class="tt-heads">{pictures}</div>'
    else:
        chosen = weights.mean(axis=0) if head == AVERAGE else weights[int(head) - 1]
        body = attention_map(chosen, maps.rows, maps.columns, language)
    cut = f'<p class="tt-note">{said(language, "shown_cut", n=len(maps.rows))}</p>' if maps.cut else ""
    return f'<p class="tt-intro">{said(language, f"attention_{kind}_info")}</p>{cut}{body}'


def position_picture(model: TextModel, language: Language) -> str:
    """The positional encoding of the first positions."""
    table = position_table(model)
    words = say(language, f"positions_{model.config.positions}")
    body = ""
    if table is not None:
        axes = said(language, "positions_axes")
        body = f'<div class="tt-scroll">{signed_map(table, words)}</div><p class="tt-words">{axes}</p>'
    return section(say(language, "positions"), body, said(language, f"positions_{model.config.positions}"))


class InsideTab:
    """The components and what happens between them. Of a visitor only the last text and its ids are kept."""

    def __init__(self, service: PageService, header: Header, i18n: gr.I18n) -> None:
        self._service = service
        prompt_box = PromptBox(service, header, "inside", i18n)
        self.read = gr.HTML(empty(i18n("inside_empty")), elem_id="tt-read")
        self.written = gr.HTML(elem_id="tt-written", js_on_load=CHIP_SCRIPT)
        with gr.Column(visible=False, elem_id="tt-attention") as self.panel:
            self.heading = gr.HTML(f"<h2>{i18n('attention')}</h2>", elem_classes="tt-heading")
            with gr.Row(elem_classes="tt-picks"):
                self.kind = gr.Radio([], label=i18n("attention_kind"), elem_id="tt-kind", elem_classes="tt-choice")
                self.layer = gr.Radio([], label=i18n("attention_layer"), elem_id="tt-layer", elem_classes="tt-choice")
                self.head = gr.Radio([], label=i18n("attention_head"), elem_id="tt-head", elem_classes="tt-choice")
            self.map = gr.HTML(elem_id="tt-map", js_on_load=MAP_SCRIPT)
            self.positions = gr.HTML(elem_id="tt-positions")
        self.seen = gr.State(None)
        self._wire(header, prompt_box)

    def _wire(self, header: Header, prompt_box: PromptBox) -> None:
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
        prompt_box.answered_by(self._inspect, [prompt_box.box, header.model, header.backend], shown)
        picked = [self.seen, self.kind, self.layer, self.head]
        self.written.select(user_errors(self._other_way), picked, shown, **prompt_box.work)
        quiet = {**prompt_box.work, "show_progress": "hidden"}
        self.kind.input(user_errors(self._other_kind), picked, [self.layer, self.map], **quiet)
        gr.on([self.layer.input, self.head.input], user_errors(self._map), picked, self.map, **quiet)
        header.model.change(user_errors(self._clear), None, [self.read, self.written, self.panel, self.seen], **QUIET)

    def _inspect(self, text: object, name: str, backend: str, request: gr.Request) -> tuple[Any, ...]:
        return self._shown({"text": self._service.question(text), "name": name, "backend": backend, "ids": []}, request)

    def _other_way(
        self, seen: dict[str, Any] | None, kind: str, layer: str, head: str, event: gr.EventData, request: gr.Request
    ) -> tuple[Any, ...]:
        """Keep the answer up to a position, take another token there, and go on."""
        seen = _of_text(seen)
        position = check_whole("position", event.position, 0, len(seen["ids"]) - 1, InputError)
        n_outputs = self._service.store.bundle(seen["name"]).config.n_outputs
        token = check_whole("id", event.id, 0, n_outputs - 1, InputError)
        return self._shown({**seen, "ids": [*seen["ids"][:position], token]}, request, (kind, layer, head))

    def _shown(
        self, seen: dict[str, Any], request: gr.Request, picked: tuple[str, str, str] | None = None
    ) -> tuple[Any, ...]:
        language = language_of(request)
        model = self._service.store.load(seen["name"], seen["backend"]).model
        found = self._service.inspect(model, self._service.asked(seen["name"], seen["text"]), seen["ids"])
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
        seen = _of_text(seen)
        count = n_layers(self._service.store.load(seen["name"], seen["backend"]).model, kind)
        layer = str(min(int(layer), count))
        return gr.Radio(_numbers(count), value=layer), self._map(seen, kind, layer, head, request)

    def _map(self, seen: dict[str, Any] | None, kind: str, layer: str, head: str, request: gr.Request) -> str:
        seen = _of_text(seen)
        model = self._service.store.load(seen["name"], seen["backend"]).model
        maps = attention_maps(model, self._service.asked(seen["name"], seen["text"]), seen["ids"], kind)
        return attention_pictures(maps, kind, int(layer), head, language_of(request))

    def _clear(self, request: gr.Request) -> tuple[str, str, gr.Column, None]:
        """Of another model nothing has been seen yet."""
        return empty(say(language_of(request), "inside_empty")), "", gr.Column(visible=False), None


def _of_text(seen: dict[str, Any] | None) -> dict[str, Any]:
    """What was seen of a text; nothing can be chosen before there is one."""
    if seen is None:
        raise InputError(NO_TEXT)
    return seen


def _numbers(count: int) -> list[str]:
    return [str(n) for n in range(1, count + 1)]


def _heads(count: int, language: Language) -> list[tuple[str, str]]:
    named = [(say(language, f"attention_{name}"), name) for name in (AVERAGE, ALL)]
    return named + [(n, n) for n in _numbers(count)]
