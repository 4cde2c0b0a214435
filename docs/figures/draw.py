"""Draw the figures of the documentation from the project's own code: `python -m docs.figures.draw [FOLDER]`."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor
from torch.nn import functional as F

from docs.figures.diagram import draw_architecture
from docs.figures.palette import BLUE, CARD, CORAL, EMPTY, FAINT, INK, INK_SOFT, SLATE, STYLE, TEAL
from tiny_transformer.config import ModelConfig
from tiny_transformer.model import EncoderDecoder, attention_maps, build_model
from tiny_transformer.model.attention import causal_mask
from tiny_transformer.model.positions import sinusoidal_table

HERE = Path(__file__).parent
DPI = 200  # twice the width a page gives a picture, for sharp screens
SEQUENTIAL = LinearSegmentedColormap.from_list("weights", [EMPTY, "#A9C4E6", BLUE, "#16305C"])
DIVERGING = LinearSegmentedColormap.from_list("signed", [CORAL, "#F0C2B3", CARD, "#AEC8E8", BLUE])

BOS, EOS, FIRST_LETTER = 1, 2, 3
WORD = "sunlight"


def main(folder: Path = HERE) -> None:
    """Write every figure into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        for name, (width, height, draw) in FIGURES.items():
            figure = Figure(figsize=(width, height), dpi=DPI)
            _card(figure)
            draw(figure)
            # No version and no date inside: the same drawing gives the same bytes.
            figure.savefig(folder / name, transparent=True, metadata={"Software": None})


def draw_positions(figure: Figure) -> None:
    """The sinusoidal table, and how alike two positions are by their distance."""
    table = sinusoidal_table(96, 64)  # L D
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    figure.subplots_adjust(left=0.075, right=0.97, top=0.82, bottom=0.16, wspace=0.22)

    image = left.imshow(table.T.numpy(), cmap=DIVERGING, aspect="auto", origin="lower", vmin=-1, vmax=1)
    left.set(xlabel="position", ylabel="dimension", xticks=range(0, 96, 16), yticks=range(0, 64, 16))
    _title(left, "sinusoidal_table(96, 64)", "sine and cosine take turns, slower from row to row")
    bar = figure.colorbar(image, ax=left, fraction=0.04, pad=0.025, ticks=(-1, 0, 1))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)

    distances = torch.arange(-40, 41)
    for start, color, style in ((42, BLUE, "-"), (50, CORAL, (0, (4, 3)))):
        likeness = table[start + distances] @ table[start] / 32  # every sin² + cos² pair gives 1, and there are 32
        right.plot(
            distances.numpy(),
            likeness.numpy(),
            color=color,
            linestyle=style,
            linewidth=1.8,
            label=f"from position {start}",
        )
    right.set(xlabel="distance", xticks=(-40, -20, 0, 20, 40), yticks=(0, 0.5, 1))
    right.legend(loc="upper right", fontsize=7, handlelength=1.6, borderaxespad=0.2)
    right.grid(axis="y", color=FAINT, linewidth=0.8)
    _title(right, "PE(p) · PE(p + k) / 32", "depends on the distance k alone")


def draw_masks(figure: Figure) -> None:
    """What each kind of attention may see: B 1 1 S, the triangle, and B 1 1 S again."""
    source = ["the", "sea", "is", "calm", "today", "<pad>"]
    target = ["<bos>", "das", "meer", "ist", "heute", "ruhig"]
    real = torch.tensor([word != "<pad>" for word in source])
    panels = (
        ("Self-attention, encoder", "all real tokens, both directions", real.expand(6, 6), source, source),
        ("Self-attention, decoder", "itself and the past", causal_mask(6, real.device), target, target),
        ("Cross-attention", "all real tokens of the source", real.expand(6, 6), target, source),
    )
    axes = figure.subplots(1, 3)
    figure.subplots_adjust(left=0.085, right=0.98, top=0.82, bottom=0.2, wspace=0.3)
    for axis, (title, subtitle, visible, queries, keys), color in zip(axes, panels, (TEAL, BLUE, CORAL), strict=True):
        cells = LinearSegmentedColormap.from_list("mask", [EMPTY, color])
        axis.imshow(visible.numpy(), cmap=cells, vmin=0, vmax=1, aspect="equal")
        _tokens(axis, queries, keys)
        _title(axis, title, subtitle)
    axes[0].set_ylabel("query", labelpad=3)
    for axis in axes:
        axis.set_xlabel("key", labelpad=3)


