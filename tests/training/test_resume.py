"""Killed at any moment, a run goes on as if nothing had happened; on a CPU, bit for bit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.support.models import ROOT
from tests.support.training_fixtures import SMALL
from tiny_transformer.training.checkpoint import load_checkpoint

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


@pytest.mark.long
def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """Each run is a process of its own: bits depend on the number of threads, and on which library multiplies.

    A bfloat16 product on a CPU without bfloat16 makes torch do without oneDNN for the rest of its process.
    """
    own = environment(tmp_path / "cache")
    silent = {"env": own, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command(tmp_path / "whole"), check=True, **silent)
    process = subprocess.Popen(command(tmp_path / "killed"), **silent)
    wait_for_step(process, tmp_path / "runs" / "killed" / "metrics.jsonl", 11)
    # A checkpoint is written after every step, so the kill as likely as not hits a write.
    process.send_signal(signal.SIGKILL)
    process.wait()
    before, _ = load_checkpoint(tmp_path / "runs" / "killed" / "last")
    assert 9 <= before.step < 30
    subprocess.run([*command(tmp_path / "killed"), "--resume"], check=True, **silent)
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
    whole, resumed = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert resumed == whole
