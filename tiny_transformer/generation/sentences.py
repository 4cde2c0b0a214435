"""A text cut into sentences by rules for German, Chinese and English; every place in the text is kept.

Lines end sentences. Every rule looks at a bounded number of characters, so the time grows with the text's length alone.
Of the 119 texts of `tests/support/sentence_cases.py` these rules cut all as wished, sentencex 1.0.32 97, pysbd 0.3.4 88
and syntok 1.4.4 73; but the texts were written together with the rules (`python -m benchmarks.text_rules`).
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tiny_transformer.generation.language import is_han, is_kana


class Span(NamedTuple):
    """A stretch of a text, as for slicing."""

    start: int
    end: int


_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_ENDS = "。！？；｡"  # these end a sentence whatever follows
_CLOSING = "\"'”“’‘»«›‹)]}」』）】〉》〕］"
_OPENING = "\"'„“‚‘»«›‹([{「『（【〈《¿¡"
_BRACKETS = {")": "(", "]": "[", "}": "{", "）": "（", "】": "【", "］": "［", "〕": "〔"}
_GOES_ON = ",，、;:：)]）】.!?…"  # no sentence begins with one of these
_RUN = re.compile(rf"(?P<marks>[.!?…{_ENDS}]+)(?P<closing>[{re.escape(_CLOSING)}]*)")
_SMILE = re.compile(r"(?:[ \t]*(?:[\U0001f300-\U0001faff\u2600-\u27bf][\ufe0f\u200d]*|[:;]-?[)(DP](?!\w)))+")
_SPOKEN = re.compile(r"[^，。！？,.!?：:；…不没沒]{0,8}(?:[说說问問喊叫答]|(?<!知)道)")  # “你好！”他笑着说
_ADDRESS_PART = re.compile(r"[!-~]+")  # an address is ASCII without spaces
_LAST_WORD = re.compile(r"[^\s\"'„“”‚‘’»«›‹(\[{「『（【,;:/]+\Z")
_WORD = re.compile(r"[^\W\d_]+")
_MARKER = re.compile(r"(?:[-–—*•·▪‣]|(?P<number>\d{1,3}\.)|\d{1,3}\))[ \t]+")
_WINDOW = 80  # characters that a rule looks back or ahead


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A sentence goes on after these: titles, measures, references.
_ABBREVIATIONS = _words("""
    abb abt allg anm aufl bd betr bspw bzgl bzw ca co dipl dr ebd einschl engl entspr evtl exkl fa fam ff fig fr franz
    frl geb gegr gest ggf ggfs hl hr hrn hrsg inkl ing insb jh kap lat lt mind mio mr mrd mrs ms mtl nr phil prof rd rev
    sgt sog st std südl tel ugs verh versch vgl vol vorm vs wg zit zzgl capt col approx dept cf
    """)
# A sentence may end with these: a capital letter after them says so.
_MAY_END = _words("usw usf etc inc ltd corp jr sen a.m p.m u.s u.s.a")
_BEFORE_NUMBER = _words("jan feb mär apr jun jul aug sep sept okt oct nov dez dec no str art abs tab max min")
_AFTER_ORDINAL = _words(
    "januar jänner februar märz april mai juni juli august september oktober november dezember jahrhundert"
)
_BEFORE_ORDINAL = _words("""
    am der die das dem den des im zum zur vom beim bis ab seit jeder jede jedes jeden jedem ein eine einen einem einer
    mein meine meinen meinem meiner dein deine deinen sein seine seinen seinem seiner ihr ihre ihren ihrem unser unsere
    unseren euer eure und oder nach vor
    """)
# The capital letter after one of these is no initial of a name: "Das ist Plan B. Er …"
_LETTERED = _words("plan vitamin typ klasse punkt teil block gruppe option variante fall team type class")


def split(text: str) -> list[Span]:
    """The sentences of a text, in order: every character that is not white space belongs to one."""
    return [span for line in _LINE.finditer(text) for span in _of_line(text, *_stripped(text, *line.span()))]


def behind_list_marker(text: str, sentence: Span) -> int:
    """Where a sentence begins behind "- " or "1. " at the start of its line; its own start where there is none."""
    line_start = sentence.start
    while line_start and text[line_start - 1] in " \t":
        line_start -= 1
    if line_start and not _is_line_break(text[line_start - 1]):
        return sentence.start
    marker = _MARKER.match(text, *sentence)
    if marker is None or marker.end() == sentence.end:
        return sentence.start
    next_word = _WORD.match(text, marker.end(), sentence.end)
    if marker["number"] and next_word is not None and next_word[0].lower() in _AFTER_ORDINAL:
        return sentence.start  # 1. Mai
    return marker.end()


def _is_line_break(character: str) -> bool:
    return _LINE.match(character) is None


def _of_line(text: str, start: int, end: int) -> Iterator[Span]:
    for run in _RUN.finditer(text, start, end):
        smile = _SMILE.match(text, run.end(), end)
        stop = smile.end() if smile else run.end()
        if start < stop < end and _ends_sentence(text, Span(start, end), run, stop):
            yield Span(start, stop)
            start, _ = _stripped(text, stop, end)
    if start < end:
        yield Span(start, end)


def _stripped(text: str, start: int, end: int) -> Span:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Span(start, end)


def _ends_sentence(text: str, rest: Span, run: re.Match[str], stop: int) -> bool:
    """Whether `run` ends the sentence that begins at `rest.start`; the line goes on after `stop`."""
    marks, closing = run["marks"], run["closing"]
    following, _ = _stripped(text, stop, rest.end)
    if text[following] in _GOES_ON:
        return False
    bracket = next((mark for mark in closing if mark in _BRACKETS), "")
    if bracket and text[rest.start] != _BRACKETS[bracket]:
        return False  # an aside within the sentence
    before, after = text[max(rest.start, run.start() - 1) : run.start()], _first_letter(text, following, rest.end)
    ellipsis = marks != "." and not marks.strip(".…")
    if ellipsis and (_is_asian(before) or _is_asian(after)):
        return run.start() - rest.start >= 5  # "我……我不知道" stammers
    if any(mark in _ENDS for mark in marks) or _is_asian(before) or _is_asian(after):
        return not (closing and following == run.end() and _SPOKEN.match(text, following, rest.end))
    if following == run.end():
        return after.isupper() and not _in_address(text, rest, run) and (marks != "." or _ends_word(text, rest, run))
    if ellipsis:
        return not after.islower() and before.strip() != ""
    if marks != ".":
        return not (closing and after.islower())  # "Komm!" rief er
    return not after.islower() if closing else _point_ends(text, rest, run.start(), following, after)


def _is_asian(character: str) -> bool:
    return is_han(character) or is_kana(character)


def _first_letter(text: str, start: int, end: int) -> str:
    """What the next sentence would begin with, without its opening quotation marks."""
    for character in text[start : min(end, start + _WINDOW)]:
        if character not in _OPENING and not character.isspace():
            return character
    return text[start]


def _in_address(text: str, rest: Span, run: re.Match[str]) -> bool:
    """Whether the marks stand inside a web or mail address."""
    window = text[max(rest.start, run.start() - _WINDOW) : min(rest.end, run.end() + _WINDOW)]
    place = run.start() - max(rest.start, run.start() - _WINDOW)
    found = next((part[0] for part in _ADDRESS_PART.finditer(window) if part.start() <= place < part.end()), "")
    return "://" in found or "@" in found or found.startswith("www.")


def _ends_word(text: str, rest: Span, run: re.Match[str]) -> bool:
    """Whether a point with a letter behind it ends a sentence: "Hallo.Wie geht's?", but not "z.B. Äpfel"."""
    word = _word_before(text, rest.start, run.start())
    short = len(word) < 2 or word.lower() in _ABBREVIATIONS
    return word.isalpha() and word[-1].islower() and not short and not text[run.end() + 1 : run.end() + 2].isupper()


def _word_before(text: str, start: int, end: int) -> str:
    found = _LAST_WORD.search(text[max(start, end - _WINDOW) : end])
    return found[0] if found else ""


def _point_ends(text: str, rest: Span, point: int, following: int, after: str) -> bool:
    """Whether a single point with a space behind it ends a sentence."""
    word = _word_before(text, rest.start, point)
    lower, first = word.lower(), point - len(word) == rest.start
    # Who writes no capital at the start of a sentence writes none at the next.
    begins = not after.islower() or text[rest.start].islower()
    previous = _word_before(text, rest.start, _stripped(text, rest.start, point - len(word)).end).lower()
    if word.isdecimal() and len(word) <= 2:
        next_word = _WORD.match(text, following, min(rest.end, following + _WINDOW))
        ordinal = previous in _BEFORE_ORDINAL or (next_word is not None and next_word[0].lower() in _AFTER_ORDINAL)
        return not (first or ordinal or after.islower())
    if lower in _MAY_END:
        return after.isupper()
    if len(word) == 1 and word.isalpha():
        return begins and word.isupper() and not first and (word == "I" or previous in _LETTERED)
    if "." in word and all(len(part) <= 2 and not part.isdecimal() for part in word.split(".")):
        return False  # z.B. and d.h.
    if lower in _ABBREVIATIONS:
        return False
    if lower in _BEFORE_NUMBER or lower.endswith("str"):
        return begins and not after.isdecimal()
    return begins
