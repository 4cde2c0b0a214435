"""One step of the loop against the same step by hand; precision, compilation, and what a run says while it goes on."""

import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.training_fixtures import byte_tokenizer, small_recipe
from tiny_transformer.data.batches import TrainingData
from tiny_transformer.model import build_model
from tiny_transformer.training.checkpoint import RunState
from tiny_transformer.training.distributed import World
from tiny_transformer.training.loop import Trainer
from tiny_transformer.training.progress import Reporter
from tiny_transformer.training.recipe import load_recipe
from tiny_transformer.training.run import train
from tiny_transformer.training.schedule import optimizer_groups


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))


def trainer(tmp_path: Path, *overrides: str) -> Trainer:
    recipe = small_recipe("training.max_steps=9", "training.average=none", *overrides)
    tokenizer = byte_tokenizer()
    model = build_model(recipe.model.with_changes(vocab_size=262), torch.Generator().manual_seed(0))
    data = TrainingData(recipe.sources, "", tokenizer, recipe.model.max_length)
    reporter = Reporter(tmp_path / "metrics.jsonl", talks=False, name="test", track=False, after_step=0)
    made = Trainer(recipe, model, data, None, World(0, 1, torch.device("cpu")), tmp_path, reporter, RunState())
    made.start_phase(None)
    return made


@pytest.mark.parametrize("clip_norm", [0.05, 0.0])
def test_a_step_is_adamw_on_the_clipped_gradient_of_the_mean_loss(tmp_path: Path, clip_norm: float) -> None:
    # Without biases: that of a key changes nothing, so its gradient is noise, which Adam blows up to full steps.
    values = ["training.label_smoothing=0.1", "training.weight_decay=0.3", "training.beta2=0.9", "model.bias=false"]
    made = trainer(tmp_path, *values, f"training.clip_norm={clip_norm}")
    model = build_model(made.recipe.model.with_changes(vocab_size=262), torch.Generator().manual_seed(0)).train()
    optimizer = torch.optim.AdamW(optimizer_groups(model, 0.3), lr=1e-2, betas=(0.9, 0.9))
    steps = made.steps(made.recipe.phases[0])
    norms = []
    for _ in range(3):
        step = next(steps)
        made.step(step, 1e-2)
        (batch,) = step.parts
        assert batch.source is not None
        logits = model(batch.source, batch.source_mask, batch.target).flatten(0, 1)[batch.picked]
        loss = torch.nn.functional.cross_entropy(logits, batch.labels, label_smoothing=0.1)
        loss.backward()
        norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])))
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        optimizer.zero_grad()
    steps.close()
    assert min(norms) > 0.05  # so that clipping makes a difference
    for found, wanted in zip(made.parameters, model.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.fixture
def _same_products_afterwards() -> Iterator[None]:
    """On a CPU without bfloat16, torch does without oneDNN after the first such product, which changes last bits."""
    enabled = torch._C._get_mkldnn_enabled()
    yield
    torch._C._set_mkldnn_enabled(enabled)


@pytest.mark.usefixtures("_same_products_afterwards")
def test_bf16_rounds_products_and_keeps_the_weights_in_float32(tmp_path: Path) -> None:
    losses = {}
    for precision in ("fp32", "bf16"):
        made = trainer(tmp_path, f"training.precision={precision}")
        seen: list[torch.dtype] = []
        made.model.decoder.layers[0].feed_forward.register_forward_hook(lambda m, i, out, to=seen: to.append(out.dtype))
        steps = made.steps(made.recipe.phases[0])
        made.step(next(steps), 1e-3)
        steps.close()
        losses[precision] = made.window_loss()
        assert seen == [torch.bfloat16 if precision == "bf16" else torch.float32]
        assert {parameter.dtype for parameter in made.parameters} == {torch.float32}
    assert losses["fp32"] != losses["bf16"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.02)


class Follower(World):
    """A rank that is told the first rank's time, whatever its own clock says."""

    def from_first(self, values: list[float]) -> list[float]:
        return next(self.told) if len(values) == 2 else values

    told = iter(())


@pytest.mark.long
@pytest.mark.parametrize("tick", [0.001, 45.0])
def test_every_rank_saves_at_the_same_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tick: float) -> None:
    """Saving sums the loss over all ranks: one that came there alone would wait for ever, or meet another sum."""
    made = trainer(tmp_path, "training.max_steps=26", "training.checkpoint_minutes=1", "training.evaluations=1")
    made.world = Follower(0, 1, torch.device("cpu"))
    monkeypatch.setattr(Follower, "told", iter([[0.0, 0.0], [100.0, 10.0], [200.0, 10.0]]))  # seconds, seconds a step
    own = itertools.count(step=tick)
    monkeypatch.setattr(time, "monotonic", lambda: next(own))
    saved: list[int] = []
    monkeypatch.setattr(made, "save", lambda: saved.append(made.state.phase_step))
    made._phase(made.recipe.phases[0])
    assert saved == [10, 17, 24, 26]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # of tracing itself
