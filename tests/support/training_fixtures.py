"""Small data and small recipes for the tests of training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.recipe import Recipe, load_recipe

SMALL = (
    "model.d_model=16",
    "model.n_heads=2",
    "model.n_encoder_layers=1",
    "model.n_decoder_layers=1",
    "model.d_ff=16",
    "training.batch_tokens=256",
    "training.warmup_steps=3",
    "training.log_steps=5",
    "training.evaluations=2",
    "evaluation.max_examples=8",
    "evaluation.max_new_tokens=4",
    "evaluation.test=false",
)


def small_recipe(*overrides: str, name: str = "tiny", also: Sequence[str] = ()) -> Recipe:
    """The recipe `tiny`, smaller still; later overrides win."""
    few = ["sources.words.held_out={dev=0.002, test=0.03}"] if name == "tiny" else []
    return load_recipe(name, [*SMALL, *few, *overrides], also)


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    """A TSV file."""
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return path


def write_jsonl(path: Path, records: Sequence[Any]) -> Path:
    """A file with one JSON value a line."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def byte_tokenizer() -> Tokenizer:
    """A tokenizer without merges: its ids are easy to follow."""
    return Tokenizer.synthetic(262)


def learned_tokenizer() -> Tokenizer:
    """A tokenizer with merges."""
    return Tokenizer.train(["the cat sat on the mat", "a dog and the cat"] * 20, 300, show_progress=False)
