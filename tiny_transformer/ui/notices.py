"""What the library says, in the page's language: its sentences are English, so Chinese is matched to them."""

import os
import re
from string import Formatter

from tiny_transformer.errors import TinyTransformerError
from tiny_transformer.ui.folder_sentences import OF_FOLDERS
from tiny_transformer.ui.languages import Language
from tiny_transformer.ui.sentences import OF_REQUESTS
from tiny_transformer.ui.strings import say
from tiny_transformer.ui.wishes import Refused

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
