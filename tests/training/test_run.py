"""A whole run: what it leaves behind, how it stops, and that it can go on."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.training_fixtures import small_recipe, write_jsonl, write_pairs
from tiny_transformer import atomic
from tiny_transformer.bundle import Bundle
from tiny_transformer.errors import BundleError, TrainingError
from tiny_transformer.training import finish
from tiny_transformer.training.checkpoint import load_checkpoint
from tiny_transformer.training.evaluator import Evaluator
from tiny_transformer.training.objective import Objective
from tiny_transformer.training.run import train
from tiny_transformer.weights import read_weights

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def metrics(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_run_leaves_a_whole_model_folder_and_its_story(tmp_path: Path) -> None:
    out = tmp_path / "model"
    recipe = small_recipe("training.max_steps=12", "evaluation.test=true")
    bundle = train(recipe, "", out)
    assert bundle is not None
    assert set(bundle.files()) == {
        "config.json",
        "evaluation.jsonl",
        "generation.json",
        "model.safetensors",
        "tokenizer.json",
        "training.json",
        "training.png",
    }
    assert {entry.dtype for entry in bundle.index.tensors.values()} == {"F16"}
    assert (out / "training.png").read_bytes().startswith(b"\x89PNG")
    story = json.loads((out / "training.json").read_text(encoding="utf-8"))
    assert story["steps"] == 12
    assert story["recipe"]["training"]["max_steps"] == 12
    assert story["results"]["test"]["words"]["metrics"]["exact_match"] >= 0.0
    assert [entry["step"] for entry in story["dev_history"]] == [6, 12]
    lines = (out / "evaluation.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 500
    assert all(json.loads(line)["source"] == json.loads(line)["target"][::-1] for line in lines)
    logged = metrics(tmp_path / "runs" / "model")
    assert [entry["step"] for entry in logged if "loss" in entry] == [5, 6, 10, 12]
    assert [entry["step"] for entry in logged if "dev_loss" in entry] == [6, 12]
    with pytest.raises(BundleError, match="--overwrite"):
        train(recipe, "", out)


def test_the_loss_falls(tmp_path: Path) -> None:
    train(small_recipe("training.max_steps=60", "training.evaluations=1"), "", tmp_path / "model")
    losses = [entry["loss"] for entry in metrics(tmp_path / "runs" / "model") if "loss" in entry]
    assert losses[0] > 4.0
    assert losses[-1] < losses[0] - 1.5


def test_reported_figures_are_those_of_the_rounded_weights(tmp_path: Path) -> None:
    recipe = small_recipe("training.max_steps=10")
    bundle = train(recipe, "", tmp_path / "model")
    assert bundle is not None
    from tiny_transformer.model import load_model

    evaluator = Evaluator(recipe, "", bundle.tokenizer, bundle.config, torch.device("cpu"))
    story = json.loads((tmp_path / "model" / "training.json").read_text(encoding="utf-8"))
    assert evaluator.loss(load_model(bundle))["loss"] == pytest.approx(story["results"]["dev"]["loss"], rel=1e-6)


def test_an_unfinished_run_is_neither_forgotten_nor_mixed_with_another(tmp_path: Path) -> None:
    recipe = small_recipe("training.max_steps=4", "training.evaluations=1")
    train(recipe, "", tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / "aside")
    with pytest.raises(TrainingError, match="--resume"):
        train(recipe, "", tmp_path / "model")
    other = small_recipe("training.max_steps=4", "training.evaluations=1", "training.learning_rate=0.5")
    with pytest.raises(TrainingError, match="another learning_rate"):
        train(other, "", tmp_path / "model", resume=True)
    longer = small_recipe("training.max_steps=6", "training.evaluations=1")
    train(longer, "", tmp_path / "model", resume=True)
    assert load_checkpoint(tmp_path / "runs" / "model" / "last")[0].step == 6


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "model"
    run_dir.mkdir(parents=True)
    (run_dir / "metrics.jsonl").write_text("theirs")
    with atomic.locked_folder(run_dir), pytest.raises(TrainingError, match="model is in use by another run; wait for"):
        train(small_recipe("training.max_steps=2"), "", tmp_path / "model", overwrite=True)
    assert (run_dir / "metrics.jsonl").read_text() == "theirs"


def test_resume_without_a_run_starts_one(tmp_path: Path) -> None:
    train(small_recipe("training.max_steps=2"), "", tmp_path / "model", resume=True)
    assert Bundle.open(tmp_path / "model")


def test_a_loss_that_is_not_a_number_stops_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Objective.forward, []

    def poisoned(self: Objective, *batch: Any) -> torch.Tensor:
        calls.append(1)
        loss = real(self, *batch)
        return loss * math.nan if len(calls) > 12 and self.training else loss

    monkeypatch.setattr(Objective, "forward", poisoned)
    recipe = small_recipe("training.max_steps=60", "training.checkpoint_minutes=0", "training.evaluations=1")
    with pytest.raises(TrainingError, match="The loss became nan before step") as error:
        train(recipe, "", tmp_path / "model")
    assert str(tmp_path / "runs" / "model" / "last") in str(error.value)
    state, tensors = load_checkpoint(tmp_path / "runs" / "model" / "last")
    assert state.step == 12
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
    assert not (tmp_path / "model").exists()


def test_out_of_memory_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(self: Objective, *batch: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Objective, "forward", greedy)
    with pytest.raises(TrainingError, match=r"Out of memory at step 0; lower --batch-tokens \(now 256\)"):
        train(small_recipe("training.max_steps=4"), "", tmp_path / "model")


def test_early_stopping_ends_a_run_that_no_longer_gets_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([3.0, 2.0, 2.5, 2.4, 1.0])
    monkeypatch.setattr(Evaluator, "quick", lambda self, model: {"loss": next(scores)})
    recipe = small_recipe(
        "training.max_steps=50", "training.evaluations=5", "training.patience=2", "evaluation.metric=loss"
    )
    train(recipe, "", tmp_path / "model")
    state, _ = load_checkpoint(tmp_path / "runs" / "model" / "last")
    assert state.step == 40
    assert state.best == {"step": 20, "loss": 2.0}
    best, _ = load_checkpoint(tmp_path / "runs" / "model" / "best")
    assert best.step == 20


def test_the_folder_gets_the_best_weights_not_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([1.0, 2.0])
    monkeypatch.setattr(Evaluator, "quick", lambda self, model: {"loss": next(scores)})
    train(small_recipe("training.max_steps=10", "evaluation.metric=loss"), "", tmp_path / "model")
    _, best = load_checkpoint(tmp_path / "runs" / "model" / "best")
    weights = read_weights(tmp_path / "model" / "model.safetensors")
    assert np.array_equal(
        weights["embedding.tokens.weight"], best["model/embedding.tokens.weight"].numpy().astype(np.float16)
    )


def test_phases_follow_one_another_with_their_own_mix(tmp_path: Path) -> None:
    write_jsonl(
        tmp_path / "i.jsonl", [{"questions": [f"q {i} {j}" for j in range(20)], "answer": "yes"} for i in range(3)]
    )
    write_jsonl(tmp_path / "d.jsonl", [{"turns": ["hello there", "general"]}] * 30)
    recipe_file = tmp_path / "r.toml"
    recipe_file.write_text(
        """
