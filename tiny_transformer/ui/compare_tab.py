"""A comparison as HTML: a card for each backend while it runs, then the table and the verdict."""

import html
from collections.abc import Iterator, Sequence
from contextlib import closing

import gradio as gr

from tiny_transformer.parity.microscope import Place
from tiny_transformer.ui.comparison import BackendRun, Comparison, Difference
from tiny_transformer.ui.handlers import QUIET, language_of, user_errors
from tiny_transformer.ui.header import Header, PromptBox
from tiny_transformer.ui.i18n import Language, say, translated
from tiny_transformer.ui.markup import empty, notes, number, said, table
from tiny_transformer.ui.service import PageService

_COLORS = {"equal": "good", "tie": "fair", "differ": "bad", "alone": "fair"}


def run_cards(comparison: Comparison, language: Language) -> str:
    """The cards, side by side where there is room."""
    most = max((len(run.ids) for run in comparison.runs), default=0) or 1
    reference = comparison.run(comparison.reference).text

    def text(run: BackendRun) -> str:  # while they write, one is only behind the other
        return marked(run.text, reference, language) if comparison.finished else html.escape(run.text)

    cards = "".join(_card(run, text(run), most, language) for run in comparison.runs)
    return f'{notes(comparison.notices, language)}<div class="tt-lanes">{cards}</div>'


def marked(text: str, reference: str, language: Language) -> str:
    """A text, marked from where it parts from the reference's; the first word that differs is marked as a whole."""
    same = next((n for n, pair in enumerate(zip(text, reference, strict=False)) if pair[0] != pair[1]), None)
    if same is None and len(text) <= len(reference):
        return html.escape(text)  # equal; or shorter, and nothing of it is another's
    start = len(reference) if same is None else max(text.rfind(" ", 0, same), text.rfind("\n", 0, same)) + 1
    words = f'<span class="tt-unseen">{said(language, "compare_parts")}</span>'  # for those who hear the page
    return f"{html.escape(text[:start])}<mark>{words}{html.escape(text[start:])}</mark>"


def _card(run: BackendRun, shown: str, most: int, language: Language) -> str:
    name = html.escape(say(language, f"backend_{run.backend}"))
    state = say(language, f"compare_{run.state}")
    if run.ids:
        state = say(language, "line_tokens", n=len(run.ids))
    text = shown if run.problem is None else html.escape(translated(run.problem, language))
    share = 100 if run.state == "done" else round(100 * len(run.ids) / most)
    return (
        f'<section class="tt-lane tt-{run.state}"><h2>{name}</h2>'
        f'<div class="tt-track"><i style="width:{share}%"></i></div>'
        f"<small>{html.escape(state)}</small><p>{text}</p></section>"
    )


def verdict(comparison: Comparison, language: Language) -> str:
    """The verdict in words and color, with a table of what it rests on."""
    if not comparison.finished:
        return ""
    words = _words(comparison, language)
    return (
        f'<p class="tt-verdict tt-{_COLORS[comparison.verdict]}" role="status">{html.escape(words)}</p>'
        f"{_table(comparison, language)}"
        f'<p class="tt-intro tt-terms">{said(language, "compare_terms")}</p>'
    )


def _words(comparison: Comparison, language: Language) -> str:
    checked = [difference for difference in comparison.differences if difference.passed is not None]
    name = say(language, f"backend_{comparison.reference}")
    if comparison.verdict == "alone":
        words = say(language, "verdict_alone", name=name)
    elif comparison.verdict == "differ":
        worst = max((d for d in checked if not d.passed), key=lambda d: d.max_difference)
        words = say(
            language,
            "verdict_differ",
            name=say(language, f"backend_{worst.backend}"),
            value=number(worst.max_difference),
            tolerance=number(worst.tolerance),
        )
        if worst.place is not None:
            words += say(language, "verdict_part", part=part_name(worst.place, language))
    elif comparison.verdict == "tie":
        words = say(language, "verdict_tie", n=min(d.first_difference for d in checked if d.first_difference))
    else:
        words = say(
            language,
            "verdict_equal",
            n=len(checked) + 1,
            tokens=len(comparison.run(comparison.reference).ids),
            value=number(max(d.max_difference for d in checked)),
        )
    rounded = any(difference.passed is None for difference in comparison.differences)
    return words + (say(language, "verdict_int8") if rounded else "")


