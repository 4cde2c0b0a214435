"""Continuous batching: texts start as others end, never too many at once, and nothing of it shows in the results."""

from typing import Any

import numpy as np
import pytest

from tests.support.generation_fixtures import BOS, FakeBackend, FakeState, generate, random_rows
from tiny_transformer.backends.base import Batch
from tiny_transformer.generation import batching

OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_beams": 3},
    {"min_new_tokens": 4},
    {"num_beams": 2, "min_new_tokens": 4, "repetition_penalty": 1.4},
    {"temperature": 1.0, "seed": 5},
]


class CountingBackend(FakeBackend):
    """Remembers how many rows each start and step had."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.started: list[int] = []
        self.stepped: list[int] = []
        self.positions = 0  # of sources, padding included

    def start(self, prefix: Batch, source: Batch | None, capacity: int) -> tuple[np.ndarray, FakeState]:
        self.started.append(len(prefix.ids))
        self.positions += 0 if source is None else source.ids.size
        return super().start(prefix, source, capacity)

    def step(self, ids: np.ndarray, state: FakeState) -> tuple[np.ndarray, FakeState]:
        self.stepped.append(len(ids))
        return super().step(ids, state)


def texts(n: int) -> tuple[list[list[int]], list[list[int]]]:
    return [[BOS] for _ in range(n)], random_rows(4, n, 12, 9)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_however_many_run_at_once_the_texts_are_the_same(
    options: dict[str, Any],
) -> None:
    backend = FakeBackend(seed=1, scale=1.0)
    expected = generate(backend, *texts(30), max_new_tokens=15, **options)
    for room in (1, 4, 7):
        backend.max_rows = room
        assert generate(backend, *texts(30), max_new_tokens=15, **options) == expected


def test_rows_that_end_make_room_for_those_that_wait() -> None:
    backend = CountingBackend(seed=1, scale=1.0)
    backend.max_rows = 8
    found = generate(backend, *texts(100), max_new_tokens=20, temperature=2.0, seed=0)
    assert sum(backend.started) == 100
    assert max(backend.stepped) <= 8
    assert len({len(one.ids) for one in found}) > 3, "texts of one length would prove nothing"
    # Without refilling, groups of eight would step until their longest text ends.
    in_groups = sum(max(len(one.tokens) for one in found[i : i + 8]) - 1 for i in range(0, 100, 8))
    assert len(backend.stepped) < 0.8 * in_groups
    assert len(backend.started) < 100, "starting one text at a time would read each alone"


def test_no_group_reads_more_tokens_than_memory_can_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend(seed=1, scale=1.0)
    expected = generate(backend, *texts(40), max_new_tokens=9)
    monkeypatch.setattr(batching, "READ_AT_ONCE", 40)
    backend = CountingBackend(seed=1, scale=1.0)
    assert generate(backend, *texts(40), max_new_tokens=9) == expected
    prefixes, sources = texts(40)
    longest = max(map(len, sources)) + len(prefixes[0])
    assert max(backend.started) * 2 <= 40
    assert backend.started[0] == 40 // longest
    assert sum(backend.started) == 40
    monkeypatch.setattr(batching, "READ_AT_ONCE", 1)  # one text is always read, however long
    assert generate(backend, *texts(40), max_new_tokens=9) == expected


@pytest.mark.parametrize("options", [{}, {"num_beams": 4}], ids=str)
def test_one_long_text_does_not_lengthen_many_short_ones(options: dict[str, Any]) -> None:
    backend = CountingBackend(seed=1, scale=1.0, max_length=60)
    sources = [*random_rows(4, 299, 12, 9), [3] * 50]
    generate(backend, [[BOS]] * 300, sources, max_new_tokens=5, **options)
    assert backend.positions < 1.5 * sum(map(len, sources))
    assert min(backend.started) >= 4, "reading a few texts at a time costs more per text"


def test_a_beam_takes_a_row_for_each_hypothesis() -> None:
    backend = CountingBackend(seed=1, scale=1.0)
    backend.max_rows = 9
    generate(backend, *texts(20), max_new_tokens=15, num_beams=3)
    assert max(backend.started) == 3
    assert max(backend.stepped) <= 9
