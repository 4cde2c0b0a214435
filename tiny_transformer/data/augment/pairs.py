"""Pairs of sentences with other names, numbers and spellings, and templates filled with values.

Every function takes the pair and a random generator, and gives a pair that is still right: what is replaced stands on
both sides. Where that is not certain the pair comes back as it is.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from tiny_transformer.data.augment import (
    CasePairs,
    DropUmlauts,
    FillSlots,
    InsertCopies,
    SubstituteNames,
    SubstituteNumbers,
    Transform,
)
from tiny_transformer.data.augment.numerals import chinese_number, german, number_words, parse_chinese
from tiny_transformer.data.augment.values import SLOTS, Name, Value, chinese_name, invented_name, names, spelled
from tiny_transformer.errors import DataError

Texts = tuple[str, str]  # the source and its English translation
_HAN = re.compile("[一-鿿]")
_VERBATIM = re.compile(r"@|://|www\.|\w\.\w|\d[A-Za-z]|[A-Za-z]\d")  # addresses and codes, where case counts
_SLOT = re.compile(r"\{(\w+?)(\d?)\}")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


def transformed(texts: Texts, transforms: Sequence[Transform], variant: int) -> Iterator[Texts]:
    """What the transforms of a source make of one pair: the same pair each time it is asked for."""
    rng = random.Random(f"{variant} {texts[0]} {texts[1]}")
    fill = next((transform for transform in transforms if isinstance(transform, FillSlots)), None)
    for pair in [texts] if fill is None else [filled(texts, rng) for _ in range(fill.times)]:
        if variant:
            for transform in transforms:
                apply = _APPLIED.get(type(transform))
                if apply is not None and rng.random() < transform.share:  # type: ignore[attr-defined]
                    pair = apply(pair, rng)
        yield pair


def filled(template: Texts, rng: random.Random) -> Texts:
    """A template with a value in each slot; {person} on both sides is the same one, {person2} another."""
    source = template[0]
    slots = [set(_SLOT.findall(text)) for text in template]
    unknown = [name for name, _ in slots[0] | slots[1] if name not in SLOTS]
    if unknown or slots[0] != slots[1]:
        raise DataError(
            "The template {source!r} has a slot that its translation has not, or that is none of {slots}; correct it.",
            source=source,
            slots=", ".join(SLOTS),
        )
    language = "zh" if _HAN.search(source) or source.endswith("。") else "de"
    values = {name + number: SLOTS[name](language, rng) for name, number in sorted(slots[0])}
    ours, theirs = (_SLOT.sub(lambda found, i=i: values[found[1] + found[2]][i], template[i]) for i in (0, 1))  # type: ignore[misc]
    if source[-1] in ".!?。？" and source[-2:] != "}。":  # a sentence that may begin with a number in words
        ours, theirs = (text[:1].upper() + text[1:] for text in (ours, theirs))
    return ours, theirs.replace(".m..", ".m.")


def with_other_casing(texts: Texts, rng: random.Random) -> Texts:
    """The source in small letters, or one that ends otherwise than it should; capitals alone never reach the model."""
    source, target = texts
    draw = rng.random()
    if _HAN.search(source) or _VERBATIM.search(source) or draw < 0.4:
        bare = source.rstrip(".!?。！？")
        if not bare or bare == source:
            return texts
        ends = ("", "", "", ".", "!", "。", "！") if _HAN.search(source) else ("", "", "", "!", "...")
        # A question keeps its mark or loses it: another mark would make it another sentence.
        return bare + ("" if source[-1] in "?？" else rng.choice(ends)), target
    source = source.lower()
    return (source.rstrip(".!?") if draw < 0.85 else source), target


def without_umlauts(texts: Texts, rng: random.Random) -> Texts:
    """The source as it is typed where the keyboard has no umlauts: ae, oe, ue, ss; rarely a, o, u."""
    written = ("ae", "oe", "ue", "Ae", "Oe", "Ue") if rng.random() < 0.85 else "aouAOU"
    return texts[0].translate(dict(zip(map(ord, "äöüÄÖÜß"), (*written, "ss"), strict=True))), texts[1]


def with_other_names(texts: Texts, rng: random.Random) -> Texts:
    """Names of people and places that stand on both sides become others of their kind."""
    return (_other_chinese_names if _HAN.search(texts[0]) else _other_german_names)(texts, rng)


def _other_german_names(texts: Texts, rng: random.Random) -> Texts:
    source, target = texts
    known = _known_names("de")
    used: set[str] = set()
    for word in dict.fromkeys(_WORD.findall(source)):
        owner = word not in known and word.endswith("s") and word[:-1] in known
        for kind, name in known.get(word[:-1] if owner else word, ()):
            if kind == "surnames" and not re.search(rf"\b(?:Herrn?|Frau|Dr\.|Professor) {word}\b", source):
                continue
            if not re.search(rf"\b{name.english}\b", target):
                continue
            new = _new_german_name(kind, rng)
            while {new[0], new[1]} & used or re.search(rf"\b{re.escape(new[0])}", source) or new[0][-1] in "sßxz":
                new = _new_german_name(kind, rng)
            used |= set(new)
            # The genitive has an s without an apostrophe: Toms Haus, Tom's house.
            source = re.sub(rf"\b{name.source}(s?)\b", lambda found, new=new: new[0] + found[1], source)  # type: ignore[misc]
            target = re.sub(rf"\b{name.english}\b", lambda found, new=new: new[1], target)  # type: ignore[misc]
            break
    return source, target


def _new_german_name(kind: str, rng: random.Random) -> Value:
    if kind in ("men", "women", "surnames") and rng.random() < 0.15:
        name = invented_name(rng)
        return name, name
    drawn = rng.choice(names(kind, "de"))
    if kind in ("men", "women") and rng.random() < 0.12:
        last = rng.choice(names("surnames", "de")).source
        return f"{drawn.source} {last}", f"{drawn.english} {last}"
    return drawn.source, drawn.english


def _other_chinese_names(texts: Texts, rng: random.Random) -> Texts:
    source, target = texts
    used: set[str] = set()
    for spelling, entries in _known_names("zh").items():
        if len(spelling) < 2 or spelling not in source:
            continue
        for kind, name in entries:
            if not re.search(rf"\b{name.english}\b", target):
                continue
            new = _new_chinese_name(kind, rng)
            while new[0] in source or new[1] in used:
                new = _new_chinese_name(kind, rng)
            used.add(new[1])
            source = source.replace(spelling, new[0])
            target = re.sub(rf"\b{name.english}\b", lambda found, new=new: new[1], target)  # type: ignore[misc]
            break
        if used and len(used) == 2:
            break
    return source, target


def _new_chinese_name(kind: str, rng: random.Random) -> Value:
    if kind in ("men", "women") and rng.random() < 0.5:
        return chinese_name(rng)
    name = rng.choice(names(kind, "zh"))
    return spelled(name, rng), name.english


@cache
def _known_names(language: str) -> dict[str, list[tuple[str, Name]]]:
    """The names of each spelling with their kinds; a spelling may stand for several (Maria: Mary or Maria)."""
    found: dict[str, list[tuple[str, Name]]] = {}
    for kind in ("men", "women", "cities", "countries", "surnames"):
        if (kind, language) == ("surnames", "zh"):
            continue  # one character is a part of too many words
        for name in names(kind, language):
            for spelling in {name.source, name.traditional} - {""}:
                found.setdefault(spelling, []).append((kind, name))
    return found


def with_other_numbers(texts: Texts, rng: random.Random) -> Texts:
    """Numbers that stand on both sides become others of like form: figures, German, Chinese and English words."""
    if re.search(r"\d", texts[0]):
        return _other_figures(texts, rng)
    return (_other_chinese_numerals if _HAN.search(texts[0]) else _other_german_words)(texts, rng)


_GERMAN_FIGURES = re.compile(
    r"(?<![\w.,:/-])\d{1,3}(?:\.\d{3})+(?:,\d+)?(?![\d:/-])|(?<![\w.,:/-])\d+(?:,\d+)?(?![\d:/-])"
)
_ENGLISH_FIGURES = re.compile(
    r"(?<![\w.,:/-])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d:/-])|(?<![\w.,:/-])\d+(?:\.\d+)?(?![\d:/-])"
)
_CLOCK = re.compile(r"Uhr|o'clock|[ap]\.m\.|\d[:/-]\d|[月日号號点點时時:]|\bv\. ?Chr")


def _other_figures(texts: Texts, rng: random.Random) -> Texts:
    """Only where both sides have the same figures, apart from German separators, and no clock or date is near."""
    source, target = texts
    if _CLOCK.search(source) or _CLOCK.search(target):
        return texts
    is_german = not _HAN.search(source)
    pattern = _GERMAN_FIGURES if is_german else _ENGLISH_FIGURES
    read: Callable[[str], str] = (lambda text: german(text).replace(",", "")) if is_german else _without_commas
    ours, theirs = pattern.findall(source), _ENGLISH_FIGURES.findall(target)
    if sorted(map(read, ours)) != sorted(map(_without_commas, theirs)) or len(set(ours)) != len(ours):
        return texts
    new = {value: _like(value, rng, is_day=f"{value}. " in source) for value in map(_without_commas, theirs)}
    if len(set(new.values())) != len(new):
        return texts
    with_commas = {_without_commas(text): "," in text for text in theirs}

    def english(found: re.Match[str]) -> str:
        value = new[_without_commas(found[0])]
        return _with_commas(value) if with_commas[_without_commas(found[0])] else value

    def ours_now(found: re.Match[str]) -> str:
        value = new[read(found[0])]
        grouped = "." in found[0] if is_german else "," in found[0]
        shown = _with_commas(value) if grouped else value
        return german(shown) if is_german else shown

    return pattern.sub(ours_now, source), _ordinals(_ENGLISH_FIGURES.sub(english, target))


def _without_commas(text: str) -> str:
    return text.replace(",", "")


def _with_commas(value: str) -> str:
    whole, dot, rest = value.partition(".")
    return f"{int(whole):,}{dot}{rest}"


def _like(value: str, rng: random.Random, *, is_day: bool) -> str:
    """Another number of the same form: a year stays one, decimals stay as many; 0 and 1 stay as they are."""
    whole, dot, decimals = value.partition(".")
    n = int(whole)
    if n < 2 or whole.startswith("0"):
        return value
    if is_day:
        return str(rng.randint(2, 28)) if n <= 31 else value
    if len(whole) == 4 and 1000 <= n <= 2100 and not dot:
        return str(rng.randint(1700, 2040))
    digits = max(1, len(whole) + rng.choice((-1, 0, 0, 0, 0, 1)))
    zeros = min(len(whole) - len(whole.rstrip("0")), digits - 1)
    kept = rng.randint(max(2, 10 ** (digits - zeros - 1)), 10 ** (digits - zeros) - 1)
    return f"{kept * 10**zeros}{dot}{''.join(rng.choice('0123456789') for _ in decimals)}"


def _ordinals(target: str) -> str:
    """1th is 1st: the ending follows the figure."""
    endings = {"1": "st", "2": "nd", "3": "rd"}

    def ended(found: re.Match[str]) -> str:
        n = found[1]
        return n + ("th" if n[-2:] in ("11", "12", "13") else endings.get(n[-1], "th"))

    return re.sub(r"\b(\d+)(?:st|nd|rd|th)\b", ended, target)


def _other_german_words(texts: Texts, rng: random.Random) -> Texts:
    """One number in words, from 2 to 99: zwei Hunde, two dogs."""
    source, target = texts
    words = _number_values("de")
    found = [word for word in re.findall(r"(?<![\w-])[a-zäöüß]+(?![\w-])", source) if word in words]
    if len(found) != 1 or not _is_once(number_words(words[found[0]], "en"), target):
        return texts
    most = 12 if _CLOCK.search(source + target) else rng.choice((12, 20, 99))
    n = rng.randint(2, most)
    source = re.sub(rf"(?<![\w-]){found[0]}(?![\w-])", number_words(n, "de"), source)
    return source, _exchanged(number_words(words[found[0]], "en"), number_words(n, "en"), target)


_NUMERALS = re.compile("[零一二两兩三四五六七八九十百千万萬亿億]+")
_MEASURE = (
    "个個只隻本年天岁歲位名张張块塊元次辆輛台臺杯瓶条條件座家人周週小分公里米斤"
    "双雙封把种種层層间間头頭棵首部页頁篇句倍代科碗"
)


def _other_chinese_numerals(texts: Texts, rng: random.Random) -> Texts:
    """One number before a measure word: 三只猫, three cats; from 2 to 99 in words, larger ones in figures."""
    source, target = texts
    found = [part for part in _NUMERALS.finditer(source) if source[part.end() : part.end() + 1] in _MEASURE]
    found = [part for part in found if part.end() < len(source)]
    value = parse_chinese(found[0][0]) if len(found) == 1 else None
    if value is None or not 2 <= value < 1000 or _CLOCK.search(source) or "第" in source:
        return texts
    in_words, in_figures = number_words(value, "en"), f"{value:,}"
    old = in_words if _is_once(in_words, target) else in_figures
    if not _is_once(old, target):
        return texts
    most = rng.choice((12, 20, 99)) if value < 100 else 999
    n = rng.randint(2 if value < 100 else 100, most)
    written = chinese_number(n, counted=True)
    new = number_words(n, "en") if old == in_words and n < 100 else f"{n:,}"
    return source[: found[0].start()] + written + source[found[0].end() :], _exchanged(old, new, target)


@cache
def _number_values(language: str) -> dict[str, int]:
    return {number_words(n, language): n for n in range(2, 100)}


def _is_once(word: str, text: str) -> bool:
    return len(re.findall(rf"(?<![\w-]){word}(?![\w-])", text, flags=re.IGNORECASE)) == 1


def _exchanged(old: str, new: str, text: str) -> str:
    def like(found: re.Match[str]) -> str:
        return new.capitalize() if found[0][0].isupper() else new

    return re.sub(rf"(?<![\w-]){old}(?![\w-])", like, text, count=1, flags=re.IGNORECASE)


# What may be put at the end of a sentence, before its full stop, in German, Chinese and English.
_ADDED = (
    (" (siehe {url})", "（见{url}）", " (see {url})"),
    (" ({code})", "（{code}）", " ({code})"),
    (": {url}", "：{url}", ": {url}"),
    (" – {email}", " – {email}", " – {email}"),
    (" (Datei {file})", "（文件{file}）", " (file {file})"),
    (", schreibt {email}", "，{email}写道", ", writes {email}"),
)


def with_copies(texts: Texts, rng: random.Random) -> Texts:
    """An address or a code, to be copied as it is, is put at the end of both sides."""
    source, target = texts
    stop = "。" if source.endswith("。") else "."
    if not source.endswith(stop) or not target.endswith(".") or source.endswith(".."):
        return texts
    added = rng.choice(_ADDED)
    ours, theirs = filled((added[1] if stop == "。" else added[0], added[2]), rng)
    return f"{source[:-1]}{ours}{stop}", f"{target[:-1]}{theirs}."


_APPLIED: dict[type[Transform], Callable[[Texts, random.Random], Texts]] = {
    SubstituteNames: with_other_names,
    SubstituteNumbers: with_other_numbers,
    InsertCopies: with_copies,
    DropUmlauts: without_umlauts,
    CasePairs: with_other_casing,
}
