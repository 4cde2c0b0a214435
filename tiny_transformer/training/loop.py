"""The loop: batches in, better weights out, and nothing in it that makes the device wait."""

import math
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tiny_transformer.data.batches import BatchPlan, EpochPlan, TrainingData
from tiny_transformer.errors import TrainingError
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.training.averaging import averaged, build_average
from tiny_transformer.training.checkpoint import (
    BEST,
    LAST,
    MODEL,
    RunState,
    load_parameters,
    named_tensors,
    optimizer_tensors,
    read_group,
    restore_optimizer,
    save_checkpoint,
)
from tiny_transformer.training.distributed import World
from tiny_transformer.training.evaluator import Evaluator
from tiny_transformer.training.feed import Batch, HostRows, ResidentRows, batches, device_rows
from tiny_transformer.training.gradients import build_gradients
from tiny_transformer.training.objective import Objective, build_objective
from tiny_transformer.training.progress import Reporter
from tiny_transformer.training.recipe import Recipe
from tiny_transformer.training.schedule import Budget, Clock, learning_rate, optimizer_groups
from tiny_transformer.training.settings import Phase

_SENTENCE_TOKENS = 128  # recipes with a longer context are about longer texts


@dataclass(frozen=True)
class StepBatch:
    """This rank's part of one step, and the counts of all ranks."""

    parts: list[Batch]
    tokens: int
    learned: int
    epoch: int
    epoch_step: int  # steps of the epoch done once this one is


