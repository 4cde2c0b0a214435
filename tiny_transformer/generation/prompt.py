"""From what a caller says to what the model reads: source and prefix ids that fit the context."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiny_transformer.config import GenerationConfig, ModelConfig
from tiny_transformer.errors import InputError, Sentence
from tiny_transformer.tokenizer import Message, Tokenizer, message_parts


@dataclass(frozen=True)
class Prompt:
    """Ids ready for a backend, and what had to be left out to make them fit."""

    prefix: tuple[int, ...]  # what the decoder starts from
    source: tuple[int, ...] | None  # what the encoder reads; None for a decoder-only model
    notices: tuple[Sentence, ...] = ()

    @property
    def n_tokens(self) -> int:
        """Tokens the model reads before it writes."""
        return len(self.prefix) + len(self.source or ())


def prompt_for(
    tokenizer: Tokenizer,
    config: ModelConfig,
    generation: GenerationConfig,
    content: str | Sequence[Message],
    *,
    raw: bool = False,
    prefix: str | Sequence[int] = "",
    max_new_tokens: int | None = None,
) -> Prompt:
    """The prompt for a text or a dialogue, by the model's task; with `raw`, a chat model continues plain text.

    `prefix` is the start of the answer, as text or as ids: the model goes on from it.
    """
    task = "complete" if raw and generation.task == "chat" else generation.task
    if isinstance(prefix, str):
        start = tokenizer.encode(prefix, target=True)
    else:
        start = checked_ids(prefix, tokenizer.vocab_size)
    # Cache slots kept free for the answer: as many as are wanted, but never more than half the context.
    wanted = generation.max_new_tokens if max_new_tokens is None else max_new_tokens
    reserved = min(wanted, config.max_length // 2)
    if task == "chat":
        dialogue: Sequence[Message] = [{"role": "user", "content": content}] if isinstance(content, str) else content
        ids, notices = fit_dialogue(tokenizer, dialogue, config.max_length, reserved + len(start))
        return Prompt((*ids, *start), None, tuple(notices))
    if not isinstance(content, str):
        raise InputError(
            "A model for {task} takes a text, not {kind}; pass a string.", task=task, kind=type(content).__name__
        )
    if not content:
        raise InputError("The text is empty; write something.")
    room = config.max_length - len(start) - 1  # 1 for <bos>
    if room < (0 if task == "translate" else 1):
        raise InputError("The start of the answer has {n} tokens and fills the context; shorten it.", n=len(start))
    ids = tokenizer.encode(content)
    if task == "translate":
        kept = ids[: generation.max_source_tokens - 1]  # the end token is one
        template = "The text has {n} tokens; the model read only the first {kept}."
        return Prompt((generation.bos_id, *start), (*kept, generation.eos_id), _left_out(template, len(ids), len(kept)))
    # A text that fits is kept whole, however little room it leaves; of one that does not fit, the end is kept.
    kept = ids if len(ids) <= room else ids[-max(1, room - reserved) :]
    template = "The text has {n} tokens; the model read only the last {kept}."
    return Prompt((generation.bos_id, *kept, *start), None, _left_out(template, len(ids), len(kept)))


def _left_out(template: str, n_tokens: int, n_kept: int) -> tuple[Sentence, ...]:
    return () if n_kept == n_tokens else (Sentence(template, n=n_tokens, kept=n_kept),)


def fit_dialogue(
    tokenizer: Tokenizer, messages: Sequence[Message], max_length: int, reserved: int
) -> tuple[list[int], list[Sentence]]:
    """Ids of a dialogue, ending with the token that opens the reply, and notices of what was left out.

    Whole turns are dropped, the oldest first; a system message at the front stays. If the last message alone is too
    long, its start is dropped. `reserved` tokens of the context are kept free for the reply.
    """
    _check_dialogue(messages)
    room = max_length - reserved - 1  # 1 for <assistant>
    if room < 3:  # a role, a token, an end
        raise InputError(
            "A context of {size} tokens has no room for a message beside the reply; shorten it.", size=max_length
        )
    turns = [tokenizer.encode_turn(message) for message in messages]
    system = turns[:1] if messages[0]["role"] == "system" else []
    rest = turns[len(system) :]
    notices: list[Sentence] = []
    if system and len(system[0]) > room // 2:
        template = "The system message has {n} tokens, too many to keep; it was left out."
        notices.append(Sentence(template, n=len(system[0]) - 2))
        system = []
    room -= sum(map(len, system))
    n_dropped = 0
    while len(rest) > 1 and sum(map(len, rest)) > room:
        rest = rest[1:]
        n_dropped += 1
    if n_dropped == 1:
        template = "The oldest message was left out: the model's context holds {size} tokens."
        notices.append(Sentence(template, size=max_length))
    elif n_dropped:
        template = "The {n} oldest messages were left out: the model's context holds {size} tokens."
        notices.append(Sentence(template, n=n_dropped, size=max_length))
    if len(rest[0]) > room:
        role, *content, end = rest[0]
        template = "The message has {n} tokens; the model read only the last {kept}."
        notices.append(Sentence(template, n=len(content), kept=room - 2))
        rest = [[role, *content[len(content) - (room - 2) :], end]]
    ids = [token for turn in [*system, *rest] for token in turn]
    return [*ids, tokenizer.roles["assistant"]], notices


def _check_dialogue(messages: object) -> None:
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
