"""A race as HTML: a card for each backend while it runs, then the table and the verdict."""

import html
from collections.abc import Iterator, Sequence
from contextlib import closing

import gradio as gr

from tiny_transformer.ui.comparison import Judgement, Lane, Race
from tiny_transformer.ui.handlers import QUIET, language_of, told
from tiny_transformer.ui.header import Top
from tiny_transformer.ui.i18n import Language, say, translated
from tiny_transformer.ui.markup import empty, notes, table
from tiny_transformer.ui.prompt_box import Ask
from tiny_transformer.ui.service import Desk

_COLOURS = {"equal": "good", "tie": "fair", "differ": "bad", "alone": "fair"}


def lanes(race: Race, language: Language) -> str:
    """The cards, side by side where there is room."""
    most = max((len(lane.ids) for lane in race.lanes), default=0) or 1
    cards = "".join(_card(lane, most, language) for lane in race.lanes)
    return f'{notes(race.notices, language)}<div class="tt-lanes">{cards}</div>'


def _card(lane: Lane, most: int, language: Language) -> str:
    name = html.escape(say(language, f"backend_{lane.backend}"))
    state = say(language, f"compare_{lane.state}")
    if lane.ids:
        state = say(language, "line_tokens", n=len(lane.ids))
    text = html.escape(lane.text) if lane.problem is None else html.escape(translated(lane.problem, language))
    share = round(100 * len(lane.ids) / most)
    return (
        f'<section class="tt-lane tt-{lane.state}"><h3>{name}</h3>'
        f'<div class="tt-track"><i style="width:{share}%"></i></div>'
        f"<small>{html.escape(state)}</small><p>{text}</p></section>"
    )


def verdict(race: Race, language: Language) -> str:
    """The judgement in words and colour, with a table of what it rests on."""
    if not race.finished:
        return ""
    words = _words(race, language)
    return (
        f'<p class="tt-verdict tt-{_COLOURS[race.verdict]}" role="status">{html.escape(words)}</p>'
        f"{_table(race, language)}"
    )


def _words(race: Race, language: Language) -> str:
    judged = [judgement for judgement in race.judgements if judgement.passed is not None]
    name = say(language, f"backend_{race.reference}")
    if race.verdict == "alone":
        words = say(language, "verdict_alone", name=name)
    elif race.verdict == "differ":
        worst = max((j for j in judged if not j.passed), key=lambda j: j.max_difference)
        words = say(
            language,
            "verdict_differ",
            name=say(language, f"backend_{worst.backend}"),
            value=number(worst.max_difference),
            tolerance=number(worst.tolerance),
        )
    elif race.verdict == "tie":
        words = say(language, "verdict_tie", n=min(j.first_difference for j in judged if j.first_difference))
    else:
        words = say(
            language,
            "verdict_equal",
            n=len(judged) + 1,
            tokens=len(race.lane(race.reference).ids),
            value=number(max(j.max_difference for j in judged)),
        )
    rounded = any(judgement.passed is None for judgement in race.judgements)
    return words + (say(language, "verdict_int8") if rounded else "")


def _table(race: Race, language: Language) -> str:
    names = ("backend", "text", "difference", "speed", "first", "memory")
    heads = [say(language, f"column_{name}") for name in names]
    judgements = {judgement.backend: judgement for judgement in race.judgements}
    rows = [_row(lane, judgements.get(lane.backend), heads[1:], race, language) for lane in race.lanes]
    return table(heads, rows, stacks=True)


def _row(lane: Lane, judgement: Judgement | None, heads: Sequence[str], race: Race, language: Language) -> str:
    cells = [_text_cell(lane, judgement, race, language), _difference_cell(judgement, language)]
    cells.append(f"{lane.tokens_per_second:,.0f}" if lane.tokens_per_second else "–")
    cells.append("–" if lane.first_seconds is None else f"{lane.first_seconds * 1000:,.1f} ms")
    cells.append("–" if lane.memory is None else f"{lane.memory / 1e6:,.0f} MB")
    colour = "" if judgement is None or judgement.passed is None else f"tt-{'good' if judgement.passed else 'bad'}"
    name = html.escape(say(language, f"backend_{lane.backend}"))
    return (
        f'<tr class="{colour}"><th scope="row">{name}</th>'
        + "".join(
            f'<td data-label="{html.escape(head)}"><span>{html.escape(cell)}</span></td>'
            for head, cell in zip(heads, cells, strict=True)
        )
        + "</tr>"
    )


def _text_cell(lane: Lane, judgement: Judgement | None, race: Race, language: Language) -> str:
    if lane.problem is not None:
        return say(language, "compare_failed")
    if judgement is None:
        return say(language, "cell_reference") if lane.backend == race.reference else "–"
    if judgement.first_difference is None:
        return say(language, "cell_equal")
    return say(language, "cell_differs", n=judgement.first_difference)


def _difference_cell(judgement: Judgement | None, language: Language) -> str:
    if judgement is None:
        return "–"
    value = number(judgement.max_difference)
    if judgement.passed is None:
        return say(language, "cell_by_task", value=value)
    if judgement.tolerance == 0 and judgement.max_difference == 0:
        return say(language, "cell_exact")
    return say(language, "cell_allowed", value=value, tolerance=number(judgement.tolerance))


def number(value: float) -> str:
    """A difference: 0, 0.25 or 1.2 × 10⁻⁶, never more digits than mean something."""
    if value == 0:
        return "0"
    if value >= 0.01:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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
