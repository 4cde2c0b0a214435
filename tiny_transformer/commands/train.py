"""`train`: from text to a model folder, by a recipe.

Under torchrun the same command trains on many devices; with --seeds it trains once per seed and tells the median.
"""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiny_transformer.training.fine_tuning import BaseModel
    from tiny_transformer.training.recipe import Recipe

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
    parser.add_argument(
        "--data",
        default="",
        metavar="PATH",
        help="a folder, a file, or hf://datasets/… (default: the checkout's folder datasets)",
    )
    parser.add_argument("--also", action="append", default=[], metavar="PATH", help="more of the recipe's first source")
    parser.add_argument("--start-from", metavar="MODEL", help="the model folder, or USER/NAME, that goes on learning")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the model folder to write")
    parser.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="checkpoints and metrics (default: runs/ beside it)"
    )
    parser.add_argument("--resume", action="store_true", help="go on with an unfinished run, if there is one")
    parser.add_argument("--overwrite", action="store_true", help="replace the model folder, or restart a run")
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument(
        "--seeds", type=int, nargs="+", metavar="N", help="a run for each in DIR/seed-N, then the median"
    )
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="with --seeds: runs side by side")
    parser.add_argument("--track", action="store_true", help="send metrics to trackio as well")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any value, as training.beta2=0.95"
    )
    for name, (section, kind) in _SHORTCUTS.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=kind, metavar="N", help=f"the recipe's {section}.{name}")


def run(options: argparse.Namespace) -> None:
    """Train and write the folder, or one folder per seed."""
    from tiny_transformer.training.run import train

    first = os.environ.get("RANK", "0") == "0"  # of many processes, one talks
    logging.basicConfig(level=logging.INFO if first else logging.ERROR, format="%(message)s", stream=sys.stderr)
    if options.seeds:
        _run_seeds(options)
        return
    recipe, base = _recipe(options)
    bundle = train(
        recipe,
        options.data,
        options.out,
        run_dir=options.run_dir,
        resume=options.resume,
        overwrite=options.overwrite,
        device=options.device,
        track=options.track,
        base=base,
    )
    if bundle is not None:
        print(
            f"wrote {bundle.folder}; look at it with: python -m tiny_transformer info {bundle.folder}", file=sys.stderr
        )


def _run_seeds(options: argparse.Namespace) -> None:
    """Train once per seed; figures to stdout, one line per seed and one for the median."""
    from tiny_transformer.errors import InputError
    from tiny_transformer.training.run import prepare
    from tiny_transformer.training.seeds import RESULTS, SeedRuns, train_seeds

    for name in ("seed", "run_dir"):
        if getattr(options, name) is not None:
            raise InputError(
                "--{replace} is for a single run; leave it out where --seeds is given.", replace=name.replace("_", "-")
            )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("--seeds starts runs of its own; under torchrun give one --seed at a time.")
    values = _values(options)
    arguments = [options.recipe, *(["--data", options.data] if options.data else [])]
    for flag, given in (("--also", options.also), ("--set", values)):
        arguments += [word for value in given for word in (flag, value)]
    arguments += ["--device", options.device] if options.device else []
    arguments += ["--start-from", options.start_from] if options.start_from is not None else []
    arguments += ["--track"] if options.track else []
    runs = SeedRuns(
        tuple(options.seeds), options.out, tuple(arguments), options.at_once, options.resume, options.overwrite
    )
    recipe, base = _recipe(options)
    prepare(recipe, options.data, base)  # once, not by every run at the same time
    results = train_seeds(runs)
    for seed, figures in [*results["seeds"].items(), ("median", results["median"])]:
        for source, metrics in figures.items():
            print(f"{seed:<8} {source:<16} " + "  ".join(f"{name} {value:.2f}" for name, value in metrics.items()))
    print(f"wrote {options.out / RESULTS}", file=sys.stderr)


def _recipe(options: argparse.Namespace) -> "tuple[Recipe, BaseModel | None]":
    """The recipe with its changes, fitted to the model that it starts from, if any."""
    from tiny_transformer.training.fine_tuning import BaseModel, check_changes
    from tiny_transformer.training.recipe import load_recipe

    values = _values(options)
    if options.start_from is None:
        return load_recipe(options.recipe, values, options.also), None
    check_changes(values)
    base = BaseModel.open(options.start_from)
    return base.fit(load_recipe(options.recipe, values, options.also)), base


def _values(options: argparse.Namespace) -> list[str]:
    """Every change of the recipe as key=value; an option of its own wins over --set."""
    shortcuts = [
        f"{section}.{name}={getattr(options, name)}"
        for name, (section, _) in _SHORTCUTS.items()
        if getattr(options, name) is not None
    ]
    return [*options.set, *shortcuts]
