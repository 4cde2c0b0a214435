"""A curve as SVG, in the page's colours."""

import html
from collections.abc import Sequence

WIDTH, HEIGHT = 480, 150  # of the drawing; the page scales it to the room there is
_LEFT, _BOTTOM, _TOP = 42, 18, 8


def line_chart(points: Sequence[tuple[float, float]], title: str) -> str:
    """A line through (x, y) points, with the range of y on the left and of x below."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_low, x_high, y_low, y_high = min(xs), max(xs), min(ys), max(ys)
    x_span, y_span = (x_high - x_low) or 1.0, (y_high - y_low) or 1.0

    def place(x: float, y: float) -> str:
        across = _LEFT + (x - x_low) / x_span * (WIDTH - _LEFT - 8)
        down = _TOP + (y_high - y) / y_span * (HEIGHT - _TOP - _BOTTOM)
        return f"{across:.1f},{down:.1f}"

    line = " ".join(place(x, y) for x, y in points)
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
