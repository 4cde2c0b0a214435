"""Texts shared out among threads: the same texts come out, and whatever ends one thread ends all."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.export_fixtures import ENCODER_DECODERS, Exported
from tests.support.generation_fixtures import BOS, EOS, PAD, FakeBackend, FakeState, generate, random_rows
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.onnx_runtime import open_ort
from tiny_transformer.errors import BackendError
from tiny_transformer.generation import Cancelled, GenerationOptions, Request, generate_ids, stream, stream_ids

OPTIONS: list[dict[str, Any]] = [{}, {"num_beams": 3}, {"temperature": 1.0, "seed": 5}]


class Shared(FakeBackend):
    """Runs side by side with others; counts its steps, and may fail in one of them."""

    def __init__(self, others: Sequence["Shared"] = (), fails_at: int | None = None) -> None:
        super().__init__(seed=1, scale=1.0)
        self.others, self.fails_at, self.steps, self.started = others, fails_at, 0, 0
        self.threads: set[str] = set()

    def side_by_side(self, n_rows: int) -> list[FakeBackend]:
        return [self, *self.others]

    def step(self, ids: np.ndarray, state: FakeState) -> tuple[np.ndarray, FakeState]:
        self.threads.add(threading.current_thread().name)
        self.steps += 1
        if self.steps == self.fails_at:
            raise BackendError("the model broke")
        if self.fails_at is None:
            time.sleep(0.001)
        return super().step(ids, state)


def texts(n: int) -> tuple[list[list[int]], list[list[int]]]:
    return [[BOS] for _ in range(n)], random_rows(4, n, 12, 9)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_shared_out_texts_are_those_of_one_thread(options: dict[str, Any]) -> None:
    expected = generate(FakeBackend(seed=1, scale=1.0), *texts(50), max_new_tokens=15, **options)
    backends = [Shared(), Shared()]
    first = Shared(backends)
    assert generate(first, *texts(50), max_new_tokens=15, **options) == expected
    used = [backend.threads for backend in (first, *backends)]
    assert all(len(names) == 1 for names in used)
    assert len(set.union(*used)) == 3


@pytest.mark.parametrize("n_texts", [1, 2])
def test_a_wide_beam_over_few_texts_has_no_more_threads_than_texts(n_texts: int) -> None:
    expected = generate(FakeBackend(seed=1, scale=1.0), *texts(n_texts), max_new_tokens=9, num_beams=16)
    assert generate(Shared([Shared(), Shared()]), *texts(n_texts), max_new_tokens=9, num_beams=16) == expected


def test_texts_of_one_token_are_ended_too() -> None:
    class Slow(Shared):
        def start(self, prefix: Batch, source: Batch | None, capacity: int) -> tuple[np.ndarray, FakeState]:
            self.started += 1
            time.sleep(0.001)
            return super().start(prefix, source, capacity)

    class Broken(Shared):
        def start(self, prefix: Batch, source: Batch | None, capacity: int) -> tuple[np.ndarray, FakeState]:
            raise BackendError("the model broke")

    healthy = Slow()
    with pytest.raises(BackendError, match="the model broke"):
        generate(Broken([healthy]), *texts(40_000), max_new_tokens=1)
    assert healthy.started < 200, "of 313 groups"


def test_an_error_in_one_thread_ends_all_and_is_the_one_that_is_raised() -> None:
    healthy = Shared()
    with pytest.raises(BackendError, match="the model broke"):
        generate(Shared([healthy], fails_at=3), *texts(4000), max_new_tokens=20, min_new_tokens=20)
    assert healthy.steps < 500, "31 groups of 20 steps would be 600 and more"


def test_whoever_interrupts_does_not_wait_for_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    backends = [Shared(), Shared()]

    def interrupted(*_: Any, **__: Any) -> None:
        while not all(backend.steps for backend in backends):  # however long a busy machine lets them wait
            time.sleep(0.001)
        raise KeyboardInterrupt

    monkeypatch.setattr(stream, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate(Shared(backends), *texts(6000), max_new_tokens=20, min_new_tokens=20)
    assert all(backend.steps < 500 for backend in backends), "47 groups of 20 steps would be 900 and more"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("generation")]


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_two_threads_of_onnx_runtime_write_what_one_writes(
    exported: Exported, options: dict[str, Any], int8: bool
) -> None:
    bundle = exported(ENCODER_DECODERS[0])
    one, two = (open_ort(bundle, threads=threads, int8=int8) for threads in (1, 2))
    assert len(one.side_by_side(100)) == 1
    assert len(two.side_by_side(15)) == 1, "a few rows are worth no thread of their own"
    assert len(two.side_by_side(100)) == 2
    sources = [[*row, EOS] for row in random_rows(2, 40, 290, 9)]
    results = [generate(backend, [[BOS]] * 40, sources, max_new_tokens=8, **options) for backend in (one, two)]
    assert [row.ids for row in results[0]] == [row.ids for row in results[1]]
    scores = [[row.score for row in rows] for rows in results]
    assert np.allclose(*scores, atol=1e-4)
    assert len({round(score, 3) for score in scores[0]}) > 5, "texts that are all alike would prove nothing"
    assert {threads for _, threads in two._sessions} == {1}


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_should_stop_ends_every_thread_before_its_next_step(options: dict[str, Any], n_threads: int) -> None:
    backends = [Shared() for _ in range(n_threads - 1)]
    first = Shared(backends)
    prefixes, sources = texts(50)
    asked: list[int] = []

    def should_stop() -> bool:
        asked.append(1)
        return len(asked) > 8

    request = Request(prefixes, sources, GenerationOptions(max_new_tokens=15, **options), EOS, PAD)
    with pytest.raises(Cancelled):
        generate_ids(first, replace(request, should_stop=should_stop))
    assert sum(backend.steps for backend in (first, *backends)) <= 8


def test_a_stream_is_cancelled_between_two_tokens() -> None:
    wanted = True
    request = Request([[BOS]], [[5, EOS]], GenerationOptions(max_new_tokens=15, min_new_tokens=15), EOS, PAD)
    stream_of_one = stream_ids(FakeBackend(), replace(request, should_stop=lambda: not wanted))
    assert [next(stream_of_one), next(stream_of_one)]
    wanted = False
    with pytest.raises(Cancelled):
        next(stream_of_one)
