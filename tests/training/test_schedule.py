"""Learning rates, budgets, the shared clock, and averages of weights."""

import math
from dataclasses import replace

import pytest
import torch

from tiny_transformer.training.averaging import ExponentialAverage, LastAverage, averaged, build_average
from tiny_transformer.training.schedule import Budget, Clock, learning_rate
from tiny_transformer.training.settings import TrainingSettings

SETTINGS = TrainingSettings(max_steps=100, learning_rate=1.0, warmup_steps=10)


def rate(step: int, progress: float, **changes: object) -> float:
    return learning_rate(replace(SETTINGS, **changes), 1.0, 10, step, progress)


def test_warm_up_is_linear_and_ends_at_the_peak() -> None:
    assert [rate(step, 0.0) for step in range(10)] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert rate(10, 0.0) == 1.0


def test_cosine_falls_to_its_floor_exactly_when_the_budget_ends() -> None:
    values = [rate(50, progress / 10) for progress in range(11)]
    assert values == sorted(values, reverse=True)
    assert values[5] == pytest.approx(0.5)
    assert values[-1] == pytest.approx(0.0, abs=1e-12)
    assert rate(50, 1.0, final_share=0.1) == pytest.approx(0.1)


def test_inverse_square_root_halves_when_the_steps_are_fourfold() -> None:
    at = [rate(step - 1, 0.3, schedule="inverse-sqrt") for step in (40, 160)]
    assert at[0] == pytest.approx(2 * at[1])
    assert rate(99, 0.3, schedule="constant") == 1.0


def test_the_nearest_limit_drives_progress() -> None:
    budget = Budget.of(replace(SETTINGS, max_minutes=2.0), share=0.5, steps_per_epoch=7)
    assert budget == Budget(steps=50, seconds=60.0)
    assert budget.progress(10, 6.0) == 0.2
    assert budget.progress(10, 45.0) == 0.75
    assert budget.progress(60, 0.0) == 1.0
    assert Budget.of(replace(SETTINGS, max_epochs=3.0, max_steps=0), 1.0, 7).steps == 21


def test_a_rank_follows_the_first_ranks_clock() -> None:
    told = iter([[100.0, 0.0], [130.0, 3.0], [170.0, 4.0]])
    clock = Clock(0.0, lambda _: next(told), every=10)
    assert clock.at(0) == 100.0
    assert clock.at(5) == 100.0
    assert clock.at(10) == 130.0
    assert clock.at(14) == 130.0 + 4 * 3.0
    assert clock.at(20) == 170.0


def test_a_resumed_clock_goes_on_from_where_it_stood() -> None:
    assert 500.0 <= Clock(500.0, lambda values: values).at(0) < 501.0


def test_the_exponential_average_is_the_weighted_sum_it_claims() -> None:
    weight = torch.zeros(3)
    average = ExponentialAverage([weight], decay=0.5)
    expected = 0.0
    for step in range(1, 30):
        weight.fill_(float(step))
        average.update([weight], step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert average.mean([weight])[0].tolist() == pytest.approx([expected] * 3)


def test_the_last_average_is_the_mean_of_the_last_snapshots() -> None:
    weight = torch.zeros(2)
    average = LastAverage(k=3, every=2)
    assert average.mean([weight])[0] is weight
    for step in range(1, 11):
        weight.fill_(float(step))
        average.update([weight], step)
    assert average.mean([weight])[0].tolist() == [8.0, 8.0]  # of 6, 8, 10


@pytest.mark.parametrize("kind", ["ema", "last"])
def test_an_average_comes_back_from_its_state(kind: str) -> None:
    def build() -> ExponentialAverage | LastAverage:
        return ExponentialAverage([torch.zeros(2)], 0.9) if kind == "ema" else LastAverage(2, 1)

    first, second, weight = build(), build(), torch.zeros(2)
    for step in range(1, 6):
        weight.fill_(math.sqrt(step))
        first.update([weight], step)
    state = {group: [tensor.clone() for tensor in tensors] for group, tensors in first.state().items()}
    second.restore(state.__getitem__, step=5)
    assert torch.equal(first.mean([weight])[0], second.mean([weight])[0])


def test_inside_the_block_the_model_holds_the_average_and_afterwards_itself() -> None:
    weight = torch.ones(2)
    average = LastAverage(2, 1)
    for step, value in ((1, 1.0), (2, 3.0)):
        weight.fill_(value)
        average.update([weight], step)
    with averaged(average, [weight]):
        assert weight.tolist() == [2.0, 2.0]
    assert weight.tolist() == [3.0, 3.0]
    same = build_average(TrainingSettings(max_steps=1, average="none"), [weight])
    weight.fill_(5.0)
    same.update([weight], 3)
    with averaged(same, [weight]):
        assert weight.tolist() == [5.0, 5.0]  # no average at all
