"""One process or many (torchrun): who we are, and the few things the processes tell one another."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from tiny_transformer.errors import TrainingError

# The other ranks wait while the first tokenizes or evaluates; a process that died is noticed at once all the same.
_TIMEOUT = timedelta(hours=2)


@dataclass(frozen=True)
class World:
    """This process among all; a run without torchrun is a world of one."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Only the first rank writes and talks."""
        return self.rank == 0

    def from_first(self, values: list[float]) -> list[float]:
        """The first rank's numbers, on every rank."""
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.broadcast(tensor, src=0)
        return [float(value) for value in tensor.tolist()]

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def wait(self) -> None:
        """Until every rank is here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined_world(device: str | None) -> Iterator[World]:
    """Join the other processes if torchrun started us; leave them at the end."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    found = _device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if size == 1:
        yield World(0, 1, found)
        return
    dist.init_process_group("nccl" if found.type == "cuda" else "gloo", timeout=_TIMEOUT)
    try:
        with lost_rank_errors():
            yield World(rank, size, found)
    finally:
        dist.destroy_process_group()


@contextmanager
def lost_rank_errors() -> Iterator[None]:
    """A collective that fails because a process is gone becomes a sentence."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error) or "NCCL" in str(error):
            raise TrainingError(
                "Another process of this run ended or cannot be reached; start the same command again with --resume."
            ) from None
        raise


def _device(name: str | None, local_rank: int) -> torch.device:
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise TrainingError("There is no CUDA device here; leave --device out or choose cpu.")
    if name == "cuda":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        return device
    return torch.device(name)
