"""What a caller may ask of generation: each option is declared once, with its range and its help.

The checks here, the flags of the command line, the page's controls and the endpoints' parameters are all made from
these declarations.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from tiny_transformer.checks import check_number, check_whole
from tiny_transformer.config import MAX_CONTEXT, MAX_VOCABULARY, GenerationConfig
from tiny_transformer.errors import InputError

MAX_BEAMS = 128  # a beam is a row of the batch; far beyond this, search only finds worse text
MAX_STOP_STRINGS = 64


@dataclass(frozen=True, kw_only=True)
class OptionInfo:
    """What everybody who offers an option needs to know about it."""

    name: str = ""
    default: float | None = None
    kind: type = int  # int or float
    low: float
    high: float
    above: bool = False  # `low` itself is not allowed
    help: str
    on_page: bool = False  # offered by the page and its endpoints
    slider: tuple[float, float, float] | None = None  # low, high and step of the page's control; None: a number box

    def check(self, value: Any) -> None:
        """Refuse a value outside the range; None is allowed where it is the default."""
        if value is None and self.default is None:
            return
        if self.kind is int:
            check_whole(self.name, value, int(self.low), int(self.high), InputError)
        else:
            check_number(self.name, value, self.low, self.high, above=self.above, error=InputError)


def _option(default: Any, low: float, high: float, help: str, **more: Any) -> Any:
    return field(default=default, metadata={"option": {"low": low, "high": high, "help": help, **more}})


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """How to choose tokens and when to end. The defaults are greedy, and so repeatable."""

    temperature: float = _option(
        0.0,
        0.0,
        math.inf,
        "0 takes the likeliest token each time; above 0 tokens are drawn.",
        kind=float,
        on_page=True,
        slider=(0, 1.5, 0.1),
    )
    max_new_tokens: int = _option(
        128,
        1,
        MAX_CONTEXT,
        "The longest answer, in tokens; the end token counts.",
        on_page=True,
        slider=(1, math.inf, 1),
    )
    min_new_tokens: int = _option(0, 0, MAX_CONTEXT, "The end token is forbidden before this many tokens.")
    num_beams: int = _option(
        1, 1, MAX_BEAMS, "Beam search with this many hypotheses; 1 means none.", on_page=True, slider=(1, 8, 1)
    )
    top_k: int = _option(
        0,
        0,
        MAX_VOCABULARY,
        "Draw among the k likeliest tokens, and those tied with the last; 0 means all.",
        on_page=True,
        slider=(0, 100, 1),
    )
    top_p: float = _option(
        1.0,
        0.0,
        1.0,
        "Draw among the likeliest tokens that together reach this probability.",
        kind=float,
        above=True,
        on_page=True,
        slider=(0.05, 1, 0.05),
    )
    repetition_penalty: float = _option(
        1.0,
        0.0,
        10.0,
        "Above 1 weakens tokens that the text being written already has (CTRL's rule).",
        kind=float,
        above=True,
        on_page=True,
        slider=(1, 2, 0.05),
    )
    length_penalty: float = _option(
        1.0,
        0.0,
        10.0,
        "A beam is ranked by log-probability / length ** penalty; above 1 favors longer texts.",
        kind=float,
    )
    n_best: int = _option(1, 1, MAX_BEAMS, "How many of the beam's results to return.")
    seed: int | None = _option(None, 0, 2**64 - 1, "The same seed draws the same text; none: a new one.", on_page=True)
    alternatives: int = _option(0, 0, MAX_VOCABULARY, "How many of the likeliest tokens to report beside each token.")
    stop: tuple[str, ...] = ()  # text ends before the first of these
    logprobs: bool = True  # False saves their cost (7% of a fast batch); scores of a stream are then NaN

    def __post_init__(self) -> None:
        for name, info in OPTIONS.items():
            info.check(getattr(self, name))
        if not isinstance(self.logprobs, bool):
            raise InputError("logprobs is {value!r}; choose True or False.", value=self.logprobs)
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        self._check_together()

    def _check_together(self) -> None:
        if self.min_new_tokens > self.max_new_tokens:
            template = "min_new_tokens is {low}, above max_new_tokens {high}; lower it."
            raise InputError(template, low=self.min_new_tokens, high=self.max_new_tokens)
        if self.n_best > self.num_beams:
            template = "n_best is {n}, above num_beams {beams}; use more beams."
            raise InputError(template, n=self.n_best, beams=self.num_beams)
        if self.alternatives and not self.logprobs:
            raise InputError("alternatives come with log-probabilities; leave logprobs out.")
        if self.num_beams > 1 and self.temperature > 0:
            raise InputError(
                "num_beams is {beams} and temperature {temperature}, but beam search draws nothing; "
                "set num_beams to 1 or temperature to 0.",
                beams=self.num_beams,
                temperature=self.temperature,
            )

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any], defaults: GenerationConfig | None = None) -> Self:
        """Options from a caller's keywords; those absent or None come from the model's generation.json."""
        known = [f.name for f in fields(cls)]
        unknown = sorted(set(keywords) - set(known))
        if unknown:
            template = "There is no option {names}; choose among {known}."
            raise InputError(template, names=", ".join(unknown), known=", ".join(known))
        given = {name: value for name, value in keywords.items() if value is not None}
        if defaults is not None:
            from_model = {f.name: getattr(defaults, f.name) for f in fields(defaults) if f.name in known}
            if "max_new_tokens" not in given and isinstance(given.get("min_new_tokens"), int):
                from_model["max_new_tokens"] = max(from_model["max_new_tokens"], given["min_new_tokens"])
            given = from_model | given
        return cls(**given)


OPTIONS = {
    f.name: OptionInfo(name=f.name, default=f.default, **f.metadata["option"])  # type: ignore[arg-type]
    for f in fields(GenerationOptions)
    if f.metadata
}


def _stop_strings(value: Any) -> tuple[str, ...]:
    """One string or several, as a tuple of strings that have bytes."""
    strings = (value,) if isinstance(value, str) else value
    if not isinstance(strings, list | tuple) or not all(isinstance(item, str) and item for item in strings):
        raise InputError("stop is {value!r}; give one string or a list of strings, none of them empty.", value=value)
    if len(strings) > MAX_STOP_STRINGS:
        raise InputError("stop has {n} strings; give at most {limit}.", n=len(strings), limit=MAX_STOP_STRINGS)
    for item in strings:
        try:
            item.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError("The stop string {value!r} holds a lone surrogate; remove it.", value=item) from None
    return tuple(strings)
