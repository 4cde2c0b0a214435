"""What `load` returns: a model folder on a backend, and text in and out of it."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tiny_transformer.backends import BACKENDS, choose, files_read
from tiny_transformer.backends.base import AttentionArrays, Backend, Batch
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import BackendError, HubError, InputError, Sentence
from tiny_transformer.generation import Generated, GeneratedToken, GenerationOptions, Request, generate_ids
from tiny_transformer.generation.batching import ShouldStop
from tiny_transformer.generation.prompt import Prompt, checked_ids, prompt_for
from tiny_transformer.generation.segments import SegmentedText, segmented, speech_notices
from tiny_transformer.generation.sentences import split as split_sentences
from tiny_transformer.generation.spelling import usual_spelling
from tiny_transformer.generation.stream import stream_in_order
from tiny_transformer.generation.text import GenerationResult, StopStrings, TextStream, joined_result
from tiny_transformer.parity.report import ParityReport, stored_report
from tiny_transformer.parity.self_test import self_test
from tiny_transformer.tokenizer import Message, Tokenizer

logger = logging.getLogger(__name__)


def load(
    bundle: Path | str,
    backend: str = "auto",
    device: str | None = None,
    threads: int | None = None,
    *,
    revision: str | None = None,
    trust_unverified: bool = False,
    trust_code: bool = False,
) -> "TextModel":
    """Open a model folder, or a model of the Hub, on a backend: "auto", "eager", "torchscript", "onnx" or "onnx-int8".

    `revision` and the two trusts are for the Hub alone: a repo without a parity report, and TorchScript
    archives, which are code, are refused unless the caller says otherwise.
    """
    folder = resolve(bundle, backend, revision=revision, trust_unverified=trust_unverified, trust_code=trust_code)
    opened = Bundle.open(
        folder, require_float_weights=folder == Path(bundle)
    )  # what was pulled is what one backend reads
    choice = choose(opened, backend, device)
    # Before anything runs: bytes that the folder's report does not vouch for are refused.
    report = stored_report(opened, files_read(opened, choice.name))
    if choice.notice:
        logger.warning(choice.notice)
    spec = BACKENDS[choice.name]
    problem = self_test(opened, report, choice)
    if problem is not None and spec.instead:
        again = partial(load, revision=revision, trust_unverified=trust_unverified, trust_code=trust_code)
        with suppress(BackendError, HubError):  # its files are not here, and cannot be had
            other = again(bundle, spec.instead, device, threads)
            template = "Running on {other} instead of {name}: {reason}."
            return other.warned(Sentence(template, other=spec.instead, name=choice.name, reason=problem))
    model = TextModel(opened, spec.open(opened, choice.device, threads), report=report, notice=choice.notice)
    if problem is None:
        return model
    template = "The backend {name} may answer wrongly: {reason}; find out more with: {command}"
    command = f"python -m export verify {opened.folder}"
    return model.warned(Sentence(template, name=choice.name, reason=problem, command=command))


def resolve(
    bundle: Path | str,
    backend: str = "auto",
    *,
    revision: str | None = None,
    trust_unverified: bool = False,
    trust_code: bool = False,
    all_files: bool = False,
) -> Path:
    """The local folder that a name stands for; USER/NAME that is no folder here is pulled from the Hub.

    Of a model on the Hub come the files that the backend needs; `all_files` brings card, report and all others.
    """
    from tiny_transformer.hub import is_repo_id, pull

    if Path(bundle).exists() or not is_repo_id(str(bundle)):
        if revision is not None:
            raise InputError(
                "A revision is for a model on the Hub, but {bundle} is a path here; leave it out.", bundle=bundle
            )
        return Path(bundle)
    return pull(
        str(bundle),
        backend=backend,
        revision=revision,
        trust_unverified=trust_unverified,
        trust_code=trust_code,
        all_files=all_files,
    )


@dataclass(frozen=True)
class Attention:
    """Every attention weight of one pass, with the tokens it belongs to."""

    source: list[str] | None  # None for a decoder-only model
    target: list[str]
    weights: AttentionArrays
    notices: tuple[str, ...] = ()


class TextModel:
    """A loaded model. Threads may share it; nothing of one call is left for the next."""

    def __init__(
        self, bundle: Bundle, backend: Backend, *, report: ParityReport | None = None, notice: str | None = None
    ) -> None:
        self.bundle = bundle
        self.backend = backend
        self.report = report  # the folder's parity report, checked against its files
        self.notice = notice  # what the user should know about the backend that was chosen
        self.warning: Sentence | None = None  # what a self-test found wrong on this processor

    def warned(self, warning: Sentence) -> "TextModel":
        """The same, with what a self-test found, which goes to the log too."""
        logger.warning(warning)
        self.notice = self.warning = warning
        return self

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""
        return self.bundle.config

    @property
    def tokenizer(self) -> Tokenizer:
        """The folder's tokenizer."""
        return self.bundle.tokenizer

    @property
    def task(self) -> str:
        """What the model is for: translate, chat or complete."""
        return self.bundle.generation.task

    @property
    def backend_name(self) -> str:
        """The backend the model runs on."""
        return self.backend.name

    @property
    def verified(self) -> bool:
        """Whether a parity report vouches for the files in use."""
        return self.report is not None

    def prompt(
        self,
        content: str | Sequence[Message],
        *,
        raw: bool = False,
        prefix: str | Sequence[int] = "",
        max_new_tokens: int | None = None,
    ) -> Prompt:
        """What the model reads of one text or dialogue, and notices of what is left out to make it fit."""
        generation = self.bundle.generation
        prompt = prompt_for(
            self.tokenizer, self.config, generation, content, raw=raw, prefix=prefix, max_new_tokens=max_new_tokens
        )
        if self.task != "chat" or raw:
            return prompt
        message = content if isinstance(content, str) else content[-1]["content"]
        return replace(prompt, notices=(*prompt.notices, *speech_notices(message, generation)))

    def generate(
        self,
        content: str | Sequence[Message],
        *,
        prefix: str | Sequence[int] = "",
        raw: bool = False,
        split: bool = True,
        should_stop: ShouldStop | None = None,
        **options: Any,
    ) -> GenerationResult:
        """Translate, answer or continue a text, by the model's task; a chat model also takes a list of messages.

        A text of any length is translated sentence by sentence, all of them as one batch, and joined with the line
        breaks of the source; `max_new_tokens`, `min_new_tokens`, `repetition_penalty` and `stop` are then for each
        sentence, and a stop string ends the whole. `split=False` makes the model read the text as one.

        `prefix` is a given start of the answer (text or ids; not repeated in the result), `raw` makes a chat model
        continue plain text. `should_stop` is asked before every step: once it returns True, `Cancelled` is raised.
        Further keywords are those of GenerationOptions.
        """
        chosen = self._options(options)
        text = self._segmented(content, raw, prefix, split, chosen)
        (result,) = self._results([text], chosen, should_stop)
        return result

    def stream(
        self,
        content: str | Sequence[Message],
        *,
        prefix: str | Sequence[int] = "",
        raw: bool = False,
        split: bool = True,
        should_stop: ShouldStop | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """The same as pieces of text as they come; notices, as of what was left out of the input, go to the log."""
        stream = self.stream_tokens(content, prefix=prefix, raw=raw, split=split, should_stop=should_stop, **options)
        for notice in stream.notices:
            logger.warning(notice)
        return stream.pieces()

    def stream_tokens(
        self,
        content: str | Sequence[Message],
        *,
        prefix: str | Sequence[int] = "",
        raw: bool = False,
        split: bool = True,
        should_stop: ShouldStop | None = None,
        **options: Any,
    ) -> TextStream:
        """The same token by token, with probabilities, alternatives and notices.

        The sentences of a text are made together but come in order: the later ones wait for those before them.
        """
        chosen = self._options(options)
        text = self._segmented(content, raw, prefix, split, chosen)
        tokens: Iterator[tuple[int, GeneratedToken]] = iter(())
        if text.prompts:
            request = self._request(text.prompts, chosen, should_stop, _streams(0, len(text.prompts)))
            tokens = stream_in_order(self.backend, request)
        return TextStream(tokens, self.tokenizer, chosen, text)

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prefix: str | Sequence[int] = "",
        raw: bool = False,
        split: bool = True,
        numbers: Sequence[int] | None = None,
        should_stop: ShouldStop | None = None,
        **options: Any,
    ) -> list[GenerationResult]:
        """One result per text, in order; texts of like length, and the sentences of all of them, run together.

        Each text draws random numbers of its own, by its number: 0, 1, … unless `numbers` says
        otherwise, so a text drawn alone is text 0.
        """
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            template = "Expected a list of texts, not {kind}; pass a list of strings."
            raise InputError(template, kind=type(texts).__name__)
        chosen = self._options(options)
        found = [self._segmented(text, raw, prefix, split, chosen) for text in texts]
        return self._results(found, chosen, should_stop, numbers)

    def generate_ids(self, batch_of_ids: Sequence[Sequence[int]], **options: Any) -> list[Generated]:
        """Ids in, ids out: rows the encoder reads, or that a decoder-only model continues, exactly as given."""
        if isinstance(batch_of_ids, str | bytes):
            raise InputError("Expected rows of token ids, not text; use generate for text.")
        rows = [tuple(checked_ids(row, self.config.vocab_size)) for row in batch_of_ids]
        chosen = self._options(options)
        bos = (self.bundle.generation.bos_id,)
        prompts = [Prompt(bos, row) if self.config.is_encoder_decoder else Prompt(row, None) for row in rows]
        return generate_ids(self.backend, self._request(prompts, chosen)) if prompts else []

    def reply(self, history: Sequence[Message], **keywords: Any) -> GenerationResult:
        """The assistant's next message; the history's last is the user's. Keywords are those of `generate`."""
        self._check_chat()
        return self.generate(history, **keywords)

    def stream_reply(self, history: Sequence[Message], **keywords: Any) -> Iterator[str]:
        """The same as pieces of text as they come."""
        self._check_chat()
        return self.stream(history, **keywords)

    def stream_reply_tokens(self, history: Sequence[Message], **keywords: Any) -> TextStream:
        """The same token by token, with probabilities, alternatives and notices."""
        self._check_chat()
        return self.stream_tokens(history, **keywords)

    def attention(self, text: str, target_text: str | None = None, *, raw: bool = False) -> Attention:
        """The weights of every layer and head while the model reads text and answer (its own, unless given)."""
        prompt = self.prompt(text, raw=raw)
        if target_text is None:
            answer = self.generate(text, raw=raw, split=False).ids
        else:
            answer = self.tokenizer.encode(target_text, target=True)
        target = [*prompt.prefix, *answer][: self.config.max_length]
        source = None if prompt.source is None else Batch.of([prompt.source])
        weights = self.backend.attention(Batch.of([target]), source)
        names = None if prompt.source is None else self.token_texts(prompt.source)
        return Attention(names, self.token_texts(target), weights, prompt.notices)

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Each token as a reader may see it: its text, or the name of a special token."""
        special = {i: f"<{role}>" for role, i in self.tokenizer.roles.items()}
        special |= {self.tokenizer.pad_id: "<pad>", self.tokenizer.bos_id: "<bos>", self.tokenizer.eos_id: "<eos>"}
        return [special[i] if i in special else self.tokenizer.decode([i]) for i in ids]

    def _options(self, keywords: dict[str, Any]) -> GenerationOptions:
        return GenerationOptions.from_keywords(keywords, self.bundle.generation)

    def _segmented(
        self,
        content: str | Sequence[Message],
        raw: bool,
        prefix: str | Sequence[int],
        split: bool,
        options: GenerationOptions,
    ) -> SegmentedText:
        """A text's sentences, where the model translates; all else is read as one."""

        def prompt(content: str | Sequence[Message]) -> Prompt:
            return self.prompt(content, raw=raw, prefix=prefix, max_new_tokens=options.max_new_tokens)

        if not split or self.task != "translate" or not isinstance(content, str):
            return SegmentedText.whole(prompt(content))
        if not len(prefix):
            languages = self.bundle.generation.source_languages
            return segmented(
                content,
                self.bundle.generation,
                lambda sentence: prompt(usual_spelling(sentence, self.tokenizer, languages)),
            )
        n_sentences = len(split_sentences(content))
        if n_sentences > 1:
            template = (
                "A start of the answer is for one sentence, but the text has {n}; pass one of them, or do not split."
            )
            raise InputError(template, n=n_sentences)
        return SegmentedText.whole(prompt(content))

    def _results(
        self,
        texts: Sequence[SegmentedText],
        options: GenerationOptions,
        should_stop: ShouldStop | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[GenerationResult]:
        """Write what all prompts of all texts ask for, as one batch."""
        prompts = [prompt for text in texts for prompt in text.prompts]
        numbers = range(len(texts)) if numbers is None else numbers
        streams = [i for n, text in zip(numbers, texts, strict=True) for i in _streams(n, len(text.prompts))]
        found: list[Generated] = []
        if prompts:
            found = generate_ids(self.backend, self._request(prompts, options, should_stop, streams))
        following = iter(found)
        return [
            joined_result(self.tokenizer, list(islice(following, len(text.prompts))), options, text) for text in texts
        ]

    def _request(
        self,
        prompts: Sequence[Prompt],
        options: GenerationOptions,
        should_stop: ShouldStop | None = None,
        streams: Sequence[int] | None = None,
    ) -> Request:
        stopped = StopStrings(options.stop, self.tokenizer) if options.stop else None
        generation = self.bundle.generation
        return Request.of(prompts, options, generation, stopped=stopped, streams=streams, should_stop=should_stop)

    def _check_chat(self) -> None:
        if self.task != "chat":
            raise InputError("This model is for {task}, not for chat; use generate.", task=self.task)


def _streams(number: int, n_sentences: int) -> list[int]:
    """The streams of random numbers for the sentences of a text; the first draws what a text of one would draw."""
    return [number + (sentence << 32) for sentence in range(n_sentences)]
