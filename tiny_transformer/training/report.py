"""What a run was: `training.json`, for the card and for whoever wants to do it again."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from tiny_transformer import __version__
from tiny_transformer.training.checkpoint import RunState
from tiny_transformer.training.files import content_hash
from tiny_transformer.training.recipe import Recipe
from tiny_transformer.training.sources import source_files

_CURVE_POINTS = 200
_PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "sacrebleu")


def training_report(
    recipe: Recipe, root: str, state: RunState, parameters: int, n_devices: int, results: dict[str, Any]
) -> dict[str, Any]:
    """Everything but the weights; paths are as the recipe writes them, below the data folder."""
    return {
        "recipe": _told_recipe(recipe),
        **({"started_from": state.started_from} if state.started_from else {}),
        "data": data_hashes(recipe, root),
        "parameters": parameters,
        "seed": recipe.training.seed,
        "hardware": hardware(n_devices),
        "versions": versions(),
        "steps": state.step,
        "tokens": state.tokens,
        "seconds": round(state.seconds, 1),
        "tokens_per_second": round(state.timed_tokens / max(state.timed_seconds, 1e-9)),
        "results": results,
        "dev_history": state.history,
        "curve": thinned(state.curve),
    }


def data_hashes(recipe: Recipe, root: str) -> dict[str, str]:
    """SHA-256 of every file of every source, by its name below the data folder."""
    prefix = root.rstrip("/") + "/" if root else ""
    return {
        _told(file.name.removeprefix(prefix), source.path): content_hash(file)
        for source in recipe.sources
        for unit in source_files(source, root)
        for file in unit
    }


def _told(name: str, path: str) -> str:
    """A file's name as others may read it: where it lay on this machine is nobody's business."""
    return str(Path(name).relative_to(Path(path).parent)) if Path(name).is_absolute() else name


def _told_recipe(recipe: Recipe) -> dict[str, Any]:
    values = recipe.to_dict()
    for source in values["sources"]:
        source["path"] = _told(source["path"], source["path"])
    return values


def thinned(curve: list[dict[str, float]]) -> list[dict[str, float]]:
    """At most 200 points of a curve, each the mean of its neighbourhood."""
    if len(curve) <= _CURVE_POINTS:
        return curve
    edges = [round(i * len(curve) / _CURVE_POINTS) for i in range(_CURVE_POINTS + 1)]
    groups = [curve[a:b] for a, b in pairwise(edges)]
    return [{**group[-1], "loss": sum(entry["loss"] for entry in group) / len(group)} for group in groups]


def hardware(n_devices: int) -> dict[str, Any]:
    """The machine, in words."""
    found: dict[str, Any] = {"machine": platform.machine(), "cpus": os.cpu_count(), "devices": n_devices}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions() -> dict[str, str]:
    """Of Python, this project and the packages that do the work."""
    found = {"python": platform.python_version(), "tiny_transformer": __version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
