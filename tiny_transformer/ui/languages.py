"""Which language a page is shown in, and which one a text to translate is taken for."""

import re
from typing import Literal

Language = Literal["en", "zh"]

# Han characters with their extensions; kana and hangul are not Han.
_HAN = re.compile(r"[㐀-䶿一-鿿豈-﫿\U00020000-\U0003134f]")
_LETTER = re.compile(r"[^\W\d_]")


def page_language(accept_language: str | None) -> Language:
    """The first of the browser's languages that the page speaks; English if it speaks none."""
    for tag in _preferred(accept_language or ""):
        if tag.startswith("zh"):
            return "zh"
        if tag.startswith("en"):
            return "en"
    return "en"


def _preferred(header: str) -> list[str]:
    """Tags of an Accept-Language header, the most wanted first."""
    found = []
    for place, part in enumerate(header.lower().split(",")[:32]):
        tag, _, weight = part.strip().partition(";q=")
        try:
            found.append((-float(weight or 1), place, tag))
        except ValueError:
            continue
    return [tag for _, _, tag in sorted(found)]


def han_share(text: str) -> float:
    """Han characters among the letters of a text, from 0 to 1."""
    letters = len(_LETTER.findall(text))
    return len(_HAN.findall(text)) / letters if letters else 0.0


def source_language(text: str, languages: tuple[str, ...]) -> str | None:
    """The language of `languages` a text is taken for; None where the model says nothing about them.

    German and Chinese differ in script, so the share of Han characters decides: a Chinese sentence
    with a Latin name in it is still mostly Han.
    """
    if not languages:
        return None
    others = [language for language in languages if language != "zh"]
    if "zh" in languages and (not others or han_share(text) >= 0.3):
        return "zh"
    return others[0]
