"""Two processes: the same weights as one, and a clear end when one of them is lost."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.support.models import ROOT
from tests.support.training_fixtures import SMALL, small_recipe
from tiny_transformer.bundle import Bundle
from tiny_transformer.training.checkpoint import has_checkpoint, load_checkpoint
from tiny_transformer.training.run import train

pytestmark = pytest.mark.long

VALUES = ("training.max_steps=12", "model.dropout=0.0", "sources.words.held_out={dev=0.002, test=0.03}")


def arguments(out: Path, *values: str) -> list[str]:
    options = ["-m", "tiny_transformer", "train", "tiny", "--out", str(out), "--device", "cpu"]
    return [*options, *(part for value in (*SMALL, *VALUES, *values) for part in ("--set", value))]


def environment(cache: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "TINY_TRANSFORMER_CACHE": str(cache),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "GLOO_SOCKET_IFNAME": "lo",
        **more,
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_two_processes_train_the_same_weights_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    train(small_recipe(*VALUES, "training.accumulation=2"), "", tmp_path / "one", device="cpu")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    done = subprocess.run(
        [*torchrun, *arguments(tmp_path / "two")],
        env=environment(tmp_path / "cache"),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    one, two = (load_checkpoint(tmp_path / "runs" / name / "last") for name in ("one", "two"))
    weights = [name for name in one[1] if name.startswith("model/")]
    for name in weights:
        torch.testing.assert_close(two[1][name], one[1][name], rtol=1e-4, atol=1e-5)
    losses = [[entry["loss"] for entry in state.curve] for state, _ in (one, two)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert one[0].tokens == two[0].tokens
    assert Bundle.open(tmp_path / "two")
    assert done.stderr.count("wrote ") == 1  # one process talks
    assert done.stderr.count("2 × cpu") == 1
    assert "FutureWarning" not in done.stderr


@pytest.mark.slow
def test_a_lost_process_ends_the_run_with_a_sentence_and_the_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    port = str(free_port())
    values = ("training.max_steps=100000", "training.checkpoint_minutes=0.002")
    ranks = [
        subprocess.Popen(
            [sys.executable, *arguments(tmp_path / "model", *values)],
            env=environment(
                tmp_path / "cache",
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    last = tmp_path / "runs" / "model" / "last"
    try:
        deadline = time.monotonic() + 120
        while not has_checkpoint(last):
            assert time.monotonic() < deadline
            assert ranks[0].poll() is None, ranks[0].communicate()[1]
            time.sleep(0.05)
        ranks[1].send_signal(signal.SIGKILL)
        _, said = ranks[0].communicate(timeout=60)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
            assert rank.stderr is not None
            rank.stderr.close()
    assert ranks[0].returncode == 2
    assert "error: Another process of this run ended" in said
    assert "--resume" in said
    assert "Traceback" not in said
    reached = load_checkpoint(last)[0].step
    recipe = small_recipe(*VALUES, f"training.max_steps={reached + 3}", "training.evaluations=1")
    with pytest.raises(Exception, match="another evaluations"):
        train(recipe, "", tmp_path / "model", resume=True, device="cpu")
    train(small_recipe(*VALUES, f"training.max_steps={reached + 3}"), "", tmp_path / "model", resume=True, device="cpu")
    assert load_checkpoint(last)[0].step == reached + 3
