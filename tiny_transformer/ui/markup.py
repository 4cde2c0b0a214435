"""The few shapes of HTML that the tabs are made of; whatever comes from outside is escaped here or before."""

import html
from collections.abc import Iterable, Sequence

import numpy as np

from tiny_transformer.ui.i18n import Language, say, translated


def said(language: Language, key: str, **values: object) -> str:
    """A sentence of ours, escaped with its values."""
    return html.escape(say(language, key, **values))


def section(title: str, body: str, intro: str = "") -> str:
    """A part of a tab with its heading; body and intro are HTML already."""
    words = f'<p class="tt-intro">{intro}</p>' if intro else ""
    return f'<section class="tt-section"><h2>{html.escape(title)}</h2>{words}{body}</section>'


def empty(words: object) -> str:
    """What stands where something will be."""
    return f'<p class="tt-empty">{words}</p>'


def notes(notices: Iterable[str], language: Language) -> str:
    """What the library wants the visitor to know."""
    return "".join(f'<p class="tt-note">{html.escape(translated(notice, language))}</p>' for notice in notices)


def table(heads: Sequence[str], rows: Iterable[str], *, stacks: bool = False) -> str:
    """A table under plain headings; rows are HTML already. Where it does not fit it scrolls, or its cells stack."""
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in heads)
    return (
        f'<div class="tt-scroll" tabindex="0"><table class="tt-table{" tt-stack" if stacks else ""}">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def row(cells: Iterable[str]) -> str:
    """A row of plain text."""
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


WIDTH, HEIGHT = 480, 150  # of the drawing; the page scales it to the room there is
_LEFT, _BOTTOM, _TOP = 42, 18, 8


def line_chart(points: Sequence[tuple[float, float]], title: str) -> str:
    """A line through (x, y) points, with the range of y on the left and of x below."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_low, x_high, y_low, y_high = min(xs), max(xs), min(ys), max(ys)
    x_span, y_span = (x_high - x_low) or 1.0, (y_high - y_low) or 1.0

    def point(x: float, y: float) -> str:
        across = _LEFT + (x - x_low) / x_span * (WIDTH - _LEFT - 8)
        down = _TOP + (y_high - y) / y_span * (HEIGHT - _TOP - _BOTTOM)
        return f"{across:.1f},{down:.1f}"

    line = " ".join(point(x, y) for x, y in points)
    base = HEIGHT - _BOTTOM
    labels = (
        f'<text x="{_LEFT - 6}" y="{_TOP + 8}" text-anchor="end">{y_high:.2f}</text>'
        f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">{y_low:.2f}</text>'
        f'<text x="{_LEFT}" y="{HEIGHT - 5}">{x_low:,.0f}</text>'
        f'<text x="{WIDTH - 8}" y="{HEIGHT - 5}" text-anchor="end">{x_high:,.0f}</text>'
    )
    axes = f'<path class="tt-axis" d="M{_LEFT} {_TOP}V{base}H{WIDTH - 8}"/>'
    return (
        f'<svg role="img" class="tt-chart" aria-label="{html.escape(title)}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f'{axes}<polyline class="tt-curve" points="{line}"/>{labels}</svg>'
    )


CELL, SMALL_CELL = 28, 7  # pixels
_FITS = 12  # columns that a phone shows without scrolling, the map a little smaller
_CHARACTER = 7.2  # width of a label's character, in pixels
_FAINTEST = 0.004  # cells below this are the background's color anyway

# The cell under the pointer is put into words below the map.
SCRIPT = """
const tell = (event) => {
  const cell = event.target.closest('rect[data-words]');
  const map = event.target.closest('.tt-map');
  if (!cell || !map) return;
  const words = map.querySelector('.tt-words');
  if (words) words.textContent = cell.dataset.words;
};
element.addEventListener('pointerover', tell);
element.addEventListener('click', tell);
"""


def attention_map(weights: np.ndarray, rows: Sequence[str], columns: Sequence[str], language: Language) -> str:
    """One head (T S) with its labels, and the strongest link of each row as text."""
    links = [_link(rows[r], columns[int(row.argmax())], float(row.max()), language) for r, row in enumerate(weights)]
    items = "".join(f"<li>{html.escape(link)}</li>" for link in links)
    title = html.escape(say(language, "attention_strongest"))
    legend = f'<p class="tt-legend tt-heat" aria-hidden="true">0 %<i></i>{percent(float(weights.max()))}</p>'
    picture = labelled(weights, rows, columns, language)
    return (
        f'<div class="tt-map">{legend}<div class="tt-scroll" tabindex="0">{picture}</div>'
        f'<p class="tt-words">&nbsp;</p><details><summary>{title}</summary><ul>{items}</ul></details></div>'
    )


def labelled(weights: np.ndarray, rows: Sequence[str], columns: Sequence[str], language: Language) -> str:
    """The map with the name of every row and column."""
    left = 12 + _CHARACTER * max(map(_width, rows), default=0)
    top = 12 + _CHARACTER * 0.8 * max(map(_width, columns), default=0)
    width, height = left + CELL * len(columns) + top * 0.7, top + CELL * len(rows) + 4
    row_names = "".join(
        f'<text x="{left - 6:.0f}" y="{top + CELL * (r + 0.68):.0f}" text-anchor="end">{html.escape(name)}</text>'
        for r, name in enumerate(rows)
    )
    column_names = "".join(
        f'<text transform="translate({left + CELL * (c + 0.6):.0f} {top - 5:.0f}) rotate(-52)">'
        f"{html.escape(name)}</text>"
        for c, name in enumerate(columns)
    )
    strongest = max(float(weights.max()), 1e-9)
    cells = "".join(
        f'<rect x="{left + CELL * c:.0f}" y="{top + CELL * r:.0f}" width="{CELL - 1}" height="{CELL - 1}" rx="2" '
        f'fill-opacity="{max(weight / strongest, 0.03):.3f}" '
        f'data-words="{html.escape(_link(rows[r], columns[c], weight, language))}"/>'
        for r, row in enumerate(weights)
        for c, weight in enumerate(row.tolist())
    )
    body = row_names + column_names + f'<g class="tt-cells">{cells}</g>'
    return _svg(width, height, body, say(language, "attention"), fits=len(columns) <= _FITS)


def thumbnail(weights: np.ndarray, title: str) -> str:
    """One head among many: no labels, only its pattern."""
    n_rows, n_columns = weights.shape
    cell = max(2.0, min(SMALL_CELL, 220 / max(n_rows, n_columns)))
    strongest = max(float(weights.max()), 1e-9)
    cells = "".join(
        f'<rect x="{cell * c:.1f}" y="{cell * r:.1f}" width="{cell:.1f}" height="{cell:.1f}" '
        f'fill-opacity="{weight / strongest:.3f}"/>'
        for r, row in enumerate(weights)
        for c, weight in enumerate(row.tolist())
        if weight >= _FAINTEST
    )
    frame = f'<rect class="tt-frame" x="0" y="0" width="{cell * n_columns:.1f}" height="{cell * n_rows:.1f}"/>'
    picture = _svg(cell * n_columns, cell * n_rows, f'{frame}<g class="tt-cells">{cells}</g>', title)
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{picture}</figure>"


def signed_map(values: np.ndarray, title: str) -> str:
    """A table of values from -1 to 1: one color below zero, another above."""
    height, width = 5, 720 / values.shape[1]
    cells = "".join(
        f'<rect x="{width * c:.1f}" y="{height * r}" width="{width + 0.2:.1f}" height="{height + 0.2}" '
        f'class="{"tt-above" if value > 0 else "tt-below"}" fill-opacity="{abs(value):.2f}"/>'
        for r, row in enumerate(values)
        for c, value in enumerate(row.tolist())
        if abs(value) >= 0.01
    )
    return _svg(720, height * values.shape[0], cells, title)


def _svg(width: float, height: float, body: str, title: str, *, fits: bool = False) -> str:
    kind = "tt-fits" if fits else "tt-scrolls"
    return (
        f'<svg role="img" class="{kind}" aria-label="{html.escape(title)}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="width:{width:.0f}px" preserveAspectRatio="xMinYMin meet">{body}</svg>'
    )


def _link(row: str, column: str, weight: float, language: Language) -> str:
    return say(language, "attention_link", row=row, column=column, percent=percent(weight))


def _width(name: str) -> float:
    """Characters a name is wide; Han characters count nearly twice."""
    return sum(1.7 if ord(character) > 0x2E7F else 1.0 for character in name)


def percent(probability: float) -> str:
    """A probability as a reader wants it: 83 %, 0.4 %, < 0.1 %."""
    value = 100 * probability
    if value < 0.1:
        return "< 0.1 %"
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


def number(value: float) -> str:
    """A difference: 0, 0.25 or 1.2 × 10⁻⁶, never more digits than mean something."""
    if value == 0:
        return "0"
    if value >= 0.01:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
