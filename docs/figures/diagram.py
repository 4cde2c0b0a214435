"""Both architectures as one drawing: every box says which file and which class it is."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from docs.figures.palette import AMBER, BLUE, CARD, CORAL, FAINT, INK_SOFT, SLATE, TEAL, VIOLET

WIDTH = 1.92  # of a box, in inches, like every length here
INPUT_Y, EMBED_Y, STACK_Y, TOP_Y, HEAD_Y = 0.3, 0.7, 1.58, 5.46, 6.4
NOTE = """Drawn with norm="post", as in the paper.
With "pre", each norm moves below its part
and one more closes the stack."""
COLUMNS = {"encoder": 0.62, "decoder": 3.3, "gpt": 5.98}


@dataclass(frozen=True)
class Part:
    """One box of the drawing."""

    title: str
    place: str  # file and class
    color: str
    height: float = 0.5


SELF = Part("Self-attention", "attention.py  SelfAttention", TEAL)
CAUSAL = Part("Causal self-attention", "attention.py  SelfAttention", BLUE)
CROSS = Part("Cross-attention", "attention.py  CrossAttention", CORAL)
FEED_FORWARD = Part("Feed-forward", "layers.py  FeedForward", AMBER)
ADD_NORM = Part("Add & norm", "layers.py  SublayerNorm", SLATE, 0.3)
EMBEDDING = Part("Embedding + positions", "embedding.py  positions.py", VIOLET)
SCORES = Part("Linear to the vocabulary", "embedding.py  Embedding.scores", VIOLET)


def draw_architecture(figure: Figure) -> None:
    """Encoder and decoder side by side, and the GPT that keeps the decoder alone."""
    width, height = figure.get_size_inches()
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width), ylim=(0, height))
    axis.axis("off")
    _heading(axis, COLUMNS["encoder"], "Encoder-decoder", "transformer.py  EncoderDecoder")
    _heading(axis, COLUMNS["gpt"], "Decoder-only (GPT)", "transformer.py  DecoderOnly")

    axis.text(COLUMNS["encoder"] - 0.3, HEAD_Y - 0.34, NOTE, va="top", color=INK_SOFT, fontsize=7, linespacing=1.45)

    encoder = _stack(
        axis, COLUMNS["encoder"], [SELF, FEED_FORWARD], "transformer.py  Encoder", "layers.py  EncoderLayer"
    )
    decoder = _stack(
        axis, COLUMNS["decoder"], [CAUSAL, CROSS, FEED_FORWARD], "transformer.py  Decoder", "layers.py  DecoderLayer"
    )
    gpt = _stack(axis, COLUMNS["gpt"], [CAUSAL, FEED_FORWARD], "transformer.py  Decoder", "layers.py  DecoderLayer")
    for name, words in (("encoder", "source"), ("decoder", "target, shifted right"), ("gpt", "text so far")):
        _input(axis, COLUMNS[name], words)
    for name, top in (("decoder", decoder[0]), ("gpt", gpt[0])):
        _output(axis, COLUMNS[name], top)
    _memory(axis, encoder[0], decoder[1][CROSS.title])


def _stack(axis: Axes, x: float, parts: list[Part], stack: str, layer: str) -> tuple[float, dict[str, float]]:
    """A layer drawn once, its repeat sign, and the residual paths; top edge, and each part's middle."""
    middles: dict[str, float] = {}
    y = STACK_Y
    for part in parts:
        enter = y - 0.16
        _box(axis, x, y, part)
        middles[part.title] = y + part.height / 2
        y += part.height + 0.1
        _arrow(axis, (x + WIDTH / 2, y - 0.1), (x + WIDTH / 2, y))
        _box(axis, x, y, ADD_NORM)
        _residual(axis, x, enter, y + ADD_NORM.height / 2)
        y += ADD_NORM.height
        if part is not parts[-1]:
            _arrow(axis, (x + WIDTH / 2, y), (x + WIDTH / 2, y + 0.26))
            y += 0.26
    top = y + 0.14
    bottom = STACK_Y - 0.26
    _frame(
        axis, x - 0.3, bottom, WIDTH + 0.46, top - bottom, facecolor="none", edgecolor=FAINT, linewidth=1.4, zorder=0
    )
    axis.text(x + WIDTH + 0.16, top + 0.07, "× N", ha="right", fontsize=9, weight="bold")
    _code(axis, x - 0.27, top + 0.16, stack)
    _code(axis, x - 0.27, top + 0.05, layer)
    return top, middles


