"""Several seeds of one recipe: a folder each, the median, and a clear end when one of them fails."""

import json
import statistics
from pathlib import Path

import pytest

from tests.support.training_fixtures import SMALL
from tiny_transformer.cli import main
from tiny_transformer.errors import TrainingError
from tiny_transformer.training.seeds import SeedRuns, train_seeds

VALUES = (*SMALL, "training.max_steps=6", "evaluation.test=true", "sources.words.held_out={dev=0.002, test=0.003}")


def arguments(out: Path, *more: str) -> list[str]:
    values = [part for value in VALUES for part in ("--set", value)]
    return ["train", "tiny", "--out", str(out), "--device", "cpu", *values, *more]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.slow
def test_each_seed_gets_a_folder_and_the_median_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path / "out", "--seeds", "1", "2", "3", "--at-once", "2")) == 0
    out = capfd.readouterr().out
    stories = {s: json.loads((tmp_path / "out" / f"seed-{s}" / "training.json").read_text()) for s in (1, 2, 3)}
    assert {story["seed"] for story in stories.values()} == {1, 2, 3}
    assert len({story["curve"][-1]["loss"] for story in stories.values()}) == 3
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    chrf = {str(s): story["results"]["test"]["words"]["metrics"]["chrf"] for s, story in stories.items()}
    assert {seed: figures["words"]["chrf"] for seed, figures in results["seeds"].items()} == chrf
    assert results["median"]["words"]["chrf"] == statistics.median(chrf.values())
    assert results["parameters"] == stories[1]["parameters"]
    assert f"median   words            bleu {results['median']['words']['bleu']:.2f}" in out
    assert (tmp_path / "out" / "runs" / "seed-2" / "log.txt").is_file()
    # Started again, what is there is told again; nothing is trained twice.
    before = {s: (tmp_path / "out" / f"seed-{s}" / "training.json").stat().st_mtime_ns for s in (1, 2, 3)}
    assert main(arguments(tmp_path / "out", "--seeds", "1", "2", "3", "--resume")) == 0
    assert capfd.readouterr().out == out
    after = {s: (tmp_path / "out" / f"seed-{s}" / "training.json").stat().st_mtime_ns for s in (1, 2, 3)}
    assert after == before
    assert main(arguments(tmp_path / "out", "--seeds", "1")) == 2
    assert "seed-1 already holds a model; add --overwrite" in capfd.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.slow
def test_a_seed_that_fails_ends_the_others_with_a_sentence(tmp_path: Path, at_once: int) -> None:
    wrong = ("tiny", "--device", "cpu", "--set", "training.sead=3")
    runs = SeedRuns((1, 2), tmp_path / "out", wrong, at_once)
    with pytest.raises(TrainingError, match=r"The run with seed [12] failed \(.*--resume") as error:
        train_seeds(runs)
    assert ("sead" in str(error.value)) == (at_once > 1)  # one at a time, the error was seen already
    assert not (tmp_path / "out" / "results.json").exists()


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--seeds", "1", "1"), "names 1 twice"),
        (("--seeds", "1", "--at-once", "0"), "--at-once is 0"),
        (("--seeds", "1", "--seed", "2"), "--seed is for a single run"),
        (("--seeds", "1", "--run-dir", "x"), "--run-dir is for a single run"),
    ],
)
def test_wrong_use_is_one_sentence(
    tmp_path: Path, more: tuple[str, ...], complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path / "out", *more)) == 2
    assert complaint in capfd.readouterr().err


def test_under_torchrun_seeds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(arguments(tmp_path / "out", "--seeds", "1", "2")) == 2
    assert "under torchrun" in capfd.readouterr().err
