"""What a caller may ask of generation, checked once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from tiny_transformer.config import MAX_CONTEXT, MAX_VOCABULARY, GenerationConfig
from tiny_transformer.errors import InputError

MAX_BEAMS = 128  # a beam is a row of the batch; far beyond this, search only finds worse text
MAX_STOP_STRINGS = 64


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """How to choose tokens and when to end. The defaults are greedy, and so repeatable."""

    max_new_tokens: int = 128  # the end token counts as one
    min_new_tokens: int = 0  # the end token is forbidden before this many
    temperature: float = 0.0  # 0 = greedy; above, logits are divided by it and a token is drawn
    top_k: int = 0  # draw among the k likeliest tokens (and those tied with the last); 0 = all
    top_p: float = 1.0  # draw among the likeliest tokens that together reach this probability
    repetition_penalty: float = 1.0  # CTRL's: weakens every token that the text being written has already
    num_beams: int = 1
    length_penalty: float = 1.0  # beam score = sum of log-probabilities / length ** penalty
    n_best: int = 1  # how many of the beam's results to return
    stop: tuple[str, ...] = ()  # text ends before the first of these
    seed: int | None = None  # None = a new one each time
    alternatives: int = 0  # how many of the likeliest tokens to report beside each chosen one
    logprobs: bool = True  # False saves their cost (7% of a fast batch); scores of a stream are then NaN

    def __post_init__(self) -> None:
        _whole("max_new_tokens", self.max_new_tokens, 1, MAX_CONTEXT)
        _whole("min_new_tokens", self.min_new_tokens, 0, MAX_CONTEXT)
        _number("temperature", self.temperature, 0.0, math.inf, "0 (greedy) or a finite number above it")
        _whole("top_k", self.top_k, 0, MAX_VOCABULARY)
        _number("top_p", self.top_p, 0.0, 1.0, "a number above 0, up to 1", open_low=True)
        _number("repetition_penalty", self.repetition_penalty, 0.0, 10.0, "a number above 0, up to 10", open_low=True)
        _whole("num_beams", self.num_beams, 1, MAX_BEAMS)
        _number("length_penalty", self.length_penalty, 0.0, 10.0, "a number from 0 to 10")
        _whole("n_best", self.n_best, 1, MAX_BEAMS)
        _whole("alternatives", self.alternatives, 0, MAX_VOCABULARY)
        if self.seed is not None:
            _whole("seed", self.seed, 0, 2**64 - 1)
        if not isinstance(self.logprobs, bool):
            raise InputError("logprobs is {logprobs!r}; choose True or False.", logprobs=self.logprobs)
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        self._check_together()

    def _check_together(self) -> None:
        if self.min_new_tokens > self.max_new_tokens:
            raise InputError(
                "min_new_tokens is {min_new_tokens}, above max_new_tokens {max_new_tokens}; lower it.",
                min_new_tokens=self.min_new_tokens,
                max_new_tokens=self.max_new_tokens,
            )
        if self.n_best > self.num_beams:
            raise InputError(
                "n_best is {n_best}, above num_beams {num_beams}; use more beams.",
                n_best=self.n_best,
                num_beams=self.num_beams,
            )
        if self.alternatives and not self.logprobs:
            raise InputError("alternatives come with log-probabilities; leave logprobs out.")
        if self.num_beams > 1 and self.temperature > 0:
            raise InputError(
                "num_beams is {beams} and temperature {temperature}, but beam search draws nothing; set "
                "num_beams to 1 or temperature to 0.",
                beams=self.num_beams,
                temperature=self.temperature,
            )

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any], defaults: GenerationConfig | None = None) -> Self:
        """Options from a caller's keywords; those absent or None come from the model's generation.json."""
        known = [f.name for f in fields(cls)]
        unknown = sorted(set(keywords) - set(known))
        if unknown:
            raise InputError(
                "There is no option {unknown}; choose among {known}.",
                unknown=", ".join(unknown),
                known=", ".join(known),
            )
        given = {name: value for name, value in keywords.items() if value is not None}
        if defaults is not None:
            names = ("max_new_tokens", "length_penalty", "repetition_penalty")
            from_model = {name: getattr(defaults, name) for name in names}
            if "max_new_tokens" not in given and isinstance(given.get("min_new_tokens"), int):
                from_model["max_new_tokens"] = max(from_model["max_new_tokens"], given["min_new_tokens"])
            given = from_model | given
        return cls(**given)


def _whole(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(
            "{name} is {value!r}; choose a whole number from {low} to {high}.",
            name=name,
            value=value,
            low=low,
            high=high,
        )


def _number(name: str, value: Any, low: float, high: float, wanted: str, *, open_low: bool = False) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high or (open_low and value == low):
        raise InputError("{name} is {value!r}; choose {wanted}.", name=name, value=value, wanted=wanted)


def _stop_strings(value: Any) -> tuple[str, ...]:
    """One string or several, as a tuple of strings that have bytes."""
    strings = (value,) if isinstance(value, str) else value
    if not isinstance(strings, list | tuple) or not all(isinstance(item, str) and item for item in strings):
        raise InputError("stop is {value!r}; give one string or a list of strings, none of them empty.", value=value)
    if len(strings) > MAX_STOP_STRINGS:
        raise InputError(
            "stop has {n} strings; give at most {max_stop_strings}.", n=len(strings), max_stop_strings=MAX_STOP_STRINGS
        )
    for item in strings:
        try:
            item.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError("The stop string {item!r} holds a lone surrogate; remove it.", item=item) from None
    return tuple(strings)
