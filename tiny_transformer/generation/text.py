"""From tokens to text as they come: no half characters, and nothing of a stop string."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from tiny_transformer.errors import InputError
from tiny_transformer.generation.options import GenerationOptions
from tiny_transformer.generation.prompt import Prompt
from tiny_transformer.generation.segments import SegmentedText
from tiny_transformer.generation.sentences import Span
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
class TranslatedSentence:
    """Where a sentence stands, as for slicing: in the text that was given, and in the result's text."""

    source: Span
    target: Span
    copied: bool  # not translated, since it needs no translation


@dataclass(frozen=True)
class GenerationResult:
    """A finished text and how it came about.

    Of a text of several sentences `ids`, `tokens`, `logprobs` and `alternatives` are those of all sentences, one after
    the other; what stands between the sentences has none. `score` and `n_source_tokens` are sums. `finish_reason` is
    "stop" where a stop string ended the text, else that of the first sentence that did not come to its end, else "eos".
    The k-th of `others` has the k-th other of every sentence.
    """

    text: str
    finish_reason: FinishReason
    ids: list[int]  # without the end token
    tokens: list[str]  # the text of each id alone; half a character shows as U+FFFD
    logprobs: list[float]  # of each id
    alternatives: list[list[tuple[int, float]]]  # for each id: the likeliest ids there with log-probabilities
    score: float
    n_source_tokens: int  # tokens the model read before it wrote
    notices: tuple[str, ...] = ()  # what was left out of the input, and what else a reader should know
    others: tuple["GenerationResult", ...] = ()  # the rest of the n-best
    sentences: tuple["TranslatedSentence", ...] = ()  # of a text that was split; else none

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
    """The events of one text, pulled one at a time. Closing it, or leaving its `with`, stops the work.

    Only the last event has a finish reason. If the model had nothing to write, it is the only one.
    """

    def __init__(
        self,
        tokens: Iterator[tuple[int, GeneratedToken]],
        tokenizer: Tokenizer,
        options: GenerationOptions,
        text: SegmentedText,
    ) -> None:
        self.notices = text.notices
        self.prompts = text.prompts
        self.rows: list[list[int]] = []  # the ids so far for each prompt, end tokens included
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._options = options
        self._text = text
        self._come: list[list[GeneratedToken]] = []
        self._ended = False
        self._events = self._made()

    def __next__(self) -> TokenEvent:
        return next(self._events)

    def _made(self) -> Iterator[TokenEvent]:
        *before, after = self._text.frame()
        if not before:
            self._ended = True
            yield TokenEvent(GeneratedToken(self._tokenizer.eos_id, 0.0, (), "eos"), after)
            return
        assembler = TextAssembler(self._tokenizer, self._options.stop)
        for number, token in self._tokens:
            text = ""
            if number == len(self._come):
                assembler = TextAssembler(self._tokenizer, self._options.stop)
                text = before[number]
                self._come.append([])
                self.rows.append([])
            self._come[number].append(token)
            self.rows[number].append(token.id)
            reason = token.finish_reason
            text += "" if reason == "eos" else assembler.push(token.id)
            text += assembler.finish() if reason is not None else ""
            self._ended = reason == "stop" or (reason is not None and number == len(before) - 1)
            if not self._ended:
                yield TokenEvent(token._replace(finish_reason=None), text)
                continue
            if reason != "stop":
                text += after
            self.close()
            yield TokenEvent(token._replace(finish_reason=_reason([row[-1].finish_reason for row in self._come])), text)
            return

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
        if not self._ended:
            raise InputError("The stream was closed before its end and has no result; keep its pieces instead.")
        found = [finished(row, self._options.length_penalty) for row in self._come]
        return joined_result(self._tokenizer, found, self._options, self._text)


def joined_result(
    tokenizer: Tokenizer, found: Sequence[Generated], options: GenerationOptions, text: SegmentedText
) -> GenerationResult:
    """The finished rows of a text's prompts, joined; after a stop string nothing more comes."""
    results = [result_of(tokenizer, one, options, prompt) for one, prompt in zip(found, text.prompts, strict=False)]
    stops = [number for number, result in enumerate(results) if result.finish_reason == "stop"]
    results = results[: stops[0] + 1] if stops else results
    whole = _joined(results, text)
    n_others = max((len(result.others) for result in results), default=0)
    kept = [[result, *result.others] for result in results]
    others = [_joined([row[min(k, len(row) - 1)] for row in kept], text) for k in range(1, n_others + 1)]
    return replace(whole, others=tuple(others))


def _joined(results: Sequence[GenerationResult], text: SegmentedText) -> GenerationResult:
    written, sentences = "", []
    following = iter(results)
    for segment in text.segments:
        result = None if segment.prompt is None else next(following)
        written += segment.before
        target = text.source(segment) if result is None else result.text
        spans = Span(*segment.span), Span(len(written), len(written) + len(target))
        sentences.append(TranslatedSentence(*spans, copied=result is None))
        written += target
        if result is not None and result.finish_reason == "stop":
            break
    reason = _reason([result.finish_reason for result in results])
    return GenerationResult(
        text=written if reason == "stop" else written + text.after,
        finish_reason=reason,
        ids=[i for result in results for i in result.ids],
        tokens=[token for result in results for token in result.tokens],
        logprobs=[logprob for result in results for logprob in result.logprobs],
        alternatives=[alternatives for result in results for alternatives in result.alternatives],
        score=sum((result.score for result in results), 0.0),
        n_source_tokens=sum(result.n_source_tokens for result in results),
        notices=text.notices,
        sentences=tuple(sentences) if text.is_split else (),
    )


def _reason(reasons: Sequence[FinishReason | None]) -> FinishReason:
    """Why a text of several sentences ended."""
    if "stop" in reasons:
        return "stop"
    return next((reason for reason in reasons if reason is not None and reason != "eos"), "eos")


def result_of(
    tokenizer: Tokenizer, generated: Generated, options: GenerationOptions, prompt: Prompt
) -> GenerationResult:
    """A finished row of one prompt as text."""
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
        others=tuple(result_of(tokenizer, other, options, prompt) for other in generated.others),
    )
