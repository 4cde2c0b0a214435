"""`train`: from text to a model folder, by a recipe.

Under torchrun the same command trains on many devices.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

EXAMPLE = "python -m tiny_transformer train tiny --out checkpoints/tiny"

# Values that are changed most often have an option of their own: option → key of the recipe.
_SHORTCUTS = {
    "seed": ("training", int),
    "max_minutes": ("training", float),
    "max_steps": ("training", int),
    "max_epochs": ("training", float),
    "batch_tokens": ("training", int),
    "accumulation": ("training", int),
    "learning_rate": ("training", float),
    "warmup_steps": ("training", int),
    "label_smoothing": ("training", float),
    "clip_norm": ("training", float),
    "ema_decay": ("training", float),
    "precision": ("training", str),
    "compile": ("training", str),
    "evaluations": ("training", int),
    "num_beams": ("evaluation", int),
    "vocab_size": ("tokenizer", int),
    "d_model": ("model", int),
    "n_heads": ("model", int),
    "n_encoder_layers": ("model", int),
    "n_decoder_layers": ("model", int),
    "d_ff": ("model", int),
    "max_length": ("model", int),
    "dropout": ("model", float),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Recipe, data, place, and every value of the recipe."""
    parser.add_argument("recipe", metavar="RECIPE", help="tiny, multi30k-en-de, translate, chat, or a TOML file")
    parser.add_argument("--data", default="", metavar="PATH", help="a folder, a file, or hf://datasets/…")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the model folder to write")
    parser.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="checkpoints and metrics (default: runs/ beside it)"
    )
    parser.add_argument("--resume", action="store_true", help="go on with an unfinished run, if there is one")
    parser.add_argument("--overwrite", action="store_true", help="replace the model folder, or restart a run")
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--track", action="store_true", help="send metrics to trackio as well")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any value, as training.beta2=0.95"
    )
    for name, (section, kind) in _SHORTCUTS.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=kind, metavar="N", help=f"the recipe's {section}.{name}")


def run(options: argparse.Namespace) -> None:
    """Train and write the folder."""
    from tiny_transformer.training.recipe import load_recipe
    from tiny_transformer.training.run import train

    first = os.environ.get("RANK", "0") == "0"  # of many processes, one talks
    logging.basicConfig(level=logging.INFO if first else logging.ERROR, format="%(message)s", stream=sys.stderr)
    shortcuts = [
        f"{section}.{name}={getattr(options, name)}"
        for name, (section, _) in _SHORTCUTS.items()
        if getattr(options, name) is not None
    ]
    bundle = train(
        load_recipe(options.recipe, [*options.set, *shortcuts]),
        options.data,
        options.out,
        run_dir=options.run_dir,
        resume=options.resume,
        overwrite=options.overwrite,
        device=options.device,
        track=options.track,
    )
    if bundle is not None:
        print(
            f"wrote {bundle.folder}; look at it with: python -m tiny_transformer info {bundle.folder}", file=sys.stderr
        )
