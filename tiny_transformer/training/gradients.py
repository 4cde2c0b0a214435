"""Loss and gradients of a batch; on one GPU they are captured as a CUDA graph per shape of batch, and replayed.

Forward and backward of a small model are hundreds of kernels that take longer to launch than to run. Batches of one
shape launch the same ones, and most batches of an epoch have one of a few dozen shapes.

Measured on an H200 with `python -m benchmarks.cuda_graphs` (the translator's shape, two shapes of batch): compiled
layers 52 batches/s; the same, captured, 106; the whole pass by torch.compile(mode="reduce-overhead") 123. That one
compiles every shape of batch anew, for 20 s or more each, and so loses more time in a run of a few minutes than it
gains; a capture takes less than a second.

`torch._foreach_*` are private by name alone: torch's own optimizers are built on them. One call updates all tensors.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tiny_transformer.backends.cuda_graphs import CUDA_LOCK, capture
from tiny_transformer.training.feed import Batch
from tiny_transformer.training.objective import Objective

MAX_GRAPHS = 128  # kept at once, one per shape of batch; shapes beyond these are rare
RECORD_AT_SIGHTING = 2  # of a shape: the rest of a bucket of like lengths seldom has the same shape twice


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


class CudaGraphGradients:
    """The same, replayed for shapes that come again. On the CPU there is nothing to record: it runs what it would."""

    def __init__(self, objective: Objective, parameters: Sequence[Tensor], device: torch.device) -> None:
        self._objective, self._parameters, self._device = objective, parameters, device
        self._found = [torch.zeros_like(parameter) for parameter in parameters]  # of the last batch
        self._sums = [torch.zeros_like(parameter) for parameter in parameters]
        for parameter, total in zip(parameters, self._sums, strict=True):
            parameter.grad = total
        self._max_graphs = MAX_GRAPHS
        self._drop_graphs()

    def add(self, batch: Batch, scale: float) -> Tensor:
        """Add the gradients of a batch's loss times `scale`; that loss, valid until the next call."""
        if self._objective.r_drop != self._r_drop:  # a new phase; R-Drop's weight is part of what was recorded
            self._drop_graphs()
        loss = None
        try:
            loss = self._loss(batch, scale)
        except RuntimeError as error:
            if not self._max_graphs or not _is_out_of_memory(error):
                raise
        if loss is None:
            # Recordings keep memory of their own. Where that is too much, training goes on without them: from here,
            # where the error no longer holds on to what the failed pass had made.
            self._max_graphs = 0
            self._drop_graphs()
            loss = self._loss(batch, scale)
        torch._foreach_add_(self._sums, self._found)
        return loss

    def clear(self) -> None:
        """Back to zeros, in place: recordings know the parameters by their memory."""
        torch._foreach_zero_(self._sums)

    def _drop_graphs(self) -> None:
        """Let go of all recordings, and of their memory."""
        on_gpu = self._device.type == "cuda"
        if on_gpu:
            torch.cuda.synchronize(self._device)
        self._sightings: Counter[tuple[Any, ...]] = Counter()
        self._graphs: dict[tuple[Any, ...], BatchGraph] = {}
        self._r_drop = self._objective.r_drop
        self._workspace = torch.cuda.graph_pool_handle() if on_gpu else None
        if on_gpu:
            torch.cuda.empty_cache()

    def _loss(self, batch: Batch, scale: float) -> Tensor:
        """The loss, and its gradients in `_found`."""
        shape = tuple(None if tensor is None else tensor.shape for tensor in batch.tensors)
        if shape not in self._graphs:
            self._sightings[shape] += 1
            if self._sightings[shape] < RECORD_AT_SIGHTING or len(self._graphs) >= self._max_graphs:
                return self._run(batch, torch.full((), scale, device=self._device))
            self._graphs[shape] = BatchGraph(self._run, batch, self._device, self._workspace)
        return self._graphs[shape](batch, scale)

    def _run(self, batch: Batch, scale: Tensor) -> Tensor:
        loss: Tensor = scale * self._objective(*batch.tensors)
        torch._foreach_copy_(self._found, torch.autograd.grad(loss, self._parameters))
        return loss.detach()


class BatchGraph:
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
            state = torch.cuda.get_rng_state(device)
            with CUDA_LOCK:
                self._graph = capture(self._work, device, workspace)
            torch.cuda.set_rng_state(state, device)  # as if nothing had been run to record it

    def __call__(self, batch: Batch, scale: float) -> Tensor:
        """The loss; `run` puts the gradients where the optimizer finds them."""
        for held, given in zip(self._batch.tensors, batch.tensors, strict=True):
            if held is not None and given is not None:
                held.copy_(given)
        self._scale.fill_(scale)
        if self._graph is None:
            self._work()
        else:
            with CUDA_LOCK:
                self._graph.replay()
        return self._loss

    def _work(self) -> None:
        self._loss.copy_(self._run(self._batch, self._scale))


def _is_out_of_memory(error: BaseException) -> bool:
    """Also where ending the recording failed in turn."""
    return any(isinstance(one, torch.OutOfMemoryError) for one in (error, error.__context__))


def build_gradients(objective: nn.Module, parameters: Sequence[Tensor], device: torch.device) -> Gradients:
    """Recorded on one GPU; plain on the CPU, and within DDP, which sends gradients while backward still runs."""
    if device.type == "cuda" and isinstance(objective, Objective):
        return CudaGraphGradients(objective, parameters, device)
    return PlainGradients(objective, parameters)
