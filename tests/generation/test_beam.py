"""Beam search: against every sequence there is, against greedy, alone against in a batch."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.generation_fixtures import BOS, EOS, PAD, FakeBackend, FakeState, generate, log_softmax, random_rows
from tiny_transformer.generation import Generated, GenerationOptions
from tiny_transformer.generation.beam import beam_search, staying
from tiny_transformer.generation.stream import Request

SOURCE = [3, 0, EOS]


def all_sequences(
    backend: FakeBackend, longest: int, penalty: float, shortest: int = 0
) -> list[tuple[float, tuple[int, ...]]]:
    """Every sequence that ends, or is cut at `longest`, with its score: best first."""
    vocabulary = range(backend.config.vocab_size)
    found = []
    for n in range(1, longest + 1):
        for ids in itertools.product(vocabulary, repeat=n):
            if EOS in ids[:-1] or (n < longest and ids[-1] != EOS) or (ids[-1] == EOS and n <= shortest):
                continue
            total = sum(log_softmax(backend.row_logits([BOS, *ids[:t]], SOURCE))[ids[t]] for t in range(n))
            found.append((total / n**penalty, ids))
    return sorted(found, reverse=True)


def all_ids(found: Generated) -> list[tuple[float, tuple[int, ...]]]:
    return [(g.score, tuple(t.id for t in g.tokens)) for g in (found, *found.others)]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_as_wide_as_the_space_is_brute_force(seed: int, penalty: float) -> None:
    backend = FakeBackend(vocab_size=4, max_length=8, seed=seed, scale=1.0)
    expected = all_sequences(backend, 3, penalty)
    assert len(expected) == 40
    for n_best in (1, 5, 40):
        found = generate(
            backend, [[BOS]], [SOURCE], num_beams=64, n_best=n_best, max_new_tokens=3, length_penalty=penalty
        )[0]
        assert [ids for _, ids in all_ids(found)] == [ids for _, ids in expected[:n_best]]
        assert [score for score, _ in all_ids(found)] == pytest.approx([s for s, _ in expected[:n_best]], abs=1e-5)


def test_min_new_tokens_leaves_the_rest_of_the_space() -> None:
    backend = FakeBackend(vocab_size=4, max_length=8, seed=1, scale=1.0)
    expected = all_sequences(backend, 3, 1.0, shortest=2)
    found = generate(backend, [[BOS]], [SOURCE], num_beams=64, n_best=64, max_new_tokens=3, min_new_tokens=2)[0]
    assert [ids for _, ids in all_ids(found)] == [ids for _, ids in expected]


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.4}, {"min_new_tokens": 4, "alternatives": 2}])
def test_a_beam_of_one_is_greedy(options: dict[str, Any]) -> None:
    for seed in range(10):
        backend = FakeBackend(seed=seed, encoder=seed % 2 == 0)
        prefixes = [[BOS], [BOS, 4, 4], [BOS, 3, 5, EOS, 4]]
        sources = [[3, EOS], [5, 6, EOS], [4, EOS]] if seed % 2 == 0 else None
        request = Request(prefixes, sources, GenerationOptions(max_new_tokens=10, **options), EOS, PAD)
        greedy = generate(backend, prefixes, sources, max_new_tokens=10, **options)
        assert [g.tokens for g in beam_search(backend, request)] == [g.tokens for g in greedy]


def plain_beam(backend: FakeBackend, num_beams: int, longest: int, penalty: float) -> list[tuple[int, ...]]:
    """The algorithm in its plainest form, without batching and without an early end."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    pool: list[tuple[float, tuple[int, ...]]] = []
    for n in range(1, longest + 1):
        extended = sorted(
            (
                (total + logprob, (*ids, token))
                for total, ids in live
                for token, logprob in enumerate(log_softmax(backend.row_logits([BOS, *ids], SOURCE)))
            ),
            reverse=True,
        )
        ends = [c for c in extended[:num_beams] if c[1][-1] == EOS or n == longest]
        pool += [(total / n**penalty, ids) for total, ids in ends]
        live = [c for c in extended if c[1][-1] != EOS][:num_beams]
        if len(pool) >= num_beams:
            break
    return [ids for _, ids in sorted(pool, reverse=True)]


