"""The ranking of ONNX Runtime: numpy's order to the last tie, the textbook's sum, and each row as if alone."""

from typing import Any

import numpy as np
import onnx
import pytest

from tests.support.generation_fixtures import BOS, FakeBackend, generate, random_rows
from tiny_transformer.backends.base import Ranker
from tiny_transformer.backends.onnx_runtime import OrtBackend
from tiny_transformer.backends.ranking import rank, ranking_graph
from tiny_transformer.errors import BackendError


class RankingBackend(FakeBackend):
    """Logits from tables, ranked by ONNX Runtime."""

    def rank(self, logits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return rank(logits, k)


def random_logits(n_rows: int, size: int, scale: float = 3.0) -> np.ndarray:
    return np.random.default_rng(size).normal(0, scale, (n_rows, size)).astype(np.float32)


def test_the_graph_is_valid() -> None:
    onnx.checker.check_model(onnx.load_from_string(ranking_graph()), full_check=True)
    assert issubclass(OrtBackend, Ranker)


@pytest.mark.parametrize(("size", "k"), [(1, 1), (5, 9), (64, 64), (200, 3), (12_000, 1), (12_000, 8), (12_000, 40)])
def test_the_order_is_that_of_a_stable_sort(size: int, k: int) -> None:
    logits = random_logits(7, size).round(1)  # with many ties
    logits[2, : size // 2] = -np.inf
    ids, _ = rank(logits, k)
    assert ids.tolist() == [np.argsort(-row, kind="stable")[:k].tolist() for row in logits]


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_the_normalizer_is_the_textbook_one(scale: float) -> None:
    logits = random_logits(5, 12_000, scale) + 100
    exact = 100 + np.log(np.exp(logits.astype(np.float64) - 100).sum(axis=1))
    assert np.abs(rank(logits, 3)[1] - exact).max() < 2e-5  # a fifth of what backends may differ by


def test_a_row_is_what_it_is_alone() -> None:
    logits = random_logits(9, 12_000)
    ids, normalizers = rank(logits, 8)
    for row, found, normalizer in zip(logits, ids, normalizers, strict=True):
        alone = rank(row[None], 8)
        assert (alone[0][0] == found).all()
        assert alone[1][0] == normalizer  # the same bits


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3, "n_best": 3, "alternatives": 2},
        {"num_beams": 4, "repetition_penalty": 1.3, "min_new_tokens": 3},
        {"alternatives": 3, "repetition_penalty": 1.3},
    ],
)
def test_texts_are_those_of_numpy(options: dict[str, Any]) -> None:
    for seed in range(4):
        sources = random_rows(seed, 5, 12, 6)
        prefixes = [[BOS, *row] for row in random_rows(seed + 1, 5, 12, 5)]
        backends = FakeBackend(seed=seed), RankingBackend(seed=seed)
        numpy, ranked = (generate(backend, prefixes, sources, max_new_tokens=9, **options) for backend in backends)
        for one, other in zip(numpy, ranked, strict=True):
            for a, b in zip((one, *one.others), (other, *other.others), strict=True):
                assert a.ids == b.ids
                assert a.score == pytest.approx(b.score, abs=1e-5)
                for token, same in zip(a.tokens, b.tokens, strict=True):
                    assert token.logprob == pytest.approx(same.logprob, abs=1e-5)
                    assert [i for i, _ in token.alternatives] == [i for i, _ in same.alternatives]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_gives_no_numbers_is_named(value: float) -> None:
    backend = RankingBackend()
    backend._last[BOS, 3] = value
    for options in ({}, {"logprobs": False}, {"num_beams": 2}):
        with pytest.raises(BackendError, match="not finite"):
            generate(backend, [[BOS]], [[3, 4]], **options)
