"""The loop costs next to nothing beside the arithmetic it runs."""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks import training_speed
from benchmarks.training_speed import covered
from tests.support.in_turns import ratio_in_turns
from tests.support.training_fixtures import byte_tokenizer, small_recipe, write_pairs
from tiny_transformer.data.batches import TrainingData
from tiny_transformer.data.source import Source
from tiny_transformer.model import build_model
from tiny_transformer.training.checkpoint import RunState
from tiny_transformer.training.distributed import World
from tiny_transformer.training.loop import StepBatch, Trainer
from tiny_transformer.training.objective import Objective
from tiny_transformer.training.progress import Reporter
from tiny_transformer.training.recipe import load_recipe
from tiny_transformer.training.schedule import optimizer_groups

STEPS = 2


@pytest.mark.alone
def test_a_step_takes_at_most_a_tenth_longer_than_a_bare_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    recipe = small_recipe("model.d_model=128", "model.d_ff=512", "training.batch_tokens=1024", "training.max_steps=9")
    tokenizer = byte_tokenizer()
    data = TrainingData(recipe.sources, "", tokenizer, recipe.model.max_length)
    reporter = Reporter(tmp_path / "metrics.jsonl", talks=False, name="speed", track=False, after_step=0)
    model = build_model(recipe.model.with_changes(vocab_size=262), torch.Generator().manual_seed(0))
    world = World(0, 1, torch.device("cpu"))
    trainer = Trainer(recipe, model, data, None, world, tmp_path, reporter, RunState())
    trainer.start_phase(None)
    steps = trainer.steps(recipe.phases[0])
    fixed = next(steps)

    bare_model = build_model(recipe.model.with_changes(vocab_size=262), torch.Generator().manual_seed(0))
    bare = Objective(bare_model.train(), 0.0, autocast=False)
    optimizer = torch.optim.AdamW(optimizer_groups(bare_model, 0.01), lr=1e-3)

    def bare_step() -> None:
        (batch,) = fixed.parts
        (bare(batch.source, batch.source_mask, batch.target, batch.picked, batch.labels) / fixed.learned).backward()
        torch.nn.utils.clip_grad_norm_(bare_model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def loop_step() -> None:
        # Fetching a batch is part of the loop; its content is then the same as in the bare one.
        fetched = next(steps)
        trainer.step(StepBatch(fixed.parts, fixed.tokens, fixed.learned, fetched.epoch, fetched.epoch_step), 1e-3)

    def seconds(step: Callable[[], None]) -> float:
        began = time.process_time()
        for _ in range(STEPS):
            step()
        return time.process_time() - began

    bare_step()
    loop_step()
    ratio = ratio_in_turns(partial(seconds, loop_step), partial(seconds, bare_step), 1.1, at_most=40)
    steps.close()
    assert ratio <= 1.1


def test_the_share_of_busy_time_is_that_of_the_union() -> None:
    assert covered([(0.0, 4.0), (2.0, 5.0), (8.0, 10.0)]) == pytest.approx(0.7)  # overlaps count once, gaps not
    assert covered([(3.0, 4.0), (1.0, 9.0)]) == 1.0


@pytest.mark.slow
def test_the_benchmark_measures_both_shapes_and_writes_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that runs on a GPU, on the smallest of everything."""
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(training_speed, "PROFILED_STEPS", 2)
    monkeypatch.setattr(training_speed, "GPT", ("model.max_length=64",))
    pairs = write_pairs(tmp_path / "pairs.tsv", [(f"wort {i} so", f"word {i} such") for i in range(300)])
    (tmp_path / "text.txt").write_text("some words here\n\n" * 200, encoding="utf-8")
    monkeypatch.setattr(training_speed, "random_pairs", lambda folder: Source(name="p", path=str(pairs)))
    text = Source(name="t", path=str(tmp_path / "text.txt"), format="text", packing=True)
    monkeypatch.setattr(training_speed, "random_text", lambda folder: text)
    sizes = ["model.d_model=16", "model.n_heads=2", "model.d_ff=16", "model.n_decoder_layers=1"]
    sizes += ["training.batch_tokens=256", "tokenizer.vocab_size=300"]
    arguments = ["training_speed", "--device", "cpu", "--seconds", "0.2", "--warmup-seconds", "0.1"]
    arguments += [part for size in sizes for part in ("--set", size)]
    monkeypatch.setattr("sys.argv", [*arguments, "--out", str(tmp_path / "speed.json")])
    training_speed.main()
    found = json.loads((tmp_path / "speed.json").read_text(encoding="utf-8"))
    assert found["versions"]["torch"] == torch.__version__
    assert found["hardware"]["machine"]
    translate, gpt = (found["shapes"][name] for name in ("translate", "gpt"))
    assert translate["r_drop"] == load_recipe("translate").training.r_drop > 0
    assert translate["tokens_per_second_with_r_drop"] > 0
    assert translate["tokens_per_second"] > 0
    assert gpt["tokens_per_second"] > 0
    assert "r_drop" not in gpt
    for shape in (translate, gpt):
        assert 0 < shape["busy_share"] <= 1
    assert "tokens_per_second" in capsys.readouterr().out


def test_data_that_is_missing_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--device", "cpu", "--data", str(tmp_path / "nowhere"), "--out", str(tmp_path / "result.json")]
    monkeypatch.setattr(sys, "argv", ["training_speed", *arguments])
    assert training_speed.main() == 2
    assert capsys.readouterr().err.count("\n") == 1
