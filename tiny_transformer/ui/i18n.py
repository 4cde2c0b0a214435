"""Languages: the one that a page is shown in, the one that a text is written in, and messages in either."""

import os
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Literal

from tiny_transformer.errors import Sentence, TinyTransformerError
from tiny_transformer.generation.language import guess, han_share

Language = Literal["en", "zh"]

_SENTENCES = tomllib.loads(resources.files(__package__).joinpath("sentences.toml").read_text("utf-8"))
STRINGS = {key: (entry["en"], entry["zh"]) for key, entry in _SENTENCES["page"].items()}
CHINESE = {entry["en"]: entry["zh"] for entry in _SENTENCES["message"]}  # by the template of a message


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


def source_language(text: str, languages: tuple[str, ...]) -> str | None:
    """The language of `languages` a text is taken for; None where it looks like another, or the model names none.

    German and Chinese differ in script, so the share of Han characters decides: a Chinese sentence
    with a Latin name in it is still mostly Han.
    """
    if not languages or guess(text) not in (None, *languages):
        return None
    others = [language for language in languages if language != "zh"]
    if "zh" in languages and (not others or han_share(text) >= 0.3):
        return "zh"
    return others[0]


_ABSOLUTE = re.compile(r"(?<![\w.:/~-])(?:/[^/\s'\"()<>,;]+){2,}")
# A sentence may quote what a stranger sent: enough of it to be recognized, not all of its megabytes.
LONGEST = 600  # characters


def translated(message: str, language: Language) -> str:
    """A sentence of the library in the page's language; one without a translation is quoted as the server's."""
    sentence = _filled(message, language)
    if sentence is None:
        sentence = say(language, "quoted", sentence=_filled(message, "en"))
    return sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 100]} … {sentence[-90:]}"


def _filled(message: str, language: Language) -> str | None:
    """The template of a language with its values; None where there is no template in that language."""
    if not isinstance(message, Sentence):
        return _without_folder(message) if language == "en" else None
    template = message.template if language == "en" else CHINESE.get(message.template)
    if template is None:
        return None
    return template.format(**{name: _value(value, language) for name, value in message.values.items()})


def _value(value: object, language: Language) -> object:
    """A value as a template takes it; a sentence inside a sentence is translated too."""
    inner = value.message if isinstance(value, TinyTransformerError) else value
    if isinstance(inner, Sentence):
        return _filled(inner, language) or _filled(inner, "en")
    return _without_folder(str(inner)) if isinstance(inner, str | Path) else inner


def _without_folder(text: str) -> str:
    """Paths as seen from the folder where the page was started, others by their ends: where they lie is the host's."""
    return _ABSOLUTE.sub(lambda found: "/".join(found[0].split("/")[-2:]), text.replace(os.getcwd() + os.sep, ""))


def explained(error: Exception, language: Language) -> str:
    """The sentence for an error; what went wrong inside the page is left to the log."""
    return translated(error.message, language) if isinstance(error, TinyTransformerError) else say(language, "failed")


def say(language: Language, key: str, **values: object) -> str:
    """A sentence of the page in a language, with its values filled in."""
    english, chinese = STRINGS[key]
    return (chinese if language == "zh" else english).format(**values)


def dictionary(language: Language) -> dict[str, str]:
    """All sentences of a language, for the browser."""
    return {key: pair[1 if language == "zh" else 0] for key, pair in STRINGS.items()}
