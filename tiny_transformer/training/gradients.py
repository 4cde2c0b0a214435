"""Loss and gradients of a batch; on one GPU they are recorded by shape, and replayed.

Forward and backward of a small model are hundreds of kernels that take longer to launch than to run. Batches of one
shape launch the same ones, and most batches of an epoch have one of a few shapes.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tiny_transformer.backends.recording import ONE_AT_A_TIME, record
from tiny_transformer.training.feed import Batch
from tiny_transformer.training.objective import Objective

MOST = 64  # recordings; shapes beyond are rare
SIGHT = 2  # of a shape, at which it is recorded: what is left over of a bucket seldom has the same one twice


class Gradients(Protocol):
    """What the parameters' `grad` holds."""

    def add(self, batch: Batch, scale: float) -> Tensor:
        """Add the gradients of a batch's loss times `scale`; that loss, valid until the next call."""
        ...

    def clear(self) -> None:
        """Back to nothing, after an update."""
        ...


class PlainGradients:
    """Forward and backward as PyTorch runs them."""

    def __init__(self, objective: nn.Module, parameters: Sequence[Tensor]) -> None:
        self._objective, self._parameters = objective, parameters

    def add(self, batch: Batch, scale: float) -> Tensor:
        """Add the gradients of a batch's loss times `scale`; that loss."""
        loss: Tensor = scale * self._objective(*batch.tensors)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def clear(self) -> None:
        """Back to nothing."""
        for parameter in self._parameters:
            parameter.grad = None


class RecordedGradients:
    """The same, replayed for shapes that come again. On the CPU there is nothing to record: it runs what it would."""

    def __init__(self, objective: Objective, parameters: Sequence[Tensor], device: torch.device) -> None:
        self._objective, self._parameters, self._device = objective, parameters, device
        self._plain = PlainGradients(objective, parameters)
        self._seen: Counter[tuple[Any, ...]] = Counter()
        self._recorded: dict[tuple[Any, ...], RecordedBatch] = {}
        self._found = [torch.zeros_like(parameter) for parameter in parameters]  # by the last replay
        self._sums = [torch.zeros_like(parameter) for parameter in parameters]
        for parameter, total in zip(parameters, self._sums, strict=True):
            parameter.grad = total
        self._workspace = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def add(self, batch: Batch, scale: float) -> Tensor:
        """Add the gradients of a batch's loss times `scale`; that loss, valid until the next call."""
        # R-Drop's weight is part of the recording, as the shapes are.
        shape = (self._objective.r_drop, *(None if tensor is None else tensor.shape for tensor in batch.tensors))
        if shape not in self._recorded:
            self._seen[shape] += 1
            if self._seen[shape] < SIGHT or len(self._recorded) == MOST:
                return self._plain.add(batch, scale)
            self._recorded[shape] = RecordedBatch(self._run, batch, self._device, self._workspace)
        loss = self._recorded[shape](batch, scale)
        torch._foreach_add_(self._sums, self._found)
        return loss

    def clear(self) -> None:
        """Back to zeros, in place: recordings know the parameters by their memory."""
        torch._foreach_zero_(self._sums)

    def _run(self, batch: Batch, scale: Tensor) -> Tensor:
        loss: Tensor = scale * self._objective(*batch.tensors)
        torch._foreach_copy_(self._found, torch.autograd.grad(loss, self._parameters))
        return loss.detach()


class RecordedBatch:
    """Forward and backward of one shape, always by way of the same memory."""

    def __init__(
        self, run: Callable[[Batch, Tensor], Tensor], batch: Batch, device: torch.device, workspace: Any
    ) -> None:
        self._batch = Batch(*(None if tensor is None else tensor.clone() for tensor in batch.tensors))  # type: ignore[arg-type]
        self._scale = torch.zeros((), device=device)
        self._loss = torch.zeros((), device=device)
        self._run = run
        self._graph = None
        if device.type == "cuda":
            with ONE_AT_A_TIME:
                self._graph = record(self._work, device, workspace)

    def __call__(self, batch: Batch, scale: float) -> Tensor:
        """The loss; where `run` puts the gradients is its own affair."""
        for held, given in zip(self._batch.tensors, batch.tensors, strict=True):
            if held is not None and given is not None:
                held.copy_(given)
        self._scale.fill_(scale)
        if self._graph is None:
            self._work()
        else:
            with ONE_AT_A_TIME:
                self._graph.replay()
        return self._loss

    def _work(self) -> None:
        self._loss.copy_(self._run(self._batch, self._scale))


def build_gradients(objective: nn.Module, parameters: Sequence[Tensor], device: torch.device) -> Gradients:
    """Recorded on one GPU; plain on the CPU, and within DDP, which sends gradients while backward still runs."""
    if device.type == "cuda" and isinstance(objective, Objective):
        return RecordedGradients(objective, parameters, device)
    return PlainGradients(objective, parameters)
