"""Which language a page is shown in, and which one a text to translate is taken for."""

import os
import re
from string import Formatter
from typing import Literal

from tiny_transformer.errors import TinyTransformerError
from tiny_transformer.ui.chinese import OF_FOLDERS, OF_REQUESTS
from tiny_transformer.ui.strings import STRINGS

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
    for position, part in enumerate(header.lower().split(",")[:32]):
        tag, _, weight = part.strip().partition(";q=")
        try:
            found.append((-float(weight or 1), position, tag))
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


# A sentence may quote what a stranger sent: enough of it to be recognised, not all of its megabytes.
LONGEST = 600


def _pattern(template: str) -> re.Pattern[str]:
    """What a template fits; each of its fields may hold anything."""
    parts = [
        re.escape(literal) + (f"(?P<{field}>.+?)" if field else "")
        for literal, field, _, _ in Formatter().parse(template)
    ]
    return re.compile("".join(parts), re.DOTALL)


_CHINESE = [(_pattern(english), chinese) for english, chinese in (*OF_REQUESTS, *OF_FOLDERS)]


def translated(sentence: str, language: Language) -> str:
    """A sentence of the library in the page's language; one that is not known is quoted as the server's."""
    # Where the page was started is known to who started it, and of no use to anyone else.
    sentence = sentence.replace(os.getcwd() + os.sep, "")
    short = sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 100]} … {sentence[-90:]}"
    if language == "en":
        return short
    return _in_chinese(short) or say(language, "quoted", sentence=short)


def _in_chinese(sentence: str) -> str | None:
    for pattern, chinese in _CHINESE:
        found = pattern.fullmatch(sentence)
        if found:
            # A field may be a sentence of its own: the reason why something cannot run.
            return chinese.format(**{name: _in_chinese(value) or value for name, value in found.groupdict().items()})
    return None


def explained(error: Exception, language: Language) -> str:
    """The sentence for a refusal or an error of ours."""
    if isinstance(error, Refused):
        return say(language, error.key, **error.values)
    if isinstance(error, TinyTransformerError):
        return translated(str(error), language)
    return say(language, "failed")


def say(language: Language, key: str, **values: object) -> str:
    """A sentence in a language, with its values filled in."""
    english, chinese = STRINGS[key]
    return (chinese if language == "zh" else english).format(**values)


def dictionary(language: Language) -> dict[str, str]:
    """All sentences of a language, for the browser."""
    return {key: pair[1 if language == "zh" else 0] for key, pair in STRINGS.items()}


class Refused(Exception):  # noqa: N818 - an answer to the visitor, in the page's language
    """A request that is not acceptable: the key of a sentence in `strings`, and its values."""

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(key, values)
        self.key = key
        self.values = values
