"""One recipe, several seeds: a run for each, one after another or side by side, and the median of what they reach."""

import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tiny_transformer import atomic
from tiny_transformer.bundle import TRAINING, Bundle, check_target
from tiny_transformer.errors import TrainingError, last_line
from tiny_transformer.training_record import TrainingRecord

logger = logging.getLogger(__name__)

RESULTS = "results.json"
_LOG = "log.txt"
_POLL_SECONDS = 0.5  # between two looks at the runs that go on side by side


@dataclass(frozen=True)
class SeedRuns:
    """What to run: the arguments every seed shares, and where each seed's folder goes."""

    seeds: tuple[int, ...]
    out: Path  # holds seed-1, seed-2 …, their runs, and the results
    arguments: tuple[str, ...]  # of `train`: recipe, data and values, without seed and folders
    at_once: int = 1
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        if len(set(self.seeds)) != len(self.seeds):
            raise TrainingError("--seeds names {twice} twice; give each seed once.", twice=_twice(self.seeds))
        if self.at_once < 1:
            raise TrainingError("--at-once is {at_once}; choose a number of at least 1.", at_once=self.at_once)

    def folder(self, seed: int) -> Path:
        """The model folder of one seed."""
        return self.out / f"seed-{seed}"

    def run_dir(self, seed: int) -> Path:
        """Where the seed's checkpoints, metrics and log are."""
        return self.out / "runs" / f"seed-{seed}"

    def is_done(self, seed: int) -> bool:
        """Whether an earlier start of the same command finished this seed."""
        return self.resume and not self.overwrite and (self.folder(seed) / TRAINING).is_file()

    def command(self, seed: int) -> list[str]:
        """The command line that trains one seed."""
        flags = [name for name, given in (("--resume", self.resume), ("--overwrite", self.overwrite)) if given]
        own = ["--seed", str(seed), "--out", str(self.folder(seed)), "--run-dir", str(self.run_dir(seed))]
        return [sys.executable, "-m", "tiny_transformer", "train", *self.arguments, *own, *flags]


def train_seeds(runs: SeedRuns) -> dict[str, Any]:
    """Train every seed and write `results.json`: each seed's figures, and their medians."""
    waiting = [seed for seed in runs.seeds if not runs.is_done(seed)]
    for seed in waiting:
        check_target(runs.folder(seed), overwrite=runs.overwrite)
    began = time.monotonic()
    running: dict[int, tuple[subprocess.Popen[bytes], IO[bytes] | None]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < runs.at_once:
                seed = waiting.pop(0)
                running[seed] = _started(runs, seed)
            for seed in [seed for seed, (process, _) in running.items() if process.poll() is not None]:
                _settle(runs, seed, *running.pop(seed))
            time.sleep(_POLL_SECONDS if running else 0.0)
    finally:
        for process, log in running.values():
            process.terminate()
            process.wait()
            _close(log)
    results = seed_results(runs) | {"seconds": round(time.monotonic() - began, 1)}
    atomic.write_file(runs.out / RESULTS, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return results


def seed_results(runs: SeedRuns) -> dict[str, Any]:
    """What the seeds' folders say: every figure by source and metric, and its median over the seeds."""
    records = {seed: TrainingRecord.read(runs.folder(seed)) for seed in runs.seeds}
    figures = {seed: _metrics(record) for seed, record in records.items()}
    first = records[runs.seeds[0]]
    medians = {
        source: {name: statistics.median(figures[seed][source][name] for seed in runs.seeds) for name in metrics}
        for source, metrics in figures[runs.seeds[0]].items()
    }
    return {
        "recipe": first.recipe_name,
        "parameters": Bundle.open(runs.folder(runs.seeds[0])).config.n_parameters,
        "num_beams": first.results["num_beams"],
        "hardware": first.hardware,
        "versions": first.versions,
        "seeds": {str(seed): figures[seed] for seed in runs.seeds},
        "median": medians,
    }


def _started(runs: SeedRuns, seed: int) -> tuple[subprocess.Popen[bytes], IO[bytes] | None]:
    """A process of its own; several at once would write over one another's bars, so each writes to a file then."""
    if runs.at_once == 1:
        logger.info("seed %d", seed)
        return subprocess.Popen(runs.command(seed)), None
    path = runs.run_dir(seed) / _LOG
    path.parent.mkdir(parents=True, exist_ok=True)
    logger.info("seed %d: follow it in %s", seed, path)
    log = path.open("ab")
    return subprocess.Popen(runs.command(seed), stdout=log, stderr=log), log


def _settle(runs: SeedRuns, seed: int, process: subprocess.Popen[bytes], log: IO[bytes] | None) -> None:
    """Take note of a run that ended; one that failed ends them all."""
    _close(log)
    if process.returncode == 0:
        logger.info("seed %d is done", seed)
        return
    said = "its error stands above"
    if log is not None:
        said = last_line((runs.run_dir(seed) / _LOG).read_text(encoding="utf-8", errors="replace"))
    template = "The run with seed {seed} failed ({said}); correct that, then start the same command with --resume."
    raise TrainingError(template, seed=seed, said=said)


def _close(log: IO[bytes] | None) -> None:
    if log is not None:
        log.close()


def _metrics(record: TrainingRecord) -> dict[str, dict[str, float]]:
    """By source and metric: of the test data, or of dev where the recipe leaves test alone."""
    found: dict[str, dict[str, float]] = {}
    for figure in record.figures:
        found.setdefault(figure.data, {})[figure.metric] = figure.value
    return found


def _twice(seeds: Sequence[int]) -> int:
    return next(seed for seed in seeds if seeds.count(seed) > 1)
