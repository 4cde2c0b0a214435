"""Gradients by replay are those of a plain backward pass, whatever shapes come in whatever order."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.models import ARCHITECTURES, DEVICES, tiny_config
from tiny_transformer.model import EncoderDecoder, build_model
from tiny_transformer.training import gradients
from tiny_transformer.training.feed import IGNORED, Batch
from tiny_transformer.training.gradients import CudaGraphGradients, PlainGradients, build_gradients
from tiny_transformer.training.objective import Objective

SHAPES = [(2, 5, 4), (3, 4, 6), (2, 5, 4), (2, 5, 4), (4, 3, 3), (3, 4, 6), (2, 5, 4)]  # rows, source, target


def objective_of(architecture: str, device: str, **changes: Any) -> Objective:
    config = tiny_config(architecture, **changes)
    model = build_model(config, torch.Generator().manual_seed(1)).to(device)
    return Objective(model.train(), label_smoothing=0.1, autocast=False, r_drop=1.5)


def batch_of(objective: Objective, shape: tuple[int, int, int], seed: int, device: str) -> Batch:
    n_rows, n_source, n_target = shape
    random = torch.Generator().manual_seed(seed)

    def ids(*size: int) -> Tensor:
        return torch.randint(6, 300, size, generator=random)

    source, mask = ids(n_rows, n_source), torch.ones(n_rows, n_source, dtype=torch.bool)
    mask[0, -1] = False
    picked = torch.randperm(n_rows * n_target, generator=random)[:6]
    labels = ids(6)
    labels[-1] = IGNORED
    given = (source, mask, ids(n_rows, n_target), picked, labels)
    given = given if isinstance(objective.model, EncoderDecoder) else (None, None, *given[2:])
    return Batch(*(None if tensor is None else tensor.to(device) for tensor in given))  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_replayed_gradients_are_those_of_backward(architecture: str, device: str) -> None:
    objective, other = (objective_of(architecture, device) for _ in range(2))
    parameters = list(objective.parameters())
    recorded = CudaGraphGradients(objective, parameters, torch.device(device))
    plain = PlainGradients(other, list(other.parameters()))
    places = [parameter.grad for parameter in parameters]
    for i, shape in enumerate(SHAPES):
        batch = batch_of(objective, shape, i, device)
        # Two batches an update, as with accumulation.
        losses = [float(made.add(batch, 0.1 * (i + 1))) for made in (recorded, plain)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        for found, wanted in zip(parameters, other.parameters(), strict=True):
            assert found.grad is not None
            torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-4, atol=1e-6)
        if i % 2:
            for made in (objective, other):  # an update, which replays must see
                with torch.no_grad():
                    for parameter in made.parameters():
                        parameter -= 0.1 * parameter.grad
            recorded.clear()
            plain.clear()
    assert all(found.grad is place for found, place in zip(parameters, places, strict=True))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The target's shape of every recording that is made."""
    shapes = []

    class Watched(gradients.BatchGraph):
        def __init__(self, run: Any, batch: Batch, *rest: Any) -> None:
            shapes.append(tuple(batch.target.shape))
            super().__init__(run, batch, *rest)

    monkeypatch.setattr(gradients, "BatchGraph", Watched)
    return shapes


def test_a_shape_is_recorded_when_it_comes_again_and_only_once(made: list[tuple[int, ...]]) -> None:
    objective = objective_of("encoder-decoder", "cpu")
    recorded = CudaGraphGradients(objective, list(objective.parameters()), torch.device("cpu"))
    for i, shape in enumerate(SHAPES):
        recorded.add(batch_of(objective, shape, i, "cpu"), 1.0)
    assert made == [(2, 4), (3, 6)]
    # Another weight of R-Drop is other work, though the shapes are the same: all of it is recorded anew.
    objective.r_drop = 0.0
    for i, shape in enumerate(SHAPES):
        recorded.add(batch_of(objective, shape, i, "cpu"), 1.0)
    assert made == [(2, 4), (3, 6)] * 2