@pytest.mark.parametrize("num_beams", [2, 3, 5])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 1.7])
def test_the_early_end_loses_nothing(num_beams: int, penalty: float) -> None:
    for seed in range(12):
        backend = FakeBackend(seed=seed)
        found = generate(backend, [[BOS]], [SOURCE], num_beams=num_beams, max_new_tokens=10, length_penalty=penalty)[0]
        assert tuple(t.id for t in found.tokens) == plain_beam(backend, num_beams, 10, penalty)[0]


def test_the_early_end_comes() -> None:
    certain = FakeBackend(vocab_size=6, max_length=24)
    certain._last[:] = -20.0
    certain._last[:, EOS] = 20.0
    certain._before[:] = certain._source[:] = 0.0
    generate(certain, [[BOS]], [SOURCE], num_beams=4, max_new_tokens=20)
    assert certain.rows_stepped == 0


@pytest.mark.parametrize("options", [{"num_beams": 3, "n_best": 3}, {"num_beams": 4, "repetition_penalty": 1.3}])
def test_a_text_in_a_batch_is_what_it_is_alone(options: dict[str, Any]) -> None:
    for seed in range(4):
        backend = FakeBackend(seed=seed)
        sources = random_rows(seed, 5, 12, 6)
        prefixes = [[BOS, *row] for row in random_rows(seed + 1, 5, 12, 5)]
        together = generate(backend, prefixes, sources, max_new_tokens=9, **options)
        for prefix, source, found in zip(prefixes, sources, together, strict=True):
            assert generate(backend, [prefix], [source], max_new_tokens=9, **options) == [found]


@given(st.lists(st.integers(0, 7), min_size=1, max_size=8))
def test_a_child_of_every_parent_stays_on_its_row(parents: list[int]) -> None:
    order = staying(parents)
    assert sorted(order) == list(range(len(parents)))
    n_staying = sum(parents[child] == place for place, child in enumerate(order))
    assert n_staying == len({parent for parent in parents if parent < len(parents)})


class MovesBackend(FakeBackend):
    """Remembers from which rows the rows came, and of how many."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.moves: list[tuple[int, list[int]]] = []

    def reorder(self, state: FakeState, rows: np.ndarray) -> FakeState:
        self.moves.append((len(state.rows), rows.tolist()))
        return super().reorder(state, rows)


def test_a_text_that_ends_moves_the_last_ones_alone() -> None:
    holes = 0
    for seed in range(6):
        backend = MovesBackend(seed=seed)
        generate(backend, [[BOS]] * 8, random_rows(4, 8, 12, 9), num_beams=4, max_new_tokens=20)
        for n_rows, rows in backend.moves:
            if len(rows) == n_rows == 32:  # nothing ended: of every parent, a child stays where it stood
                assert sum(row == place for place, row in enumerate(rows)) == len(set(rows))
            if len(rows) < n_rows == 4 * (n_rows // 4):  # a text ended; before, all had their four rows
                texts = [row // 4 for row in rows[::4]]  # which text stands where
                assert all(text in (place, *range(len(texts), 8)) for place, text in enumerate(texts))
                holes += texts != list(range(len(texts)))
    assert holes, "texts that end in the order of their rows would prove nothing"


def test_n_best_are_different_and_in_order() -> None:
    found = generate(FakeBackend(seed=3), [[BOS]], [SOURCE], num_beams=6, n_best=6, max_new_tokens=8)[0]
    rows = all_ids(found)
    assert len({ids for _, ids in rows}) == 6
    assert [score for score, _ in rows] == sorted((score for score, _ in rows), reverse=True)


def test_a_wider_beam_finds_better_text() -> None:
    totals = []
    for num_beams in (1, 4, 16):
        options = {"num_beams": num_beams, "min_new_tokens": 8, "max_new_tokens": 8}
        scores = [generate(FakeBackend(seed=s), [[BOS]], [SOURCE], **options)[0].score for s in range(20)]
        totals.append(np.mean(scores))
    assert totals[0] < totals[1] <= totals[2]


def test_the_context_ends_a_beam() -> None:
    backend = FakeBackend(max_length=6)
    found = generate(backend, [[BOS, 3]], [SOURCE], num_beams=3, min_new_tokens=50, max_new_tokens=50)[0]
    assert (found.finish_reason, len(found.tokens)) == ("context", 5)
