"""The line under an answer: what it took, what the visitor should know of it, and where to go with it."""

import html
import re

from tiny_transformer.ui.i18n import Language, say, translated
from tiny_transformer.ui.inspection import MAX_WRITTEN
from tiny_transformer.ui.streaming import Answer

SHORTEST_WAIT = 1.0  # seconds in the queue that are worth a word
# The answer's tokens, which `conversations.js` takes along to Look inside.
_TOKENS = re.compile(r' data-room="\d+" data-ids="[\d ]*"')


def _tokens(answer: Answer | None) -> str:
    """As many as can be looked at, and one more where there are more."""
    if answer is None or not answer.first_ids:
        return ""
    ids = " ".join(map(str, answer.first_ids[: MAX_WRITTEN + 1]))
    return f' data-room="{answer.max_new_tokens}" data-ids="{ids}"'


def working_line(language: Language, answer: Answer | None = None, began: float | None = None) -> str:
    """Under an answer that is still coming. It reserves the line's room, so that nothing moves when it comes."""
    sent = "" if began is None else f' data-began="{began:.3f}"'
    return f'<span class="tt-line"{sent}{_tokens(answer)}>{say(language, "working")}</span>'


def stopped_line(language: Language, working: str = "") -> str:
    """Under an answer that its visitor ended; `working` is the line that was there."""
    tokens = _TOKENS.search(working)
    return f'<span class="tt-line"{tokens[0] if tokens else ""}>{say(language, "stopped")}</span>'


def answer_line(
    answer: Answer, language: Language, *, seconds: float, drawn_at: float | None = None, waited: float = 0.0
) -> str:
    """Tokens and time, and what the visitor should know; backend and speed for those who open it."""
    key = "line_token" if answer.n_tokens == 1 else "line_tokens"
    parts = [say(language, "line_time_taken", tokens=say(language, key, n=answer.n_tokens), s=f"{answer.seconds:.1f}")]
    if waited >= SHORTEST_WAIT:
        parts.append(say(language, "line_waited", s=f"{waited:.1f}"))
    if answer.language and answer.target_language:
        names = [say(language, f"language_{code}") for code in (answer.language, answer.target_language)]
        parts.append(" → ".join(names))
    if drawn_at is not None:
        parts.append(say(language, "line_drawn", temperature=drawn_at))
    if answer.finish_reason in ("length", "context", "time"):
        parts.append(say(language, f"line_{answer.finish_reason}", seconds=f"{seconds:g}"))
    more = [say(language, f"backend_{answer.backend}")]
    if answer.n_tokens > 1:
        more.append(say(language, "line_speed", speed=_speed(answer.tokens_per_second)))
    if answer.first_seconds is not None:
        more.append(say(language, "line_first", ms=max(1, round(answer.first_seconds * 1000))))
    notes = [f'<span class="tt-note">{html.escape(translated(notice, language))}</span>' for notice in answer.notices]
    summary, details = (html.escape(" · ".join(words)) for words in (parts, more))
    line = f'<details class="tt-line"{_tokens(answer)}><summary>{summary}</summary>{details}</details>'
    return line + "".join(notes)


def _speed(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
