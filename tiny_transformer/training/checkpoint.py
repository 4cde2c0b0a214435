"""The state of a run on disk: safetensors and JSON, whole or not at all, nothing pickled.

No random state is kept: a step's randomness follows from seed, step and rank alone.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tiny_transformer import atomic
from tiny_transformer.errors import TrainingError
from tiny_transformer.weights import read_weights, write_weights

LAST, BEST = "last", "best"
_TENSORS, _STATE = "tensors.safetensors", "state.json"


@dataclass
class RunState:
    """Where a run stands, apart from tensors."""

    recipe: dict[str, Any] = field(default_factory=dict)
    started_from: dict[str, Any] = field(default_factory=dict)  # the model whose weights were the first; else empty
    phase: int = 0
    phase_step: int = 0  # steps done in this phase
    phase_seconds: float = 0.0
    epoch: int = 0  # of this phase
    epoch_step: int = 0  # steps done in this epoch
    step: int = 0  # steps done in all phases
    seconds: float = 0.0
    tokens: int = 0
    timed_tokens: int = 0  # those whose speed is reported: evaluation, checkpoints and compilation not counted
    timed_seconds: float = 0.0
    evaluations: int = 0  # done in this phase
    best: dict[str, float] = field(default_factory=dict)
    since_best: int = 0
    curve: list[dict[str, float]] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)


def save_checkpoint(folder: Path, state: RunState, tensors: Mapping[str, Tensor]) -> None:
    """Replace the folder in one step; a kill at any moment leaves the old one or the new one."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    with atomic.replacing_folder(folder) as staging:
        write_weights(staging / _TENSORS, arrays)
        (staging / _STATE).write_text(json.dumps(asdict(state)), encoding="utf-8")


def load_checkpoint(folder: Path) -> tuple[RunState, dict[str, Tensor]]:
    """Read a checkpoint back."""
    state = load_state(folder)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in read_weights(folder / _TENSORS).items()}
    return state, tensors


def load_state(folder: Path) -> RunState:
    """Where the run of a checkpoint stands, without its tensors."""
    try:
        return RunState(**json.loads((folder / _STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise TrainingError(
            "{folder} is not a checkpoint ({reason}); remove it or restore it.", folder=folder, reason=error
        ) from None


def has_checkpoint(folder: Path) -> bool:
    """Whether there is one to resume from."""
    return (folder / _STATE).is_file()


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's moments and step counts, named by the place of their weight."""
    found: dict[str, Tensor] = {}
    for i, parameter in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            found[f"optimizer.{i}.{name}"] = value
    return found


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put moments and step counts back where they were."""
    for i, parameter in enumerate(_parameters(optimizer)):
        prefix = f"optimizer.{i}."
        values = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        if values:
            optimizer.state[parameter] = {
                # A fused optimiser keeps its step counts on the device too.
                name: value.to(parameter.device) if name != "step" or _fused(optimizer) else value
                for name, value in values.items()
            }


def check_same_recipe(state: RunState, recipe: dict[str, Any]) -> None:
    """A resumed run must be the run that was stopped; only its limits and its logging may change."""
    for section, values in recipe.items():
        old = state.recipe.get(section)
        if section == "training" and isinstance(old, dict):
            free = ("max_minutes", "max_steps", "max_epochs", "checkpoint_minutes", "log_steps", "compile")
            changed = [key for key in values if key not in free and values[key] != old.get(key)]
        else:
            changed = [] if section == "evaluation" or values == old else [section]
        if changed:
            raise TrainingError(
                "The unfinished run was started with another {changed}; resume it as it was, or add "
                "--overwrite without --resume to start anew.",
                changed=changed[0],
            )


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _fused(optimizer: torch.optim.Optimizer) -> bool:
    return bool(optimizer.defaults.get("fused"))
