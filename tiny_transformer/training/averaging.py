"""Averages of the weights over time: smoother than any one step's, and better on unseen text."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from tiny_transformer.training.settings import TrainingSettings


class Average(Protocol):
    """Some mean of the weights so far."""

    def update(self, parameters: Sequence[Tensor], step: int) -> None:
        """Take in the weights after a step (counted from 1)."""
        ...

    def mean(self, parameters: Sequence[Tensor]) -> Sequence[Tensor]:
        """The average now; without any history, the weights themselves."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must keep."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        ...


class NoAverage:
    """The weights as they are."""

    def update(self, parameters: Sequence[Tensor], step: int) -> None:
        """Nothing to keep."""

    def mean(self, parameters: Sequence[Tensor]) -> Sequence[Tensor]:
        """The weights themselves."""
        return parameters

    def state(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Nothing to take back."""


class ExponentialAverage:
    """mean ← decay · mean + (1 − decay) · weights, after every step."""

    def __init__(self, parameters: Sequence[Tensor], decay: float) -> None:
        self._mean = [parameter.detach().clone() for parameter in parameters]
        self._decay = decay

    @torch.no_grad()
    def update(self, parameters: Sequence[Tensor], step: int) -> None:
        """One fused operation over all weights."""
        # Early on the window is short, so that random first weights don't linger.
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._mean, list(parameters), 1.0 - decay)

    def mean(self, parameters: Sequence[Tensor]) -> Sequence[Tensor]:
        """The average itself."""
        return self._mean

    def state(self) -> dict[str, Tensor]:
        """One tensor a weight."""
        return {f"ema.{i}": tensor for i, tensor in enumerate(self._mean)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy in place."""
        for i, tensor in enumerate(self._mean):
            tensor.copy_(tensors[f"ema.{i}"])


class LastAverage:
    """The plain mean of the last k snapshots."""

    def __init__(self, k: int, every: int) -> None:
        self._k = k
        self._every = every
        self._snapshots: list[list[Tensor]] = []

    def update(self, parameters: Sequence[Tensor], step: int) -> None:
        """Every `every` steps, add a snapshot and drop the oldest."""
        if step % self._every == 0:
            self._snapshots.append([parameter.detach().clone() for parameter in parameters])
            del self._snapshots[: -self._k]

    def mean(self, parameters: Sequence[Tensor]) -> Sequence[Tensor]:
        """Mean of the snapshots there are."""
        if not self._snapshots:
            return parameters
        return [torch.stack(versions).mean(dim=0) for versions in zip(*self._snapshots, strict=True)]

    def state(self) -> dict[str, Tensor]:
        """Snapshot s of weight i as `last.s.i`."""
        return {f"last.{s}.{i}": t for s, snapshot in enumerate(self._snapshots) for i, t in enumerate(snapshot)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Rebuild the list of snapshots."""
        names = [name.split(".") for name in tensors if name.startswith("last.")]
        n_snapshots = 1 + max((int(s) for _, s, _ in names), default=-1)
        n_weights = 1 + max((int(i) for _, _, i in names), default=-1)
        self._snapshots = [[tensors[f"last.{s}.{i}"].clone() for i in range(n_weights)] for s in range(n_snapshots)]


def build_average(settings: TrainingSettings, parameters: Sequence[Tensor]) -> Average:
    """The kind of average a recipe asks for."""
    if settings.average == "ema":
        return ExponentialAverage(parameters, settings.ema_decay)
    if settings.average == "last":
        return LastAverage(settings.last_k, settings.last_every)
    return NoAverage()


@contextmanager
@torch.no_grad()
def averaged(average: Average, parameters: Sequence[Tensor]) -> Iterator[None]:
    """Inside the block the model holds the average; afterwards its own weights again."""
    kept = [parameter.detach().clone() for parameter in parameters]
    torch._foreach_copy_(list(parameters), list(average.mean(parameters)))
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(list(parameters), kept)
