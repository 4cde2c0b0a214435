"""A trained model goes on learning: its weights, its vocabulary, and whom to thank for what it knew."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.model_card import model_card
from tests.support.hub_driver import stand_in_report
from tests.support.training_fixtures import small_recipe, write_jsonl, write_pairs
from tiny_transformer.bundle import TRAINING, WEIGHTS, Bundle
from tiny_transformer.errors import BundleError, ConfigError, ParityError, TrainingError
from tiny_transformer.parity.report import write_report
from tiny_transformer.training.checkpoint import LAST, load_checkpoint
from tiny_transformer.training.fine_tuning import BaseModel, check_changes
from tiny_transformer.training.recipe import load_recipe
from tiny_transformer.training.run import train
from tiny_transformer.training_record import TrainingRecord

pytestmark = pytest.mark.long

STILL = "training.learning_rate=1e-12"  # a run that changes nothing shows where it started
MERGES = "tokenizer.vocab_size=290"  # so that the vocabulary depends on the text it was learned from


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model that has learned a little."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        folder = tmp_path_factory.mktemp("base") / "words"
        train(small_recipe("training.max_steps=30", MERGES), "", folder)
        yield folder


def weights_of(bundle: Bundle) -> np.ndarray:
    weights = bundle.weights()
    return np.concatenate([weights[name].astype(np.float32).ravel() for name in sorted(weights)])


def test_the_run_starts_where_the_folder_ended(base: Path, tmp_path: Path) -> None:
    base_model = BaseModel.open(str(base))
    recipe = base_model.fit(small_recipe("training.max_steps=1", STILL, "model.d_model=32", "model.dropout=0.3"))
    found = train(recipe, "", tmp_path / "more", base=base_model)
    fresh = train(small_recipe("training.max_steps=1", STILL, MERGES), "", tmp_path / "fresh")
    assert found is not None
    assert fresh is not None
    assert found.config.d_model == base_model.bundle.config.d_model, "the shape is the folder's"
    assert found.config.dropout == 0.3
    assert np.array_equal(weights_of(found), weights_of(base_model.bundle))
    assert not np.allclose(weights_of(fresh), weights_of(base_model.bundle), atol=0.01)
    assert (found.folder / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()


def test_other_text_is_learned_with_the_old_vocabulary(base: Path, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "mine.tsv", [(f"x{i}y", f"y{i}x") for i in range(300)])
    base_model = BaseModel.open(str(base))
    recipe = base_model.fit(small_recipe("training.max_steps=20"))
    found = train(recipe, str(pairs), tmp_path / "mine", base=base_model)
    assert found is not None
    assert (found.folder / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()
    assert np.abs(weights_of(found) - weights_of(base_model.bundle)).max() > 1e-3
    story = json.loads((found.folder / TRAINING).read_text(encoding="utf-8"))
    assert story["started_from"]["name"] == "words"
    assert story["started_from"]["sha256"] == base_model.bundle.hashes()[WEIGHTS]
    assert [source["name"] for source in story["recipe"]["sources"]] == ["mine.tsv"]
    assert [source.name for source in TrainingRecord.read(found.folder).sources] == ["mine.tsv", "words"]
    # And once more: the first data is not forgotten.
    second = BaseModel.open(str(found.folder))
    assert [source["name"] for source in second.provenance["sources"]] == ["mine.tsv", "words"]


def test_a_run_that_is_resumed_still_knows_its_origin(base: Path, tmp_path: Path) -> None:
    base_model = BaseModel.open(str(base))
    run_dir = tmp_path / "run"
    for steps in (2, 4):
        recipe = base_model.fit(small_recipe(f"training.max_steps={steps}"))
        train(recipe, "", tmp_path / "more", run_dir=run_dir, resume=True, overwrite=True, base=base_model)
        state, _ = load_checkpoint(run_dir / LAST)
        assert state.started_from["name"] == "words"
        assert state.step == steps


def test_what_does_not_fit_is_refused(base: Path, tmp_path: Path) -> None:
    base_model = BaseModel.open(str(base))
    with pytest.raises(ConfigError, match=r"words was trained to translate, recipe chat is to chat; match them"):
        base_model.fit(load_recipe("chat"))
    with pytest.raises(ConfigError, match=r"model\.d_ff cannot be changed.*leave it out"):
        check_changes(["model.dropout=0.2", "model.d_ff=64"])
    with pytest.raises(ConfigError, match="has no name"):
        BaseModel.open("")
    write_report(base_model.bundle, stand_in_report(base_model.bundle))
    try:
        BaseModel.open(str(base))
        data = bytearray((base / WEIGHTS).read_bytes())
        data[-2] ^= 1
        copy = tmp_path / "copy"
        copy.mkdir()
        for file in base.iterdir():
            (copy / file.name).write_bytes(file.read_bytes() if file.name != WEIGHTS else bytes(data))
        with pytest.raises(ParityError, match=WEIGHTS):
            BaseModel.open(str(copy))
    finally:
        (base / "parity.json").unlink()


def copy_of(base: Path, folder: Path, **changed: bytes) -> Path:
    folder.mkdir()
    for file in base.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    for name, content in changed.items():
        (folder / f"{name}.json").write_bytes(content)
    return folder


def test_a_run_is_resumed_only_from_what_it_was_started_from(base: Path, tmp_path: Path) -> None:
    weights = bytearray((base / WEIGHTS).read_bytes())
    weights[-2] ^= 1
    (copy_of(base, tmp_path / "other") / WEIGHTS).write_bytes(bytes(weights))
    first, other = BaseModel.open(str(base)), BaseModel.open(str(tmp_path / "other"))
    out, run_dir = tmp_path / "more", tmp_path / "run"
    train(first.fit(small_recipe("training.max_steps=2")), "", out, run_dir=run_dir, base=first)
    recipe = first.fit(small_recipe("training.max_steps=4"))
    for wrong, name in ((other, "other"), (None, "nothing")):
        with pytest.raises(TrainingError, match=f"started from words, not from {name}; resume it as it was"):
            train(recipe, "", out, run_dir=run_dir, resume=True, overwrite=True, base=wrong)


@pytest.mark.parametrize(
    "content", [b"{not json", b"[]", b'{"recipe": null}', b'{"recipe": {"sources": 7}}', b"\xff\xfe"]
)
def test_a_story_that_training_never_wrote_is_refused_in_a_sentence(base: Path, tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BundleError, match=r"training\.json is not what training writes"):
        BaseModel.open(str(copy_of(base, tmp_path / "odd", training=content)))


def test_what_is_not_known_of_the_first_training_is_said(
    base: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_of(base, tmp_path / "silent")
    (folder / TRAINING).unlink()
    monkeypatch.chdir(folder)
    base_model = BaseModel.open(".")
    assert "learned from is not known" in caplog.text
    assert base_model.provenance["name"] == "silent"
    found = train(base_model.fit(small_recipe("training.max_steps=1")), "", tmp_path / "more", base=base_model)
    assert found is not None
    record = TrainingRecord.read(found.folder)
    assert (record.started_from["name"], record.started_from["sources"]) == ("silent", [])
    card = model_card(found, stand_in_report(found), "a/b")
    assert "It went on from the weights of `silent`; what that model learned from is not known." in card


def test_a_licence_is_told_only_if_it_is_that_of_both_trainings(base: Path, tmp_path: Path) -> None:
    story = json.loads((base / TRAINING).read_text(encoding="utf-8"))
    own = small_recipe("training.max_steps=1", "licence=cc-by-4.0")
    for licence, told in (("cc-by-4.0", "cc-by-4.0"), ("cc-by-nc-4.0", "")):
        story["recipe"]["licence"] = licence
        folder = copy_of(base, tmp_path / f"from-{licence}", training=json.dumps(story).encode())
        base_model = BaseModel.open(str(folder))
        found = train(base_model.fit(own), "", tmp_path / licence, base=base_model)
        assert found is not None
        assert TrainingRecord.read(found.folder).licence == told
        assert BaseModel.open(str(found.folder)).provenance["licence"] == told, (
            "nor does a third training hide the first"
        )
    assert own.with_data(own.sources[0]).licence == "", "of the user's own text no licence is known"


def test_another_pair_of_languages_is_not_taken_over_in_silence(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    BaseModel.open(str(base)).fit(small_recipe('languages=["fr", "en"]'))
    assert "will be said to know fr, en" in caplog.text


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
