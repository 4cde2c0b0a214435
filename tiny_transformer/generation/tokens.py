"""The values generation gives back: tokens as they come, and a finished sequence."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from tiny_transformer.generation.sampling import likeliest

FinishReason = Literal["eos", "stop", "length", "context"]
# Whether a row's new ids, the last one just added, end its text (a stop string).
Stopped = Callable[[Sequence[int]], bool]


class GeneratedToken(NamedTuple):
    """One chosen token. The last of a sequence has a finish reason; "eos" means it is the end token itself."""

    id: int
    logprob: float  # under the model's own distribution, before any option changed it
    alternatives: tuple[tuple[int, float], ...] = ()  # (id, logprob), likeliest first; the chosen may be among them
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class Generated:
    """A finished sequence."""

    tokens: tuple[GeneratedToken, ...]  # the end token included, where there is one
    finish_reason: FinishReason
    score: float  # sum of log-probabilities / length ** length_penalty
    others: tuple["Generated", ...] = ()  # the rest of the n-best, best first

    @property
    def text_tokens(self) -> tuple[GeneratedToken, ...]:
        """The tokens without the end token."""
        return self.tokens[:-1] if self.finish_reason == "eos" else self.tokens

    @property
    def ids(self) -> list[int]:
        """The ids without the end token."""
        return [token.id for token in self.text_tokens]

    @property
    def logprobs(self) -> list[float]:
        """One log-probability an id."""
        return [token.logprob for token in self.text_tokens]


def alternatives_of(logits: np.ndarray, normalizer: float, k: int) -> tuple[tuple[int, float], ...]:
    """The k likeliest tokens of a row of logits (V,) with their log-probabilities."""
    if k == 0:
        return ()
    return tuple((int(i), float(logits[i]) - normalizer) for i in likeliest(logits, k))


def length_score(total: float, length: int, penalty: float) -> float:
    """What sequences of different lengths are compared by; `total` is a sum of log-probabilities."""
    return total / math.pow(length, penalty)


def finished(tokens: Sequence[GeneratedToken], length_penalty: float) -> Generated:
    """A sequence whose last token says why it ended."""
    reason = tokens[-1].finish_reason
    assert reason is not None
    total = sum(token.logprob for token in tokens)
    return Generated(tuple(tokens), reason, length_score(total, len(tokens), length_penalty))
