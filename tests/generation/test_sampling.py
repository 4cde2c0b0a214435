"""The small steps from logits to a token, each against its definition."""

import math

import numpy as np
import pytest

from tests.support.generation_fixtures import log_softmax
from tiny_transformer.errors import BackendError
from tiny_transformer.generation.sampling import (
    draw,
    greedy,
    keep_top_k,
    keep_top_p,
    likeliest,
    likeliest_of_rows,
    log_normalizer,
    penalize_repetition,
    probabilities,
    row_generator,
    seen_tokens,
)


def random_logits(n_rows: int, vocab_size: int, seed: int = 0, scale: float = 3.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, (n_rows, vocab_size)).astype(np.float32)


def test_log_normalizer_is_the_textbook_one() -> None:
    logits = random_logits(5, 50) + 1000.0  # would overflow without care
    expected = np.stack([log_softmax(row) for row in logits])
    assert np.allclose(logits - log_normalizer(logits)[:, None], expected, atol=1e-4)


def test_the_sum_over_a_large_vocabulary_keeps_its_digits() -> None:
    logits = random_logits(3, 50_000, scale=0.1)  # all weigh about as much: the hardest sum there is
    exact = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    assert np.abs(log_normalizer(logits) - exact).max() < 5e-7


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_broken_model_is_named(value: float) -> None:
    logits = random_logits(2, 5)
    logits[1, 3] = value
    with pytest.raises(BackendError, match="not finite"):
        log_normalizer(logits)


def test_greedy_takes_the_best_that_is_allowed() -> None:
    logits = np.array([[1.0, 5.0, 3.0], [9.0, 5.0, 5.0]], dtype=np.float32)
    assert greedy(logits) == [1, 0]
    assert greedy(np.array([[1.0, 2.0, 2.0]])) == [1]  # of equals, the lower id
    assert logits[0, 1] == 5.0


def test_penalty_weakens_seen_tokens_on_both_sides_of_zero() -> None:
    logits = np.array([[2.0, -2.0, 2.0, -2.0]])
    seen = np.array([[True, True, False, False]])
    assert penalize_repetition(logits, seen, 2.0).tolist() == [[1.0, -4.0, 2.0, -2.0]]


def test_tokens_that_cannot_be_written_are_seen_without_effect() -> None:
    """A start that was given as ids may hold any token of the vocabulary; logits are as wide as the output."""
    assert seen_tokens([[1, 9, 3], [7], []], 4, eos_id=2).tolist() == [
        [False, True, False, True],
        [False] * 4,
        [False] * 4,
    ]


def test_top_k_keeps_the_k_best() -> None:
    row = random_logits(1, 100)[0]
    assert set(np.flatnonzero(np.isfinite(keep_top_k(row, 7)))) == set(np.argsort(-row)[:7])
    assert np.isfinite(keep_top_k(row, 0)).all()
    assert np.isfinite(keep_top_k(row, 1000)).all()


@pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 0.9, 0.999, 1.0])
def test_top_p_is_the_smallest_set_that_reaches_p(p: float) -> None:
    for seed in range(20):
        full = probabilities(random_logits(1, 200, seed)[0], 1.0)
        kept = keep_top_p(full, p)
        order = np.argsort(-full)
        n = int((kept > 0).sum())
        assert set(np.flatnonzero(kept)) == set(order[:n])
        assert full[order[:n]].sum() >= p - 1e-12
        assert n == 1 or full[order[: n - 1]].sum() < p
        assert kept.sum() == pytest.approx(1.0)


def test_temperature_sharpens_and_flattens() -> None:
    row = random_logits(1, 20)[0]
    assert probabilities(row, 5e-324)[row.argmax()] == 1.0  # the limit is greedy, without a warning
    assert np.allclose(probabilities(row, 1e300), 1 / 20)
    assert np.allclose(probabilities(row, 2.0), np.exp(log_softmax(row / 2.0)))


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.7, 8, 1.0), (1.3, 0, 0.8)])
def test_draws_follow_the_distribution(temperature: float, top_k: int, top_p: float) -> None:
    wanted = probabilities(random_logits(1, 30, scale=1.0)[0], temperature, top_k, top_p)
    generator = row_generator(1, 0)
    n = 20_000
    counts = np.bincount([draw(wanted, generator) for _ in range(n)], minlength=30)
    assert counts[wanted == 0].sum() == 0
    possible = wanted > 0
    chi_square = ((counts - n * wanted)[possible] ** 2 / (n * wanted[possible])).sum()
    freedom = int(possible.sum()) - 1
    # Wilson and Hilferty's normal approximation of chi-square; 3.1 is one chance in a thousand.
    z = ((chi_square / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    assert z < 3.1


def test_rounding_of_another_backend_hardly_ever_changes_a_draw() -> None:
    n, parted, parted_by_walking = 1_000, 0, 0
    for seed in range(n):
        row = random_logits(1, 4_000, seed, scale=1.0)[0].astype(np.float64)  # flat: the hardest case
        noisy = row + np.random.default_rng(seed).uniform(-1e-3, 1e-3, row.size)  # coarse, so that it shows
        both = [probabilities(logits, 1.0) for logits in (row, noisy)]
        parted += len({draw(p, row_generator(seed, 0)) for p in both}) - 1
        parted_by_walking += len({int(p.cumsum().searchsorted(row_generator(seed, 0).random())) for p in both}) - 1
    assert parted_by_walking > 5
    assert parted < 0.4 * parted_by_walking
    assert parted <= 4


def test_random_numbers_depend_on_seed_and_row_alone() -> None:
    assert row_generator(5, 3).random() == row_generator(5, 3).random()
    assert len({row_generator(seed, row).random() for seed in range(5) for row in range(5)}) == 25
    assert row_generator(None, 0).random() != row_generator(None, 0).random()


def test_likeliest_are_sorted_and_ties_go_to_the_lower_id() -> None:
    assert likeliest(np.array([1.0, 3.0, 3.0, 2.0]), 3).tolist() == [1, 2, 3]
    assert likeliest(np.array([1.0, 1.0, 1.0]), 2).tolist() == [0, 1]
    assert likeliest(np.array([1.0, 2.0]), 9).tolist() == [1, 0]


@pytest.mark.parametrize(("size", "k"), [(1, 1), (63, 5), (64, 64), (200, 3), (1000, 8), (1000, 40)])
def test_likeliest_of_rows_is_a_sort(size: int, k: int) -> None:
    logits = random_logits(7, size).round(1)  # with many ties
    logits[2, : size // 2] = -np.inf
    expected = [np.argsort(-row, kind="stable")[:k].tolist() for row in logits]
    assert likeliest_of_rows(logits, k).tolist() == expected