class Trainer:
    """One run: a model, its data, and where it stands."""

    def __init__(
        self,
        recipe: Recipe,
        model: Transformer,
        data: TrainingData,
        evaluator: Evaluator | None,
        world: World,
        run_dir: Path,
        reporter: Reporter,
        state: RunState,
    ) -> None:
        self.recipe, self.settings = recipe, recipe.training
        self.model, self.data, self.evaluator, self.world = model, data, evaluator, world
        self.run_dir, self.reporter, self.state = run_dir, reporter, state
        self.named_parameters: dict[str, Tensor] = dict(model.named_parameters())
        self.parameters = list(self.named_parameters.values())
        if world.device.type == "cuda":
            # cuDNN's attention plans anew for every shape: 4 ms of the CPU each time, and shapes keep changing.
            torch.backends.cuda.enable_cudnn_sdp(False)
            # Flash's tiles are large: with sentences, half the time goes into what is left of them.
            torch.backends.cuda.enable_flash_sdp(recipe.model.max_length > _SENTENCE_TOKENS)
        self._objective = build_objective(recipe, model, world)
        self._gradients = build_gradients(self._objective, self.parameters, world.device)
        self._parts_per_step = self.settings.accumulation * world.size
        self._window = torch.zeros((), dtype=torch.float64, device=world.device)
        self._window_steps = self._window_tokens = 0
        self._window_began = time.monotonic()
        self._is_warm = False

    @property
    def objective(self) -> Objective:
        """Model and loss, inside DDP's wrapping where there is one."""
        inner = getattr(self._objective, "module", self._objective)
        assert isinstance(inner, Objective)
        return inner

    def run(self, tensors: dict[str, Tensor] | None = None) -> None:
        """Every phase that is left; `tensors` are those of the checkpoint to go on from."""
        for number, phase in enumerate(self.recipe.phases):
            if number < self.state.phase:
                continue
            if number > self.state.phase:
                self._next_phase(number)
            self.start_phase(tensors)
            tensors = None
            try:
                self._phase(phase)
            except torch.OutOfMemoryError:
                raise self._out_of_memory() from None
            except RuntimeError as error:
                if "can't allocate memory" not in str(error):  # torch has no class of its own for this on a CPU
                    raise
                raise self._out_of_memory() from None
            finally:
                self.reporter.stop()
            # The next phase goes on from the average: it is the better model.
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, list(self.average.mean(self.parameters)))

    def _next_phase(self, number: int) -> None:
        self.state.phase = number
        self.state.phase_step = self.state.epoch = self.state.epoch_step = self.state.evaluations = 0
        self.state.phase_seconds = 0.0
        self.state.since_best = 0

    def start_phase(self, tensors: dict[str, Tensor] | None) -> None:
        """A fresh optimizer and average, or those of the checkpoint."""
        self.optimizer = torch.optim.AdamW(
            optimizer_groups(self.model, self.settings.weight_decay),
            lr=self.settings.learning_rate,
            betas=(self.settings.beta1, self.settings.beta2),
            fused=self.world.device.type == "cuda",
        )
        self.average = build_average(self.settings, self.parameters)
        if tensors is not None:
            load_parameters(self.model, tensors)
            restore_optimizer(self.optimizer, self.named_parameters, tensors)
            self.average.restore(lambda group: read_group(tensors, group, self.named_parameters), self.state.phase_step)

    def _phase(self, phase: Phase) -> None:
        state, settings = self.state, self.settings
        peak = phase.learning_rate or settings.learning_rate
        warmup = phase.warmup_steps if phase.warmup_steps >= 0 else settings.warmup_steps
        self.objective.r_drop = phase.r_drop if phase.r_drop >= 0 else settings.r_drop
        steps = self.steps(phase)
        budget = Budget.of(settings, phase.share, self._steps_per_epoch(phase))
        clock = Clock(state.phase_seconds, self.world.from_first)
        evaluations = max(1, round(settings.evaluations * phase.share))
        saved_at = clock.at(state.phase_step)
        progress = budget.progress(state.phase_step, saved_at)
        self.reporter.start(phase.name, progress)
        self._window_began = time.monotonic()
        while progress < 1.0:
            rate = learning_rate(settings, peak, warmup, state.phase_step, progress)
            self.step(next(steps), rate)
            elapsed = clock.at(state.phase_step)
            progress = budget.progress(state.phase_step, elapsed)
            state.phase_seconds = clock.now
            if state.phase_step % settings.log_steps == 0 or progress >= 1.0:
                self._log(rate, progress)
            if progress >= 1.0 or progress >= (state.evaluations + 1) / evaluations:
                self._log(rate, progress)
                if self._evaluate(progress):
                    break
            # By the shared clock: all ranks must come here at the same step, because logging sums over them.
            if elapsed - saved_at > 60 * settings.checkpoint_minutes:
                self._log(rate, progress)
                self.save()
                saved_at = elapsed
        steps.close()
        self.save()

    def _steps_per_epoch(self, phase: Phase) -> int:
        return self._planned(phase, 0)[1].steps(self._parts_per_step)

    def _planned(self, phase: Phase, epoch: int) -> tuple[HostRows | ResidentRows, EpochPlan]:
        rows = self.data.rows(epoch)
        tokens = max(1, self.settings.batch_tokens // self._parts_per_step)
        seed = (self.settings.seed, self.recipe.phases.index(phase))
        plan = self.data.plan(rows, epoch, phase.repeat, tokens, seed)
        return device_rows(rows, plan.order, self.world.device), plan

    def steps(self, phase: Phase) -> Generator[StepBatch]:
        """Step after step, epoch after epoch, from where the run stands; the next epoch is planned meanwhile."""
        epoch, done = self.state.epoch, self.state.epoch_step
        with ThreadPoolExecutor(max_workers=1) as planner:
            upcoming = planner.submit(self._planned, phase, epoch)
            while True:
                rows, plan = upcoming.result()
                upcoming = planner.submit(self._planned, phase, epoch + 1)
                steps = [plan.of_step(i, self._parts_per_step) for i in range(plan.steps(self._parts_per_step))]
                mine = [part for step in steps[done:] for part in step[self.world.rank :: self.world.size]]
                feed = batches(rows, mine, self.data.tokenizer.pad_id, self.world.device)
                for i in range(done, len(steps)):
                    parts = [next(feed) for _ in range(self.settings.accumulation)]
                    yield StepBatch(parts, _sum(steps[i], "tokens"), _sum(steps[i], "learned"), epoch, i + 1)
                epoch, done = epoch + 1, 0

    def step(self, step: StepBatch, rate: float) -> None:
        """Forward, backward, update: all of it queued on the device, none of it waited for."""
        state = self.state
        # Dropout follows from seed, step and rank, so that a resumed run needs no memory of it.
        torch.manual_seed((self.settings.seed << 40) + (state.step << 12) + self.world.rank)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        # DDP averages gradients over ranks; times the number of ranks, the sum over all tokens is left.
        scale = self.world.size / max(1, step.learned)
        for i, batch in enumerate(step.parts):
            with self._syncing(last=i == len(step.parts) - 1):
                self._window += self._gradients.add(batch, scale)
        if self.settings.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip_norm)
        self.optimizer.step()
        self._gradients.clear()
        state.step += 1
        state.phase_step += 1
        state.epoch, state.epoch_step = step.epoch, step.epoch_step
        self.average.update(self.parameters, state.phase_step)
        self._window_steps += 1
        self._window_tokens += step.tokens

    def _syncing(self, *, last: bool) -> AbstractContextManager[None]:
        """Gradients travel between devices once per step, with its last part."""
        if last or self.world.size == 1:
            return nullcontext()
        return self._objective.no_sync()  # type: ignore[operator]

    def _log(self, rate: float, progress: float) -> None:
        """Read the loss of the window from the device: the one place where the loop waits for it."""
        if not self._window_steps:
            return
        loss = self.window_loss()
        now = time.monotonic()
        state = self.state
        if not math.isfinite(loss):
            template = (
                "The loss became {loss} before step {step:,}; lower --learning-rate or --clip-norm. The last "
                "good checkpoint is in {path}."
            )
            raise TrainingError(template, loss=loss, step=state.step, path=self.run_dir / LAST)
        seconds = now - self._window_began
        state.seconds += seconds
        state.tokens += self._window_tokens
        if self._is_warm:  # the first window holds compilation
            state.timed_tokens += self._window_tokens
            state.timed_seconds += seconds
        self._is_warm = True
        entry = {
            "step": state.step,
            "epoch": state.epoch,
            "progress": round(progress, 5),
            "loss": loss,
            "learning_rate": rate,
            "tokens_per_second": self._window_tokens / seconds,
            "seconds": round(state.seconds, 3),
        }
        state.curve.append({"step": state.step, "loss": loss, "learning_rate": rate})
        left = state.phase_seconds * (1.0 / progress - 1.0) if progress else math.inf
        self.reporter.training(entry, left)
        self._open_window()

    def window_loss(self) -> float:
        """Mean loss of the steps since the last look, over all ranks; waits for the device."""
        return float(self.world.total(self._window.clone())) / self.world.size / max(1, self._window_steps)

    def _open_window(self) -> None:
        self._window.zero_()
        self._window_steps = self._window_tokens = 0
        self._window_began = time.monotonic()

    def _evaluate(self, progress: float) -> bool:
        """Evaluate the averaged weights; True if the run should stop early."""
        state, stop = self.state, False
        state.evaluations += 1
        if self.evaluator is not None and self.world.is_first:
            began = time.monotonic()
            with averaged(self.average, self.parameters):
                metrics = self.evaluator.quick(self.model)
                if metrics and self._is_best(metrics):
                    state.best, state.since_best = {"step": state.step, **metrics}, 0
                    save_checkpoint(self.run_dir / BEST, state, self._model_tensors())
                else:
                    state.since_best += 1
            state.seconds += time.monotonic() - began
            if metrics:
                state.history.append({"step": state.step, **metrics})
                self.reporter.evaluation({"step": state.step, "seconds": round(state.seconds, 3), **metrics})
            stop = 0 < self.settings.patience <= state.since_best
        (stopped,) = self.world.from_first([float(stop)])
        self._open_window()
        return bool(stopped)

    def _is_best(self, metrics: dict[str, float]) -> bool:
        name = self.recipe.evaluation.metric
        if name not in metrics:
            template = "The recipe picks the best model by {name}, but dev gives {metrics}; set evaluation.metric."
            raise TrainingError(template, name=name, metrics=", ".join(metrics))
        before = self.state.best.get(name)
        if before is None or self.state.evaluations == 1:  # a new phase starts a new contest
            return True
        return metrics[name] < before if name == "loss" else metrics[name] > before

    def save(self) -> None:
        """The whole state, on disk in one step."""
        if self.world.is_first:
            tensors = self._model_tensors() | optimizer_tensors(self.optimizer, self.named_parameters)
            for group, averages in self.average.state().items():
                tensors |= named_tensors(group, self.named_parameters, averages)
            save_checkpoint(self.run_dir / LAST, self.state, tensors)
        self._window_began = time.monotonic()

    def _model_tensors(self) -> dict[str, Tensor]:
        return named_tensors(MODEL, self.named_parameters, self.parameters)

    def _out_of_memory(self) -> TrainingError:
        return TrainingError(
            "Out of memory at step {step:,}; lower --batch-tokens (now {batch_tokens:,}) or raise --accumulation "
            "(now {accumulation}), then add --resume.",
            step=self.state.step,
            batch_tokens=self.settings.batch_tokens,
            accumulation=self.settings.accumulation,
        )


def _sum(plans: Sequence[BatchPlan], name: str) -> int:
    return sum(getattr(plan, name) for plan in plans)