@pytest.mark.slow
def test_compiled_parts_learn_the_same_and_are_compiled_once_for_all_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced as on a GPU, run without the slow code generation: a new graph for a new shape would stall a run."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *args, **options: real(*args, **options, backend="aot_eager"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    weights, shapes = {}, set()
    for mode in ("off", "on"):
        made = trainer(tmp_path, f"training.compile={mode}", "training.batch_tokens=64")
        steps = made.steps(made.recipe.phases[0])
        for _ in range(6):
            step = next(steps)
            shapes.add(step.parts[0].target.shape)
            made.step(step, 1e-3)
        steps.close()
        weights[mode] = [parameter.detach().clone() for parameter in made.parameters]
    assert len(shapes) > 1
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3  # encoder layer, decoder layer, loss
    for compiled, plain in zip(weights["on"], weights["off"], strict=True):
        torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_the_bar_tells_loss_rate_speed_and_time_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(small_recipe("training.max_steps=5", "training.evaluations=1"), "", tmp_path / "model", device="cpu")
    said = capsys.readouterr()
    assert said.out == ""
    for part in ("step 5 · loss ", " · lr ", " tokens/s · ", " left", "dev loss "):
        assert part in said.err


@pytest.mark.long
def test_a_dashboard_gets_what_the_metrics_file_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    board = SimpleNamespace(init=lambda **about: told.append(about), log=told.append, finish=lambda: told.append("end"))
    monkeypatch.setitem(sys.modules, "trackio", board)
    train(small_recipe("training.max_steps=6"), "", tmp_path / "model", device="cpu", track=True)
    lines = (tmp_path / "runs" / "model" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    about, *entries, end = told
    assert about == {"project": "tiny-transformer", "name": "tiny"}
    assert entries == [json.loads(line) for line in lines]
    assert end == "end"


@pytest.mark.long
def test_a_run_that_came_to_nothing_leaves_no_vocabulary_to_the_next(tmp_path: Path) -> None:
    stale = byte_tokenizer().to_json()
    run_dir = tmp_path / "runs" / "model"
    run_dir.mkdir(parents=True)
    (run_dir / "tokenizer.json").write_text(stale, encoding="utf-8")
    recipe = small_recipe("training.max_steps=2", "tokenizer.vocab_size=300")
    bundle = train(recipe, "", tmp_path / "model", device="cpu")
    assert bundle is not None
    assert bundle.config.vocab_size == 300


@pytest.mark.slow
@pytest.mark.alone
def test_the_first_lesson_is_learned_in_about_half_a_minute(tmp_path: Path) -> None:
    """The recipe `tiny` as it ships, on one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        began = time.process_time()
        train(load_recipe("tiny"), "", tmp_path / "model", device="cpu")
        seconds = time.process_time() - began
    finally:
        torch.set_num_threads(threads)
    story = json.loads((tmp_path / "model" / "training.json").read_text(encoding="utf-8"))
    assert story["results"]["test"]["words"]["metrics"]["exact_match"] > 95.0
    assert seconds < 90.0, "about half a minute on a machine of today; three times that on a slow one"
