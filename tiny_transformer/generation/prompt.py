"""From what a caller says to what the model reads: source and prefix ids that fit the context."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiny_transformer.bundle import Bundle
from tiny_transformer.errors import InputError
from tiny_transformer.tokenizer import Message, Tokenizer, message_parts


def fit_dialogue(
    tokenizer: Tokenizer, messages: Sequence[Message], max_length: int, max_new_tokens: int, n_start: int = 0
) -> tuple[list[int], list[str]]:
    """Ids of a dialogue, ending with the token that opens the reply, and notices of what was left out.

    Whole turns go, the oldest first; a system message at the front stays. If the last message alone is
    too long, its start goes. `n_start` tokens are kept free for a reply whose start is given.
    """
    check_dialogue(messages)
    room = max_length - reply_room(max_length, max_new_tokens) - n_start - 1  # 1 for <assistant>
    if room < 3:  # a role, a token, an end
        raise InputError(
            "A context of {size} tokens has no room for a message beside the reply; shorten it.", size=max_length
        )
    turns = [tokenizer.encode_turn(message) for message in messages]
    system = turns[:1] if messages[0]["role"] == "system" else []
    rest = turns[len(system) :]
    notices: list[str] = []
    if system and len(system[0]) > room // 2:
        notices.append(f"The system message has {len(system[0]) - 2} tokens, too many to keep; it was left out.")
        system = []
    room -= sum(map(len, system))
    n_dropped = 0
    while len(rest) > 1 and sum(map(len, rest)) > room:
        rest = rest[1:]
        n_dropped += 1
    if n_dropped:
        which = "oldest message was" if n_dropped == 1 else f"{n_dropped} oldest messages were"
        notices.append(f"The {which} left out: the model's context holds {max_length} tokens.")
    if len(rest[0]) > room:
        role, *content, end = rest[0]
        notices.append(f"The message has {len(content)} tokens; the model read only the last {room - 2}.")
        rest = [[role, *content[len(content) - (room - 2) :], end]]
    ids = [token for turn in [*system, *rest] for token in turn]
    return [*ids, tokenizer.roles["assistant"]], notices


def reply_room(max_length: int, max_new_tokens: int) -> int:
    """Places kept free for new tokens: as many as are wanted, but never more than half the context."""
    return min(max_new_tokens, max_length // 2)


def check_dialogue(messages: object) -> None:
    """Refuse what is no dialogue, or leaves the model nothing to answer."""
    if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
        raise InputError('A dialogue is a list of {{"role": ..., "content": ...}}; give at least one message.')
    parts = [message_parts(message) for message in messages]
    role, content = parts[-1]
    if role != "user":
        raise InputError(
            "The last message is from the {role}; it must be the user's for the model to reply.", role=role
        )
    if not content:
        raise InputError("The last message is empty; write something.")


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
        raise InputError(
            "A model for {task} takes a text, not {kind}; pass a string.", task=task, kind=type(content).__name__
        )
    if not content:
        raise InputError("The text is empty; write something.")
    if task == "translate":
        return _translation(bundle, content, start)
    return _completion(bundle, content, start, wanted)


def _translation(bundle: Bundle, text: str, start: list[int]) -> Prompt:
    special = bundle.generation
    if len(start) >= bundle.config.max_length:
        raise InputError("The start of the answer has {n} tokens and fills the context; shorten it.", n=len(start))
    ids = bundle.tokenizer.encode(text)
    limit = special.max_source_tokens - 1  # the end token is one
    notices = _notices(len(ids), limit, "first")
    return Prompt((special.bos_id, *start), (*ids[:limit], special.eos_id), notices)


def _completion(bundle: Bundle, text: str, start: list[int], max_new_tokens: int) -> Prompt:
    """A text that fits is kept whole, however little room it leaves; the end of one that doesn't."""
    ids = bundle.tokenizer.encode(text)
    room = bundle.config.max_length - len(start) - 1  # 1 for <bos>
    if room < 1:
        raise InputError("The start of the answer has {n} tokens and fills the context; shorten it.", n=len(start))
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
        raise InputError("Expected a list of token ids, not {kind}; pass whole numbers.", kind=type(ids).__name__)
    for i in ids:
        if isinstance(i, bool) or not isinstance(i, int | np.integer):
            raise InputError("A token id must be a whole number, not {value!r}; correct the ids.", value=i)
        if not 0 <= i < vocab_size:
            raise InputError(
                "The token id {id} is outside the vocabulary of {size}; check the tokenizer.", id=i, size=vocab_size
            )
    return [int(i) for i in ids]
