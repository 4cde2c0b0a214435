"""Beam search over several texts at once: rows of the batch = texts × their live hypotheses.

A text keeps its `num_beams` best unfinished hypotheses; those that end go to its pool. It is done
when the pool is full, or when no live hypothesis can still reach the n-best: log-probabilities
only fall and a length counts at most at its limit, so that early end loses nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiny_transformer.backends.base import Backend
from tiny_transformer.generation.sampling import forbid, likeliest, log_normalizer, penalize_repetition
from tiny_transformer.generation.stream import Request, finish_reason, seen_tokens
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

    tokens: tuple[GeneratedToken, ...]
    total: float

    @property
    def ids(self) -> list[int]:
        """The ids so far."""
        return [token.id for token in self.tokens]


@dataclass(frozen=True)
class Candidate:
    """A hypothesis and one more token."""

    parent: int  # which live hypothesis
    id: int
    total: float


def beam_search(backend: Backend, request: Request) -> list[Generated]:
    """The best sequence of each text, with the rest of its n-best in `others`."""
    prefix, source = request.batches()
    limits = request.limits(backend.config.max_length)
    logits, state = backend.start(prefix, source, request.capacity(backend.config.max_length))
    searches = [TextSearch(request, ids, limit) for ids, limit in zip(request.prefixes, limits, strict=True)]
    live = searches
    while True:
        parents: list[int] = []
        normalizers = log_normalizer(logits).tolist()
        first = 0
        for search in live:
            rows = slice(first, first + len(search.live))
            parents += [first + parent for parent in search.advance(logits[rows], normalizers[rows])]
            first = rows.stop
        live = [search for search in live if not search.done]
        if not live:
            return [search.result() for search in searches]
        state = backend.reorder(state, np.array(parents))
        newest = [hypothesis.tokens[-1].id for search in live for hypothesis in search.live]
        logits, state = backend.step(np.array(newest)[:, None], state)


class TextSearch:
    """The beam of one text."""

    def __init__(self, request: Request, prefix: Sequence[int], limit: tuple[int, FinishReason]) -> None:
        self.live = [Hypothesis((), 0.0)]
        self._pool: list[Generated] = []
        self._request = request
        self._options = request.options
        self._prefix = list(prefix)
        self._limit = limit

    @property
    def done(self) -> bool:
        """Whether nothing is left to try."""
        return not self.live

    def advance(self, logits: np.ndarray, normalizers: Sequence[float]) -> list[int]:
        """Extend every live hypothesis by a token (logits: live, V); the parents of those that live on."""
        parents: list[int] = []
        live: list[Hypothesis] = []
        for rank, candidate in enumerate(self._candidates(logits, normalizers)):
            parent = self.live[candidate.parent]
            ids = [*parent.ids, candidate.id]
            reason = finish_reason(self._request, ids, self._limit)
            in_beam = rank < self._options.num_beams
            if not (in_beam if reason else len(live) < self._options.num_beams):
                continue
            row, normalizer = logits[candidate.parent], normalizers[candidate.parent]
            alternatives = alternatives_of(row, normalizer, self._options.alternatives)
            token = GeneratedToken(candidate.id, float(row[candidate.id]) - normalizer, alternatives, reason)
            tokens = (*parent.tokens, token)
            if reason:
                score = length_score(candidate.total, len(tokens), self._options.length_penalty)
                self._pool.append(Generated(tokens, reason, score))
            else:
                live.append(Hypothesis(tokens, candidate.total))
                parents.append(candidate.parent)
        self.live = [] if self._settled(live) else live
        return parents if self.live else []

    def _candidates(self, logits: np.ndarray, normalizers: Sequence[float]) -> list[Candidate]:
        """The best extensions over all live hypotheses, best first.

        Twice the beam: at most one extension of each hypothesis is the end, so enough are left to live on.
        """
        wanted = 2 * self._options.num_beams
        if self._options.repetition_penalty != 1.0:
            rows = [self._prefix + hypothesis.ids for hypothesis in self.live]
            seen = seen_tokens(rows, logits.shape[1], self._request.eos_id)
            logits = penalize_repetition(logits, seen, self._options.repetition_penalty)
            normalizers = log_normalizer(logits).tolist()
        if len(self.live[0].tokens) < self._options.min_new_tokens:
            logits = forbid(logits, self._request.eos_id)
        found = [
            Candidate(parent, int(i), hypothesis.total + float(row[i]) - normalizer)
            for parent, (hypothesis, row, normalizer) in enumerate(zip(self.live, logits, normalizers, strict=True))
            for i in likeliest(row, wanted)
            if row[i] > -np.inf
        ]
        return sorted(found, key=lambda candidate: -candidate.total)[:wanted]

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
