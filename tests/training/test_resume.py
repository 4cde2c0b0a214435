"""Killed at any moment, a run goes on as if nothing had happened; on a CPU, bit for bit."""

import os
import time
from pathlib import Path

import pytest
import torch

from tests.support.models import ROOT
from tests.support.training_fixtures import SMALL
from tests.support.warm_process import Fork, Fresh, WarmPython
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


WARM = WarmPython("torch._dynamo", "tiny_transformer.training.run", OMP_NUM_THREADS="1")


def started(out: Path, *options: str) -> Fork | Fresh:
    """The same run on the command line, in a process of its own."""
    arguments = ["train", "tiny", "--out", str(out), "--device", "cpu", *options]
    arguments += [part for value in (*SMALL, *VALUES) for part in ("--set", value)]
    own = os.environ | {"TINY_TRANSFORMER_CACHE": str(out.parent / "cache"), "OMP_NUM_THREADS": "1"}
    with open(os.devnull, "r+b") as nothing:
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), nothing.fileno())
        program = ROOT / "tiny_transformer" / "__main__.py"
        return WARM.start(program, *arguments, env=own | {"PYTHONPATH": str(ROOT)}, cwd=ROOT, **streams)


def wait_for_step(metrics: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if metrics.is_file() and metrics.read_text(encoding="utf-8").count('"loss"') >= step:
            return
        time.sleep(0.005)
    raise AssertionError("the run did not get going")


@pytest.mark.long
def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """Each run is a process of its own: bits depend on the number of threads, and on which library multiplies.

    A bfloat16 product on a CPU without bfloat16 makes torch do without oneDNN for the rest of its process.
    """
    assert started(tmp_path / "whole").wait(240) == 0
    process = started(tmp_path / "killed")
    wait_for_step(tmp_path / "runs" / "killed" / "metrics.jsonl", 11)
    # A checkpoint is written after every step, so the kill as likely as not hits a write.
    process.kill()
    assert process.wait() == -9, "the run ended before it could be killed"
    before, _ = load_checkpoint(tmp_path / "runs" / "killed" / "last")
    assert 9 <= before.step < 30
    assert started(tmp_path / "killed", "--resume").wait(240) == 0
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
