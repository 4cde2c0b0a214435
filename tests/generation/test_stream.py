"""The stream: against step-wise argmax, alone against in a batch, and its ends."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.generation_fixtures import BOS, EOS, PAD, FakeBackend, FakeState, generate, log_softmax, random_rows
from tiny_transformer.backends.base import Batch
from tiny_transformer.errors import BackendError, InputError
from tiny_transformer.generation import Generated, GenerationOptions, Request, stream_ids
from tiny_transformer.generation.batching import compacted

PREFIXES = [[BOS], [BOS, 5, 6], [BOS, 4], [BOS, 3, 3, 3, 3]]
SOURCES = [[4, 5, EOS], [3, EOS], [9, 9, 9, 9, EOS], [7, EOS]]


def stream(backend: Any, prefix: list[int], source: list[int] | None, **options: Any) -> Any:
    sources = None if source is None else [source]
    return stream_ids(backend, Request([prefix], sources, GenerationOptions(**options), EOS, PAD))


def argmax_by_hand(backend: FakeBackend, prefix: list[int], source: list[int] | None, n: int) -> list[int]:
    """Greedy without any cache: the whole target anew for every token."""
    tokens = list(prefix)
    for _ in range(n):
        read = None if source is None else Batch.of([source])
        token = int(backend.logits(Batch.of([tokens]), read)[0, -1].argmax())
        if token == EOS:
            break
        tokens.append(token)
    return tokens[len(prefix) :]


@pytest.mark.parametrize("encoder", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_greedy_is_stepwise_argmax(encoder: bool, seed: int) -> None:
    backend = FakeBackend(seed=seed, encoder=encoder)
    sources = SOURCES if encoder else None
    for row, found in enumerate(generate(backend, PREFIXES, sources, max_new_tokens=10)):
        assert found.ids == argmax_by_hand(backend, PREFIXES[row], sources[row] if sources else None, 10)


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 1.0, "seed": 3}, {"repetition_penalty": 1.5, "alternatives": 3}]
)
def test_a_row_in_a_ragged_batch_is_what_it_is_alone(options: dict[str, Any]) -> None:
    for seed in range(5):
        backend = FakeBackend(seed=seed, scale=1.0)
        together = generate(backend, PREFIXES, SOURCES, max_new_tokens=12, **options)
        for row, found in enumerate(together):
            alone = generate(backend, [PREFIXES[row]], [SOURCES[row]], rows=[row], max_new_tokens=12, **options)
            assert alone == [found]
    assert generate(backend, PREFIXES[:1], SOURCES[:1], max_new_tokens=12, **options) == together[:1]


def test_finished_rows_leave_the_batch() -> None:
    mixed = 0
    for seed in range(10):
        backend = FakeBackend(seed=seed)
        found = generate(backend, PREFIXES, SOURCES, max_new_tokens=15)
        lengths = [len(row.tokens) for row in found]
        mixed += len(set(lengths)) > 1
        assert backend.rows_stepped == sum(n - 1 for n in lengths)  # the last token of a row is never read
    assert mixed


@pytest.mark.parametrize("alive", [[True, False, True, True], [False, False, True], [True], [False, True, False, True]])
def test_compaction_moves_only_into_holes(alive: list[bool]) -> None:
    kept = compacted(np.array(alive))
    assert sorted(kept) == [i for i, a in enumerate(alive) if a]
    assert all(kept[i] == i for i in range(len(kept)) if alive[i])


def test_the_stream_is_the_batch() -> None:
    backend = FakeBackend(seed=2, scale=1.0)
    for options in ({}, {"temperature": 0.8, "seed": 9, "alternatives": 2}):
        tokens = tuple(stream(backend, PREFIXES[1], SOURCES[1], **options))
        assert tokens == generate(backend, PREFIXES[1:2], SOURCES[1:2], **options)[0].tokens


def test_a_stream_does_nothing_before_it_is_pulled_and_frees_all_when_closed() -> None:
    states: list[weakref.ref[FakeState]] = []

    class Watched(FakeBackend):
        def step(self, ids: np.ndarray, state: FakeState) -> tuple[np.ndarray, FakeState]:
            logits, state = super().step(ids, state)
            states.append(weakref.ref(state))
            return logits, state

    backend = Watched(seed=2)
    tokens = stream(backend, PREFIXES[0], SOURCES[0], min_new_tokens=10, max_new_tokens=10)
    assert backend.rows_stepped == 0
    next(tokens), next(tokens), next(tokens)
    assert backend.rows_stepped == 2
    assert states[-1]() is not None
    tokens.close()
    gc.collect()
    assert states[-1]() is None
    assert list(tokens) == []


def ending(found: Generated) -> tuple[str, int]:
    return found.finish_reason, len(found.tokens)


def test_every_end_has_its_reason() -> None:
    backend = FakeBackend(max_length=24)
    source = [SOURCES[0]]
    for n in (1, 2, 5):
        assert ending(generate(backend, [[BOS]], source, min_new_tokens=n, max_new_tokens=n)[0]) == ("length", n)
    # 24 places and one token that is never read; the prefix takes some.
    for prefix in ([BOS], [BOS, 3, 3], [BOS] * 24):
        found = generate(backend, [prefix], source, min_new_tokens=99, max_new_tokens=99)[0]
        assert ending(found) == ("context", 25 - len(prefix))
    found = generate(backend, [[BOS]], source, min_new_tokens=24, max_new_tokens=24)[0]
    assert ending(found) == ("length", 24)
    ended = next(
        row
        for seed in range(50)
        for row in generate(FakeBackend(seed=seed), [[BOS]], source)
        if row.finish_reason == "eos"
    )
    assert ended.tokens[-1].id == EOS
    assert EOS not in ended.ids
    assert len(ended.logprobs) == len(ended.ids) == len(ended.tokens) - 1
    assert [t.finish_reason for t in ended.tokens[:-1]] == [None] * len(ended.ids)


def test_min_new_tokens_only_forbids_the_end() -> None:
    for seed in range(10):
        backend = FakeBackend(seed=seed)
        for options in ({}, {"temperature": 1.0, "seed": 1}):
            found = generate(backend, PREFIXES, SOURCES, min_new_tokens=6, max_new_tokens=9, **options)
            assert all(len(row.ids) >= 6 for row in found)


def test_logprobs_are_the_models_own_whatever_the_options() -> None:
    backend = FakeBackend(seed=4, scale=1.0)
    options = {"temperature": 0.5, "top_k": 3, "repetition_penalty": 1.3, "seed": 1, "alternatives": 4}
    found = generate(backend, [[BOS]], SOURCES[:1], max_new_tokens=8, **options)[0]
    tokens = [BOS]
    for token in found.tokens:
        expected = log_softmax(backend.row_logits(tokens, SOURCES[0]))
        assert token.logprob == pytest.approx(expected[token.id], abs=1e-5)
        assert [i for i, _ in token.alternatives] == np.argsort(-expected, kind="stable")[:4].tolist()
        assert [p for _, p in token.alternatives] == pytest.approx(sorted(expected)[::-1][:4], abs=1e-5)
        tokens.append(token.id)
    assert found.score == pytest.approx(sum(t.logprob for t in found.tokens) / len(found.tokens))
    quick = generate(
        backend, [[BOS]], SOURCES[:1], max_new_tokens=8, **(options | {"alternatives": 0, "logprobs": False})
    )
    assert quick[0].ids == found.ids
    assert all(np.isnan(quick[0].logprobs))


@pytest.mark.parametrize("before", [[], [3, EOS], [3, EOS, 5, EOS]])
def test_repetition_penalty_counts_the_begun_text_and_nothing_before_its_last_end(before: list[int]) -> None:
    penalty = 1.8
    for seed in range(10):
        backend = FakeBackend(seed=seed, encoder=False)
        found = generate(backend, [[*before, 4, 6]], None, repetition_penalty=penalty, max_new_tokens=10)[0]
        tokens = [*before, 4, 6]
        for token in found.tokens:
            logits = backend.row_logits(tokens, None).astype(np.float64)
            for seen in set(tokens[len(before) :]):
                logits[seen] = logits[seen] / penalty if logits[seen] > 0 else logits[seen] * penalty
            assert token.id == logits.argmax()
            tokens.append(token.id)


def test_going_on_from_a_prefix_is_going_on() -> None:
    backend = FakeBackend(seed=5, encoder=False)
    whole = generate(backend, [[BOS]], None, min_new_tokens=10, max_new_tokens=10, repetition_penalty=1.2)[0].ids
    rest = generate(backend, [[BOS, *whole[:4]]], None, min_new_tokens=6, max_new_tokens=6, repetition_penalty=1.2)
    assert rest[0].ids == whole[4:]


def test_the_same_seed_gives_the_same_text_in_spite_of_rounding() -> None:
    options = {"temperature": 1.0, "top_p": 0.9, "seed": 7, "min_new_tokens": 20, "max_new_tokens": 20}
    rows = random_rows(0, 20, 200, 4)
    texts = [
        [row.ids for row in generate(FakeBackend(200, noise=noise), [[BOS]] * 20, rows, **options)]
        for noise in (0.0, 1e-5)
    ]
    assert texts[0] == texts[1]
    other = generate(FakeBackend(200), [[BOS]] * 20, rows, **(options | {"seed": 8}))
    assert texts[0] != [row.ids for row in other]


def test_wrong_rows_are_refused() -> None:
    backend = FakeBackend()
    with pytest.raises(InputError, match="2 sources for 1 targets"):
        generate(backend, [[BOS]], SOURCES[:2])
    with pytest.raises(InputError, match="at least one"):
        generate(backend, [[]], SOURCES[:1])
    with pytest.raises(InputError, match="at least one"):
        generate(backend, [], [])
    with pytest.raises(InputError, match="25 tokens"):
        generate(backend, [[BOS] * 25], SOURCES[:1])
    with pytest.raises(InputError, match="id 12"):
        generate(backend, [[12]], SOURCES[:1], repetition_penalty=1.1)


def test_a_model_that_gives_no_numbers_is_named() -> None:
    backend = FakeBackend()
    backend._last[BOS, 3] = np.nan
    for options in ({}, {"logprobs": False}, {"num_beams": 2}):
        with pytest.raises(BackendError, match="not finite"):
            generate(backend, [[BOS]], SOURCES[:1], **options)


numbers = st.integers(0, 30)
fuzzed = st.fixed_dictionaries(
    {"max_new_tokens": st.integers(1, 12)},
    optional={
        "min_new_tokens": st.integers(0, 12),
        "temperature": st.one_of(st.just(0.0), st.floats(0, 10), st.sampled_from([5e-324, 1e-30, 1e300])),
        "top_k": numbers,
        "top_p": st.floats(0, 1, exclude_min=True),
        "repetition_penalty": st.floats(0.01, 10),
        "num_beams": st.integers(1, 5),
        "n_best": st.integers(1, 5),
        "length_penalty": st.floats(0, 10),
        "seed": st.integers(0, 2**64 - 1),
        "alternatives": numbers,
    },
)


@pytest.mark.long
@settings(max_examples=1_200)
@given(fuzzed, st.integers(0, 5), st.integers(1, 4), st.booleans(), st.integers(2, 12))
def test_any_options_on_any_rows_end_well(
    options: dict[str, Any], seed: int, n_rows: int, encoder: bool, max_length: int
) -> None:
    backend = FakeBackend(vocab_size=8, max_length=max_length, seed=seed, encoder=encoder)
    prefixes = random_rows(seed, n_rows, 8, max_length)
    sources = random_rows(seed + 1, n_rows, 8, max_length) if encoder else None
    try:
        checked = GenerationOptions(**options)
    except InputError:
        return
    for prefix, found in zip(prefixes, generate(backend, prefixes, sources, **options), strict=True):
        room = max_length - len(prefix) + 1
        assert 1 <= len(found.tokens) <= min(checked.max_new_tokens, room)
        assert found.finish_reason in ("eos", "length", "context")
        assert len(found.tokens) >= min(checked.min_new_tokens, room)
        assert all(0 <= token.id < 8 and token.logprob <= 1e-6 for token in found.tokens)
        assert len(found.others) < checked.n_best
