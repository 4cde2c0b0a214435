"""Averages of the weights over time: smoother than any one step's, and better on unseen text."""

from collections.abc import Callable, Iterator, Sequence
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

    def state(self) -> dict[str, Sequence[Tensor]]:
        """What a checkpoint must keep: groups of one tensor per weight."""
        ...

    def restore(self, read: Callable[[str], Sequence[Tensor]], step: int) -> None:
        """Take back what `state` gave after so many steps; `read` gives the tensors of a group."""
        ...


class ExponentialAverage:
    """mean ← decay · mean + (1 − decay) · weights, after every step."""

    def __init__(self, parameters: Sequence[Tensor], decay: float) -> None:
        self._mean = [parameter.detach().clone() for parameter in parameters]
        self._decay = decay

    @torch.no_grad()
    def update(self, parameters: Sequence[Tensor], step: int) -> None:
        """One fused operation over all weights (`torch._foreach_*` is private, but torch's optimizers rest on it)."""
        # Early on the window is short, so that random first weights don't linger.
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._mean, list(parameters), 1.0 - decay)

    def mean(self, parameters: Sequence[Tensor]) -> Sequence[Tensor]:
        """The average itself."""
        return self._mean

    def state(self) -> dict[str, Sequence[Tensor]]:
        """The average itself."""
        return {"ema": self._mean}

    @torch.no_grad()
    def restore(self, read: Callable[[str], Sequence[Tensor]], step: int) -> None:
        """Copy in place."""
        torch._foreach_copy_(self._mean, list(read("ema")))


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

    def state(self) -> dict[str, Sequence[Tensor]]:
        """One group per snapshot."""
        return {f"last.{i}": snapshot for i, snapshot in enumerate(self._snapshots)}

    def restore(self, read: Callable[[str], Sequence[Tensor]], step: int) -> None:
        """As many snapshots as so many steps leave."""
        self._snapshots = [list(read(f"last.{i}")) for i in range(min(self._k, step // self._every))]


def build_average(settings: TrainingSettings, parameters: Sequence[Tensor]) -> Average:
    """The kind of average a recipe asks for."""
    if settings.average == "last":
        return LastAverage(settings.last_k, settings.last_every)
    # Without any decay the average is the weights themselves.
    return ExponentialAverage(parameters, settings.ema_decay if settings.average == "ema" else 0.0)


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
