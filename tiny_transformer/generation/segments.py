"""A text as a translator reads it: sentence by sentence, and what stands between the sentences kept.

Each segment is a sentence, or a part of one that is longer than the model reads. Line breaks, blank lines, indentation
and list markers are taken over; between two sentences of a line comes one space, in Chinese none. A sentence that is in
the language of the translation already, and one without letters or digits, is copied.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tiny_transformer.config import GenerationConfig
from tiny_transformer.errors import Sentence
from tiny_transformer.generation.language import guess
from tiny_transformer.generation.prompt import Prompt
from tiny_transformer.generation.sentences import Span, behind_list_marker, split

_WITHOUT_SPACES = ("zh", "ja")  # languages that put none between sentences
_NAMES = {"en": "English", "de": "German", "zh": "Chinese"}
# Where a sentence that is too long may be cut, the best places first: behind these.
_CUTS = [re.compile(pattern) for pattern in (r"[;:；：]\s*", r"[,，、]\s*|\s[–—-]\s", r"\s+")]


@dataclass(frozen=True)
class Segment:
    """A stretch of the text."""

    span: Span
    before: str  # what the result has in front of it
    prompt: Prompt | None  # None: the segment is copied


@dataclass(frozen=True)
class SegmentedText:
    """All segments of a text, in order."""

    text: str
    segments: tuple[Segment, ...]
    after: str = ""  # what the result ends with
    notices: tuple[Sentence, ...] = ()
    is_split: bool = True  # False: the text was not looked at, and the one segment is all of it

    @classmethod
    def whole(cls, prompt: Prompt) -> "SegmentedText":
        """A text or a dialogue that is read as one."""
        return cls("", (Segment(Span(0, 0), "", prompt),), notices=prompt.notices, is_split=False)

    @property
    def prompts(self) -> list[Prompt]:
        """What the model reads."""
        return [segment.prompt for segment in self.segments if segment.prompt is not None]

    def source(self, segment: Segment) -> str:
        """The text of a segment."""
        return self.text[segment.span.start : segment.span.end]

    def frame(self) -> list[str]:
        """What stands before, between and after the texts that the model writes: one more than there are prompts."""
        found = [""]
        for segment in self.segments:
            found[-1] += segment.before
            if segment.prompt is None:
                found[-1] += self.source(segment)
            else:
                found.append("")
        found[-1] += self.after
        return found


def segmented(text: str, generation: GenerationConfig, prompt: Callable[[str], Prompt]) -> SegmentedText:
    """The sentences of a text; a text of one sentence is read whole, with the white space around it."""
    spans = split(text)
    if len(spans) > 1:
        spans = [Span(behind_list_marker(text, span), span.end) for span in spans]
    else:
        spans = [Span(0, len(text))]
    languages = [guess(text[span.start : span.end]) for span in spans]
    if len(spans) > 1:
        all_of_it = guess(text)
        languages = [language or all_of_it for language in languages]  # "Nice try." among English sentences
    segments: list[Segment] = []
    notices: list[Sentence] = []
    done = 0
    for span, language in zip(spans, languages, strict=True):
        copied = _is_copied(text[span.start : span.end], language, generation)
        parts: list[tuple[Span, Prompt | None]] = list(_fitting(text, span, prompt))  # refuses what is no text
        if copied:
            parts = [(span, None)]
        if len(parts) > 1:
            template = (
                "A sentence is longer than the {limit} tokens that the model reads; it was translated in {n} parts."
            )
            notices.append(Sentence(template, limit=generation.max_source_tokens - 1, n=len(parts)))
        for part, part_prompt in parts:
            gap = text[done : part.start]
            segments.append(Segment(part, _separator(gap, not segments, generation.target_language), part_prompt))
            done = part.end
    notices += language_notices(languages, generation)
    return SegmentedText(text, tuple(segments), text[done:], tuple(notices))


def _is_copied(sentence: str, language: str | None, generation: GenerationConfig) -> bool:
    """Whether there is nothing to translate; a model that does not say its languages translates everything."""
    if not generation.source_languages or not sentence.strip():
        return False
    return _is_target(language, generation) or not any(character.isalnum() for character in sentence)


def _is_target(language: str | None, generation: GenerationConfig) -> bool:
    return language == generation.target_language and language not in generation.source_languages


def _separator(gap: str, first: bool, language: str) -> str:
    """What the result has where the text has `gap`."""
    if first or gap.strip() or len(f"x{gap}x".splitlines()) > 1:
        return gap
    return "" if language in _WITHOUT_SPACES else " "


def _fitting(text: str, span: Span, prompt: Callable[[str], Prompt]) -> Iterator[tuple[Span, Prompt]]:
    """The span, or its parts where the model would not read all of it: halved until each part fits."""
    found = prompt(text[span.start : span.end])
    if not found.notices or span.end - span.start < 2:
        yield span, found
        return
    cut = _cut(text, span)
    for start, end in ((span.start, cut), (cut, span.end)):
        part = text[start:end]
        start += len(part) - len(part.lstrip())
        end -= len(part) - len(part.rstrip())
        if start < end:
            yield from _fitting(text, Span(start, end), prompt)


def _cut(text: str, span: Span) -> int:
    """The best place near the middle."""
    middle, reach = (span.start + span.end) // 2, (span.end - span.start) // 4
    for pattern in _CUTS:
        found = [match.end() for match in pattern.finditer(text, middle - reach, middle + reach)]
        if found:
            return min(found, key=lambda place: abs(place - middle))
    return middle


def language_notices(languages: Sequence[str | None], generation: GenerationConfig) -> list[Sentence]:
    """What a reader should know about the languages of the sentences; nothing if the model does not say its own."""
    sources, notices = generation.source_languages, []
    if not sources:
        return []
    n_copied = sum(_is_target(language, generation) for language in languages)
    if n_copied:
        target = _name(generation.target_language)
        if n_copied == len(languages):
            template = "This looks like {language}; it is returned unchanged."
            notices.append(Sentence(template, language=target))
        else:
            template = "Returned unchanged, since they look like {language}: {n} of {total} sentences."
            notices.append(Sentence(template, language=target, n=n_copied, total=len(languages)))
    n_foreign = sum(
        not (language is None or language in sources or _is_target(language, generation)) for language in languages
    )
    if 2 * n_foreign >= len(languages):
        names = _name(sources[0])
        for source in sources[1:]:
            names = Sentence("{first} or {second}", first=names, second=_name(source))
        template = "This does not look like {languages}, which this model translates."
        notices.append(Sentence(template, languages=names))
    return notices


def speech_notices(message: str, generation: GenerationConfig) -> tuple[Sentence, ...]:
    """A notice where a message is in another language than the chat model's."""
    if not generation.target_language or guess(message) in (None, generation.target_language):
        return ()
    template = "This does not look like {language}, which this model speaks."
    return (Sentence(template, language=_name(generation.target_language)),)


def _name(language: str) -> Sentence:
    return Sentence(_NAMES.get(language, language))
