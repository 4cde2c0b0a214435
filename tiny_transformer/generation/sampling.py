"""From logits to a token in small pure steps: penalize, filter, normalize, draw.

Shapes: R rows, V vocabulary. What is drawn from is computed in float64, whatever the backend computes in.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tiny_transformer.errors import BackendError

if TYPE_CHECKING:
    from tiny_transformer.generation.options import GenerationOptions

GROUP_SIZE = 64


def log_normalizer(logits: np.ndarray) -> np.ndarray:
    """log Σ exp(logits) of each row (R,): subtracted from a logit it gives the log-probability."""
    highest = best_logit(logits)[..., None]  # R 1
    # In the logits' own type, twice as fast in float32: numpy adds in pairs, so that the sum has nearly all its digits.
    shifted = logits - highest
    total = np.exp(shifted, out=shifted).sum(axis=-1).astype(np.float64)  # R
    normalizer: np.ndarray = highest[..., 0].astype(np.float64) + np.log(total)
    return normalizer


def best_logit(logits: np.ndarray) -> np.ndarray:
    """The highest logit of each row (R,)."""
    highest: np.ndarray = logits.max(axis=-1)
    check_finite(highest.tolist())
    return highest


def check_finite(scores: Iterable[float]) -> None:
    """Refuse a model that gives no numbers; NaN and infinity are always the highest, so one score per row is enough."""
    if not all(map(math.isfinite, scores)):
        raise BackendError("The model's scores are not finite numbers; its weights are damaged, so restore them.")


def greedy(logits: np.ndarray) -> list[int]:
    """The best token of each row (R V), the lower id of equals."""
    chosen: list[int] = logits.argmax(axis=-1).tolist()
    return chosen


def seen_tokens(rows: Sequence[Sequence[int]], n_outputs: int, eos_id: int) -> np.ndarray:
    """Which tokens the text being written holds in each row of ids, R V: what the repetition penalty weakens.

    The start that it was given counts; what stands before the last end token doesn't, nor does the source. In a
    dialogue that is what was said before: a reply may take up its words, and has to, to keep to the point.
    A start may hold tokens that the model can't write: they have no score to weaken.
    """
    seen = np.zeros((len(rows), n_outputs), dtype=bool)
    for row, ids in zip(seen, rows, strict=True):
        row[[token for token in _after_last(eos_id, ids) if token < n_outputs]] = True
    return seen


def _after_last(end: int, ids: Sequence[int]) -> Sequence[int]:
    ends = [i for i, token in enumerate(ids) if token == end]
    return ids[ends[-1] + 1 :] if ends else ids


def penalized(
    logits: np.ndarray, options: "GenerationOptions", eos_id: int, texts: Sequence[Sequence[int]]
) -> np.ndarray:
    """Logits R V under the repetition penalty; `texts` are all ids that each row has so far, its prefix included."""
    if options.repetition_penalty == 1.0:
        return logits
    return penalize_repetition(logits, seen_tokens(texts, logits.shape[1], eos_id), options.repetition_penalty)


def penalize_repetition(logits: np.ndarray, seen: np.ndarray, penalty: float) -> np.ndarray:
    """Divide positive and multiply negative logits of `seen` tokens (R V) by the penalty (CTRL, section 4.1)."""
    return np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)


def forbid_early_end(logits: np.ndarray, options: "GenerationOptions", eos_id: int, n_new: Sequence[int]) -> np.ndarray:
    """Logits R V in which rows of fewer than `min_new_tokens` new tokens cannot end."""
    early = [row for row, n in enumerate(n_new) if n < options.min_new_tokens]
    if early:
        logits = logits.copy()
        logits[early, eos_id] = -np.inf
    return logits


def keep_top_k(logits: np.ndarray, k: int) -> np.ndarray:
    """Only the k highest logits of a row (V,), and those equal to the k-th: order never decides."""
    if k <= 0 or k >= logits.size:
        return logits
    return np.where(logits >= np.partition(logits, -k)[-k], logits, -np.inf)


def keep_top_p(probabilities: np.ndarray, p: float) -> np.ndarray:
    """Only the likeliest tokens of a row (V,) that together reach p, scaled to sum to 1 again."""
    if p >= 1.0:
        return probabilities
    # All tokens below (1 - p) / V together weigh less than 1 - p: none of them is needed to reach p.
    descending = np.sort(probabilities[probabilities >= (1.0 - p) / probabilities.size])[::-1]
    last = min(int(np.searchsorted(descending.cumsum(), p)), descending.size - 1)
    kept = np.where(probabilities >= descending[last], probabilities, 0.0)
    scaled: np.ndarray = kept / kept.sum()
    return scaled


def probabilities(logits: np.ndarray, temperature: float, top_k: int = 0, top_p: float = 1.0) -> np.ndarray:
    """The distribution of one row (V,) that a token is drawn from; temperature above 0."""
    highest = float(logits.max())
    check_finite([highest])
    logits = keep_top_k(logits.astype(np.float64), top_k)
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to -inf: that is its limit
        scaled = (logits - highest) / temperature
    weights = np.exp(scaled)
    return keep_top_p(weights / weights.sum(), top_p)


def draw_token(logits: np.ndarray, options: "GenerationOptions", generator: "np.random.Generator") -> int:
    """A token drawn from one row (V,) as the options say."""
    return draw(probabilities(logits, options.temperature, options.top_k, options.top_p), generator)


def draw(probabilities: np.ndarray, generator: "np.random.Generator") -> int:
    """One token: a race in which each finishes at a time of Exp(p), won with probability p.

    The winner changes only where two tokens finish within the backends' rounding of each other.
    Walking along the cumulated distribution instead, every token before the drawn one shifts the
    bounds: measured on 4,000 tokens, two backends then part eight times as often.
    """
    times = generator.standard_exponential(probabilities.size)
    possible = probabilities > 0
    return int(np.divide(times, probabilities, out=np.full_like(times, np.inf), where=possible).argmin())


def likeliest(logits: np.ndarray, k: int) -> np.ndarray:
    """Ids of the k highest logits of a row (V,), best first; of equals, the lower id first."""
    return likeliest_of_rows(logits[None], k)[0]


def likeliest_of_rows(logits: np.ndarray, k: int) -> np.ndarray:
    """Ids (R, k) of each row's k highest logits (R V), in the same order."""
    n_rows, size = logits.shape
    k = min(k, size)
    n_groups = size // GROUP_SIZE
    if n_groups < k:
        rows, ids = np.nonzero(logits >= _nth_highest(logits, k))
        return _ordered(rows, ids, logits, k)
    # Every n-th token is a group, the last few are groups of their own. The highest of each group is a token: so k
    # tokens reach the k-th highest of these, and only groups that reach it hold tokens that do.
    grouped = logits[:, : n_groups * GROUP_SIZE].reshape(n_rows, GROUP_SIZE, n_groups)
    rest = logits[:, n_groups * GROUP_SIZE :]
    highest = grouped.max(axis=1)  # R groups
    least = _nth_highest(np.concatenate((highest, rest), axis=1), k)  # R 1
    rows, groups = np.nonzero(highest >= least)
    found, offsets = np.nonzero(grouped[rows, :, groups] >= least[rows])
    rest_rows, rest_ids = np.nonzero(rest >= least)
    rows = np.concatenate((rows[found], rest_rows))
    ids = np.concatenate((offsets * n_groups + groups[found], n_groups * GROUP_SIZE + rest_ids))
    return _ordered(rows, ids, logits, k)


def rank_rows(logits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids (R, k) of each row's k highest logits (R V), and log Σ exp (R,): what a backend may do faster."""
    return likeliest_of_rows(logits, k), log_normalizer(logits)


def _nth_highest(values: np.ndarray, n: int) -> np.ndarray:
    return np.partition(values, -n, axis=1)[:, -n, None]  # R 1


def _ordered(rows: np.ndarray, ids: np.ndarray, logits: np.ndarray, k: int) -> np.ndarray:
    """The first k ids of each row (R, k), best first, of candidates of which each row has at least k."""
    order = np.lexsort((ids, -logits[rows, ids], rows))
    first = np.searchsorted(rows[order], np.arange(len(logits)))
    return ids[order[first[:, None] + np.arange(k)]]


def row_generator(seed: int | None, row: int) -> "np.random.Generator":
    """The random numbers of one row, which depend on nothing but the seed and the row's number."""
    return np.random.default_rng(None if seed is None else [seed, row])
