"""Checkpoints: every tensor is found by the name of its weight, and what does not fit is refused by that name."""

from pathlib import Path

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
