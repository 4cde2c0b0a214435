"""Values that a sentence and its translation share, drawn at random: numbers, prices, dates, names, addresses.

`SLOTS` has a function for each slot of a template; it gives the value as the source language ("de" or "zh") and as
English write it.
"""

import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tiny_transformer.data.augment.numerals import chinese_digits, chinese_number, german, number_words

Value = tuple[str, str]  # as the source writes it, and as English does
_MONTHS = (
    *(("Januar", "January"), ("Februar", "February"), ("März", "March"), ("April", "April"), ("Mai", "May")),
    *(("Juni", "June"), ("Juli", "July"), ("August", "August"), ("September", "September"), ("Oktober", "October")),
    *(("November", "November"), ("Dezember", "December")),
)
_DAYS = (
    *(("Montag", "Monday"), ("Dienstag", "Tuesday"), ("Mittwoch", "Wednesday"), ("Donnerstag", "Thursday")),
    *(("Freitag", "Friday"), ("Samstag", "Saturday"), ("Sonntag", "Sunday")),
)


@dataclass(frozen=True)
class Name:
    """A name as the source spells it, and as English does."""

    source: str
    english: str
    traditional: str = ""  # Chinese alone, where it differs from the simplified spelling


@cache
def _lists() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))


@cache
def names(kind: str, language: str) -> tuple[Name, ...]:
    """The names of a kind ("men", "women", "surnames", "cities", "countries") as "de" or "zh" spells them."""
    found: list[Name] = []
    for word in _lists()[language][kind].split():
        source, _, english = word.replace("_", " ").partition("=")
        simplified, _, traditional = source.partition("/")
        found.append(Name(simplified, english or simplified, traditional))
    return tuple(found)


@cache
def _words(kind: str) -> tuple[str, ...]:
    """Parts of invented names and addresses, alike in all languages."""
    return tuple(_lists()["shared"][kind].split())


def _count(language: str, rng: random.Random) -> Value:
    n = rng.randint(2, 99)
    figures = str(n)
    if rng.random() < 0.5:
        return figures, figures
    words = chinese_number(n, counted=True) if language == "zh" else number_words(n, language)
    return words, number_words(n, "en") if rng.random() < 0.9 else figures


def _small(language: str, rng: random.Random) -> Value:
    """A few: 2 to 12, more often in words."""
    n = rng.randint(2, 12)
    if rng.random() < 0.3:
        return str(n), str(n)
    words = chinese_number(n, counted=True) if language == "zh" else number_words(n, language)
    return words, number_words(n, "en")


def _round(rng: random.Random, digits: int) -> int:
    """A number of so many digits, most of the time a round one, as people say it."""
    kept = min(digits, rng.choice((1, 2, 2, 3, digits)))
    return int(rng.randint(10 ** (kept - 1), 10**kept - 1) * 10 ** (digits - kept))