def draw_attention(figure: Figure) -> None:
    """Where one cross-attention head of a model that learned to reverse words looks."""
    weights = reversing_weights()
    axis = figure.subplots()
    figure.subplots_adjust(left=0.18, right=0.955, top=0.85, bottom=0.13)
    axis.imshow(weights.numpy(), cmap=SEQUENTIAL, vmin=0, vmax=1, aspect="auto")
    written = WORD[::-1]
    queries = [f"{before} → {after}" for before, after in zip(["<bos>", *written], [*written, "<eos>"], strict=True)]
    _tokens(axis, queries, list(WORD), rotation=0)
    for t, s in torch.nonzero(weights >= 0.05).tolist():
        color = CARD if weights[t, s] > 0.45 else INK
        axis.text(s, t, f"{weights[t, s]:.2f}", ha="center", va="center", color=color, fontsize=7)
    axis.set(xlabel="key: letters of the source", ylabel="query: letter read → letter written next")
    _title(axis, "One head of CrossAttention", "trained here to reverse words: the weights are the alignment")


@cache
def reversing_weights() -> Tensor:
    """T S: the first cross-attention head's weights while WORD is written backwards."""
    word = torch.tensor([[ord(letter) - ord("a") + FIRST_LETTER for letter in WORD]])
    target, _ = shifted(word.flip(1))
    maps = attention_maps(reversing_model(), target, word)
    assert maps.cross is not None
    return maps.cross[0, 0, 0]


def reversing_model(steps: int = 350, batch: int = 64, learning_rate: float = 5e-3) -> EncoderDecoder:
    """A one-layer encoder-decoder that has learned to write eight random letters backwards."""
    generator = torch.Generator().manual_seed(0)
    config = ModelConfig(
        vocab_size=FIRST_LETTER + 26,
        d_model=32,
        n_heads=2,
        n_encoder_layers=1,
        n_decoder_layers=1,
        d_ff=64,
        max_length=16,
        dropout=0.0,
    )
    model = build_model(config, generator)
    assert isinstance(model, EncoderDecoder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 30, 1.0) * (1 - step / steps))
    for _ in range(steps):
        source = torch.randint(FIRST_LETTER, config.vocab_size, (batch, len(WORD)), generator=generator)  # B S
        target, wanted = shifted(source.flip(1))  # each B S+1
        logits = model(source, torch.ones_like(source, dtype=torch.bool), target)  # B S+1 V
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def shifted(ids: Tensor) -> tuple[Tensor, Tensor]:
    """What the decoder reads, `<bos>` first, and what it must say, `<eos>` last."""
    edge = torch.ones_like(ids[:, :1])
    return torch.cat((edge * BOS, ids), dim=1), torch.cat((ids, edge * EOS), dim=1)


def _card(figure: Figure) -> None:
    """A light card with round corners under everything, so that the picture reads on a dark page too."""
    width, height = figure.get_size_inches()
    axis = figure.add_axes((0, 0, 1, 1), zorder=-1)
    axis.set(xlim=(0, width), ylim=(0, height))
    axis.axis("off")
    shape = "round,pad=0,rounding_size=0.12"
    axis.add_patch(
        FancyBboxPatch((0.02, 0.02), width - 0.04, height - 0.04, shape, facecolor=CARD, edgecolor=FAINT, linewidth=1)
    )


def _title(axis: Axes, title: str, subtitle: str) -> None:
    axis.annotate(title, (0, 1), (0, 17), "axes fraction", "offset points", color=INK, fontsize=9.5, weight="bold")
    axis.annotate(subtitle, (0, 1), (0, 6), "axes fraction", "offset points", color=INK_SOFT, fontsize=7.5)


def _tokens(axis: Axes, queries: list[str], keys: list[str], rotation: int = 40) -> None:
    """Token labels on both sides, and a thin grid between the cells."""
    axis.set_xticks(range(len(keys)), keys, rotation=rotation, ha="right" if rotation else "center")
    axis.set_xticks([s - 0.5 for s in range(1, len(keys))], minor=True)
    axis.set_yticks(range(len(queries)), queries)
    axis.set_yticks([t - 0.5 for t in range(1, len(queries))], minor=True)
    axis.grid(which="minor", color=CARD, linewidth=1.5)
    axis.tick_params(which="both", length=0, colors=SLATE)
    axis.spines[:].set_visible(False)


# name → width and height in inches, and who draws it
FIGURES: dict[str, tuple[float, float, Callable[[Figure], None]]] = {
    "architecture.png": (8.3, 6.75, draw_architecture),
    "positions.png": (8.3, 3.1, draw_positions),
    "masks.png": (8.3, 3.3, draw_masks),
    "attention.png": (6.2, 4.4, draw_attention),
}

if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
