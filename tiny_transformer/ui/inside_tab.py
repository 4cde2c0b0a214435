"""The tab Look inside: tokens as chips, the odds of one of them, and the laboratory that takes the pass apart."""

import html
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gradio as gr

from tiny_transformer.checks import check_whole
from tiny_transformer.errors import BackendError, InputError, Sentence
from tiny_transformer.generation.prompt import Prompt, checked_ids
from tiny_transformer.text_model import TextModel
from tiny_transformer.ui.handlers import QUIET, language_of, user_errors
from tiny_transformer.ui.header import Header, PromptBox
from tiny_transformer.ui.i18n import Language, say, translated
from tiny_transformer.ui.inspection import (
    MAX_SHOWN,
    MAX_WRITTEN,
    Inspection,
    Maps,
    Written,
    attention_maps,
    chances,
    kinds_of,
    n_layers,
    position_table,
    prompt_of,
    read_answer,
)
from tiny_transformer.ui.laboratory import (
    Pass,
    attention_steps,
    box_of,
    box_values,
    lens,
    pass_over,
    query_of,
    switches_of,
)
from tiny_transformer.ui.laboratory_views import (
    ask,
    attention_table,
    head_grid,
    lens_overview,
    lens_table,
    odds_panel,
    signed_map,
    steps_view,
)
from tiny_transformer.ui.markup import empty, notes, percent, said, section
from tiny_transformer.ui.model_views import box_view, model_map, switch_board, without_view
from tiny_transformer.ui.service import NO_TEXT, PageService

MAX_ROOM = 1_000_000  # tokens; more than any context
NOT_KNOWN = Sentence("The tokens of that answer are not known; this is what the model writes now.")
# `laboratory.js` sends what a button asks through this.
ASKS = "element.ttAsk = (question) => trigger('select', question);"


def read_chips(inspection: Inspection, language: Language) -> str:
    """How the text was cut."""
    chips = "".join(f'<li class="tt-chip">{html.escape(token)}</li>' for token in inspection.read)
    body = f'<ol class="tt-chips">{chips}</ol>{notes(inspection.notices, language)}'
    return section(say(language, "inside_read"), body, said(language, "inside_read_info"))


def written_chips(inspection: Inspection, position: int, language: Language) -> str:
    """The answer, colored by doubt; the token at a position is the chosen one."""
    chips = "".join(_chip(i, token, i == position, language) for i, token in enumerate(inspection.written))
    ends = said(language, "inside_sure"), said(language, "inside_unsure")
    legend = f'<p class="tt-legend" aria-hidden="true">{ends[0]}<i></i>{ends[1]}</p>'
    body = f'{legend}<ol class="tt-chips">{chips}</ol>'
    return section(say(language, "inside_written"), body, said(language, "inside_written_info"))


def _chip(position: int, token: Written, chosen: bool, language: Language) -> str:
    name = html.escape(token.chosen.text)
    words = html.escape(
        say(language, "inside_token", token=token.chosen.text, percent=percent(token.chosen.probability))
    )
    return (
        f'<li><button type="button" class="tt-chip" data-chip="{position}" aria-pressed="{str(chosen).lower()}" '
        f'data-words="{words}" aria-label="{words}" {ask(position=position)} '
        f'style="--doubt:{1 - token.chosen.probability:.3f}">{name}</button></li>'
    )


AVERAGE = "average"  # instead of the number of one head


def attention_picture(maps: Maps, kind: str, layer: int, head: str, language: Language) -> str:
    """The chosen head, or the average of all in its layer."""
    weights = maps.weights[layer - 1]  # H T S
    chosen = weights.mean(axis=0) if head == AVERAGE else weights[int(head) - 1]
    cut = f'<p class="tt-note">{said(language, "shown_cut", n=len(maps.rows))}</p>' if maps.cut else ""
    intro = f'<p class="tt-intro">{said(language, f"attention_{kind}_info")} {said(language, "map_row_info")}</p>'
    return f"{intro}{cut}{attention_table(maps, chosen, kind, language)}"


