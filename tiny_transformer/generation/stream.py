"""The primitive of generation: a pull generator over a ragged batch, a token of every live row a step.

Nothing runs between two pulls; closing the generator drops the backend's state at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from tiny_transformer.backends.base import Backend, Batch
from tiny_transformer.errors import InputError
from tiny_transformer.generation.options import GenerationOptions
from tiny_transformer.generation.sampling import (
    best_logit,
    draw,
    forbid,
    greedy,
    log_normalizer,
    penalize_repetition,
    probabilities,
    row_generator,
)
from tiny_transformer.generation.tokens import FinishReason, GeneratedToken, Stopped, alternatives_of


@dataclass(frozen=True)
class Request:
    """Rows to continue: each row's prefix, its source where the model has an encoder, and how."""

    prefixes: Sequence[Sequence[int]]
    sources: Sequence[Sequence[int]] | None
    options: GenerationOptions
    eos_id: int
    pad_id: int
    stopped: Stopped | None = None
    rows: Sequence[int] | None = None  # which stream of random numbers each row draws from; by default 0, 1, …

    def batches(self) -> tuple[Batch, Batch | None]:
        """Prefixes and sources, padded."""
        if self.sources is not None and len(self.sources) != len(self.prefixes):
            raise InputError(f"There are {len(self.sources)} sources for {len(self.prefixes)} prefixes; pair them up.")
        source = None if self.sources is None else Batch.of(self.sources, self.pad_id)
        return Batch.of(self.prefixes, self.pad_id), source

    def limits(self, max_length: int) -> list[tuple[int, FinishReason]]:
        """For each row, how many tokens may come and why it would end there.

        The last token is never read again, so it may stand one place past the context.
        """
        wanted = self.options.max_new_tokens
        rooms = [max_length - len(prefix) + 1 for prefix in self.prefixes]
        return [(wanted, "length") if wanted <= room else (room, "context") for room in rooms]

    def capacity(self, max_length: int) -> int:
        """Places of cache the longest row can need."""
        limits = self.limits(max_length)
        return max(len(prefix) + limit - 1 for prefix, (limit, _) in zip(self.prefixes, limits, strict=True))


def stream_batch(backend: Backend, request: Request) -> Iterator[list[tuple[int, GeneratedToken]]]:
    """(row, token) of every row still going, a step at a time. Finished rows leave the batch."""
    options = request.options
    prefix, source = request.batches()
    limits = request.limits(backend.config.max_length)
    logits, state = backend.start(prefix, source, request.capacity(backend.config.max_length))
    chooser = _Chooser(request, backend.config.vocab_size)
    written: list[list[int]] = [[] for _ in request.prefixes]
    live = np.arange(len(written))  # the row each row of the batch stands for
    for n_written in count():
        step: list[tuple[int, GeneratedToken]] = []
        normalizers = log_normalizer(logits) if options.logprobs else best_logit(logits) * np.nan
        chosen = chooser.choose(logits, live, n_written)
        for row, token_id, scores, normalizer in zip(live.tolist(), chosen, logits, normalizers.tolist(), strict=True):
            written[row].append(token_id)
            reason = finish_reason(request, written[row], limits[row])
            alternatives = alternatives_of(scores, normalizer, options.alternatives)
            step.append((row, GeneratedToken(token_id, float(scores[token_id]) - normalizer, alternatives, reason)))
        yield step
        alive = np.array([token.finish_reason is None for _, token in step])
        if not alive.all():
            kept = compacted(alive)
            live = live[kept]
            if not live.size:
                return
            state = backend.reorder(state, kept)
        logits, state = backend.step(np.array([[written[row][-1]] for row in live]), state)


def compacted(alive: np.ndarray) -> np.ndarray:
    """Indices of the live rows, the last of them moved into the holes: few rows change their place."""
    n_alive = int(alive.sum())
    kept = np.arange(n_alive)
    kept[~alive[:n_alive]] = n_alive + np.flatnonzero(alive[n_alive:])
    return kept


class _Chooser:
    """Picks one token a row; holds what outlives a step: random generators and the tokens seen."""

    def __init__(self, request: Request, vocab_size: int) -> None:
        self._options = request.options
        self._eos_id = request.eos_id
        self._generators: list[np.random.Generator] = []
        if self._options.temperature > 0:
            rows = range(len(request.prefixes)) if request.rows is None else request.rows
            self._generators = [row_generator(self._options.seed, row) for row in rows]
        self._seen: np.ndarray | None = None
        if self._options.repetition_penalty != 1.0:
            self._seen = seen_tokens(request.prefixes, vocab_size, request.eos_id)

    def choose(self, logits: np.ndarray, live: np.ndarray, n_written: int) -> list[int]:
        """One id for each live row."""
        options = self._options
        scores = logits
        if self._seen is not None:
            scores = penalize_repetition(scores, self._seen[live], options.repetition_penalty)
        forbidden = self._eos_id if n_written < options.min_new_tokens else None
        if options.temperature > 0:
            scores = scores if forbidden is None else forbid(scores, forbidden)
            chosen = [
                draw(probabilities(row, options.temperature, options.top_k, options.top_p), self._generators[i])
                for i, row in zip(live, scores, strict=True)
            ]
        else:
            chosen = greedy(scores, forbidden)
        if self._seen is not None:
            self._seen[live, chosen] = True
        return chosen


def seen_tokens(rows: Sequence[Sequence[int]], vocab_size: int, eos_id: int) -> np.ndarray:
    """Which tokens each row of ids holds, R V: what the repetition penalty weakens.

    Prefix and new tokens count, the source doesn't. The end token never counts: a dialogue is full
    of ends, and a model that may not repeat them cannot stop.
    """
    seen = np.zeros((len(rows), vocab_size), dtype=bool)
    for row, ids in zip(seen, rows, strict=True):
        row[list(ids)] = True
    seen[:, eos_id] = False
    return seen


def finish_reason(request: Request, ids: Sequence[int], limit: tuple[int, FinishReason]) -> FinishReason | None:
    """Why a row ends with the newest of its ids, if it does."""
    if ids[-1] == request.eos_id:
        return "eos"
    if request.stopped is not None and request.stopped(ids):
        return "stop"
    return limit[1] if len(ids) >= limit[0] else None
