"""The same question as other people type it: contracted, without capitals or full stop, with slips and gaps."""

import random
import re

_CONTRACTIONS = (
    ("are not", "aren't"),
    ("can not", "can't"),
    ("cannot", "can't"),
    ("could not", "couldn't"),
    ("did not", "didn't"),
    ("do not", "don't"),
    ("does not", "doesn't"),
    ("have not", "haven't"),
    ("how is", "how's"),
    ("I am", "I'm"),
    ("I will", "I'll"),
    ("I would", "I'd"),
    ("is not", "isn't"),
    ("it is", "it's"),
    ("let us", "let's"),
    ("should not", "shouldn't"),
    ("that is", "that's"),
    ("they are", "they're"),
    ("was not", "wasn't"),
    ("we are", "we're"),
    ("what is", "what's"),
    ("where is", "where's"),
    ("who is", "who's"),
    ("will not", "won't"),
    ("would not", "wouldn't"),
    ("you are", "you're"),
    ("you will", "you'll"),
)
_OPENINGS = ("hey", "hey there", "so", "well", "ok", "okay", "hm", "um", "by the way", "now", "oh", "bot")
_SHORT_FORMS = (("you are", "ur"), ("you", "u"), ("are", "r"), ("please", "pls"), ("because", "cuz"))


def rephrase(text: str, rng: random.Random) -> str:
    """Another spelling of the same words; often the very same."""
    if rng.random() < 0.3:
        text = _exchange(text, _CONTRACTIONS, rng)
    if rng.random() < 0.1:
        first_person = re.match(r"I\b", text)
        text = f"{rng.choice(_OPENINGS)}, {text if first_person else text[:1].lower() + text[1:]}"
    if rng.random() < 0.3:
        text = text.rstrip(".!?")
    elif rng.random() < 0.1:
        text = text.rstrip(".!?") + rng.choice((".", "!", "?", "??", "!!", "..."))
    if rng.random() < 0.3:
        text = text.lower()
    if rng.random() < 0.04:
        text = _exchange(text, _SHORT_FORMS, rng)
    if rng.random() < 0.08:
        text = _slip(text, rng)
    if rng.random() < 0.05:
        text = text.replace("'", "")
    if rng.random() < 0.06:
        text = _swallow(text, rng)
    return text


def _exchange(text: str, pairs: tuple[tuple[str, str], ...], rng: random.Random) -> str:
    """Long forms become short, or short ones long."""
    shorten = rng.random() < 0.5
    for long, short in pairs:
        old, new = (long, short) if shorten else (short, long)
        for found in reversed(list(re.finditer(rf"\b{re.escape(old)}\b", text, flags=re.IGNORECASE))):
            text = text[: found.start()] + _like(found.group(), new) + text[found.end() :]
    return text


def _like(old: str, new: str) -> str:
    """`new` with a capital where `old` has one."""
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def _swallow(text: str, rng: random.Random) -> str:
    """One word of a longer question missing."""
    words = text.split()
    if len(words) < 5:
        return text
    del words[rng.randrange(1, len(words) - 1)]
    return " ".join(words)


def _slip(text: str, rng: random.Random) -> str:
    """One letter missing, doubled, or changed places with its neighbour."""
    if len(text) < 5:
        return text
    i = rng.randrange(1, len(text) - 1)
    return rng.choice(
        (text[:i] + text[i + 1 :], text[:i] + text[i] + text[i:], text[:i] + text[i + 1] + text[i] + text[i + 2 :])
    )
