"""Numbers as German, Chinese and English write them: in words, in numerals, and with separators."""

_EN = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_EN_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_DE = (
    *("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"),
    *("dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"),
)
_DE_TENS = ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")
_ZH = "零一二三四五六七八九"


def number_words(n: int, language: str) -> str:
    """A number from 0 to 999 in German ("de"), Chinese ("zh") or English ("en") words."""
    if language == "zh":
        return chinese_number(n)
    hundreds, rest = divmod(n, 100)
    if language == "de":
        word = _DE[rest] if rest < 20 else _joined_german(rest)
        before = "" if not hundreds else f"{'ein' if hundreds == 1 else _DE[hundreds]}hundert"
        return before + (word if rest or not hundreds else "")
    word = _EN[rest] if rest < 20 else _EN_TENS[rest // 10] + (f"-{_EN[rest % 10]}" if rest % 10 else "")
    before = "" if not hundreds else f"{_EN[hundreds]} hundred"
    return " ".join(part for part in (before, word if rest or not hundreds else "") if part)


def _joined_german(n: int) -> str:
    ones = {0: "", 1: "einund"}.get(n % 10, f"{_DE[n % 10]}und")
    return ones + _DE_TENS[n // 10]


def chinese_number(n: int, *, counted: bool = False) -> str:
    """A number below 10^12 in Chinese numerals; `counted`: 两 and not 二 stands before a measure word."""
    if counted and n == 2:
        return "两"
    for unit, sign in ((10**8, "亿"), (10**4, "万")):
        if n >= unit:
            high, low = divmod(n, unit)
            rest = chinese_number(low) if low else ""
            gap = "零" if 0 < low < unit // 10 else ""
            rest = f"一{rest}" if rest.startswith("十") else rest  # 10 alone is 十, within a number 一十
            return chinese_number(high, counted=True) + sign + gap + rest
    digits = ""
    for power, sign in ((1000, "千"), (100, "百"), (10, "十")):
        digit, n = divmod(n, power)
        if digit:
            digits += ("两" if digit == 2 and power == 1000 else _ZH[digit]) + sign
        elif digits and n and not digits.endswith("零"):
            digits += "零"
    digits += _ZH[n] if n or not digits else ""
    return digits[1:] if digits.startswith("一十") else digits


def parse_chinese(text: str) -> int | None:
    """The value of Chinese numerals, or None where they are not a number that `chinese_number` writes."""
    total, section, digit = 0, 0, 0
    for sign in text.replace("两", "二").replace("兩", "二").replace("萬", "万").replace("億", "亿"):
        if sign in _ZH:
            digit = _ZH.index(sign)
        elif sign in "十百千":
            section += (digit or 1) * {"十": 10, "百": 100, "千": 1000}[sign]
            digit = 0
        elif sign == "万":
            total, section, digit = total + (section + digit) * 10**4, 0, 0
        elif sign == "亿":
            total, section, digit = (total + section + digit) * 10**8, 0, 0
        else:
            return None
    value = total + section + digit
    return value if chinese_number(value).replace("两", "二") == text.replace("两", "二").replace("兩", "二") else None


def german(text: str) -> str:
    """English figures with German separators: 1,250.50 becomes 1.250,50."""
    return text.translate(str.maketrans(",.", ".,"))


def chinese_digits(n: int) -> str:
    """A number digit by digit, as years are read: 1990 becomes 一九九零."""
    return "".join(_ZH[int(digit)] for digit in str(n))
