"""Beam search over several texts at once: rows of the batch = texts × their live hypotheses.

A text keeps its `num_beams` best unfinished hypotheses; those that end go to its pool. It is done
when the pool is full, or when no live hypothesis can still reach the n-best: log-probabilities
only fall and a length counts at most at its limit, so that early end loses nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiny_transformer.backends.base import Backend
from tiny_transformer.generation.batching import Request, RunningBatch, compacted
from tiny_transformer.generation.sampling import forbid_early_end, likeliest_of_rows, log_normalizer, penalized
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


@dataclass(frozen=True)
class Scores:
    """What the model says of the next token of some rows, and the best ways on."""

    logits: np.ndarray  # R V
    normalizers: Sequence[float]  # R
    best: Sequence[Sequence[int]]  # R K: the likeliest ids, after penalty and minimum length
    gains: Sequence[Sequence[float]]  # R K: what each adds to the total

    def of(self, rows: slice) -> "Scores":
        """Those of some rows."""
        return Scores(self.logits[rows], self.normalizers[rows], self.best[rows], self.gains[rows])


def beam_search(backend: Backend, request: Request) -> list[Generated]:
    """The best sequence of each text, with the rest of its n-best in `others`."""
    limits = request.limits(backend.config.max_length)
    searches = [TextSearch(request, ids, limit) for ids, limit in zip(request.prefixes, limits, strict=True)]
    running = RunningBatch(backend, request, request.options.num_beams)
    live = [searches[i] for i in running.fill(0)]
    while live:
        scores = score(request, live, running.logits)
        parents: list[list[int]] = []
        first = 0
        for search in live:
            rows = slice(first, first + len(search.live))
            parents.append([first + parent for parent in search.advance(scores.of(rows))])
            first = rows.stop
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


def score(request: Request, live: Sequence["TextSearch"], logits: np.ndarray) -> Scores:
    """The best tokens of every row at once.

    Twice the beam: at most one extension of each hypothesis is the end, so enough are left to live on.
    """
    options = request.options
    hypotheses = [(search.prefix, hypothesis.ids) for search in live for hypothesis in search.live]
    normalizers = log_normalizer(logits)  # R
    ranked = penalized(logits, options, request.eos_id, [[*prefix, *ids] for prefix, ids in hypotheses])
    ranked_normalizers = normalizers if ranked is logits else log_normalizer(ranked)
    ranked = forbid_early_end(ranked, options, request.eos_id, [len(ids) for _, ids in hypotheses])
    best = likeliest_of_rows(ranked, 2 * options.num_beams)  # R K
    gains = np.take_along_axis(ranked, best, axis=1).astype(np.float64) - ranked_normalizers[:, None]
    return Scores(logits, normalizers.tolist(), best.tolist(), gains.tolist())


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

    def advance(self, scores: Scores) -> list[int]:
        """Extend every live hypothesis by a token; the parents of those that live on."""
        parents: list[int] = []
        live: list[Hypothesis] = []
        for rank, (total, index, token_id) in enumerate(self._candidates(scores)):
            parent = self.live[index]
            ids = (*parent.ids, token_id)
            reason = self._request.finish_reason(ids, self._limit)
            in_beam = rank < self._options.num_beams
            if not (in_beam if reason else len(live) < self._options.num_beams):
                continue
            row, normalizer = scores.logits[index], scores.normalizers[index]
            alternatives = alternatives_of(row, normalizer, self._options.alternatives)
            tokens = (*parent.tokens, GeneratedToken(token_id, float(row[token_id]) - normalizer, alternatives, reason))
            if reason:
                self._pool.append(
                    Generated(tokens, reason, length_score(total, len(tokens), self._options.length_penalty))
                )
            else:
                live.append(Hypothesis(ids, tokens, total))
                parents.append(index)
        if self._settled(live):
            self.live = []
            return []
        order = staying(parents)
        self.live = [live[i] for i in order]
        return [parents[i] for i in order]

    def _candidates(self, scores: Scores) -> list[tuple[float, int, int]]:
        """(total, which live hypothesis, id) of the best extensions over all of them, best first."""
        found = [
            (hypothesis.total + gain, index, token_id)
            for index, hypothesis in enumerate(self.live)
            for token_id, gain in zip(scores.best[index], scores.gains[index], strict=True)
            if gain > -np.inf
        ]
        return sorted(found, key=lambda candidate: -candidate[0])[: 2 * self._options.num_beams]

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
