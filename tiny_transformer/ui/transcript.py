"""A dialogue as the page's chat shows it, and back: literal text, and a line under each answer."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from tiny_transformer.tokenizer import Message
from tiny_transformer.ui.answer import Answer
from tiny_transformer.ui.languages import Language
from tiny_transformer.ui.notices import translated
from tiny_transformer.ui.strings import say

# The chat shows HTML. An invisible character after "<" and "&" makes both plain text, which reads,
# copies and edits as it was written, and it is taken out again on the way back.
_JOINER = "\u2060"

Shown = dict[str, Any]  # a message as the chat component holds it


def literal(text: str) -> str:
    """Text that shows as it is, whatever it says."""
    return text.replace("\x00", "\ufffd").replace("<", "<" + _JOINER).replace("&", "&" + _JOINER)


def original(text: str) -> str:
    """The inverse of `literal`."""
    return text.replace("<" + _JOINER, "<").replace("&" + _JOINER, "&")


def from_visitor(text: str) -> Shown:
    """A visitor's message."""
    return {"role": "user", "content": [{"type": "text", "text": literal(text)}]}


def from_model(text: str, line: str) -> Shown:
    """An answer and the line under it."""
    return {"role": "assistant", "content": [{"type": "text", "text": literal(text)}, {"type": "text", "text": line}]}


def turns(shown: object) -> list[Message]:
    """The dialogue behind what is shown; whatever is not a message of ours is left out."""
    found: list[Message] = []
    for message in shown if isinstance(shown, Sequence) and not isinstance(shown, str) else ():
        text = message_text(message)
        if text is not None:
            found.append({"role": message["role"], "content": text})
    return found


def message_text(message: object) -> str | None:
    """What a shown message says, without its line."""
    if not isinstance(message, Mapping) or message.get("role") not in ("user", "assistant"):
        return None
    content = message.get("content")
    first = content[0] if isinstance(content, list) and content else content
    text = first.get("text") if isinstance(first, Mapping) else first
    return original(text) if isinstance(text, str) else None


def plain(shown: object) -> list[Shown]:
    """The messages a browser sent back, with nothing in them but text: what is shown again must not be a file."""
    return [
        {"role": message["role"], "content": [{"type": "text", "text": text} for text in _texts(message)]}
        for message in (shown if isinstance(shown, list) else ())
        if message_text(message) is not None
    ]


def _texts(message: Mapping[str, Any]) -> list[str]:
    content = message["content"] if isinstance(message["content"], list) else [message["content"]]
    found = [block.get("text") if isinstance(block, Mapping) else block for block in content]
    return [text for text in found if isinstance(text, str)]


def up_to_last_question(shown: object) -> list[Shown]:
    """What is shown without the answers after the last of the visitor's messages."""
    messages = plain(shown)
    while messages and messages[-1].get("role") != "user":
        messages.pop()
    return messages


def pending_line(language: Language) -> str:
    """Holds the place of the line, so that nothing moves when it comes."""
    return f'<span class="tt-line">{say(language, "working")}</span>'


def stopped_line(language: Language) -> str:
    """Under an answer that its visitor ended."""
    return f'<span class="tt-line">{say(language, "stopped")}</span>'


def answer_line(answer: Answer, language: Language, *, seconds: float, drawn_at: float | None = None) -> str:
    """Backend, tokens, speed and time to the first token; then what the visitor should know."""
    parts = [say(language, f"backend_{answer.backend}")]
    parts.append(say(language, "line_token" if answer.n_tokens == 1 else "line_tokens", n=answer.n_tokens))
    if answer.n_tokens > 1:
        parts.append(say(language, "line_speed", speed=_speed(answer.tokens_per_second)))
    if answer.first_seconds is not None:
        parts.append(say(language, "line_first", ms=max(1, round(answer.first_seconds * 1000))))
    if answer.language:
        parts.append(say(language, "line_language", name=say(language, f"language_{answer.language}")))
    if drawn_at is not None:
        parts.append(say(language, "line_drawn", temperature=drawn_at))
    if answer.finish_reason in ("length", "context", "time"):
        parts.append(say(language, f"line_{answer.finish_reason}", seconds=f"{seconds:g}"))
    notes = [f'<span class="tt-note">{html.escape(translated(notice, language))}</span>' for notice in answer.notices]
    return f'<span class="tt-line">{" · ".join(map(html.escape, parts))}</span>' + "".join(notes)


def _speed(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
