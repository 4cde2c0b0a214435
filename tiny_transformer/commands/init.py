"""`init`: make a model folder with random, well-conditioned weights."""

import argparse
import sys
from pathlib import Path
from typing import Any

from tiny_transformer.config import (
    ACTIVATIONS,
    ARCHITECTURES,
    NORMS,
    POSITIONS,
    PRESETS,
    TASKS,
    GenerationConfig,
    ModelConfig,
    preset,
)
from tiny_transformer.errors import ConfigError

EXAMPLE = "python -m tiny_transformer init /tmp/random --preset tiny"

_MAX_PARAMETERS = 1_000_000_000  # 4 GB; beyond it a typing error would fill the machine's memory
_CHOICES = {"architecture": ARCHITECTURES, "norm": NORMS, "activation": ACTIVATIONS, "positions": POSITIONS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Preset, every field of the config as an option, tokenizer, seed."""
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="the folder to make")
    parser.add_argument("--preset", choices=PRESETS, help="a named shape; options below override it")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json of ours (default: a synthetic one)")
    parser.add_argument("--task", choices=TASKS, help="default: translate, or chat for decoder-only")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights (default 0)")
    parser.add_argument("--half", action="store_true", help="store the weights as float16")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing model folder")
    add_config_options(parser)


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """One option a field of ModelConfig."""
    for name, kind in ModelConfig.__annotations__.items():
        flag = "--" + name.replace("_", "-")
        if kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None)
        else:
            parser.add_argument(flag, type=kind, choices=_CHOICES.get(name), metavar=None if name in _CHOICES else "N")


def config_from(options: argparse.Namespace) -> ModelConfig:
    """The config that preset and options describe together."""
    changes: dict[str, Any] = {
        name: getattr(options, name) for name in ModelConfig.__annotations__ if getattr(options, name) is not None
    }
    if options.preset:
        return preset(options.preset, **changes)
    if changes.get("architecture") == "decoder-only":
        return ModelConfig.gpt(**changes)
    return ModelConfig(**changes)


def run(options: argparse.Namespace) -> None:
    """Write the folder."""
    from tiny_transformer.bundle import check_target
    from tiny_transformer.tokenizer import Tokenizer

    check_target(options.bundle, overwrite=options.overwrite)
    if not 0 <= options.seed < 2**63:
        raise ConfigError(
            "--seed is {seed}; choose a whole number from 0 up to, not including, 2**63.", seed=options.seed
        )
    tokenizer = Tokenizer.load(options.tokenizer) if options.tokenizer else None
    if tokenizer is not None and options.vocab_size is None:
        options.vocab_size = tokenizer.vocab_size
    config = config_from(options)
    task = options.task or ("translate" if config.is_encoder_decoder else "chat")
    if (task == "translate") != config.is_encoder_decoder:
        raise ConfigError(
            "task is {task}, which a model that is {architecture} cannot do; choose another --task or --architecture.",
            task=task,
            architecture=config.architecture,
        )
    if tokenizer is not None and tokenizer.vocab_size != config.vocab_size:
        raise ConfigError(
            "vocab_size is {vocab_size}, but {tokenizer} has {tokenizer_vocab_size} tokens; leave --vocab-size out.",
            vocab_size=config.vocab_size,
            tokenizer=options.tokenizer,
            tokenizer_vocab_size=tokenizer.vocab_size,
        )
    if config.n_parameters > _MAX_PARAMETERS:
        raise ConfigError(
            "This shape has {n_parameters:,} parameters, more than the {max_parameters:,} that init "
            "makes; choose a smaller one.",
            n_parameters=config.n_parameters,
            max_parameters=_MAX_PARAMETERS,
        )
    random_bundle(
        options.bundle, config, task, tokenizer, seed=options.seed, half=options.half, overwrite=options.overwrite
    )
    print(f"wrote {options.bundle}; look at it with: python -m tiny_transformer info {options.bundle}", file=sys.stderr)


def random_bundle(
    folder: Path,
    config: ModelConfig,
    task: str,
    tokenizer: Any = None,
    *,
    seed: int = 0,
    half: bool = False,
    overwrite: bool = False,
) -> Any:
    """A model folder with random weights; the same seed gives the same bytes."""
    import torch

    from tiny_transformer.bundle import save_bundle
    from tiny_transformer.model import build_model, weights_of
    from tiny_transformer.tokenizer import Tokenizer

    tokenizer = tokenizer or Tokenizer.synthetic(config.vocab_size)
    generation = GenerationConfig(
        task=task,
        pad_id=tokenizer.pad_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        roles=tokenizer.roles if task == "chat" else {},
        max_source_tokens=config.max_length,
        max_new_tokens=config.max_length,
    )
    weights = weights_of(build_model(config, torch.Generator().manual_seed(seed)))
    return save_bundle(folder, config, generation, tokenizer, weights, half=half, overwrite=overwrite)
