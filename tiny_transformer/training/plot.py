"""The loss curve as a picture."""

import io
import logging
from collections.abc import Sequence
from typing import Any

logger = logging.getLogger(__name__)

_INK, _ACCENT, _GRID = "#2b2b33", "#c2410c", "#e5e5ea"


def loss_curve(curve: Sequence[dict[str, float]], history: Sequence[dict[str, float]], title: str) -> bytes | None:
    """A PNG of training loss and dev loss over steps; None where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        logger.warning("matplotlib is not installed, so no curve was drawn; pip install matplotlib to get one.")
        return None
    figure = Figure(figsize=(7.2, 4.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([e["step"] for e in curve], [e["loss"] for e in curve], color=_INK, linewidth=1.0, label="training")
    judged = [entry for entry in history if "loss" in entry]
    if judged:
        axes.plot(
            [e["step"] for e in judged],
            [e["loss"] for e in judged],
            color=_ACCENT,
            marker="o",
            markersize=3.5,
            linewidth=1.4,
            label="dev (averaged weights)",
        )
    _dress(axes, title)
    buffer = io.BytesIO()
    # No date and no version inside: equal curves give equal bytes.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _dress(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=_INK)
    axes.set_xlabel("steps", color=_INK)
    axes.set_ylabel("loss (nats per token)", color=_INK)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    # The first few losses are near ln V; without a limit they would flatten the rest.
    losses = sorted(y for line in axes.lines for y in line.get_ydata())
    if losses:
        axes.set_ylim(0.0, losses[int(0.98 * (len(losses) - 1))] * 1.1)
    axes.legend(frameon=False, fontsize=9)
