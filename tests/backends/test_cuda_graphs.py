"""Eager for a GPU: whatever is done to its states, they equal those of plain eager, and buffers are used again."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.generation_fixtures import BOS, EOS, PAD, generate, random_rows
from tests.support.models import DEVICES, tiny_config, tiny_model
from tiny_transformer.backends import cuda_buffers, cuda_graphs
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.cuda_buffers import BufferPool, BufferSize, KVBuffers
from tiny_transformer.backends.cuda_graphs import (
    CUDA_LOCK,
    SPECULATE_AFTER,
    WARM_UP_RUNS,
    CapturedStep,
    CudaGraphBackend,
    eager_on,
)
from tiny_transformer.backends.eager import EagerBackend
from tiny_transformer.config import ARCHITECTURES, ModelConfig

CAPACITY = 40
CONFIGS = {name: tiny_config(name, max_length=CAPACITY) for name in ARCHITECTURES}


def pair(architecture: str, device: str) -> tuple[EagerBackend, CudaGraphBackend]:
    """Plain eager on the CPU, and the other with the same weights."""
    config = CONFIGS[architecture]
    return EagerBackend(tiny_model(config), config), CudaGraphBackend(tiny_model(config), config, device=device)


def batch_of(config: ModelConfig, n_rows: int, seed: int) -> tuple[Batch, Batch | None]:
    prefix = Batch.of([[BOS, *row] for row in random_rows(seed, n_rows, 300, 5)], PAD)
    longest = 4 + seed % 30  # so that sources of some batches need wider buffers than those of others
    source = Batch.of([[*row, EOS] for row in random_rows(seed + 1, n_rows, 300, longest)], PAD)
    return prefix, source if config.is_encoder_decoder else None


def check_program(architecture: str, device: str, data: st.DataObject) -> None:
    """Start, step, reorder and join at random; both ways give the same logits all along."""
    both = pair(architecture, device)
    seeds = st.integers(0, 10_000)

    def started() -> tuple[np.ndarray, list[Any]]:
        inputs = batch_of(both[0].config, data.draw(st.integers(1, 5)), data.draw(seeds))
        results = [backend.start(*inputs, CAPACITY) for backend in both]
        assert np.allclose(results[0][0], results[1][0], atol=2e-5)
        return results[0][0], [state for _, state in results]

    logits, states = started()
    actions = ["step", "likeliest", "likeliest", "likeliest", "reorder", "join"]
    for action in data.draw(st.lists(st.sampled_from(actions), min_size=4, max_size=16)):
        n_rows = states[0].lengths.size
        if action == "reorder":
            rows = np.array(data.draw(st.lists(st.integers(0, n_rows - 1), min_size=1, max_size=9)))
            states = [backend.reorder(state, rows) for backend, state in zip(both, states, strict=True)]
            logits = logits[rows]
        elif action == "join":
            more, others = started()
            states = [b.join(state, other) for b, state, other in zip(both, states, others, strict=True)]
            logits = np.concatenate((logits, more))
        else:
            new = np.random.default_rng(data.draw(seeds)).integers(3, 300, (n_rows, 1))
            if action == "likeliest":
                new = logits.argmax(axis=-1)[:, None]
            results = [backend.step(new, state) for backend, state in zip(both, states, strict=True)]
            assert np.allclose(results[0][0], results[1][0], atol=2e-5)
            logits, states = results[0][0], [state for _, state in results]


@pytest.mark.long
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.slow
def test_any_course_of_events_is_that_of_plain_eager(
    architecture: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_graphs, "MIN_CAPACITY", 4)  # so that short texts, too, outgrow their captured steps
    run = given(st.data())(lambda data: check_program(architecture, device, data))
    settings(max_examples=60, deadline=None)(run)()


@pytest.mark.parametrize("device", DEVICES)
def test_while_the_likeliest_tokens_are_taken_the_next_step_is_speculative(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, backend = pair("decoder-only", device)
    asked, run = [], []
    start, work = CapturedStep.start, CapturedStep._run
    monkeypatch.setattr(CapturedStep, "start", lambda self, *given: (asked.append(given), start(self, *given))[1])
    monkeypatch.setattr(CapturedStep, "_run", lambda self: (run.append(self), work(self))[1])
    options: dict[str, Any] = {"max_new_tokens": 24, "min_new_tokens": 24}
    assert generate(backend, [[BOS]], None, **options)[0].ids == generate(plain, [[BOS]], None, **options)[0].ids
    assert len(asked) == 1 + SPECULATE_AFTER
    assert len(run) == 23, "the last token is never read: nothing is started for it"
    asked.clear()
    generate(backend, [[BOS]], None, temperature=1.5, seed=1, **options)
    assert len(asked) > 20, "a token that was drawn is seldom the likeliest: nothing should be started with that"


def test_a_step_that_is_speculative_is_dropped_when_another_token_is_taken() -> None:
    plain, backend = pair("decoder-only", "cpu")
    states = [b.start(*batch_of(b.config, 2, seed=5), CAPACITY) for b in (plain, backend)]
    logits = states[0][0]
    (_, reference), (_, state) = states
    for token in (None, None, None, None, 7, None, None):
        new = logits.argmax(axis=-1)[:, None] if token is None else np.full((2, 1), token)
        logits, reference = plain.step(new, reference)
        found, state = backend.step(new, state)
        assert np.allclose(found, logits, atol=2e-5)
        assert state.is_speculative == (token is None and state.n_greedy >= state.speculate_after)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_to_the_end_of_a_context_that_is_no_power_of_two(architecture: str, positions: str, device: str) -> None:
    """The buffers have more slots than the model has positions: a speculative step must not look beyond them."""
    config = tiny_config(architecture, max_length=CAPACITY, positions=positions)
    plain, backend = (
        EagerBackend(tiny_model(config), config),
        CudaGraphBackend(tiny_model(config), config, device=device),
    )
    sources = [[7, 8, EOS], [9, EOS]] if config.is_encoder_decoder else None
    for prefixes in ([[BOS], [BOS, 5]], [[BOS] * (CAPACITY - 1), [BOS]]):
        options = {"max_new_tokens": 100, "min_new_tokens": 100}
        wanted = generate(plain, prefixes, sources, **options)
        found = generate(backend, prefixes, sources, **options)
        assert [row.ids for row in found] == [row.ids for row in wanted]
        assert {row.finish_reason for row in found} == {"context"}


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_nobody_uses_stay_within_the_context(device: str) -> None:
    plain, backend = pair("decoder-only", device)
    _, state = backend.start(Batch.of([[BOS] * 37, [BOS], [BOS], [BOS]], PAD), None, CAPACITY)
    backend.step(np.full((4, 1), 5), state)
    del state  # the next takes its buffers, and with them a fourth row that stands at 38
    prefixes = [[BOS]] * 3
    options: dict[str, Any] = {"max_new_tokens": 30, "min_new_tokens": 30}
    wanted = [row.ids for row in generate(plain, prefixes, None, **options)]
    assert [row.ids for row in generate(backend, prefixes, None, **options)] == wanted


def test_what_runs_before_a_capture_stays_within_the_context() -> None:
    _, backend = pair("decoder-only", "cpu")
    _, state = backend.start(Batch.of([[BOS] * (CAPACITY - 1)], PAD), None, CAPACITY)
    backend.step(np.full((1, 1), 5), state)
    with torch.inference_mode():
        for _ in range(1 + WARM_UP_RUNS):
            state.last_step._work()


def test_a_step_of_several_tokens_drops_what_is_speculative() -> None:
    plain, backend = pair("decoder-only", "cpu")
    (logits, reference), (_, state) = (b.start(*batch_of(b.config, 1, seed=5), CAPACITY) for b in (plain, backend))
    for several in (False, False, False, True, False):
        new = np.array([[5, 6, 7]]) if several else logits.argmax(axis=-1)[:, None]
        assert state.is_speculative == several
        logits, reference = plain.step(new, reference)
        found, state = backend.step(new, state)
        assert np.allclose(found, logits, atol=2e-5)


def test_each_start_in_vain_doubles_the_patience() -> None:
    _, backend = pair("decoder-only", "cpu")
    logits, state = backend.start(*batch_of(backend.config, 2, seed=5), CAPACITY)
    wasted = 0
    for _ in range(3):
        state = backend.reorder(state, np.arange(2))  # as when a text has ended
        for _ in range(5):
            logits, state = backend.step(logits.argmax(axis=-1)[:, None], state)
        wasted += state.is_speculative
        assert state.speculate_after == SPECULATE_AFTER * 2 ** (wasted - state.is_speculative)
    assert wasted == 2, "after two in vain, five steps are too few to dare a third"


def test_a_step_that_another_thread_holds_up_is_not_started_unasked() -> None:
    _, backend = pair("decoder-only", "cpu")
    logits, state = backend.start(*batch_of(backend.config, 2, seed=5), CAPACITY)
    for _ in range(1 + SPECULATE_AFTER):
        logits, state = backend.step(logits.argmax(axis=-1)[:, None], state)
    assert state.is_speculative
    with CUDA_LOCK:
        assert not state.last_step.start_with_likeliest()


def test_buffers_come_back_when_a_state_is_dropped_and_are_used_again() -> None:
    _, backend = pair("encoder-decoder", "cpu")
    inputs = batch_of(backend.config, 3, seed=1)
    _, first = backend.start(*inputs, CAPACITY)
    _, second = backend.start(*inputs, CAPACITY)
    taken = {id(first.buffers), id(second.buffers)}
    assert len(taken) == 2, "two texts at once must not share buffers"
    logits, first = backend.step(np.full((3, 1), 9), first)
    captured = first.buffers.steps
    assert list(captured) == [(4, 64)]
    kept = logits.copy()
    del first, second
    _, third = backend.start(*inputs, CAPACITY)
    assert id(third.buffers) in taken
    _, fourth = backend.start(*inputs, CAPACITY)
    assert {id(third.buffers), id(fourth.buffers)} == taken
    for state in (third, fourth):
        assert np.array_equal(backend.step(np.full((3, 1), 9), state)[0], kept), "old numbers must not be seen"


def test_a_text_that_came_to_nan_does_not_reach_the_next() -> None:
    _, backend = pair("encoder-decoder", "cpu")
    inputs = batch_of(backend.config, 3, seed=1)
    logits, state = backend.start(*inputs, CAPACITY)
    with torch.inference_mode():
        state.buffers.cache.fill_(np.nan)
        state.buffers.memory.fill_(np.nan)
    del state
    again, state = backend.start(*inputs, CAPACITY)
    assert np.array_equal(again, logits)
    assert np.isfinite(backend.step(np.full((3, 1), 9), state)[0]).all()


def test_buffers_larger_than_the_bound_are_still_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_buffers, "KEPT_BYTES", 1)
    _, backend = pair("decoder-only", "cpu")
    _, state = backend.start(*batch_of(backend.config, 3, seed=1), CAPACITY)
    first = id(state.buffers)
    del state
    _, state = backend.start(*batch_of(backend.config, 3, seed=2), CAPACITY)
    assert id(state.buffers) == first


@pytest.mark.parametrize("device", DEVICES)
def test_threads_on_several_models_capture_and_replay_at_once(device: str) -> None:
    backends = [pair(architecture, device)[1] for architecture in ARCHITECTURES] * 2
    sources: list[list[list[int]] | None] = [[[7, 8, EOS]] if b.config.is_encoder_decoder else None for b in backends]
    options: dict[str, Any] = {"max_new_tokens": 20, "min_new_tokens": 20}
    wanted = [
        generate(EagerBackend(tiny_model(b.config), b.config), [[BOS]], source, **options)[0].ids
        for b, source in zip(backends, sources, strict=True)
    ]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            work = [pool.submit(generate, b, [[BOS]], s, **options) for b, s in zip(backends, sources, strict=True)]
            assert [future.result()[0].ids for future in work] == wanted


def test_steps_are_captured_once_for_each_power_of_two() -> None:
    _, backend = pair("decoder-only", "cpu")
    _, state = backend.start(*batch_of(backend.config, 7, seed=3), CAPACITY)
    buffers, seen = state.buffers, []
    for n_rows in (7, 6, 4, 3, 2, 1):
        state = backend.reorder(state, np.arange(n_rows))
        logits, state = backend.step(np.full((n_rows, 1), 5), state)
        assert logits.shape == (n_rows, 300)
        assert state.buffers is buffers
        seen.append(len(buffers.steps))
    assert seen == [1, 1, 2, 2, 3, 4]


def test_a_captured_step_looks_at_no_more_than_twice_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "MIN_CAPACITY", 4)
    _, backend = pair("decoder-only", "cpu")
    _, state = backend.start(Batch.of([[BOS, 7]], PAD), None, CAPACITY)
    buffers = state.buffers
    for _ in range(30):
        _, state = backend.step(np.array([[5]]), state)
        assert max(buffers.steps)[1] < 2 * max(4, int(state.lengths.max()))
    assert list(buffers.steps) == [(1, 4), (1, 8), (1, 16), (1, 32)]


def test_free_buffers_are_bounded_and_the_longest_unused_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIGS["decoder-only"]
    pool = BufferPool(lambda size: KVBuffers(config, torch.device("cpu"), torch.float32, size))
    handles = [pool.acquire(BufferSize.of(n_rows, 1, 0)) for n_rows in (1, 2, 4)]
    made = [weakref.ref(handle.buffers) for handle in handles]
    n_bytes = [handle.buffers.n_bytes for handle in handles]
    while handles:
        del handles[0]
    monkeypatch.setattr(cuda_buffers, "KEPT_BYTES", sum(n_bytes[1:]))
    handle = pool.acquire(BufferSize.of(8, 1, 0))
    assert [buffers() is None for buffers in made] == [True, False, False]
    assert handle.buffers.size.n_rows == 8


def test_sizes_are_few() -> None:
    assert BufferSize.of(1, 1, 1) == (1, 64, 16)
    assert BufferSize.of(5, 65, 0) == (8, 128, 0)
    assert BufferSize.of(64, 256, 17) == (64, 256, 32)


def test_a_model_that_is_let_go_is_gone_at_once() -> None:
    _, backend = pair("encoder-decoder", "cpu")
    generate(backend, [[BOS]], [[5, EOS]], max_new_tokens=4)
    model = weakref.ref(backend.model)
    gc.disable()
    try:
        del backend
        assert model() is None, "its memory on the GPU would wait for the garbage collector"
    finally:
        gc.enable()


@pytest.mark.parametrize("device", DEVICES)
def test_steps_are_replayed_on_a_gpu_alone(device: str) -> None:
    _, backend = pair("decoder-only", device)
    _, state = backend.start(*batch_of(backend.config, 2, seed=3), CAPACITY)
    _, state = backend.step(np.full((2, 1), 5), state)
    (step,) = state.buffers.steps.values()
    assert (step._graph is not None) == (device == "cuda")


def test_on_the_cpu_eager_stays_plain() -> None:
    config = CONFIGS["decoder-only"]
    assert type(eager_on(tiny_model(config), config, torch.device("cpu"))) is EagerBackend
