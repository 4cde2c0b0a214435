"""Killed at any moment, a run goes on as if nothing had happened; on a CPU with equally many threads, bit for bit."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.models import ROOT
from tests.support.training_fixtures import SMALL, small_recipe
from tiny_transformer.training.checkpoint import load_checkpoint
from tiny_transformer.training.run import train

# Everything that could make a difference: dropout, averages, parts of steps, evaluation in between.
VALUES = (
    "training.max_steps=30",
    "training.accumulation=2",
    "training.checkpoint_minutes=0",
    "training.log_steps=1",
    "model.dropout=0.2",
    "sources.words.held_out={dev=0.002, test=0.03}",
)


def command(out: Path) -> list[str]:
    """The command line of the same run, in a process of its own."""
    arguments = [sys.executable, "-m", "tiny_transformer", "train", "tiny", "--out", str(out), "--device", "cpu"]
    return [*arguments, *(part for value in (*SMALL, *VALUES) for part in ("--set", value))]


def environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "TINY_TRANSFORMER_CACHE": str(cache), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def wait_for_step(process: subprocess.Popen, metrics: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be killed"
        if metrics.is_file() and metrics.read_text(encoding="utf-8").count('"loss"') >= step:
            return
        time.sleep(0.005)
    raise AssertionError("the run did not get going")


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """As many as the killed process has, whatever a test before this one has set."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.long
def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    # Sums of other pieces round otherwise: with two threads instead of one, most weights differ in the last bits.
    assert torch.get_num_threads() == 1
    recipe = small_recipe(*VALUES)
    whole = train(recipe, "", tmp_path / "whole")
    process = subprocess.Popen(
        command(tmp_path / "killed"),
        env=environment(tmp_path / "cache"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for_step(process, tmp_path / "runs" / "killed" / "metrics.jsonl", 11)
    # A checkpoint is written after every step, so the kill as likely as not hits a write.
    process.send_signal(signal.SIGKILL)
    process.wait()
    before, _ = load_checkpoint(tmp_path / "runs" / "killed" / "last")
    assert 9 <= before.step < 30
    resumed = train(recipe, "", tmp_path / "killed", resume=True)
    assert whole is not None
    assert resumed is not None
    (state, tensors), (wanted_state, wanted) = (
        load_checkpoint(tmp_path / "runs" / name / "last") for name in ("killed", "whole")
    )
    assert tensors.keys() == wanted.keys()
    different = [name for name in wanted if not torch.equal(tensors[name], wanted[name])]
    assert different == []
    assert (state.step, state.epoch, state.epoch_step, state.tokens) == (
        wanted_state.step,
        wanted_state.epoch,
        wanted_state.epoch_step,
        wanted_state.tokens,
    )
    assert [(e["step"], e["loss"]) for e in state.curve] == [(e["step"], e["loss"]) for e in wanted_state.curve]
    assert state.history == wanted_state.history
    assert not list((tmp_path / "runs" / "killed").glob(".*.tmp"))  # nor does what the kill left behind
    assert resumed.hashes()["model.safetensors"] == whole.hashes()["model.safetensors"]