task = "chat"
[tokenizer]
vocab_size = 280
[training]
max_steps = 20
[evaluation]
metric = "accuracy"
[[phases]]
name = "one"
share = 0.6
repeat = { talk = 0.0 }
[[phases]]
name = "two"
share = 0.4
learning_rate = 1e-4
repeat = { rest = 0.0 }
[[sources]]
name = "talk"
path = "i.jsonl"
format = "intents"
held_out = { dev = 0.2 }
[[sources]]
name = "rest"
path = "d.jsonl"
format = "dialogues"
""",
        encoding="utf-8",
    )
    recipe = small_recipe("model.n_encoder_layers=0", "model.max_length=32", name=str(recipe_file))
    bundle = train(recipe, str(tmp_path), tmp_path / "model")
    assert bundle is not None
    assert bundle.generation.roles == bundle.tokenizer.roles
    state, _ = load_checkpoint(tmp_path / "runs" / "model" / "last")
    assert (state.phase, state.step, state.phase_step) == (1, 20, 8)
    rates = {entry["step"]: entry["learning_rate"] for entry in metrics(tmp_path / "runs" / "model") if "loss" in entry}
    assert rates[5] > 5e-4
    assert rates[20] < 1e-4
    assert (
        "accuracy"
        in json.loads((tmp_path / "model" / "training.json").read_text())["results"]["dev_by_source"]["talk"]["metrics"]
    )


def test_a_text_file_of_ones_own_is_enough(tmp_path: Path) -> None:
    write_pairs(tmp_path / "mine.tsv", [(f"wort {i}", f"word {i}") for i in range(300)])
    bundle = train(small_recipe("training.max_steps=3"), str(tmp_path / "mine.tsv"), tmp_path / "model")
    assert bundle is not None
    story = json.loads((tmp_path / "model" / "training.json").read_text(encoding="utf-8"))
    assert list(story["data"].values()) == [
        __import__("hashlib").sha256((tmp_path / "mine.tsv").read_bytes()).hexdigest()
    ]
    held = [json.loads(line)["source"] for line in (tmp_path / "model" / "evaluation.jsonl").read_text().splitlines()]
    assert 0 < len(held) < 30


def test_without_matplotlib_the_run_still_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    assert finish.loss_curve([{"step": 1, "loss": 2.0}], [], "x") is None
    assert "pip install matplotlib" in caplog.text


def test_tracking_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "trackio", None)
    with pytest.raises(TrainingError, match="pip install trackio"):
        train(small_recipe("training.max_steps=2"), "", tmp_path / "model", track=True)


def chat_recipe(*overrides: str) -> Any:
    return small_recipe("model.n_encoder_layers=0", "tokenizer.vocab_size=300", *overrides, name="chat")


def test_dialogues_of_ones_own_are_judged_by_their_loss(tmp_path: Path) -> None:
    dialogues = [{"turns": [f"What is {i}?", f"It is {i}."]} for i in range(200)]
    file = write_jsonl(tmp_path / "mine.jsonl", dialogues)
    found = train(chat_recipe("training.max_steps=4"), str(file), tmp_path / "model")
    assert found is not None
    story = json.loads((found.folder / "training.json").read_text(encoding="utf-8"))
    assert story["recipe"]["evaluation"]["metric"] == "loss"
    assert [sorted(entry) for entry in story["dev_history"]] == [["loss", "perplexity", "step"]] * 2


def test_a_few_dialogues_are_all_learned_from_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write_jsonl(tmp_path / "mine.jsonl", [{"turns": ["Who are you?", "I am Pip."]}] * 5)
    found = train(chat_recipe("training.max_steps=4"), str(file), tmp_path / "model")
    assert found is not None
    assert "no example is left for dev" in caplog.text
    assert "· dev" not in capfd.readouterr().err
    assert json.loads((found.folder / "training.json").read_text(encoding="utf-8"))["dev_history"] == []


def test_more_files_of_ones_own_are_read_like_the_first_and_credited_to_nobody_else(tmp_path: Path) -> None:
    files = [
        write_jsonl(tmp_path / f"{name}.jsonl", [{"turns": [f"{name} {i}?", f"{i}."]} for i in range(60)])
        for name in ("mine", "more")
    ]
    recipe = small_recipe(
        "model.n_encoder_layers=0",
        "tokenizer.vocab_size=300",
        "training.max_steps=2",
        name="chat",
        also=[str(files[1])],
    )
    found = train(recipe, str(files[0]), tmp_path / "model")
    assert found is not None
    sources = json.loads((found.folder / "training.json").read_text(encoding="utf-8"))["recipe"]["sources"]
    assert [source["name"] for source in sources] == ["mine.jsonl", "more"]
    assert {source["licence"] + source["attribution"] for source in sources} == {""}
    assert all("interleave_with" not in transform for source in sources for transform in source["transforms"])
