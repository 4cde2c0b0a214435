"""The figures are drawn by our own script, are up to date, and show what their captions say."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from docs.figures import draw

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    draw.main(folder)
    return folder


@pytest.mark.parametrize("name", draw.FIGURES)
def test_figure_is_drawn_and_the_kept_one_is_up_to_date(drawn: Path, name: str) -> None:
    width, height, _ = draw.FIGURES[name]
    new, kept = imread(drawn / name), imread(draw.HERE / name)
    assert new.shape == kept.shape == (round(height * draw.DPI), round(width * draw.DPI), 4)
    assert new[0, 0, 3] == 0.0, "the corners are transparent"
    assert new[new.shape[0] // 2, 8, 3] == 1.0, "the card is opaque, so that ink reads on a dark page"
    # Training may round a weight's second digit another way on another machine; drawing alone may not.
    changed = (np.abs(new - kept) > 0.1).any(axis=-1).mean()
    assert changed <= (0.002 if name == "attention.png" else 0.0001), (
        f"{name} is stale by {changed:.2%}; run python -m docs.figures.draw"
    )


def test_no_figure_is_left_over_and_the_documents_show_all() -> None:
    assert {path.name for path in draw.HERE.glob("*.png")} == set(draw.FIGURES)
    for suffix in (".md", ".zh-CN.md"):
        text = (ROOT / "docs" / f"paper-to-code{suffix}").read_text(encoding="utf-8")
        assert [name for name in draw.FIGURES if f"figures/{name})" not in text] == []


@pytest.mark.long
def test_the_drawn_head_attends_to_the_letter_it_writes() -> None:
    weights = draw.reversing_weights()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(len(draw.WORD) + 1))
    n = len(draw.WORD)
    assert weights.argmax(dim=-1)[:n].tolist() == list(reversed(range(n)))
