"""`training.json`: read strictly, written once, and nothing in it can end in a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import ROOT
from tiny_transformer.errors import BundleError
from tiny_transformer.training_record import DataSource, Figure, TrainingRecord

SOURCE = {"name": "a", "path": "a.tsv", "split": "train", "licence": "MIT", "attribution": "Ada", "url": ""}


def written(folder: Path, values: Any) -> Path:
    (folder / "training.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["chat", "translate"])
def test_the_records_of_the_shipped_models_come_back_as_they_are(name: str) -> None:
    path = ROOT / "checkpoints" / name / "training.json"
    record = TrainingRecord.read(path.parent)
    assert record.to_json() == path.read_text(encoding="utf-8")
    assert record.recipe_name == name
    assert {figure.split for figure in record.figures} == {"test"}
    assert "NVIDIA H200" in record.run_summary


def test_a_folder_without_the_file_has_an_empty_record(tmp_path: Path) -> None:
    assert TrainingRecord.read(tmp_path) == TrainingRecord()
    assert TrainingRecord.read(written(tmp_path, {})).figures == ()


def test_figures_are_those_of_test_or_else_of_dev(tmp_path: Path) -> None:
    dev = {"x": {"examples": 3, "metrics": {"bleu": 1}, "signatures": {"bleu": "s"}}}
    found = TrainingRecord.read(written(tmp_path, {"results": {"test": {}, "dev_by_source": dev}}))
    assert found.figures == (Figure("x", "dev", "bleu", 1, 3, "s"),)


def test_what_a_model_started_from_is_told_with_its_own_sources(tmp_path: Path) -> None:
    other = SOURCE | {"name": "b"}
    values = {
        "recipe": {"licence": "mit", "sources": [SOURCE, SOURCE | {"name": "t", "split": "test"}]},
        "started_from": {"name": "old", "licence": "mit", "sources": [other, SOURCE]},
    }
    record = TrainingRecord.read(written(tmp_path, values))
    assert [source.name for source in record.sources] == ["a", "b"]
    assert record.sources[0] == DataSource("a", "a.tsv", "MIT", "Ada")
    assert record.provenance == {"licence": "mit", "sources": [SOURCE, other]}
    values["started_from"]["licence"] = "other"
    assert TrainingRecord.read(written(tmp_path, values)).licence == ""


@pytest.mark.parametrize(
    "values",
    [
        [],
        {"recipe": None},
        {"recipe": {"sources": 7}},
        {"recipe": {"sources": [1]}},
        {"recipe": {"sources": [{"name": 3}]}},
        {"recipe": {"languages": "en"}},
        {"recipe": {"name": []}},
        {"started_from": []},
        {"started_from": {"sources": {}}},
        {"seconds": "long"},
        {"seconds": True},
        {"tokens_per_second": 10**400},
        {"seed": 1.5},
        {"results": {"num_beams": "5"}},
        {"results": {"test": []}},
        {"results": {"test": {"x": {"metrics": {"bleu": "high"}}}}},
        {"results": {"test": {"x": {"metrics": {}, "signatures": {"bleu": 1}}}}},
        {"results": {"dev_by_source": {"x": 1}}},
        {"curve": 3},
        {"curve": [{"step": "x", "loss": 1.0}]},
        {"curve": [{"step": 1}]},
    ],
    ids=json.dumps,
)
def test_a_damaged_record_is_one_sentence(tmp_path: Path, values: Any) -> None:
    with pytest.raises(
        BundleError, match=r"training\.json is not what training writes \(.*\); restore it or remove it"
    ):
        TrainingRecord.read(written(tmp_path, values))


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_json_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "training.json").write_bytes(content)
    with pytest.raises(BundleError, match=r"training\.json is not what training writes"):
        TrainingRecord.read(tmp_path)
