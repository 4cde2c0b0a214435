"""The two ways in: one row as a stream, or a batch of rows to the end; a beam or not."""

from collections.abc import Iterator, Sequence

from tiny_transformer.backends.base import Backend
from tiny_transformer.generation.beam import beam_search
from tiny_transformer.generation.options import GenerationOptions
from tiny_transformer.generation.parallel import share_out
from tiny_transformer.generation.request import Request
from tiny_transformer.generation.stream import stream_batch
from tiny_transformer.generation.tokens import Generated, GeneratedToken, Stopped, length_score


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
