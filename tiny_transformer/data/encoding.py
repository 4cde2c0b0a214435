"""From examples to ids: what the model reads, and which tokens it is asked to predict."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tiny_transformer.data.records import Dialogue, Example, Pair, texts_of
from tiny_transformer.data.source import Source
from tiny_transformer.tokenizer import Tokenizer

_EXAMPLES_AT_ONCE = 4_096  # encoded in parallel
_CHARACTERS_AT_ONCE = 1 << 20  # or fewer examples: the tokenizers library takes some 200 bytes for each character
_PACKED_TOKENS = 64  # on either side of a row of packed pairs: what one tile of the attention kernels holds
_OPEN_ROWS = 16  # that wait for a pair that fits


@dataclass(frozen=True)
class Encoded:
    """One row: the source of a pair, the target, and for each target token whether it is learned."""

    source: list[int]  # empty where there is no encoder
    target: list[int]
    learn: list[bool]


def with_dropout(tokenizer: Tokenizer, dropout: float) -> Tokenizer:
    """The same vocabulary, but each merge is skipped with this probability: one text, many spellings."""
    if not dropout:
        return tokenizer
    values = json.loads(tokenizer.to_json())
    values["model"]["dropout"] = dropout
    return Tokenizer.from_json(json.dumps(values))


def encode_examples(
    examples: Iterable[Example], tokenizer: Tokenizer, source: Source, max_length: int, *, dropout: float = 0.0
) -> Iterator[Encoded]:
    """Rows no longer than the model's context: dialogues cut between turns, texts into windows, long pairs dropped.

    `dropout` respells what the model reads. What it is to write keeps its one spelling.
    """
    rows = _rows(examples, tokenizer, with_dropout(tokenizer, dropout), source, max_length)
    if not source.packing:
        return rows
    return _packed_pairs(rows, min(_PACKED_TOKENS, max_length)) if source.is_pairs else _packed(rows, max_length)


def _rows(
    examples: Iterable[Example], tokenizer: Tokenizer, reader: Tokenizer, source: Source, max_length: int
) -> Iterator[Encoded]:
    for chunk in _chunks(examples):
        texts: dict[bool, list[str]] = {True: [], False: []}
        for example in chunk:
            for text, is_read in zip(texts_of(example), _only_read(example, source), strict=True):
                texts[is_read].append(text)
        written = tokenizer.encode_batch(texts[False], target=True)
        encoded = {True: iter(reader.encode_batch(texts[True])), False: iter(written)}
        for example in chunk:
            ids = [next(encoded[is_read]) for is_read in _only_read(example, source)]
            if isinstance(example, Pair):
                yield from _pair(ids[0], ids[1], tokenizer, max_length)
            elif isinstance(example, Dialogue):
                yield from _dialogue(example, ids, tokenizer, source, max_length)
            else:
                yield from _text(ids[0], tokenizer, max_length)


def _chunks(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """Examples that are encoded together: as many as fit into the memory's share."""
    chunk: list[Example] = []
    size = 0
    for example in examples:
        length = sum(map(len, texts_of(example)))
        if chunk and (len(chunk) == _EXAMPLES_AT_ONCE or size + length > _CHARACTERS_AT_ONCE):
            yield chunk
            chunk, size = [], 0
        chunk.append(example)
        size += length
    if chunk:
        yield chunk


def _only_read(example: Example, source: Source) -> list[bool]:
    """For each text of an example: whether the model reads it and is never asked to write it."""
    if isinstance(example, Pair):
        return [True, False]
    if isinstance(example, Dialogue):
        return [source.loss_on != "all" and message["role"] != "assistant" for message in example.messages]
    return [False]


def _pair(source: list[int], target: list[int], tokenizer: Tokenizer, max_length: int) -> Iterator[Encoded]:
    if len(source) + 1 > max_length or len(target) + 1 > max_length:
        return
    ids = [tokenizer.bos_id, *target, tokenizer.eos_id]
    yield Encoded([*source, tokenizer.eos_id], ids, [False] + [True] * (len(ids) - 1))


def _text(ids: list[int], tokenizer: Tokenizer, max_length: int) -> Iterator[Encoded]:
    ids = [tokenizer.bos_id, *ids, tokenizer.eos_id]
    # Windows overlap by one token, so that every token but the first is predicted once.
    for start in range(0, len(ids) - 1, max_length):
        window = ids[start : start + max_length + 1]
        yield Encoded([], window, [False] + [True] * (len(window) - 1))


def _dialogue(
    dialogue: Dialogue, contents: Sequence[list[int]], tokenizer: Tokenizer, source: Source, max_length: int
) -> Iterator[Encoded]:
    """Whole exchanges as long as they fit; the rest of a long dialogue starts a row of its own."""
    limit = max_length + 1  # the last token is predicted, never read
    ids: list[int] = []
    learn: list[bool] = []
    for exchange, learned in _exchanges(dialogue, contents, tokenizer, learn_all=source.loss_on == "all"):
        if ids and len(ids) + len(exchange) > limit:
            yield from _learned(ids, learn)
            ids, learn = [], []
        ids += exchange[:limit]
        learn += learned[:limit]
    yield from _learned(ids, learn)


def _exchanges(
    dialogue: Dialogue, contents: Sequence[list[int]], tokenizer: Tokenizer, *, learn_all: bool
) -> Iterator[tuple[list[int], list[bool]]]:
    """A user's turn with what answers it: an answer cut off from its question would teach nothing."""
    ids: list[int] = []
    learn: list[bool] = []
    for message, content in zip(dialogue.messages, contents, strict=True):
        if message["role"] == "user" and ids:
            yield ids, learn
            ids, learn = [], []
        # A role's token comes from whoever runs the dialogue; the model learns the words and where they end.
        learned = learn_all or message["role"] == "assistant"
        ids += [tokenizer.roles[message["role"]], *content, tokenizer.eos_id]
        learn += [learn_all] + [learned] * (len(content) + 1)
    yield ids, learn


def _learned(ids: list[int], learn: list[bool]) -> Iterator[Encoded]:
    learn[0] = False  # nothing stands before the first token to predict it from
    if any(learn):
        yield Encoded([], ids, learn)


def _packed(rows: Iterator[Encoded], max_length: int) -> Iterator[Encoded]:
    """Whole documents after one another until a row is full; each sees its neighbors to the left."""
    ids: list[int] = []
    learn: list[bool] = []
    for row in rows:
        if ids and len(ids) + len(row.target) > max_length + 1:
            yield Encoded([], ids, learn)
            ids, learn = [], []
        ids += row.target
        learn += row.learn
    if ids:
        yield Encoded([], ids, learn)


def _packed_pairs(rows: Iterator[Encoded], side: int) -> Iterator[Encoded]:
    """Several pairs per row, each where it first fits; one that is longer than a side has a row of its own."""
    waiting: list[Encoded] = []
    for row in rows:
        for i, other in enumerate(waiting):
            # The last token of a target is predicted, never read.
            if len(other.source) + len(row.source) <= side and len(other.target) + len(row.target) <= side + 1:
                waiting[i] = Encoded(other.source + row.source, other.target + row.target, other.learn + row.learn)
                break
        else:
            waiting.append(row)
            if len(waiting) > _OPEN_ROWS:
                yield waiting.pop(0)
    yield from waiting
