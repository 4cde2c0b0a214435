"""A model stands beside published systems only with figures on their test set, and what is said of the set is so."""

import hashlib
import re
from typing import Any

import pytest

from export.model_card import _table
from export.published import beside_published, published
from tests.support.models import ROOT
from tiny_transformer.data.files import locate, open_text
from tiny_transformer.training.recipe import load_recipe
from tiny_transformer.training_record import TrainingRecord

SETS, SYSTEMS = published()


def record(figures: dict[str, float], **changes: Any) -> TrainingRecord:
    """A training.json with these BLEU scores."""
    results = {"test": {name: {"metrics": {"bleu": value, "chrf": 60.0}} for name, value in figures.items()}}
    return TrainingRecord(**{"data": {s.file: s.sha256 for s in SETS}, "results": results, **changes})


def test_both_directions_stand_beside_the_systems_that_have_them() -> None:
    rows, note = beside_published(record({"de-en.public": 47.431, "zh-en.public": 32.05}), "mine", 11_800_000)
    assert rows[:2] == [
        ["BLEU", "parameters", "German → English", "Chinese → English"],
        ["mine", "11.8 M", "**47.43**", "**32.05**"],
    ]
    assert [row[1:] for row in rows[2:]] == [
        ["74 M", "53.1 to 53.5", ""],
        ["74 M", "", "36.0"],
        ["17 M", "", "34.4"],
    ]
    assert note.endswith("ours has the published lines less 696 of deu-eng and 464 of zho-eng.")


def test_one_direction_leaves_out_who_has_no_figure_for_it() -> None:
    rows, note = beside_published(record({"de-en.public": 50.0}), "mine", 1_000_000)
    assert [row[0].partition(",")[0] for row in rows] == ["BLEU", "mine", "[OPUS-MT"]
    assert note.endswith("less 696 of deu-eng.")


@pytest.mark.parametrize(
    "without",
    [
        TrainingRecord(),
        record({"de-en.test": 50.0}),
        record({"de-en.public": 50.0}, data={"tatoeba/de-en.public.tsv": "0" * 64}),  # another file of that name
        record({"de-en.public": 50.0}, data={}),
        record({}, results={"dev_by_source": {"de-en.public": {"metrics": {"bleu": 50.0}}}}),
    ],
)
def test_no_figure_on_the_set_no_table(without: TrainingRecord) -> None:
    assert beside_published(without, "mine", 1_000_000) == ([], "")


def test_the_sets_are_those_of_the_recipe_and_of_the_data() -> None:
    sources = {source.name: source for source in load_recipe("translate").sources}
    for one in SETS:
        assert (sources[one.name].path, sources[one.name].split) == (one.file, "test")
        ((file,),) = locate(str(ROOT / "datasets" / one.file))
        with open_text(file) as stream:
            assert hashlib.sha256(stream.read()).hexdigest() == one.sha256
    assert {name for system in SYSTEMS for name in system.bleu} == {one.name for one in SETS}


def test_the_page_shows_the_kept_figures() -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    shipped = TrainingRecord.read(ROOT / "checkpoints" / "translate")
    rows, note = beside_published(shipped, "`checkpoints/translate`", shipped.parameters or 0)
    assert _table(rows[0], rows[1:]) in page
    assert note in page
    for system in SYSTEMS:
        row = next(line for line in page.splitlines() if f"[{system.name}]({system.url})" in line)
        assert [cell for cell in re.split(r" *\| *", row.strip("| "))[1:] if cell] == [
            system.parameters,
            *system.bleu.values(),
        ]