def position_picture(model: TextModel, language: Language) -> str:
    """The positional encoding of the first positions."""
    table = position_table(model)
    words = say(language, f"positions_{model.config.positions}")
    body = ""
    if table is not None:
        axes = said(language, "positions_axes")
        body = f'{signed_map(table, words)}<p class="tt-words">{axes}</p>'
    return section(say(language, "positions"), body, said(language, f"positions_{model.config.positions}"))


class InsideTab:
    """The components and what happens between them. Of a visitor only the last text and its ids are kept.

    What is kept is a dictionary: text, name, backend, ids of the answer, whether they were given with it, the tokens
    that the prompt leaves room for, the chosen position of the answer, the row of the attention map whose steps are
    shown (None: that of the position), and the chosen box of the model's map.
    """

    def __init__(self, service: PageService, header: Header, i18n: gr.I18n) -> None:
        self._service = service
        prompt_box = PromptBox(service, header, "inside", i18n)
        self.read = gr.HTML(empty(i18n("inside_empty")), elem_id="tt-read")
        self.written = gr.HTML(elem_id="tt-written", js_on_load=ASKS)
        self.odds = gr.HTML(elem_id="tt-odds", js_on_load=ASKS)
        with gr.Column(visible=False, elem_id="tt-laboratory") as self.panel, gr.Tabs(elem_id="tt-views"):
            with gr.Tab(i18n("attention"), id="attention"):
                with gr.Row(elem_classes="tt-picks"):
                    self.kind = gr.Radio([], label=i18n("attention_kind"), elem_id="tt-kind", elem_classes="tt-choice")
                    self.layer = gr.Radio(
                        [], label=i18n("attention_layer"), elem_id="tt-layer", elem_classes="tt-choice"
                    )
                    self.head = gr.Radio([], label=i18n("attention_head"), elem_id="tt-head", elem_classes="tt-choice")
                with gr.Row(elem_classes="tt-side"):
                    self.grid = gr.HTML(elem_id="tt-grid", js_on_load=ASKS)
                    self.map = gr.HTML(elem_id="tt-map", js_on_load=ASKS)
                self.steps = gr.HTML(elem_id="tt-steps")
                self.positions = gr.HTML(elem_id="tt-positions")
            with gr.Tab(i18n("lens"), id="lens"):
                self.lens = gr.HTML(elem_id="tt-lens", js_on_load=ASKS)
                self.lens_one = gr.HTML(elem_id="tt-lens-one")
            with gr.Tab(i18n("map"), id="map"):
                self.boxes = gr.HTML(elem_id="tt-boxes", js_on_load=ASKS)
                self.box = gr.HTML(elem_id="tt-box")
            with gr.Tab(i18n("switch"), id="switch"):
                self.board = gr.HTML(elem_id="tt-board", js_on_load=ASKS)
                self.without = gr.HTML(elem_id="tt-without")
        self.seen = gr.State(None)
        self._wire(header, prompt_box)

    def _wire(self, header: Header, prompt_box: PromptBox) -> None:
        picks = [self.kind, self.layer, self.head]
        token = [self.odds, self.steps, self.lens_one, self.box]  # what belongs to one token of the answer
        fixed = [self.grid, self.map, self.positions, self.lens, self.boxes, self.board, self.without]
        shown = [self.read, self.written, self.seen, self.panel, *picks, *fixed, *token]
        asked = [prompt_box.box, header.model, header.backend, prompt_box.answer]
        prompt_box.answered_by(self._inspect, asked, shown)
        picked = [self.seen, *picks]
        quiet = {**prompt_box.work, "show_progress": "hidden"}
        self.odds.select(user_errors(self._other_way), picked, shown, **prompt_box.work)
        gr.on([self.written.select, self.lens.select], user_errors(self._token), picked, [self.seen, *token], **quiet)
        maps = [self.grid, self.map, self.steps]
        self.kind.input(user_errors(self._other_kind), picked, [self.seen, self.layer, *maps], **quiet)
        gr.on([self.layer.input, self.head.input], user_errors(self._maps), picked, maps, **quiet)
        self.grid.select(user_errors(self._other_head), picked, [self.layer, self.head, *maps], **quiet)
        self.map.select(user_errors(self._other_row), picked, [self.seen, self.steps], **quiet)
        self.boxes.select(user_errors(self._other_box), self.seen, [self.seen, self.boxes, self.box], **quiet)
        self.board.select(user_errors(self._switched), self.seen, self.without, **quiet)
        cleared = [self.read, self.written, self.odds, self.panel, self.seen]
        header.model.change(user_errors(self._clear), None, cleared, **QUIET)

    def _inspect(self, text: object, name: str, backend: str, answer: object, request: gr.Request) -> tuple[Any, ...]:
        """A text with the answer that came with it; without one, what the model writes now."""
        tokens = given_tokens(answer, self._service.store.bundle(name).config.n_outputs)
        seen = {"text": self._service.question(text), "name": name, "backend": backend, **tokens}
        return self._shown(seen, request, notices=() if tokens["given"] or not answer else (NOT_KNOWN,))

    def _other_way(
        self, seen: dict[str, Any] | None, kind: str, layer: str, head: str, event: gr.EventData, request: gr.Request
    ) -> tuple[Any, ...]:
        """Keep the answer up to a position, take another token there, and go on."""
        seen = _of_text(seen)
        position = _position(seen, event)
        n_outputs = self._service.store.bundle(seen["name"]).config.n_outputs
        token = check_whole("id", _asked(event, "id"), 0, n_outputs - 1, InputError)
        ids = [*seen["ids"][:position], token]
        seen = {**seen, "ids": ids, "given": False, "position": position, "query": None}
        return self._shown(seen, request, (kind, layer, head))

    def _shown(
        self,
        seen: dict[str, Any],
        request: gr.Request,
        picked: tuple[str, str, str] | None = None,
        notices: tuple[Sentence, ...] = (),
    ) -> tuple[Any, ...]:
        language = language_of(request)
        model, prompt = self._model(seen), self._prompt(seen)
        ids = seen["ids"][: model.config.max_length - len(prompt.prefix)]  # a browser may send what never fitted
        found = read_answer(model, prompt, ids) if seen["given"] and ids else self._service.inspect(model, prompt, ids)
        found = replace(found, notices=(*notices, *found.notices))
        # Of a new answer, the token that the model was least sure of is the one worth a look.
        doubtful = min(range(len(found.written)), key=lambda i: found.written[i].chosen.probability)
        seen = {"position": doubtful, "query": None, "box": "embedding", **seen, "ids": found.ids}
        kinds = kinds_of(model)
        kind, layer, head = picked or (kinds[0], str(n_layers(model, kinds[0])), AVERAGE)
        grid, picture, steps = self._maps(seen, kind, layer, head, request)
        overview = self._laboratory(seen, language, lambda look: self._overview(seen, look, found, language), 3)
        return (
            read_chips(found, language),
            written_chips(found, seen["position"], language),
            seen,
            gr.Column(visible=True),
            gr.Radio([(say(language, f"attention_{k}"), k) for k in kinds], value=kind),
            gr.Radio(_numbers(n_layers(model, kind)), value=layer),
            gr.Radio(_heads(model.config.n_heads, language), value=head),
            grid,
            picture,
            position_picture(model, language),
            *overview,
            "",
            *self._of_token(seen, found, steps, language),
        )

    def _token(
        self, seen: dict[str, Any] | None, kind: str, layer: str, head: str, event: gr.EventData, request: gr.Request
    ) -> tuple[Any, ...]:
        """Another token of the answer is chosen."""
        seen = _of_text(seen)
        seen = {**seen, "position": _position(seen, event), "query": None}
        found = read_answer(self._model(seen), self._prompt(seen), seen["ids"])
        steps = self._steps(seen, kind, layer, head, language_of(request))
        return seen, *self._of_token(seen, found, steps, language_of(request))

    def _of_token(self, seen: dict[str, Any], found: Inspection, steps: str, language: Language) -> tuple[str, ...]:
        position = seen["position"]
        token = found.written[position]
        odds = odds_panel(token, found.logits[position], position, language)

        def views(look: Pass) -> tuple[str, ...]:
            box = box_of(look.config, seen["box"])
            rows = [row for (row,) in lens(look, [position])]
            return lens_table(rows, token, language), box_view(box, box_values(look, box, position), look, language)

        return odds, steps, *self._laboratory(seen, language, views, 2, silent=True)

    def _overview(self, seen: dict[str, Any], look: Pass, found: Inspection, language: Language) -> tuple[str, ...]:
        rows = lens(look, range(len(found.written)))
        return (
            lens_overview(rows, found.written, language),
            model_map(look.config, seen["box"], language),
            switch_board(look.config, language),
        )

    def _laboratory(
        self,
        seen: dict[str, Any],
        language: Language,
        views: Callable[[Pass], tuple[str, ...]],
        n_views: int,
        *,
        silent: bool = False,
    ) -> tuple[str, ...]:
        """Views of one pass; where the folder has no graph for it, the sentence that says what adds it, or silence."""
        try:
            graph = self._service.store.inside(seen["name"])
        except BackendError as error:
            return ("" if silent else _note(error, language),) * n_views
        return views(pass_over(self._model(seen).tokenizer, graph, self._prompt(seen), seen["ids"]))

    def _other_kind(
        self, seen: dict[str, Any] | None, kind: str, layer: str, head: str, request: gr.Request
    ) -> tuple[Any, ...]:
        seen = {**_of_text(seen), "query": None}
        count = n_layers(self._model(seen), kind)
        layer = str(min(int(layer), count))
        return seen, gr.Radio(_numbers(count), value=layer), *self._maps(seen, kind, layer, head, request)

    def _other_head(
        self, seen: dict[str, Any] | None, kind: str, layer: str, head: str, event: gr.EventData, request: gr.Request
    ) -> tuple[Any, ...]:
        """A head of the grid is chosen."""
        model = self._model(_of_text(seen))
        layer = str(check_whole("layer", _asked(event, "layer"), 1, n_layers(model, kind), InputError))
        head = str(check_whole("head", _asked(event, "head"), 1, model.config.n_heads, InputError))
        return gr.Radio(value=layer), gr.Radio(value=head), *self._maps(seen, kind, layer, head, request)

    def _other_row(
        self, seen: dict[str, Any] | None, kind: str, layer: str, head: str, event: gr.EventData, request: gr.Request
    ) -> tuple[dict[str, Any], str]:
        """A row of the map is chosen: its steps are shown."""
        seen = {**_of_text(seen), "query": check_whole("row", _asked(event, "query"), 0, MAX_SHOWN - 1, InputError)}
        return seen, self._steps(seen, kind, layer, head, language_of(request))

    def _maps(
        self, seen: dict[str, Any] | None, kind: str, layer: str, head: str, request: gr.Request
    ) -> tuple[str, str, str]:
        """All heads small, one of them large, and its steps."""
        seen = _of_text(seen)
        language = language_of(request)
        try:
            maps = attention_maps(self._model(seen), self._prompt(seen), seen["ids"], kind)
        except BackendError as error:
            return _note(error, language), "", self._steps(seen, kind, layer, head, language)
        number = None if head == AVERAGE else int(head) - 1
        return (
            head_grid(maps.weights, kind, int(layer) - 1, number, language),
            attention_picture(maps, kind, int(layer), head, language),
            self._steps(seen, kind, layer, head, language),
        )

    def _steps(self, seen: dict[str, Any], kind: str, layer: str, head: str, language: Language) -> str:
        def view(look: Pass) -> tuple[str, ...]:
            query = query_of(look, kind, seen["position"]) if seen["query"] is None else seen["query"]
            at = int(layer) - 1, 0 if head == AVERAGE else int(head) - 1
            return (steps_view(attention_steps(look, kind, *at, query), kind, *at, language),)

        return self._laboratory(seen, language, view, 1)[0]

    def _other_box(self, seen: dict[str, Any] | None, event: gr.EventData, request: gr.Request) -> tuple[Any, ...]:
        """A box of the model's map is chosen."""
        seen = _of_text(seen)
        language = language_of(request)
        config = self._service.store.bundle(seen["name"]).config
        box = box_of(config, _asked(event, "box"))

        def views(look: Pass) -> tuple[str, ...]:
            found = box_values(look, box, seen["position"])
            return model_map(config, box.name, language), box_view(box, found, look, language)

        return {**seen, "box": box.name}, *self._laboratory(seen, language, views, 2)

    def _switched(self, seen: dict[str, Any] | None, event: gr.EventData, request: gr.Request) -> str:
        """Some parts are off: the model's answer beside that of what is left of it."""
        seen = _of_text(seen)
        graph = self._service.store.inside(seen["name"])
        off = _asked(event, "off")
        switches = switches_of(graph.config, off)
        if not off:
            return ""
        from tiny_transformer.backends.inside_graph import PartialBackend

        model, prompt = self._model(seen), self._prompt(seen)
        partial = TextModel(model.bundle, PartialBackend(graph, switches))
        # An answer that was given may have been drawn: what the two write is compared, both greedily.
        whole = self._service.inspect(model, prompt) if seen["given"] else read_answer(model, prompt, seen["ids"])
        found = self._service.inspect(partial, prompt)
        kept = chances(partial, prompt, whole.ids)
        return without_view(whole, found, kept, len(off), language_of(request))

    def _model(self, seen: dict[str, Any]) -> TextModel:
        return self._service.store.load(seen["name"], seen["backend"]).model

    def _prompt(self, seen: dict[str, Any]) -> Prompt:
        return prompt_of(self._model(seen), self._service.asked(seen["name"], seen["text"]), seen["room"])

    def _clear(self, request: gr.Request) -> tuple[str, str, str, gr.Column, None]:
        """Of another model nothing has been seen yet."""
        return empty(say(language_of(request), "inside_empty")), "", "", gr.Column(visible=False), None


