"""A trained model goes on learning: its weights, its vocabulary, and whom to thank for what it knew."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_driver import stand_in_report
from training_fixtures import small_recipe, write_jsonl, write_pairs

from export.training_facts import training_facts
from tiny_transformer.bundle import TRAINING, WEIGHTS, Bundle
from tiny_transformer.errors import ConfigError, ParityError
from tiny_transformer.parity.report import write_report
from tiny_transformer.training.checkpoint import LAST, load_checkpoint
from tiny_transformer.training.origin import Origin
from tiny_transformer.training.recipe import load_recipe
from tiny_transformer.training.run import train

STILL = "training.learning_rate=1e-12"  # a run that changes nothing shows where it started


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model that has learnt a little."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        folder = tmp_path_factory.mktemp("base") / "words"
        train(small_recipe("training.max_steps=30"), "", folder)
        yield folder


def weights_of(bundle: Bundle) -> np.ndarray:
    weights = bundle.weights()
    return np.concatenate([weights[name].astype(np.float32).ravel() for name in sorted(weights)])


def test_the_run_starts_where_the_folder_ended(base: Path, tmp_path: Path) -> None:
    origin = Origin.open(str(base))
    recipe = origin.fit(small_recipe("training.max_steps=1", STILL, "model.d_model=32", "model.dropout=0.3"))
    found = train(recipe, "", tmp_path / "more", origin=origin)
    fresh = train(small_recipe("training.max_steps=1", STILL), "", tmp_path / "fresh")
    assert found is not None
    assert fresh is not None
    assert found.config.d_model == origin.bundle.config.d_model, "the shape is the folder's"
    assert found.config.dropout == 0.3
    assert np.array_equal(weights_of(found), weights_of(origin.bundle))
    assert not np.allclose(weights_of(fresh), weights_of(origin.bundle), atol=0.01)
    assert (found.folder / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()


def test_other_text_is_learnt_with_the_old_vocabulary(base: Path, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "mine.tsv", [(f"x{i}y", f"y{i}x") for i in range(300)])
    origin = Origin.open(str(base))
    recipe = origin.fit(small_recipe("training.max_steps=20"))
    found = train(recipe, str(pairs), tmp_path / "mine", origin=origin)
    assert found is not None
    assert found.config.vocab_size == origin.bundle.config.vocab_size
    assert np.abs(weights_of(found) - weights_of(origin.bundle)).max() > 1e-3
    story = json.loads((found.folder / TRAINING).read_text(encoding="utf-8"))
    assert story["started_from"]["name"] == "words"
    assert story["started_from"]["sha256"] == origin.bundle.hashes()[WEIGHTS]
    assert [source["name"] for source in story["recipe"]["sources"]] == ["mine.tsv"]
    assert [source.name for source in training_facts(found).sources] == ["mine.tsv", "words"]
    # And once more: the first data is not forgotten.
    second = Origin.open(str(found.folder))
    assert [source["name"] for source in second.told()["sources"]] == ["mine.tsv", "words"]


def test_a_run_that_is_resumed_still_knows_its_origin(base: Path, tmp_path: Path) -> None:
    origin = Origin.open(str(base))
    run_dir = tmp_path / "run"
    for steps in (2, 4):
        recipe = origin.fit(small_recipe(f"training.max_steps={steps}"))
        train(recipe, "", tmp_path / "more", run_dir=run_dir, resume=True, overwrite=True, origin=origin)
        state, _ = load_checkpoint(run_dir / LAST)
        assert state.started_from["name"] == "words"
        assert state.step == steps


def test_what_does_not_fit_is_refused(base: Path, tmp_path: Path) -> None:
    origin = Origin.open(str(base))
    with pytest.raises(ConfigError, match=r"words was trained to translate, recipe chat is to chat; match them"):
        origin.fit(load_recipe("chat"))
    with pytest.raises(ConfigError, match=r"model\.d_ff cannot be changed.*leave it out"):
        origin.fit(small_recipe(), ["model.dropout=0.2", "model.d_ff=64"])
    write_report(origin.bundle, stand_in_report(origin.bundle))
    try:
        Origin.open(str(base))
        data = bytearray((base / WEIGHTS).read_bytes())
        data[-2] ^= 1
        copy = tmp_path / "copy"
        copy.mkdir()
        for file in base.iterdir():
            (copy / file.name).write_bytes(file.read_bytes() if file.name != WEIGHTS else bytes(data))
        with pytest.raises(ParityError, match=WEIGHTS):
            Origin.open(str(copy))
    finally:
        (base / "parity.json").unlink()


def test_on_the_command_line(base: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    dialogues = write_jsonl(tmp_path / "d.jsonl", [{"turns": ["a", "b"]}] * 3)
    refused = run_cli("train", "chat", "--start-from", base, "--data", dialogues, "--out", tmp_path / "x")
    assert refused.code == 2
    assert "was trained to translate" in refused.err
    refused = run_cli("train", "tiny", "--start-from", base, "--d-model", "64", "--out", tmp_path / "x")
    assert refused.code == 2
    assert "model.d_model cannot be changed" in refused.err
    refused = run_cli("train", "tiny", "--start-from", tmp_path / "nowhere", "--out", tmp_path / "x")
    assert refused.code == 2
    assert "nowhere is not a folder" in refused.err
    options = ["--max-steps", "2", "--max-minutes", "0", "--set", "evaluation.test=false", "--set"]
    few = "sources.words.held_out={dev=0.002, test=0.03}"
    done = run_cli("train", "tiny", "--start-from", base, *options, few, "--out", tmp_path / "x")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "x" / TRAINING).read_text(encoding="utf-8"))["started_from"]["name"] == "words"
