"""Fitting a dialogue into the context: the newest turns matter, and the reply needs room."""

from collections.abc import Sequence

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
        raise InputError(f"A context of {max_length} tokens has no room for a message beside the reply; shorten it.")
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
        raise InputError('A dialogue is a list of {"role": ..., "content": ...}; give at least one message.')
    parts = [message_parts(message) for message in messages]
    role, content = parts[-1]
    if role != "user":
        raise InputError(f"The last message is from the {role}; it must be the user's for the model to reply.")
    if not content:
        raise InputError("The last message is empty; write something.")
