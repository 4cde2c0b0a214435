"""The loop of generation: rows of different lengths run together, and every step gives each of them a token.

`stream_batch` is a generator that is pulled: between two pulls nothing runs, except a step that a GPU may have begun,
and closing it drops the backend's state at once.
"""

import math
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from itertools import repeat

import numpy as np

from tiny_transformer.backends.base import Backend
from tiny_transformer.generation.batching import Request, RunningBatch, compacted
from tiny_transformer.generation.beam import beam_search
from tiny_transformer.generation.sampling import (
    check_finite,
    draw_token,
    forbid_early_end,
    greedy,
    penalized,
    row_generator,
)
from tiny_transformer.generation.tokens import Generated, GeneratedToken, alternatives_of, finished

FIRST_GROUP = 16  # texts


def generate_ids(backend: Backend, request: Request) -> list[Generated]:
    """Continue every text to its end; each result is what the text would give alone."""
    n_texts, options = len(request.prefixes), request.options
    if request.in_parallel:
        backends = backend.side_by_side(n_texts * options.num_beams)[:n_texts]
        if len(backends) > 1:
            return _in_threads(backends, request)
    if options.num_beams > 1:
        return beam_search(backend, request)
    found: list[list[GeneratedToken]] = [[] for _ in request.prefixes]
    for step in stream_batch(backend, request):
        for text, token in step:
            found[text].append(token)
    return [finished(tokens, options.length_penalty) for tokens in found]


def stream_ids(backend: Backend, request: Request) -> Iterator[GeneratedToken]:
    """The tokens of a request for one text, as they are chosen; the last one carries the finish reason.

    A beam knows its best tokens only at the end: with `num_beams` they come all at once.
    """
    return (token for _, token in stream_in_order(backend, request))


def stream_in_order(backend: Backend, request: Request) -> Iterator[tuple[int, GeneratedToken]]:
    """(text, token) of several texts, one text after the other, though many run together.

    The first text's tokens come as they are chosen; what the others have by then waits until it is their turn.
    """
    should_stop = request.should_stop or (lambda: False)
    for group in _groups(len(request.prefixes), backend.max_rows):
        first, part = group[0], request.share(group, should_stop)
        if part.options.num_beams > 1:
            found = beam_search(backend, part)
            yield from ((first + text, token) for text, one in enumerate(found) for token in one.tokens)
            continue
        waiting: list[deque[GeneratedToken]] = [deque() for _ in group]
        turn = 0
        for step in stream_batch(backend, part):
            for text, token in step:
                waiting[text].append(token)
            while turn < len(group) and waiting[turn]:
                token = waiting[turn].popleft()
                yield first + turn, token
                turn += token.finish_reason is not None


def _groups(n_texts: int, max_rows: int) -> Iterator[range]:
    """Texts that run together: few at first, since all of a group are read before its first token comes."""
    first, size = 0, min(FIRST_GROUP, max_rows)
    while first < n_texts:
        yield range(first, min(first + size, n_texts))
        first, size = first + size, max_rows


def stream_batch(backend: Backend, request: Request) -> Iterator[list[tuple[int, GeneratedToken]]]:
    """(text, token) of every text that runs, one step at a time. Finished texts make room for those that wait."""
    options = request.options
    limits = request.limits(backend.config.max_length)
    running = RunningBatch(backend, request)
    choose = _Chooser(request)
    written: list[list[int]] = [[] for _ in request.prefixes]
    live = running.fill(0)  # the text that each row of the batch stands for
    while live:
        logits = running.logits  # R V
        chosen = choose(logits, live, written)
        scores = [logits.item(row, token_id) for row, token_id in enumerate(chosen)]
        check_finite(scores)
        normalizers = iter(running.rank(logits, 1)[1].tolist()) if options.logprobs else repeat(math.nan)
        step: list[tuple[int, GeneratedToken]] = []
        for row, (text, token_id, score) in enumerate(zip(live, chosen, scores, strict=True)):
            written[text].append(token_id)
            normalizer = next(normalizers)
            alternatives = alternatives_of(logits[row], normalizer, options.alternatives)
            reason = request.finish_reason(written[text], limits[text])
            step.append((text, GeneratedToken(token_id, score - normalizer, alternatives, reason)))
        yield step
        alive = [token.finish_reason is None for _, token in step]
        if not all(alive):
            kept = compacted(np.array(alive))
            live = [live[i] for i in kept]
            running.keep(kept)
        if live:
            running.step([written[text][-1] for text in live])
        live += running.fill(len(live))


class _Chooser:
    """Picks one token per row; each text draws from random numbers of its own."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._generators: list[np.random.Generator] = []
        if request.options.temperature > 0:
            streams = range(len(request.prefixes)) if request.streams is None else request.streams
            self._generators = [row_generator(request.options.seed, stream) for stream in streams]

    def __call__(self, logits: np.ndarray, live: Sequence[int], written: Sequence[Sequence[int]]) -> list[int]:
        options, eos_id = self._request.options, self._request.eos_id
        if options.repetition_penalty != 1.0:
            texts = [[*self._request.prefixes[text], *written[text]] for text in live]
            logits = penalized(logits, options, eos_id, texts)
        if options.temperature > 0:
            logits = forbid_early_end(logits, options, eos_id, [len(written[text]) for text in live])
            return [draw_token(row, options, self._generators[text]) for text, row in zip(live, logits, strict=True)]
        chosen = greedy(logits)
        for row, (text, token_id) in enumerate(zip(live, chosen, strict=True)):
            if token_id == eos_id and len(written[text]) < options.min_new_tokens:
                allowed = forbid_early_end(logits[row, None], options, eos_id, [len(written[text])])
                chosen[row] = greedy(allowed)[0]
        return chosen


def _in_threads(backends: Sequence[Backend], request: Request) -> list[Generated]:
    """Each backend continues its share of the texts. Whatever ends one thread early ends all of them."""
    failed = threading.Event()

    def should_stop() -> bool:
        return failed.is_set() or (request.should_stop is not None and request.should_stop())

    # Neighbors in length go to different threads, so that all have about as much to do.
    by_length = sorted(range(len(request.prefixes)), key=request.n_read)
    shares = [by_length[i :: len(backends)] for i in range(len(backends))]
    with ThreadPoolExecutor(len(backends), thread_name_prefix="generation") as pool:
        try:
            work = [
                pool.submit(generate_ids, backend, request.share(texts, should_stop))
                for backend, texts in zip(backends, shares, strict=True)
            ]
            done, _ = wait(work, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()  # raises what ended it
        except BaseException:
            failed.set()
            raise
    found: dict[int, Generated] = {}
    for texts, future in zip(shares, work, strict=True):
        found |= zip(texts, future.result(), strict=True)
    return [found[i] for i in range(len(found))]
