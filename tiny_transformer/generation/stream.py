"""The primitive of generation: a pull generator over a ragged batch, a token of every live row a step.

Between two pulls nothing runs, save a step that a GPU may have begun; closing the generator drops the backend's
state at once.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from itertools import repeat

import numpy as np

from tiny_transformer.backends.base import Backend
from tiny_transformer.generation.batching import Request, Running, compacted, finish_reason
from tiny_transformer.generation.beam import beam_search
from tiny_transformer.generation.options import GenerationOptions
from tiny_transformer.generation.sampling import (
    check_finite,
    draw,
    forbid,
    greedy,
    log_normalizer,
    penalize_repetition,
    probabilities,
    row_generator,
    seen_tokens,
)
from tiny_transformer.generation.tokens import Generated, GeneratedToken, Stopped, alternatives_of, length_score


def stream_batch(backend: Backend, request: Request) -> Iterator[list[tuple[int, GeneratedToken]]]:
    """(row, token) of every row that runs, a step at a time. Finished rows make room for those that wait."""
    options = request.options
    limits = request.limits(backend.config.max_length)
    running = Running(backend, request)
    chooser = _Chooser(request, backend.config.vocab_size)
    written: list[list[int]] = [[] for _ in request.prefixes]
    live = running.fill(0)  # the row each row of the batch stands for
    while live:
        logits = running.logits
        chosen = chooser.choose(logits, live, written)
        scores = [logits.item(place, token_id) for place, token_id in enumerate(chosen)]
        check_finite(scores)
        normalizers: Iterator[float] = repeat(math.nan)
        if options.logprobs:
            normalizers = iter(log_normalizer(logits).tolist())
        step: list[tuple[int, GeneratedToken]] = []
        for place, (row, token_id, score) in enumerate(zip(live, chosen, scores, strict=True)):
            written[row].append(token_id)
            normalizer = next(normalizers)
            alternatives = alternatives_of(logits[place], normalizer, options.alternatives)
            reason = finish_reason(request, written[row], limits[row])
            step.append((row, GeneratedToken(token_id, score - normalizer, alternatives, reason)))
        yield step
        alive = [token.finish_reason is None for _, token in step]
        if not all(alive):
            kept = compacted(np.array(alive))
            live = [live[i] for i in kept]
            running.keep(kept)
        if live:
            running.step([written[row][-1] for row in live])
        live += running.fill(len(live))


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

    def choose(self, logits: np.ndarray, live: Sequence[int], written: Sequence[Sequence[int]]) -> list[int]:
        """One id for each live row."""
        options = self._options
        scores = logits
        if self._seen is not None:
            scores = penalize_repetition(scores, self._seen[live], options.repetition_penalty)
        early = [len(written[row]) < options.min_new_tokens for row in live]  # where the text may not end yet
        if options.temperature > 0:
            chosen = [
                self._draw(forbid(row, self._eos_id) if is_early else row, i)
                for i, row, is_early in zip(live, scores, early, strict=True)
            ]
        else:
            chosen = greedy(scores)
            for place, token_id in enumerate(chosen):
                if token_id == self._eos_id and early[place]:
                    chosen[place] = greedy(forbid(scores[place], self._eos_id)[None])[0]
        if self._seen is not None:
            self._seen[live, chosen] = True
        return chosen

    def _draw(self, scores: np.ndarray, row: int) -> int:
        options = self._options
        chances = probabilities(scores, options.temperature, options.top_k, options.top_p)
        return draw(chances, self._generators[row])


ToTheEnd = Callable[[Backend, Request], list[Generated]]


def share_out(backends: Sequence[Backend], request: Request, to_the_end: ToTheEnd) -> list[Generated]:
    """Every text to its end. Whatever ends one thread early, an error or the user, ends all of them."""
    halt = threading.Event()
    # Neighbours in length go to different threads, so that all have about as much to do.
    by_length = sorted(range(len(request.prefixes)), key=request.n_read)
    shares = [by_length[i :: len(backends)] for i in range(len(backends))]
    with ThreadPoolExecutor(len(backends), thread_name_prefix="generation") as pool:
        try:
            work = [
                pool.submit(to_the_end, backend, request.share(numbers, halt))
                for backend, numbers in zip(backends, shares, strict=True)
            ]
            done, _ = wait(work, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()  # raises what ended it
        except BaseException:
            halt.set()
            raise
    found: dict[int, Generated] = {}
    for numbers, future in zip(shares, work, strict=True):
        found |= zip(numbers, future.result(), strict=True)
    return [found[i] for i in range(len(found))]


def stream_ids(
    backend: Backend,
    prefix: Sequence[int],
    source: Sequence[int] | None,
    options: GenerationOptions,
    *,
    eos_id: int,
    pad_id: int,
    stopped: Stopped | None = None,
) -> Iterator[GeneratedToken]:
    """The tokens of one row as they are chosen; the last one carries the finish reason.

    A beam knows its best tokens only at the end: with `num_beams` they come all at once.
    """
    sources = None if source is None else [source]
    request = Request([prefix], sources, options, eos_id, pad_id, stopped)
    if options.num_beams > 1:
        yield from beam_search(backend, request)[0].tokens
    else:
        for step in stream_batch(backend, request):
            yield step[0][1]


def generate_ids(
    backend: Backend,
    prefixes: Sequence[Sequence[int]],
    sources: Sequence[Sequence[int]] | None,
    options: GenerationOptions,
    *,
    eos_id: int,
    pad_id: int,
    stopped: Stopped | None = None,
    rows: Sequence[int] | None = None,
) -> list[Generated]:
    """Continue every row to its end; each row's result is what it would be alone.

    Row i draws its random numbers from (seed, i), or from (seed, rows[i]) where `rows` is given.
    """
    request = Request(prefixes, sources, options, eos_id, pad_id, stopped, rows)
    backends = backend.side_by_side(len(prefixes) * options.num_beams)[: len(prefixes)]
    return to_the_end(backend, request) if len(backends) == 1 else share_out(backends, request, to_the_end)


def to_the_end(backend: Backend, request: Request) -> list[Generated]:
    """All rows on one backend."""
    if request.options.num_beams > 1:
        return beam_search(backend, request)
    found: list[list[GeneratedToken]] = [[] for _ in request.prefixes]
    for step in stream_batch(backend, request):
        for row, token in step:
            found[row].append(token)
    return [finished(tokens, request.options.length_penalty) for tokens in found]


def finished(tokens: Sequence[GeneratedToken], length_penalty: float) -> Generated:
    """A sequence whose last token says why it ended."""
    reason = tokens[-1].finish_reason
    assert reason is not None
    total = sum(token.logprob for token in tokens)
    return Generated(tuple(tokens), reason, length_score(total, len(tokens), length_penalty))
