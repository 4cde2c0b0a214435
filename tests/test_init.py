"""`init`: a folder of random weights, or one sentence and no folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.models import Finished
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import PRESETS, ModelConfig
from tiny_transformer.model import load_model
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.recipe import load_recipe

Run = Callable[..., Finished]
SMALL = ("--d-model", "16", "--n-heads", "2", "--d-ff", "24", "--max-length", "16", "--vocab-size", "300")


@pytest.mark.parametrize("preset", ["tiny", "tiny-gpt"])
def test_a_preset_becomes_a_folder(run_cli: Run, tmp_path: Path, preset: str) -> None:
    done = run_cli("init", tmp_path / "new" / "model", "--preset", preset)
    assert (done.code, done.out) == (0, "")
    assert f"info {tmp_path / 'new' / 'model'}" in done.err
    bundle = Bundle.open(tmp_path / "new" / "model")
    assert bundle.config == PRESETS[preset]
    assert bundle.generation.task == ("translate" if preset == "tiny" else "chat")
    assert bundle.generation.roles == ({} if preset == "tiny" else bundle.tokenizer.roles)
    load_model(bundle)


def test_every_field_of_the_config_is_an_option(run_cli: Run, tmp_path: Path) -> None:
    wanted = ModelConfig(
        vocab_size=270,
        d_model=32,
        n_heads=2,
        n_encoder_layers=1,
        n_decoder_layers=3,
        d_ff=40,
        max_length=20,
        dropout=0.25,
        bias=False,
        norm="post",
        activation="gelu",
        positions="rotary",
        residual=False,
        tie_embeddings=False,
        scale_embeddings=False,
    )
    options: list[str] = []
    for name, value in wanted.to_dict().items():
        flag = name.replace("_", "-")
        options += [f"--{flag if value else f'no-{flag}'}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    assert run_cli("init", tmp_path / "m", *options).code == 0
    assert Bundle.open(tmp_path / "m").config == wanted


def test_options_override_the_preset_and_decoder_only_has_gpts_choices(run_cli: Run, tmp_path: Path) -> None:
    assert run_cli("init", tmp_path / "a", "--preset", "tiny", "--d-ff", "32", "--no-bias").code == 0
    assert Bundle.open(tmp_path / "a").config == PRESETS["tiny"].with_changes(d_ff=32, bias=False)
    assert run_cli("init", tmp_path / "b", "--architecture", "decoder-only", *SMALL, "--task", "complete").code == 0
    bundle = Bundle.open(tmp_path / "b")
    assert (bundle.config.activation, bundle.config.positions, bundle.generation.task) == (
        "gelu",
        "learned",
        "complete",
    )


def test_the_seed_decides_the_bytes(run_cli: Run, tmp_path: Path) -> None:
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert run_cli("init", tmp_path / name, *SMALL, "--seed", seed).code == 0
    hashes = [Bundle.open(tmp_path / name).hashes() for name in "abc"]
    assert hashes[0] == hashes[1] != hashes[2]


def test_half_and_a_tokenizer_of_ones_own(run_cli: Run, tmp_path: Path, trained_tokenizer: Tokenizer) -> None:
    trained_tokenizer.save(tmp_path / "tokenizer.json")
    done = run_cli("init", tmp_path / "m", "--preset", "tiny", "--half", "--tokenizer", tmp_path / "tokenizer.json")
    assert done.code == 0
    bundle = Bundle.open(tmp_path / "m")
    assert bundle.config.vocab_size == trained_tokenizer.vocab_size
    assert bundle.tokenizer.to_json() == trained_tokenizer.to_json()
    assert {entry.dtype for entry in bundle.index.tensors.values()} == {"F16"}


def test_an_existing_model_is_replaced_only_when_asked(run_cli: Run, tmp_path: Path) -> None:
    assert run_cli("init", tmp_path / "m", *SMALL).code == 0
    before = Bundle.open(tmp_path / "m").hashes()
    done = run_cli("init", tmp_path / "m", *SMALL, "--seed", "9")
    assert done == Finished(2, "", f"error: {tmp_path / 'm'} already holds a model; add --overwrite to replace it.\n")
    assert Bundle.open(tmp_path / "m").hashes() == before
    assert run_cli("init", tmp_path / "m", *SMALL, "--seed", "9", "--overwrite").code == 0
    assert Bundle.open(tmp_path / "m").hashes() != before


BAD = [
    (("--n-heads", "3"), "n_heads is 3, which does not divide d_model 16"),
    (("--n-heads", "4"), "multiple of 8"),
    (("--d-model", "15", "--n-heads", "1"), "d_model is 15, but sinusoidal positions"),
    (("--dropout", "nan"), "dropout is nan"),
    (("--dropout", "-1"), "dropout is -1.0"),
    (("--vocab-size", "100"), "vocab_size is 100; without training data choose 262 to"),
    (("--vocab-size", "0"), "vocab_size is 0; choose"),
    (("--max-length", "0"), "max_length is 0; choose"),
    (("--n-decoder-layers", "-1"), "n_decoder_layers is -1; choose"),
    (("--n-encoder-layers", "0"), "n_encoder_layers is 0; choose"),
    (("--preset", "tiny", "--architecture", "decoder-only"), "a decoder-only model has no encoder; set it to 0"),
    (("--task", "chat"), "task is chat, which a model that is encoder-decoder cannot do; choose another --task"),
    (
        ("--architecture", "decoder-only", "--task", "translate"),
        "task is translate, which a model that is decoder-only cannot do",
    ),
    (("--seed", "-1"), "--seed is -1; choose"),
    (("--seed", str(10**30)), "--seed is 10"),
    (("--d-model", "65536", "--d-ff", "65536", "--n-encoder-layers", "1024"), "parameters, more than the"),
    (("--tokenizer", "gone.json"), "gone.json does not exist"),
    (("--tokenizer", "small.json"), "vocab_size is 300, but small.json has 280 tokens; leave --vocab-size out"),
    (("--tokenizer", "broken.json"), "broken.json is not a tokenizer file"),
]


@pytest.mark.parametrize(
    ("options", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Tokenizer.synthetic(280).save(tmp_path / "small.json")
    (tmp_path / "broken.json").write_text("{")
    done = run_cli("init", "deep/model", *SMALL, *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert message in done.err
    assert {path.name for path in tmp_path.iterdir()} == {"small.json", "broken.json"}


def test_a_place_where_nothing_can_be_written_is_named(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_cli("init", tmp_path / "file" / "model", *SMALL)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert str(tmp_path / "file") in done.err


def test_the_current_folder_is_not_pulled_away(run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_cli("init", ".", *SMALL)
    assert done.code == 2
    assert "current folder" in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("preset", "recipe"),
    [("tiny", "tiny"), ("translate", "translate"), ("chat", "chat"), ("multi30k", "multi30k-en-de")],
)
def test_a_preset_is_the_model_of_the_recipe_of_its_name(preset: str, recipe: str) -> None:
    assert PRESETS[preset] == load_recipe(recipe).model
