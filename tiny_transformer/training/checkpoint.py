"""The state of a run on disk: safetensors and JSON, whole or not at all, nothing pickled.

No random state is kept: a step's randomness follows from seed, step and rank alone.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tiny_transformer import atomic
from tiny_transformer.bundle import sha256
from tiny_transformer.checks import check_number, check_whole, shown
from tiny_transformer.errors import TinyTransformerError, TrainingError
from tiny_transformer.weights import read_weights, write_weights

LAST, BEST = "last", "best"
MODEL = "model"  # the group of the weights themselves in a checkpoint
_OPTIMIZER = "optimizer"
_TENSORS, _STATE = "tensors.safetensors", "state.json"
_TENSORS_SHA256, _DIGEST = "tensors_sha256", "digest"  # in the state's file: of the tensors, and of all else in it
_MOST = 2**53  # of anything that is counted: JSON's readers keep whole numbers exact up to here


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
        values = json.loads(json.dumps({**asdict(state), _TENSORS_SHA256: sha256(staging / _TENSORS)}))
        (staging / _STATE).write_text(json.dumps({**values, _DIGEST: _digest(values)}), encoding="utf-8")


def load_checkpoint(folder: Path) -> tuple[RunState, dict[str, Tensor]]:
    """Read a checkpoint back; other bytes than were written are refused."""
    state, digest = _read_state(folder)
    if digest is not None and sha256(folder / _TENSORS) != digest:
        raise _damaged(folder, f"{_TENSORS} has other bytes than were written")
    tensors = {name: torch.from_numpy(array.copy()) for name, array in read_weights(folder / _TENSORS).items()}
    return state, tensors


def load_state(folder: Path) -> RunState:
    """Where the run of a checkpoint stands, without its tensors."""
    return _read_state(folder)[0]


def _read_state(folder: Path) -> tuple[RunState, str | None]:
    """A checkpoint's state, every value of it checked, and its tensors' SHA-256; earlier versions kept none."""
    try:
        values = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise TypeError(f"{_STATE} is not a JSON object")
        digest = values.pop(_DIGEST, None)
        if digest is not None and digest != _digest(values):
            raise ValueError(f"{_STATE} has other bytes than were written")
        tensors_sha256 = values.pop(_TENSORS_SHA256, None)
        if digest is not None and not isinstance(tensors_sha256, str):
            raise TypeError(f"{_TENSORS_SHA256} is {shown(tensors_sha256)}")
        state = RunState(**values)
        _check_state(state)
    except (OSError, ValueError, TypeError, RecursionError, TinyTransformerError) as error:
        raise _damaged(folder, error) from None
    return state, tensors_sha256


def _check_state(state: RunState) -> None:
    """Refuse values that no run can have: they would end in a traceback, or train on from somewhere else."""
    for field_ in fields(state):
        name, value, kind = field_.name, getattr(state, field_.name), field_.type
        if kind is int:
            check_whole(name, value, 0, _MOST, TrainingError)
        elif kind is float:
            check_number(name, value, 0.0, error=TrainingError)
        elif name in ("recipe", "started_from"):
            _check_map(name, value)
        else:  # figures, or a list of them
            entries = [value] if name == "best" else value
            if not isinstance(entries, list):
                raise TypeError(f"{name} is {shown(entries)}, not a list")
            for entry in entries:
                _check_map(name, entry)
                if not all(type(figure) in (int, float) for figure in entry.values()):
                    raise TypeError(f"{name} holds {shown(entry)}, which are not all numbers")
    if not state.epoch_step <= state.phase_step <= state.step:
        raise ValueError(f"{state.epoch_step} steps of the epoch, {state.phase_step} of the phase, {state.step} in all")


def _check_map(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"{name} is {shown(value)}, not a JSON object")


def _damaged(folder: Path, reason: object) -> TrainingError:
    template = "{folder} is not a checkpoint ({reason}); remove it or restore it."
    return TrainingError(template, folder=folder, reason=reason)


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode("ascii")).hexdigest()


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