def test_recordings_are_bounded(made: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "MAX_GRAPHS", 2)
    objective = objective_of("decoder-only", "cpu")
    recorded = CudaGraphGradients(objective, list(objective.parameters()), torch.device("cpu"))
    for rows in (2, 3, 4, 5):
        for i in range(3):
            recorded.add(batch_of(objective, (rows, 1, 4), i, "cpu"), 1.0)
    assert made == [(2, 4), (3, 4)]


@pytest.mark.parametrize("hidden", [False, True], ids=["plainly", "behind the end of a recording"])
def test_without_room_for_recordings_training_goes_on_plainly(monkeypatch: pytest.MonkeyPatch, hidden: bool) -> None:
    class Full(gradients.BatchGraph):
        def __init__(self, *_: Any) -> None:
            try:
                raise torch.OutOfMemoryError("CUDA out of memory")
            except torch.OutOfMemoryError:
                if not hidden:
                    raise
                raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904

    objective, other = (objective_of("decoder-only", "cpu") for _ in range(2))
    monkeypatch.setattr(gradients, "MAX_GRAPHS", 1)
    recorded = CudaGraphGradients(objective, list(objective.parameters()), torch.device("cpu"))
    plain = PlainGradients(other, list(other.parameters()))
    tries = []
    for i, shape in enumerate([*SHAPES, *SHAPES]):
        if i == 4:  # one recording is there, and no other fits beside it
            monkeypatch.setattr(gradients, "MAX_GRAPHS", 9)
            recorded._max_graphs = 9
            monkeypatch.setattr(gradients, "BatchGraph", lambda *a: tries.append(a) or Full(*a))
        batch = batch_of(objective, shape, i, "cpu")
        assert float(recorded.add(batch, 0.5)) == pytest.approx(float(plain.add(batch, 0.5)), rel=1e-5)
    assert len(tries) == 1
    assert not recorded._graphs
    for found, wanted in zip(objective.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-4, atol=1e-6)


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = objective_of("decoder-only", "cpu")
    recorded = CudaGraphGradients(objective, list(objective.parameters()), torch.device("cpu"))
    monkeypatch.setattr(objective, "forward", lambda *_: (_ for _ in ()).throw(RuntimeError("a fault")))
    with pytest.raises(RuntimeError, match="a fault"):
        recorded.add(batch_of(objective, SHAPES[0], 1, "cpu"), 1.0)


@pytest.mark.parametrize("device", DEVICES)
def test_dropout_in_a_replay_follows_the_seed(device: str) -> None:
    objective = objective_of("encoder-decoder", device, dropout=0.3)
    recorded = CudaGraphGradients(objective, list(objective.parameters()), torch.device(device))
    batch = batch_of(objective, SHAPES[0], 1, device)
    for _ in range(3):
        recorded.add(batch, 1.0)
    losses = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        losses.append(float(recorded.add(batch, 1.0)))
    assert losses[0] == pytest.approx(losses[2], rel=1e-6)
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_the_step_that_records_draws_what_it_would_have_drawn(device: str) -> None:
    losses = []
    for sights in (1, 0):  # recorded at its second sight, or not yet
        objective = objective_of("encoder-decoder", device, dropout=0.3)
        recorded = CudaGraphGradients(objective, list(objective.parameters()), torch.device(device))
        batch = batch_of(objective, SHAPES[0], 1, device)
        for _ in range(sights):
            recorded.add(batch, 1.0)
        torch.manual_seed(7)
        losses.append(float(recorded.add(batch, 1.0)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_recorded_on_one_gpu_alone() -> None:
    objective = objective_of("encoder-decoder", "cpu")
    parameters = list(objective.parameters())
    assert isinstance(build_gradients(objective, parameters, torch.device("cpu")), PlainGradients)
    within_ddp = SimpleNamespace(module=objective)
    assert isinstance(build_gradients(within_ddp, parameters, torch.device("cuda")), PlainGradients)  # type: ignore[arg-type]
