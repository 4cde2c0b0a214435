"""Checkpoints: every tensor is found by the name of its weight, and what does not fit is refused by that name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.models import tiny_config
from tiny_transformer.errors import TrainingError
from tiny_transformer.model import build_model
from tiny_transformer.training.checkpoint import (
    MODEL,
    RunState,
    load_checkpoint,
    load_parameters,
    named_tensors,
    optimizer_tensors,
    read_group,
    restore_optimizer,
    save_checkpoint,
)

EARLIER_LACKED = ("digest", "tensors_sha256")


def tensors_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    parameters = dict(model.named_parameters())
    return {name: tensor.clone() for name, tensor in named_tensors(MODEL, parameters, [*parameters.values()]).items()}


def test_weights_are_found_by_name_in_whatever_order(tmp_path: Path) -> None:
    first, second = (build_model(tiny_config(), torch.Generator().manual_seed(seed)) for seed in (1, 2))
    backwards = dict(reversed(tensors_of(first).items()))
    save_checkpoint(tmp_path / "last", RunState(step=3), backwards)
    state, tensors = load_checkpoint(tmp_path / "last")
    load_parameters(second, tensors)
    assert state.step == 3
    for found, wanted in zip(second.parameters(), first.parameters(), strict=True):
        assert torch.equal(found, wanted)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    state = RunState(step=3, phase_step=3, best={"step": 2, "loss": 1.5}, curve=[{"step": 1, "loss": 2.5}])
    save_checkpoint(tmp_path / "last", state, tensors_of(build_model(tiny_config())))
    assert load_checkpoint(tmp_path / "last")[0] == state
    return tmp_path / "last"


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
def test_one_flipped_bit_is_refused(saved: Path, name: str) -> None:
    whole = (saved / name).read_bytes()
    at = whole.index(b'"step": 3') + 8 if name == "state.json" else len(whole) - 3  # another step, another weight
    (saved / name).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(TrainingError, match=rf"last is not a checkpoint \({name} has other bytes than were written\)"):
        load_checkpoint(saved)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"step": -5}, "step is -5"),
        ({"step": "3"}, "step is '3'"),
        ({"step": True}, "step is True"),
        ({"step": 10**30}, "step is 10+"),
        ({"epoch_step": 4}, "4 steps of the epoch, 3 of the phase, 3 in all"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": None}, "seconds is None"),
        ({"recipe": []}, r"recipe is \[\]"),
        ({"best": {"loss": "low"}}, "best holds"),
        ({"curve": [{"step": None}]}, "curve holds"),
        ({"curve": {"step": 3}}, "curve is"),
        ({"history": [7]}, "history is 7"),
        ({"history": "none"}, "history is 'none'"),
        ({"color": "red"}, "color"),
    ],
)
def test_odd_values_of_a_state_are_refused(saved: Path, values: dict[str, Any], reason: str) -> None:
    edited = json.loads((saved / "state.json").read_text()) | values
    del edited["digest"]  # as an earlier version wrote it
    (saved / "state.json").write_text(json.dumps(edited))
    with pytest.raises(TrainingError, match=rf"last is not a checkpoint \(.*{reason}"):
        load_checkpoint(saved)


@pytest.mark.parametrize("text", ["", "[]", "null", "7", "[" * 100_000, "\x00"])
def test_a_state_that_is_none_is_refused(saved: Path, text: str) -> None:
    (saved / "state.json").write_text(text)
    with pytest.raises(TrainingError, match="last is not a checkpoint"):
        load_checkpoint(saved)


def test_a_checkpoint_of_an_earlier_version_is_read(saved: Path) -> None:
    values = json.loads((saved / "state.json").read_text())
    (saved / "state.json").write_text(json.dumps({k: v for k, v in values.items() if k not in EARLIER_LACKED}))
    assert load_checkpoint(saved)[0].step == 3


def test_what_does_not_fit_is_refused_by_name() -> None:
    model = build_model(tiny_config())
    good = tensors_of(model)
    name = next(name for name, tensor in good.items() if tensor.dim() == 2)
    for wrong in (
        {n: t for n, t in good.items() if n != name},
        good | {f"{MODEL}/new.weight": torch.zeros(1)},
        good | {name: torch.zeros(good[name].shape[-1])},  # a vector, which a copy would broadcast over the matrix
        {f"model.{i}": tensor for i, tensor in enumerate(good.values())},  # as earlier versions named them
    ):
        before = [parameter.clone() for parameter in model.parameters()]
        with pytest.raises(TrainingError, match=f"{MODEL}/.*is missing, unknown or of another shape; add --overwrite"):
            load_parameters(model, wrong)
        assert all(map(torch.equal, before, model.parameters()))
    assert read_group(good, MODEL, dict(model.named_parameters()))


def test_the_optimizer_comes_back_by_name() -> None:
    first, second = (torch.nn.Linear(2, 3) for _ in range(2))
    optimizers = [torch.optim.AdamW(model.parameters()) for model in (first, second)]
    first(torch.ones(1, 2)).sum().backward()
    optimizers[0].step()
    tensors = optimizer_tensors(optimizers[0], dict(first.named_parameters()))
    assert "optimizer.exp_avg/weight" in tensors
    restore_optimizer(optimizers[1], dict(second.named_parameters()), tensors)
    for name, parameter in second.named_parameters():
        for key, value in optimizers[0].state[dict(first.named_parameters())[name]].items():
            assert torch.equal(optimizers[1].state[parameter][key], value)
    del tensors["optimizer.step/bias"]
    with pytest.raises(TrainingError, match=r"optimizer\.step/bias is missing"):
        restore_optimizer(optimizers[1], dict(second.named_parameters()), tensors)