def _note(error: BackendError, language: Language) -> str:
    return f'<p class="tt-note">{html.escape(translated(error.message, language))}</p>'


def given_tokens(answer: object, n_outputs: int) -> dict[str, Any]:
    """The tokens of an answer and the room it had; none where a browser did not send what it was given."""
    try:
        found = json.loads(answer) if isinstance(answer, str) else {}
        ids = checked_ids(found["ids"][: MAX_WRITTEN + 1], n_outputs)
        room = check_whole("room", found["room"], 1, MAX_ROOM, InputError)
        return {"ids": ids, "given": bool(ids), "room": room}
    except (KeyError, TypeError, ValueError, RecursionError, InputError):
        return {"ids": [], "given": False, "room": MAX_WRITTEN}


def _of_text(seen: dict[str, Any] | None) -> dict[str, Any]:
    """What was seen of a text; nothing can be chosen before there is one."""
    if seen is None:
        raise InputError(NO_TEXT)
    return seen


def _asked(event: gr.EventData, name: str) -> Any:
    """A value that a button of the page sends along; None where it is not there."""
    return getattr(event, name, None)


def _position(seen: dict[str, Any], event: gr.EventData) -> int:
    return check_whole("position", _asked(event, "position"), 0, len(seen["ids"]) - 1, InputError)


def _numbers(count: int) -> list[str]:
    return [str(n) for n in range(1, count + 1)]


def _heads(count: int, language: Language) -> list[tuple[str, str]]:
    return [(say(language, "attention_average"), AVERAGE)] + [(n, n) for n in _numbers(count)]