def part_name(place: Place, language: Language) -> str:
    """A part of the model in words."""
    names = {"stack": say(language, f"part_{place.stack}"), "kind": say(language, f"part_{place.kind}")}
    if place.kind == "output":
        return names["kind"]
    return say(language, "part_outside" if place.layer is None else "part_in_layer", **names, n=place.layer)


def _table(comparison: Comparison, language: Language) -> str:
    names = ("backend", "text", "difference", "speed", "first", "memory")
    heads = [say(language, f"column_{name}") for name in names]
    differences = {difference.backend: difference for difference in comparison.differences}
    rows = [_row(run, differences.get(run.backend), heads[1:], comparison, language) for run in comparison.runs]
    return table(heads, rows, stacks=True)


def _row(
    run: BackendRun, difference: Difference | None, heads: Sequence[str], comparison: Comparison, language: Language
) -> str:
    cells = [_text_cell(run, difference, comparison, language), _difference_cell(difference, language)]
    cells.append(f"{run.tokens_per_second:,.0f}" if run.n_tokens > 1 else "–")
    cells.append("–" if run.first_seconds is None else f"{run.first_seconds * 1000:,.1f} ms")
    cells.append("–" if run.memory is None else f"{run.memory / 1e6:,.0f} MB")
    color = "" if difference is None or difference.passed is None else f"tt-{'good' if difference.passed else 'bad'}"
    name = html.escape(say(language, f"backend_{run.backend}"))
    return (
        f'<tr class="{color}"><th scope="row">{name}</th>'
        + "".join(
            f'<td data-label="{html.escape(head)}"><span>{html.escape(cell)}</span></td>'
            for head, cell in zip(heads, cells, strict=True)
        )
        + "</tr>"
    )


def _text_cell(run: BackendRun, difference: Difference | None, comparison: Comparison, language: Language) -> str:
    if run.problem is not None:
        return say(language, "compare_failed")
    if difference is None:
        return say(language, "cell_reference") if run.backend == comparison.reference else "–"
    if difference.first_difference is None:
        return say(language, "cell_equal")
    return say(language, "cell_differs", n=difference.first_difference)


def _difference_cell(difference: Difference | None, language: Language) -> str:
    if difference is None:
        return "–"
    value = number(difference.max_difference)
    if difference.passed is None:
        return say(language, "cell_by_task", value=value)
    if difference.max_difference == 0:
        return say(language, "cell_exact")
    return say(language, "cell_allowed", value=value, tolerance=number(difference.tolerance))


class CompareTab:
    """The components of the comparison and what happens between them."""

    def __init__(self, service: PageService, header: Header, i18n: gr.I18n) -> None:
        self._service = service
        prompt_box = PromptBox(service, header, "compare", i18n)
        self.runs = gr.HTML(empty(i18n("compare_empty")), elem_id="tt-lanes")
        self.verdict = gr.HTML(elem_id="tt-verdict")
        prompt_box.answered_by(self._compare, [prompt_box.box, header.model], [self.runs, self.verdict])
        header.model.change(user_errors(self._clear), None, [self.runs, self.verdict], **QUIET)

    def _compare(self, text: object, name: str, request: gr.Request) -> Iterator[tuple[str, str]]:
        language = language_of(request)
        with closing(self._service.compare(name, text)) as states:
            for state in states:
                yield run_cards(state, language), verdict(state, language)

    def _clear(self, request: gr.Request) -> tuple[str, str]:
        """Another model has not answered yet."""
        return empty(say(language_of(request), "compare_empty")), ""
