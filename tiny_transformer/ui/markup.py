"""The few shapes of HTML that the tabs are made of; whatever comes from outside is escaped here or before."""

import html
from collections.abc import Iterable, Sequence

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
