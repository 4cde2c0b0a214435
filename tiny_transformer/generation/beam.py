"""Beam search over several texts at once: rows of the batch = texts × their live hypotheses.

A text keeps its `num_beams` best unfinished hypotheses; those that end go to its pool. It is done
when the pool is full, or when no live hypothesis can still reach the n-best: log-probabilities
only fall and a length counts at most at its limit, so that early end loses nothing.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tiny_transformer.backends.base import Backend
from tiny_transformer.generation.batching import Request, RunningBatch, compacted
from tiny_transformer.generation.sampling import forbid_early_end, penalized
from tiny_transformer.generation.tokens import (
    FinishReason,
    Generated,
    GeneratedToken,
    alternatives_of,
    length_score,
)


@dataclass(frozen=True)
class Hypothesis:
    """One way the text may go, and the sum of log-probabilities it is ranked by."""

    ids: tuple[int, ...]
    tokens: tuple[GeneratedToken, ...]
    total: float


Alternatives = tuple[tuple[int, float], ...]
Candidate = tuple[float, int, int, float, Alternatives]  # total, row of the parent, id, log-probability, beside it


def beam_search(backend: Backend, request: Request) -> list[Generated]:
    """The best sequence of each text, with the rest of its n-best in `others`."""
    limits = request.limits(backend.config.max_length)
    searches = [TextSearch(request, ids, limit) for ids, limit in zip(request.prefixes, limits, strict=True)]
    running = RunningBatch(backend, request, request.options.num_beams)
    live = [searches[i] for i in running.fill(0)]
    while live:
        found = candidates_of(request, live, running)
        parents = [search.advance(*best) for search, best in zip(live, found, strict=True)]
        kept = compacted(np.array([not search.done for search in live]))
        live = [live[i] for i in kept]
        running.keep(np.array([parent for i in kept for parent in parents[i]], dtype=np.int64))
        if live:
            running.step([hypothesis.ids[-1] for search in live for hypothesis in search.live])
        live += [searches[i] for i in running.fill(len(live))]
    return [search.result() for search in searches]


def staying(parents: Sequence[int]) -> list[int]:
    """An order of the children in which as many as possible stand in their parent's row, so that few rows move."""
    in_row: dict[int, int] = {}  # row → child
    for child, parent in enumerate(parents):
        if parent < len(parents):
            in_row.setdefault(parent, child)
    stay = set(in_row.values())
    others = iter([child for child in range(len(parents)) if child not in stay])
    return [in_row[row] if row in in_row else next(others) for row in range(len(parents))]


def candidates_of(
    request: Request, live: Sequence["TextSearch"], running: RunningBatch
) -> Iterator[tuple[list[Candidate], int]]:
    """For each text, its best extensions over all live hypotheses, best first, and the row of the first of these.

    Twice the beam: at most one extension of each hypothesis is the end, so enough are left to live on.
    """
    options, logits, n_best = request.options, running.logits, 2 * request.options.num_beams
    hypotheses = [(search.prefix, hypothesis) for search in live for hypothesis in search.live]
    changed = penalized(logits, options, request.eos_id, [[*prefix, *found.ids] for prefix, found in hypotheses])
    best, normalizers = running.rank(changed, n_best)  # R K, R
    allowed = forbid_early_end(changed, options, request.eos_id, [len(found.ids) for _, found in hypotheses])
    if allowed is not changed:
        best, _ = running.rank(allowed, n_best)
    gains = np.take_along_axis(allowed, best, axis=1).astype(np.float64) - normalizers[:, None]  # R K
    if changed is not logits:
        _, normalizers = running.rank(logits, 1)
    totals = (np.array([found.total for _, found in hypotheses])[:, None] + gains).ravel()  # R·K
    sizes = [len(search.live) for search in live]
    k = best.shape[1]
    # Stable: of equals the earlier hypothesis, and its earlier token.
    order = np.lexsort((-totals, np.repeat(np.arange(len(live)), k * np.array(sizes))))
    rows, ids = order // k, best.ravel()[order]
    logprobs = logits[rows, ids].astype(np.float64) - normalizers[rows]
    beside = [alternatives_of(row, float(n), options.alternatives) for row, n in zip(logits, normalizers, strict=True)]
    columns = totals[order].tolist(), rows.tolist(), ids.tolist(), logprobs.tolist(), [beside[row] for row in rows]
    first = 0
    for size in sizes:
        part = slice(first * k, first * k + min(size * k, n_best))
        yield list(zip(*(column[part] for column in columns), strict=True)), first
        first += size


class TextSearch:
    """The beam of one text."""

    def __init__(self, request: Request, prefix: Sequence[int], limit: tuple[int, FinishReason]) -> None:
        self.live = [Hypothesis((), (), 0.0)]
        self.prefix = prefix
        self._pool: list[Generated] = []
        self._request = request
        self._options = request.options
        self._limit = limit

    @property
    def done(self) -> bool:
        """Whether nothing is left to try."""
        return not self.live

    def advance(self, candidates: Sequence[Candidate], first: int) -> list[int]:
        """Extend the live hypotheses, in rows from `first` on; the rows of the parents of those that live on."""
        n_beams = self._options.num_beams
        parents: list[int] = []
        live: list[Hypothesis] = []
        for rank, (total, row, token_id, logprob, alternatives) in enumerate(candidates):
            if total == -math.inf or (rank >= n_beams and len(live) == n_beams):
                break
            parent = self.live[row - first]
            ids = (*parent.ids, token_id)
            reason = self._request.finish_reason(ids, self._limit)
            if not (rank < n_beams if reason else len(live) < n_beams):
                continue
            tokens = (*parent.tokens, GeneratedToken(token_id, logprob, alternatives, reason))
            if reason:
                score = length_score(total, len(tokens), self._options.length_penalty)
                self._pool.append(Generated(tokens, reason, score))
            else:
                live.append(Hypothesis(ids, tokens, total))
                parents.append(row)
        if self._settled(live):
            self.live = []
            return []
        order = staying([row - first for row in parents])
        self.live = [live[i] for i in order]
        return [parents[i] for i in order]

    def _settled(self, live: list[Hypothesis]) -> bool:
        """Whether no hypothesis of `live` can change the result."""
        if not live or len(self._pool) >= self._options.num_beams:
            return True
        if len(self._pool) < self._options.n_best:
            return False
        last = sorted(found.score for found in self._pool)[-self._options.n_best]
        best = max(hypothesis.total for hypothesis in live)
        return length_score(best, self._limit[0], self._options.length_penalty) <= last

    def result(self) -> Generated:
        """The best of the pool, with the others beside it."""
        best, *others = sorted(self._pool, key=lambda found: -found.score)[: self._options.n_best]
        return Generated(best.tokens, best.finish_reason, best.score, tuple(others))
