"""The proof is tied to the training: a folder must do its task as well as its record says."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import ROOT, BundleFactory
from tiny_transformer.backends import open_backend
from tiny_transformer.bundle import EVALUATION, PARITY, TOKENIZER, TRAINING, Bundle
from tiny_transformer.parity import CaseResult, verify_bundle
from tiny_transformer.parity.texts import TextReference, training_step
from tiny_transformer.training_record import TrainingRecord


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped translator with 50 German and 50 Chinese examples; 3 standard errors are then about 9 BLEU."""
    copy = tmp_path_factory.mktemp("shipped") / "model"
    shutil.copytree(ROOT / "checkpoints" / "translate", copy, ignore=shutil.ignore_patterns(PARITY))
    lines = (copy / EVALUATION).read_text(encoding="utf-8").splitlines(keepends=True)
    (copy / EVALUATION).write_text("".join([*lines[:50], *lines[-50:]]), encoding="utf-8")
    change(copy / TRAINING, lambda values: values["results"].pop("sample", None))  # as in records before there was one
    return copy


@pytest.fixture
def folder(shipped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped, tmp_path / "model"))


def figure_of(folder: Path) -> CaseResult:
    """By ONNX Runtime: what is compared is one model with its training, and this is the fastest way to run it."""
    bundle = Bundle.open(folder)
    (result,) = training_step(TextReference(bundle, open_backend(bundle, "onnx"))).run()
    return result


def change(path: Path, edit: Any) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    edit(values)
    path.write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")


def cut_merges(values: dict[str, Any]) -> None:
    del values["model"]["merges"][100:]


def swap_merges(values: dict[str, Any]) -> None:
    """300 pairs of the merges change places."""
    merges, draw = values["model"]["merges"], random.Random(0)
    chosen = draw.sample(range(len(merges)), 600)
    for a, b in zip(chosen[:300], chosen[300:], strict=True):
        merges[a], merges[b] = merges[b], merges[a]


def with_sample(folder: Path) -> float:
    """Write into the record what training now measures on exactly these examples."""
    value = float(figure_of(folder).detail.split()[0])
    sample = {"examples": 100, "metrics": {"bleu": value}, "signatures": {}}
    change(folder / TRAINING, lambda values: values["results"].update(sample=sample))
    return value


@pytest.mark.long
def test_the_shipped_translator_is_as_good_as_its_older_record(folder: Path):
    result = figure_of(folder)
    assert result.passed
    record = TrainingRecord.read(folder)
    figures = " and ".join(f"{figure.value:.2f}" for figure in record.figures if figure.metric == "bleu")
    assert f"training recorded {figures} on whole test sets, {record.decoding}" in result.detail
    assert 5 < result.tolerance < 15


@pytest.mark.long
def test_a_tokenizer_without_most_of_its_merges_is_caught_by_an_older_record(folder: Path):
    change(folder / TOKENIZER, cut_merges)
    result = figure_of(folder)
    assert not result.passed
    assert result.max_absolute > result.tolerance


@pytest.mark.long
def test_swapped_merges_are_caught_by_the_figure_of_the_sample(folder: Path):
    """They cost a point of BLEU: less than an older record can show, more than one of the same examples allows."""
    value = with_sample(folder)
    same = figure_of(folder)
    assert same.passed
    assert (same.max_absolute, same.tolerance) == (pytest.approx(0.0, abs=0.01), 0.3)
    change(folder / TOKENIZER, swap_merges)
    result = figure_of(folder)
    assert not result.passed
    assert f"training recorded {value:.2f} on the same 100 examples; 0.30 allowed" in result.detail


@pytest.mark.long
def test_a_record_of_other_examples_proves_nothing(folder: Path):
    with_sample(folder)
    lines = (folder / EVALUATION).read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / EVALUATION).write_text("".join(lines[:-1]), encoding="utf-8")
    assert not figure_of(folder).passed


def test_figures_of_texts_cut_in_another_way_are_not_compared(folder: Path):
    def edit(values: dict[str, Any]) -> None:
        for figures in values["results"]["test"].values():
            figures["signatures"]["bleu"] = figures["signatures"]["bleu"].replace("tok:13a", "tok:none")

    change(folder / TRAINING, edit)
    assert figure_of(folder).detail == "no figure of the training was there to compare"


def test_a_folder_without_a_record_is_verified_and_the_report_says_so(make_bundle: BundleFactory):
    report = verify_bundle(make_bundle("decoder-only", max_length=16), ["numpy"])
    assert report.verdict == "verified"
    (case,) = (case for case in report.cases if case.kind == "training")
    assert (case.candidate, case.detail) == ("eager", "no figure of the training was there to compare")


def test_a_report_without_candidates_proves_nothing(make_bundle: BundleFactory):
    assert verify_bundle(make_bundle(max_length=16), ["eager"]).verdict == "failed"
