"""The state of a run on disk: safetensors and JSON, whole or not at all, nothing pickled.

No random state is kept: a step's randomness follows from seed, step and rank alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tiny_transformer import atomic
from tiny_transformer.errors import TrainingError
from tiny_transformer.weights import read_weights, write_weights

LAST, BEST = "last", "best"
MODEL = "model"  # the group of the weights themselves in a checkpoint
_OPTIMIZER = "optimizer"
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


def named_tensors(group: str, parameters: Mapping[str, Tensor], tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """Tensors that belong to the parameters, one each and in their order, by the names they have in a checkpoint."""
    return {f"{group}/{name}": tensor for name, tensor in zip(parameters, tensors, strict=True)}


def read_group(tensors: Mapping[str, Tensor], group: str, parameters: Mapping[str, Tensor]) -> list[Tensor]:
    """What `named_tensors` named, on the parameters' device; a missing, unknown or misshapen tensor is refused."""
    prefix = f"{group}/"
    wanted = {prefix + name: parameter for name, parameter in parameters.items()}
    faults = sorted(wanted.keys() - tensors.keys())
    faults += sorted(name for name in tensors if name.startswith(prefix) and name not in wanted)
    faults = faults or [name for name, like in wanted.items() if tensors[name].shape != like.shape]
    if faults:
        raise TrainingError(
            "The checkpoint does not fit the model: {name} is missing, unknown or of another shape; add --overwrite "
            "without --resume to start anew.",
            name=faults[0],
        )
    return [tensors[name].to(like.device) for name, like in wanted.items()]


@torch.no_grad()
def load_parameters(model: torch.nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give a model the weights of a checkpoint."""
    parameters = dict(model.named_parameters())
    for parameter, tensor in zip(parameters.values(), read_group(tensors, MODEL, parameters), strict=True):
        parameter.copy_(tensor)


def optimizer_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """AdamW's moments and step counts, by the parameters' names."""
    states = {name: optimizer.state[parameter] for name, parameter in parameters.items()}
    return {f"{_OPTIMIZER}.{key}/{name}": value for name, state in states.items() for key, value in state.items()}


def restore_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> None:
    """Give AdamW the moments and step counts of a checkpoint."""
    is_fused = bool(optimizer.defaults.get("fused"))  # a fused optimizer keeps its step counts on the device too
    counts = {name: torch.zeros((), device=p.device if is_fused else "cpu") for name, p in parameters.items()}
    for key, like in (("step", counts), ("exp_avg", parameters), ("exp_avg_sq", parameters)):
        for parameter, value in zip(parameters.values(), read_group(tensors, f"{_OPTIMIZER}.{key}", like), strict=True):
            optimizer.state[parameter][key] = value


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
                "The unfinished run was started with another {section}; resume it as it was, or add "
                "--overwrite without --resume to start anew.",
                section=changed[0],
            )
