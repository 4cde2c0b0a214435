"""From tokens to text as they come: no half characters, and nothing of a stop string."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from tiny_transformer.errors import InputError
from tiny_transformer.generation.options import GenerationOptions
from tiny_transformer.generation.prompt import Prompt
from tiny_transformer.generation.tokens import FinishReason, Generated, GeneratedToken, finished
from tiny_transformer.tokenizer import Tokenizer


class StopStrings:
    """Tells whether a row's newest token completes a stop string."""

    def __init__(self, stop: Sequence[str], tokenizer: Tokenizer) -> None:
        # In bytes, as tokens are: a character, and so a stop string, may be spread over several.
        self._stop = [text.encode("utf-8") for text in stop]
        self._longest = max(map(len, self._stop), default=0)
        self._tokenizer = tokenizer

    def __call__(self, ids: Sequence[int]) -> bool:
        """Whether the text of `ids` holds a stop string that it did not hold before the last of them."""
        if not self._stop:
            return False
        tail = self._tokenizer.token_bytes(ids[-1])
        wanted = len(tail) + self._longest - 1
        for i in range(len(ids) - 2, -1, -1):
            if len(tail) >= wanted:
                break
            tail = self._tokenizer.token_bytes(ids[i]) + tail
        return any(text in tail for text in self._stop)


class TextAssembler:
    """Joins tokens into text; holds back what may turn out to be a stop string, and ends before one."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._decoder = tokenizer.incremental_decoder()
        self._stop = stop
        self._held = ""
        self._ended = False

    def push(self, token_id: int) -> str:
        """The text that is certain with this token; often empty."""
        return self._certain(self._decoder.push(token_id))

    def finish(self) -> str:
        """What was held back, now that nothing more comes."""
        text = self._certain(self._decoder.finish()) + self._held
        self._held = ""
        return text

    def _certain(self, text: str) -> str:
        if self._ended:
            return ""
        self._held += text
        found = [start for start in map(self._held.find, self._stop) if start >= 0]
        if found:
            self._ended = True
            certain, self._held = self._held[: min(found)], ""
            return certain
        n_held = max((_overlap(self._held, stop) for stop in self._stop), default=0)
        certain, self._held = self._held[: len(self._held) - n_held], self._held[len(self._held) - n_held :]
        return certain


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


def text_of(tokenizer: Tokenizer, ids: Sequence[int], stop: Sequence[str] = ()) -> str:
    """The text of a finished row, cut before its stop string; the same as its stream joined."""
    assembler = TextAssembler(tokenizer, stop)
    return "".join([assembler.push(i) for i in ids]) + assembler.finish()


@dataclass(frozen=True)
class GenerationResult:
    """A finished text and how it came about."""

    text: str
    finish_reason: FinishReason
    ids: list[int]  # without the end token
    tokens: list[str]  # the text of each id alone; half a character shows as U+FFFD
    logprobs: list[float]  # of each id
    alternatives: list[list[tuple[int, float]]]  # for each id: the likeliest ids there with log-probabilities
    score: float
    n_source_tokens: int  # tokens the model read before it wrote
    notices: tuple[str, ...] = ()  # what was left out of the input
    others: tuple["GenerationResult", ...] = ()  # the rest of the n-best

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


# What an empty line of input gives.
EMPTY_RESULT = GenerationResult("", "eos", [], [], [], [], 0.0, 0)


@dataclass(frozen=True)
class TokenEvent:
    """One step of a stream."""

    token: GeneratedToken
    text: str  # what may be shown now; may be empty, and later events bring what is held back


class TextStream(Iterator[TokenEvent]):
    """The events of one text, pulled one at a time. Closing it, or leaving its `with`, stops the work."""

    def __init__(
        self, tokens: Iterator[GeneratedToken], tokenizer: Tokenizer, options: GenerationOptions, prompt: Prompt
    ) -> None:
        self.notices = prompt.notices
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._options = options
        self._prompt = prompt
        self._assembler = TextAssembler(tokenizer, options.stop)
        self._come: list[GeneratedToken] = []

    def __next__(self) -> TokenEvent:
        token = next(self._tokens)
        self._come.append(token)
        text = "" if token.finish_reason == "eos" else self._assembler.push(token.id)
        if token.finish_reason is not None:
            text += self._assembler.finish()
        return TokenEvent(token, text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the work now and free the model's state."""
        close = getattr(self._tokens, "close", None)
        if close is not None:
            close()

    def pieces(self) -> Iterator[str]:
        """The text alone, without empty pieces."""
        try:
            for event in self:
                if event.text:
                    yield event.text
        finally:
            self.close()

    def result(self) -> GenerationResult:
        """Pull to the end and sum up."""
        for _ in self:
            pass
        if not self._come or self._come[-1].finish_reason is None:
            raise InputError("The stream was closed before its end and has no result; keep its pieces instead.")
        return result_of(
            self._tokenizer, finished(self._come, self._options.length_penalty), self._options, self._prompt
        )


def result_of(
    tokenizer: Tokenizer, generated: Generated, options: GenerationOptions, prompt: Prompt
) -> GenerationResult:
    """A finished row as text."""
    ids = generated.ids
    return GenerationResult(
        text=text_of(tokenizer, ids, options.stop),
        finish_reason=generated.finish_reason,
        ids=ids,
        tokens=[tokenizer.decode([i]) for i in ids],
        logprobs=generated.logprobs,
        alternatives=[list(token.alternatives) for token in generated.text_tokens],
        score=generated.score,
        n_source_tokens=prompt.n_tokens,
        notices=prompt.notices,
        others=tuple(result_of(tokenizer, other, options, prompt) for other in generated.others),
    )
