"""The optimizer: which weights decay, how far a run has come, and the learning rate that follows from it."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from tiny_transformer.training.settings import TrainingSettings


@dataclass(frozen=True)
class Budget:
    """The limits of a phase; 0 is no limit."""

    steps: int
    seconds: float

    @classmethod
    def of(cls, settings: TrainingSettings, share: float, steps_per_epoch: int) -> "Budget":
        """A phase's share of the recipe's limits; epochs become steps."""
        limits = [settings.max_steps * share, settings.max_epochs * share * steps_per_epoch]
        steps = min((max(1, round(limit)) for limit in limits if limit), default=0)
        return cls(steps, settings.max_minutes * 60 * share)

    def progress(self, step: int, seconds: float) -> float:
        """From 0 to 1, by whichever limit is nearer."""
        by_steps = step / self.steps if self.steps else 0.0
        by_time = seconds / self.seconds if self.seconds else 0.0
        return min(1.0, max(by_steps, by_time))


class Clock:
    """Training time that survives a resume and is the same on every rank.

    Ranks with clocks of their own would train with different learning rates and drift apart, so
    the first rank's time is shared every few steps and continued by its measured pace in between.
    """

    def __init__(self, elapsed: float, share: Callable[[list[float]], list[float]], every: int = 10) -> None:
        self._began = time.monotonic() - elapsed
        self._share = share
        self._every = every
        self._step = 0
        self._elapsed = elapsed
        self._pace = 0.0

    def at(self, step: int) -> float:
        """Seconds of training at this step; steps must be asked for in order."""
        since = step - self._step
        if since and since % self._every:
            return self._elapsed + since * self._pace
        now = time.monotonic() - self._began
        pace = (now - self._elapsed) / since if since else 0.0
        self._elapsed, self._pace = self._share([now, pace])
        self._step = step
        return self._elapsed

    @property
    def now(self) -> float:
        """This rank's own seconds of training."""
        return time.monotonic() - self._began


def learning_rate(settings: TrainingSettings, peak: float, warmup: int, step: int, progress: float) -> float:
    """Linear warm-up by steps, then the schedule: cosine by progress, inverse square root by steps (section 5.3)."""
    if step < warmup:
        return peak * (step + 1) / warmup
    if settings.schedule == "constant":
        return peak
    if settings.schedule == "inverse-sqrt":
        return peak * math.sqrt(max(1, warmup) / (step + 1))
    floor = settings.final_share
    return peak * (floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress)))


def optimizer_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay; vectors (biases, norms) don't: pulling them to zero regularizes nothing."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
