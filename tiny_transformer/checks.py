"""Range checks on values from outside: one sentence for each kind, whoever asks."""

import math
import reprlib
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

from tiny_transformer.errors import ConfigError, TinyTransformerError

Refusal = type[TinyTransformerError]  # which error a value out of range raises


def check_whole(name: str, value: Any, low: int, high: int, error: Refusal = ConfigError) -> int:
    """A whole number from `low` to `high`; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        template = "{name} is {value}; choose a whole number from {low} to {high}."
        raise error(template, name=name, value=shown(value), low=low, high=high)
    return value


def check_number(
    name: str,
    value: Any,
    low: float,
    high: float = math.inf,
    *,
    above: bool = False,
    below: bool = False,
    error: Refusal = ConfigError,
) -> float:
    """A finite number from `low` to `high`; `above` and `below` leave out the ends themselves."""
    # Not by math.isfinite, which fails on a whole number that no float can hold.
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if not is_number or not low <= value <= high or (above and value == low) or (below and value == high):
        template = (
            "{name} is {value}; choose a number of at least {low:g}."
            if high == math.inf
            else "{name} is {value}; choose a number above {low:g}, up to {high:g}."
            if above
            else "{name} is {value}; choose a number from {low:g} up to, not including, {high:g}."
            if below
            else "{name} is {value}; choose a number from {low:g} to {high:g}."
        )
        raise error(template, name=name, value=shown(value), low=low, high=high)
    return float(value)


def check_choice(name: str, value: Any, choices: Sequence[str], error: Refusal = ConfigError) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        template = "{name} is {value}; choose one of {choices}."
        raise error(template, name=name, value=shown(value), choices=", ".join(choices))
    return value


def shown(value: Any) -> str:
    """A value from outside, quoted at a length that fits a sentence."""
    return reprlib.repr(value)


def printable(text: str) -> str:
    """A text from outside as a terminal may show it: characters that would command it are written as escapes."""
    return "".join(
        c if c == "\n" or unicodedata.category(c)[0] != "C" else c.encode("unicode_escape").decode("ascii")
        for c in text
    )