def _box(axis: Axes, x: float, y: float, part: Part) -> None:
    color, paper = to_rgb(part.color), to_rgb(CARD)
    tint = tuple(0.14 * c + 0.86 * p for c, p in zip(color, paper, strict=True))
    _frame(axis, x, y, WIDTH, part.height, facecolor=tint, edgecolor=part.color, linewidth=1.1)
    centre, middle = x + WIDTH / 2, y + part.height / 2
    if part is ADD_NORM:  # too flat for two lines
        axis.text(x + 0.1, middle, part.title, va="center", fontsize=7, weight="bold")
        _code(axis, x + WIDTH - 0.1, middle, part.place, size=6, ha="right", va="center")
    else:
        axis.text(centre, middle + 0.04, part.title, ha="center", va="bottom", fontsize=8.5, weight="bold")
        _code(axis, centre, middle - 0.05, part.place, size=6.4, ha="center", va="top")


def _frame(axis: Axes, x: float, y: float, width: float, height: float, **look: Any) -> None:
    axis.add_patch(FancyBboxPatch((x, y), width, height, "round,pad=0,rounding_size=0.08", **look))


def _code(axis: Axes, x: float, y: float, text: str, size: float = 6.2, **align: str) -> None:
    axis.text(x, y, text, color=SLATE, fontsize=size, family="DejaVu Sans Mono", **align)


def _input(axis: Axes, x: float, words: str) -> None:
    middle = x + WIDTH / 2
    axis.text(middle, INPUT_Y, words, ha="center", va="center", color=INK_SOFT, fontsize=8, style="italic")
    _arrow(axis, (middle, INPUT_Y + 0.12), (middle, EMBED_Y))
    _box(axis, x, EMBED_Y, EMBEDDING)
    _arrow(axis, (middle, EMBED_Y + EMBEDDING.height), (middle, STACK_Y))


def _output(axis: Axes, x: float, top: float) -> None:
    middle = x + WIDTH / 2
    _arrow(axis, (middle, top - 0.14), (middle, TOP_Y))
    _box(axis, x, TOP_Y, SCORES)


def _residual(axis: Axes, x: float, enter: float, leave: float) -> None:
    """The way around a part: what goes in is added to what comes out."""
    middle, side = x + WIDTH / 2, x - 0.16
    axis.plot(
        (middle, side, side), (enter, enter, leave), color=INK_SOFT, linewidth=1, solid_joinstyle="round", zorder=0
    )
    _arrow(axis, (side, leave), (x, leave))


def _memory(axis: Axes, top: float, cross: float) -> None:
    """The encoder's result feeds every decoder layer's cross-attention."""
    start, between = COLUMNS["encoder"] + WIDTH / 2, COLUMNS["decoder"] - 0.44
    axis.plot((start, start, between, between), (top - 0.14, top + 0.42, top + 0.42, cross), color=CORAL, linewidth=1.4)
    _arrow(axis, (between, cross), (COLUMNS["decoder"], cross), CORAL)
    axis.text(start + 0.08, top + 0.47, "memory: keys and values", color=CORAL, fontsize=7, style="italic")


def _heading(axis: Axes, x: float, title: str, place: str) -> None:
    axis.text(x - 0.3, HEAD_Y, title, fontsize=11, weight="bold")
    _code(axis, x - 0.3, HEAD_Y - 0.17, place, size=6.8)


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], color: str = INK_SOFT) -> None:
    look = {"arrowstyle": "-|>", "color": color, "linewidth": 1, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
    axis.annotate("", end, start, arrowprops=look)
