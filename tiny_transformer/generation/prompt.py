"""From what a caller says to what the model reads: source and prefix ids that fit the context."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiny_transformer.bundle import Bundle
from tiny_transformer.errors import InputError
from tiny_transformer.generation.chat import fit_dialogue, reply_room
from tiny_transformer.tokenizer import Message, Tokenizer


@dataclass(frozen=True)
class Prompt:
    """Ids ready for a backend, and what had to be left out to make them fit."""

    prefix: tuple[int, ...]  # what the decoder starts from
    source: tuple[int, ...] | None  # what the encoder reads; None for a decoder-only model
    notices: tuple[str, ...] = ()

    @property
    def n_tokens(self) -> int:
        """Tokens the model reads before it writes."""
        return len(self.prefix) + len(self.source or ())


def prompt_for(
    bundle: Bundle,
    content: str | Sequence[Message],
    *,
    raw: bool = False,
    prefix: str | Sequence[int] = "",
    max_new_tokens: int | None = None,
) -> Prompt:
    """The prompt for a text or a dialogue, by the folder's task; `raw` continues plain text instead.

    `prefix` is the start of the answer, as text or as ids: the model goes on from it.
    """
    task = "complete" if raw and bundle.generation.task == "chat" else bundle.generation.task
    start = answer_start(bundle.tokenizer, prefix)
    wanted = bundle.generation.max_new_tokens if max_new_tokens is None else max_new_tokens
    if task == "chat":
        dialogue: Sequence[Message] = [{"role": "user", "content": content}] if isinstance(content, str) else content
        ids, notices = fit_dialogue(bundle.tokenizer, dialogue, bundle.config.max_length, wanted, len(start))
        return Prompt((*ids, *start), None, tuple(notices))
    if not isinstance(content, str):
        raise InputError(f"A model for {task} takes a text, not {type(content).__name__}; pass a string.")
    if not content:
        raise InputError("The text is empty; write something.")
    if task == "translate":
        return _translation(bundle, content, start)
    return _completion(bundle, content, start, wanted)


def _translation(bundle: Bundle, text: str, start: list[int]) -> Prompt:
    special = bundle.generation
    if len(start) >= bundle.config.max_length:
        raise InputError(f"The start of the answer has {len(start)} tokens and fills the context; shorten it.")
    ids = bundle.tokenizer.encode(text)
    limit = special.max_source_tokens - 1  # the end token is one
    notices = _notices(len(ids), limit, "first")
    return Prompt((special.bos_id, *start), (*ids[:limit], special.eos_id), notices)


def _completion(bundle: Bundle, text: str, start: list[int], max_new_tokens: int) -> Prompt:
    """A text that fits is kept whole, however little room it leaves; the end of one that doesn't."""
    ids = bundle.tokenizer.encode(text)
    room = bundle.config.max_length - len(start) - 1  # 1 for <bos>
    if room < 1:
        raise InputError(f"The start of the answer has {len(start)} tokens and fills the context; shorten it.")
    limit = len(ids)
    if len(ids) > room:
        limit = max(1, room - reply_room(bundle.config.max_length, max_new_tokens))
    notices = _notices(len(ids), limit, "last")
    return Prompt((bundle.generation.bos_id, *ids[len(ids) - limit :], *start), None, notices)


def _notices(n_tokens: int, limit: int, kept: str) -> tuple[str, ...]:
    if n_tokens <= limit:
        return ()
    return (f"The text has {n_tokens} tokens; the model read only the {kept} {limit}.",)


def answer_start(tokenizer: Tokenizer, prefix: str | Sequence[int]) -> list[int]:
    """Ids of the answer's given start."""
    return tokenizer.encode(prefix) if isinstance(prefix, str) else checked_ids(prefix, tokenizer.vocab_size)


def checked_ids(ids: object, vocab_size: int) -> list[int]:
    """A row of ids from outside, as plain integers of the vocabulary."""
    if isinstance(ids, np.ndarray):
        ids = ids.tolist()
    if not isinstance(ids, Sequence) or isinstance(ids, str | bytes):
        raise InputError(f"Expected a list of token ids, not {type(ids).__name__}; pass whole numbers.")
    for i in ids:
        if isinstance(i, bool) or not isinstance(i, int | np.integer):
            raise InputError(f"A token id must be a whole number, not {i!r}; correct the ids.")
        if not 0 <= i < vocab_size:
            raise InputError(f"The token id {i} is outside the vocabulary of {vocab_size}; check the tokenizer.")
    return [int(i) for i in ids]