def _number(language: str, rng: random.Random) -> Value:
    """From a hundred to hundreds of billions, in figures, with a word for the unit, or in Chinese numerals."""
    n = _round(rng, rng.randint(3, 12))
    figures = f"{n:,}"
    if language == "zh":
        if rng.random() < 0.35:
            return (figures if rng.random() < 0.6 else str(n)), figures
        unit, sign = (10**8, "亿") if n >= 10**8 else (10**4, "万") if n >= 10**4 else (1, "")
        if unit > 1 and rng.random() < 0.4:
            return f"{n / unit:.10g}{sign}", _english_large(n)
        return chinese_number(n), _english_large(n)
    if n >= 10**6 and rng.random() < 0.7:
        unit, word = (10**9, "Milliarden") if n >= 10**9 else (10**6, "Millionen")
        n = n - n % (unit // 100) or unit  # two decimals at most
        if n == unit or rng.random() < 0.25:
            n = rng.randint(2, 20) * unit
            if rng.random() < 0.5:
                return f"{number_words(n // unit, 'de')} {word}", f"{number_words(n // unit, 'en')} {_LARGE[unit]}"
        return f"{german(f'{n / unit:.10g}')} {word}", _english_large(n)
    return german(figures), figures


_LARGE = {10**9: "billion", 10**6: "million"}


def _english_large(n: int) -> str:
    for unit, word in _LARGE.items():
        if n >= unit and n % (unit // 1000) == 0:
            return f"{n / unit:.10g} {word}"
    return f"{n:,}"


def _decimal(language: str, rng: random.Random) -> Value:
    figures = f"{rng.randint(0, 99)}.{rng.randint(1, 9)}" + (str(rng.randint(1, 9)) if rng.random() < 0.3 else "")
    return (figures if language == "zh" else german(figures)), figures


def _percent(language: str, rng: random.Random) -> Value:
    n = rng.randint(2, 99)
    if language == "zh":
        return (f"百分之{chinese_number(n)}", f"{n} percent") if rng.random() < 0.6 else (f"{n}%", f"{n}%")
    figures = str(n) if rng.random() < 0.7 else f"{n}.{rng.randint(1, 9)}"
    return (
        (f"{german(figures)} Prozent", f"{figures} percent")
        if rng.random() < 0.7
        else (f"{german(figures)} %", f"{figures}%")
    )


def _price(language: str, rng: random.Random) -> Value:
    if language == "zh":
        return _chinese_price(rng)
    draw = rng.random()
    if draw < 0.35:
        figures = f"{rng.randint(1, 99)}.{rng.choice((50, 99, 95, 20, 80, 49, rng.randint(10, 99)))}"
    elif draw < 0.6:
        figures = str(rng.randint(2, 999))
    else:
        figures = f"{_round(rng, rng.randint(4, 6)):,}" + (f".{rng.randint(10, 99)}" if rng.random() < 0.15 else "")
    if rng.random() < 0.25:
        sign = rng.choice("€€€$£")
        return (f"{german(figures)} {sign}" if rng.random() < 0.85 else f"{sign}{german(figures)}"), f"{sign}{figures}"
    if rng.random() < 0.08:
        n = rng.randint(2, 99)
        return f"{n} Millionen Euro", f"{n} million euros"
    if rng.random() < 0.08:
        n = 100 * rng.randint(2, 9)
        return f"{number_words(n, 'de')} Euro", f"{number_words(n, 'en')} euros"
    names_of = (("Euro", "euros"), ("Euro", "euros"), ("Euro", "euros"), ("Dollar", "dollars"), ("Franken", "francs"))
    unit, english = rng.choice(names_of)
    if "." not in figures and len(figures) <= 2 and rng.random() < 0.3:
        return f"{number_words(int(figures), 'de')} {unit}", f"{number_words(int(figures), 'en')} {english}"
    return f"{german(figures)} {unit}", f"{figures} {english}"


def _chinese_price(rng: random.Random) -> Value:
    units = (
        ("元", "yuan"),
        ("块钱", "yuan"),
        ("块", "yuan"),
        ("人民币", "yuan"),
        ("美元", "dollars"),
        ("欧元", "euros"),
    )
    unit, english = rng.choice(units)
    draw = rng.random()
    if draw < 0.25:
        figures = f"{_round(rng, rng.randint(2, 5)):,}"
        return (figures if rng.random() < 0.5 else figures.replace(",", "")) + unit, f"{figures} {english}"
    if draw < 0.35:
        figures = f"{rng.randint(1, 99)}.{rng.randint(1, 9)}"
        return figures + unit, f"{figures} {english}"
    if draw < 0.7:
        n = rng.randint(2, 99)
        return chinese_number(n, counted=True) + unit, f"{number_words(n, 'en')} {english}"
    n = _round(rng, rng.randint(3, 9))
    return chinese_number(n, counted=True) + unit, f"{_english_large(n)} {english}"


def _month(language: str, rng: random.Random) -> Value:
    m = rng.randrange(12)
    return (f"{chinese_number(m + 1)}月" if language == "zh" else _MONTHS[m][0]), _MONTHS[m][1]


def _date(language: str, rng: random.Random) -> Value:
    """A day without its year: 3. Oktober, 十月三号, October 3."""
    m, day = rng.randrange(12), rng.randint(1, 28)
    english = f"{_MONTHS[m][1]} {day}"
    if language == "zh":
        sign = rng.choice("号号日")
        if rng.random() < 0.65:
            return f"{chinese_number(m + 1)}月{chinese_number(day)}{sign}", english
        return f"{m + 1}月{day}{sign}", english
    return f"{day}. {_MONTHS[m][0]}", english


def _year(language: str, rng: random.Random) -> Value:
    year = str(rng.randint(1750, 2035))
    return year, year


def _full_date(language: str, rng: random.Random) -> Value:
    day, english = _date(language, rng)
    year = rng.randint(1800, 2035)
    if language == "zh":
        written = str(year) if day[0].isdigit() or rng.random() < 0.5 else chinese_digits(year)
        return f"{written}年{day}", f"{english}, {year}"
    return f"{day} {year}", f"{english}, {year}"


def _weekday(language: str, rng: random.Random) -> Value:
    d = rng.randrange(7)
    return (rng.choice(("星期", "星期", "周")) + "一二三四五六日"[d] if language == "zh" else _DAYS[d][0]), _DAYS[d][1]


def _time(language: str, rng: random.Random) -> Value:
    hour, minute = rng.randint(6, 23), rng.choice((0, 0, 5, 10, 15, 20, 25, 30, 30, 40, 45, 50, rng.randint(1, 59)))
    clock = f"{(hour - 1) % 12 + 1}:{minute:02}"
    half = "a.m." if hour < 12 else "p.m."
    if language == "zh":
        return _chinese_time(hour, minute, rng), f"{clock} {half}"
    draw = rng.random()
    if draw < 0.2:
        part, after, english = rng.choice(
            (("halb", 1, "half past"), ("Viertel nach", 0, "a quarter past"), ("Viertel vor", 0, "a quarter to"))
        )
        h = rng.randint(1, 12)
        return f"{part} {number_words(h % 12 + 1 if after else h, 'de')}", f"{english} {number_words(h, 'en')}"
    if minute == 0:
        if hour <= 12:
            written = number_words(hour, "de") if draw < 0.5 else str(hour)
            return f"{written} Uhr", f"{number_words(hour, 'en') if draw < 0.5 else hour} o'clock"
        return f"{hour} Uhr", f"{hour - 12} p.m."
    return f"{hour}{':' if rng.random() < 0.7 else '.'}{minute:02} Uhr", f"{clock} {half}"


def _chinese_time(hour: int, minute: int, rng: random.Random) -> str:
    """With the part of the day, so that a.m. or p.m. follows from it."""
    part = "早上" if hour < 9 else "上午" if hour < 12 else "中午" if hour == 12 else "下午" if hour < 18 else "晚上"
    h = (hour - 1) % 12 + 1
    if rng.random() < 0.25:
        return f"{part}{h}:{minute:02}"
    minutes = "" if not minute else "半" if minute == 30 else f"{'零' if minute < 10 else ''}{chinese_number(minute)}分"
    return f"{part}{chinese_number(h, counted=True)}点{minutes}"


def spelled(name: Name, rng: random.Random) -> str:
    """A name as the source has it; Chinese ones in either script."""
    return name.traditional if name.traditional and rng.random() < 0.4 else name.source


def _drawn(kind: str) -> Callable[[str, random.Random], Value]:
    def draw(language: str, rng: random.Random) -> Value:
        name = rng.choice(names(kind, language))
        return spelled(name, rng), name.english

    return draw


def invented_name(rng: random.Random) -> str:
    """A name that nobody has: whoever translates it can only copy it."""
    return "".join(rng.choice(_words("syllables")) for _ in range(rng.randint(2, 4))).capitalize()


def chinese_name(rng: random.Random) -> Value:
    """A surname and a given name of one or two characters, and their pinyin."""
    surname = rng.choice(names("surnames", "zh"))
    given = rng.sample(names("given", "zh"), 1 if rng.random() < 0.45 else 2)
    # In pinyin an apostrophe parts what would be read as one syllable.
    pinyin = given[0].english
    for name in given[1:]:
        pinyin += ("'" if name.english[0] in "aeo" else "") + name.english
    if rng.random() < 0.1:  # among friends
        return f"小{given[0].source}", f"Xiao{given[0].english}"
    parts = [surname, *given]
    if rng.random() < 0.3:
        return "".join(name.traditional or name.source for name in parts), f"{surname.english} {pinyin.capitalize()}"
    return "".join(name.source for name in parts), f"{surname.english} {pinyin.capitalize()}"


def person(language: str, rng: random.Random, kind: str = "") -> Value:
    """A first name, or a full one; `kind` "men" or "women" where the sentence says which."""
    kind = kind or rng.choice(("men", "women"))
    if language == "zh" and rng.random() < 0.6:
        return chinese_name(rng)
    first, english = _drawn(kind)(language, rng)
    if language == "de" and rng.random() < 0.12:
        first = english = invented_name(rng)
    return first, english


def _full_name(language: str, rng: random.Random) -> Value:
    if language == "zh":
        return chinese_name(rng)
    first = rng.choice(names(rng.choice(("men", "women")), "de")).source
    last = rng.choice(names("surnames", "de")).source if rng.random() < 0.8 else invented_name(rng)
    return f"{first} {last}", f"{first} {last}"


def _surname(language: str, rng: random.Random) -> Value:
    if language == "de" and rng.random() < 0.15:
        name = invented_name(rng)
        return name, name
    return _drawn("surnames")(language, rng)


def plain_ascii(text: str) -> str:
    """Umlauts as addresses have them: two letters, lower case."""
    letters = zip(map(ord, "äöüßéçã"), ("ae", "oe", "ue", "ss", "e", "c", "a"), strict=True)
    return text.lower().translate(dict(letters))


def _email(language: str, rng: random.Random) -> Value:
    first, last = rng.choice(names("women", "de")).source, rng.choice(names("surnames", "de")).source
    office = rng.choice(_words("users"))
    user = plain_ascii(rng.choice((f"{first}.{last}", f"{first[0]}.{last}", f"{first}_{last}", last, office)))
    user += str(rng.randint(1, 2010)) if rng.random() < 0.3 else ""
    host = rng.choice(_words("mail_hosts")) if rng.random() < 0.6 else _host(rng)
    return f"{user}@{host}", f"{user}@{host}"


def _host(rng: random.Random) -> str:
    invented = plain_ascii(invented_name(rng)) + rng.choice(("", "", "24", "-online"))
    site = rng.choice(_words("sites")) if rng.random() < 0.5 else invented
    return f"{site}.{rng.choice(_words('domains'))}"


def _url(language: str, rng: random.Random) -> Value:
    start = rng.choice(("https://", "https://www.", "http://", "www.", "www.", ""))
    path = f"/{rng.choice(_words('paths'))}" if rng.random() < 0.5 else ""
    text = f"{start}{_host(rng)}{path}"
    return text, text


def _code(language: str, rng: random.Random) -> Value:
    signs = {"A": "ABCDEFGHJKLMNPQRSTUVWXYZ", "a": "abcdefghkmnpqrstuvwxyz", "9": "0123456789"}
    text = "".join(rng.choice(signs.get(sign, sign)) for sign in rng.choice(_words("codes")))
    return text, text


def _file(language: str, rng: random.Random) -> Value:
    stem = rng.choice(_words("files")) if rng.random() < 0.6 else plain_ascii(invented_name(rng))
    text = f"{stem}{rng.choice(('', '_', '-'))}{rng.randint(1, 2030)}.{rng.choice(_words('extensions'))}"
    return text, text


def _phone(language: str, rng: random.Random) -> Value:
    figures = "".join(rng.choice("0123456789") for _ in range(rng.randint(6, 8)))
    prefix = f"1{rng.randint(30, 89)}{rng.randint(1000, 9999)}" if language == "zh" else f"0{rng.randint(30, 999)}"
    text = prefix + figures[:4] if language == "zh" else f"{prefix}{rng.choice((' ', '/', '-'))}{figures}"
    return text, text


def _score(language: str, rng: random.Random) -> Value:
    ours, theirs = rng.randint(0, 9), rng.randint(0, 9)
    return f"{ours}{'比' if language == 'zh' and rng.random() < 0.5 else ':'}{theirs}", f"{ours}-{theirs}"


def _brand(language: str, rng: random.Random) -> Value:
    brand = rng.choice(_words("brands"))
    return brand, brand


def _foreign(language: str, rng: random.Random) -> Value:
    """A word in Latin letters, to be copied from Chinese too: a name, or one that nobody knows."""
    word = rng.choice(names(rng.choice(("men", "women")), "de")).source if rng.random() < 0.5 else invented_name(rng)
    return word, word


SLOTS: dict[str, Callable[[str, random.Random], Value]] = {
    "count": _count,
    "small": _small,
    "number": _number,
    "decimal": _decimal,
    "percent": _percent,
    "price": _price,
    "date": _date,
    "full_date": _full_date,
    "year": _year,
    "month": _month,
    "weekday": _weekday,
    "time": _time,
    "person": person,
    "man": lambda language, rng: person(language, rng, "men"),
    "woman": lambda language, rng: person(language, rng, "women"),
    "full_name": _full_name,
    "surname": _surname,
    "city": _drawn("cities"),
    "country": _drawn("countries"),
    "email": _email,
    "url": _url,
    "code": _code,
    "file": _file,
    "phone": _phone,
    "score": _score,
    "brand": _brand,
    "foreign": _foreign,
}
