"""What `load` returns: a model folder on a backend, and text in and out of it."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiny_transformer.backends import choose, files_read, open_choice
from tiny_transformer.backends.base import AttentionArrays, Backend, Batch
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import InputError
from tiny_transformer.generation import Generated, GenerationOptions, generate_ids, stream_ids
from tiny_transformer.generation.prompt import Prompt, checked_ids, prompt_for
from tiny_transformer.generation.text import GenerationResult, StopStrings, TextStream, result_of
from tiny_transformer.parity.report import ParityReport, stored_report
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
    return TextModel(opened, open_choice(opened, choice, threads), report=report, notice=choice.notice)


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

    def generate(
        self, text: str, *, prefix: str | Sequence[int] = "", raw: bool = False, **options: Any
    ) -> GenerationResult:
        """Translate, answer or continue a text, by the model's task.

        `prefix` is a given start of the answer (text or ids; not repeated in the result), `raw` makes a
        chat model continue plain text. Further keywords are those of GenerationOptions.
        """
        return self._run(text, prefix, raw, options)

    def stream(
        self, text: str, *, prefix: str | Sequence[int] = "", raw: bool = False, **options: Any
    ) -> Iterator[str]:
        """The same as pieces of text as they come; what was left out of the input goes to the log."""
        return self._pieces(self._start(text, prefix, raw, options))

    def stream_tokens(
        self, text: str, *, prefix: str | Sequence[int] = "", raw: bool = False, **options: Any
    ) -> TextStream:
        """The same token by token, with probabilities, alternatives and notices."""
        return self._start(text, prefix, raw, options)

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prefix: str | Sequence[int] = "",
        raw: bool = False,
        numbers: Sequence[int] | None = None,
        **options: Any,
    ) -> list[GenerationResult]:
        """One result a text, in order; texts of like length run together.

        Each text draws random numbers of its own, by its number: 0, 1, … unless `numbers` says
        otherwise, so a text drawn alone is text 0.
        """
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise InputError("Expected a list of texts, not {kind}; pass a list of strings.", kind=type(texts).__name__)
        chosen = self._options(options)
        prompts = [self._prompt(text, prefix, raw, chosen) for text in texts]
        results = self._generate(prompts, chosen, numbers)
        return [result_of(self.tokenizer, g, chosen, p) for g, p in zip(results, prompts, strict=True)]

    def generate_ids(self, batch_of_ids: Sequence[Sequence[int]], **options: Any) -> list[Generated]:
        """Ids in, ids out: rows the encoder reads, or that a decoder-only model continues, exactly as given."""
        if isinstance(batch_of_ids, str | bytes):
            raise InputError("Expected rows of token ids, not text; use generate for text.")
        rows = [tuple(checked_ids(row, self.config.vocab_size)) for row in batch_of_ids]
        chosen = self._options(options)
        bos = (self.bundle.generation.bos_id,)
        prompts = [Prompt(bos, row) if self.config.is_encoder_decoder else Prompt(row, None) for row in rows]
        return self._generate(prompts, chosen)

    def reply(
        self, history: Sequence[Message], *, prefix: str | Sequence[int] = "", **options: Any
    ) -> GenerationResult:
        """The assistant's next message; the history's last is the user's."""
        self._check_chat()
        return self._run(history, prefix, False, options)

    def stream_reply(
        self, history: Sequence[Message], *, prefix: str | Sequence[int] = "", **options: Any
    ) -> Iterator[str]:
        """The same as pieces of text as they come."""
        return self._pieces(self.stream_reply_tokens(history, prefix=prefix, **options))

    def stream_reply_tokens(
        self, history: Sequence[Message], *, prefix: str | Sequence[int] = "", **options: Any
    ) -> TextStream:
        """The same token by token, with probabilities, alternatives and notices."""
        self._check_chat()
        return self._start(history, prefix, False, options)

    def attention(self, text: str, target_text: str | None = None, *, raw: bool = False) -> Attention:
        """The weights of every layer and head while the model reads text and answer (its own, unless given)."""
        prompt = prompt_for(self.bundle, text, raw=raw)
        answer = self.generate(text, raw=raw).ids if target_text is None else self.tokenizer.encode(target_text)
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

    def _prompt(
        self, content: str | Sequence[Message], prefix: str | Sequence[int], raw: bool, options: GenerationOptions
    ) -> Prompt:
        return prompt_for(self.bundle, content, raw=raw, prefix=prefix, max_new_tokens=options.max_new_tokens)

    def _start(
        self, content: str | Sequence[Message], prefix: str | Sequence[int], raw: bool, keywords: dict[str, Any]
    ) -> TextStream:
        options = self._options(keywords)
        prompt = self._prompt(content, prefix, raw, options)
        special = self.bundle.generation
        tokens = stream_ids(
            self.backend,
            prompt.prefix,
            prompt.source,
            options,
            eos_id=special.eos_id,
            pad_id=special.pad_id,
            stopped=self._stopped(options),
        )
        return TextStream(tokens, self.tokenizer, options, prompt)

    def _run(
        self, content: str | Sequence[Message], prefix: str | Sequence[int], raw: bool, keywords: dict[str, Any]
    ) -> GenerationResult:
        options = self._options(keywords)
        prompt = self._prompt(content, prefix, raw, options)
        return result_of(self.tokenizer, self._generate([prompt], options)[0], options, prompt)

    def _pieces(self, stream: TextStream) -> Iterator[str]:
        for notice in stream.notices:
            logger.warning(notice)
        return stream.pieces()

    def _generate(
        self, prompts: Sequence[Prompt], options: GenerationOptions, numbers: Sequence[int] | None = None
    ) -> list[Generated]:
        """Prompts to their end, as many at once as pays; results in the caller's order."""
        if not prompts:
            return []
        special = self.bundle.generation
        sources = [prompt.source for prompt in prompts if prompt.source is not None]
        return generate_ids(
            self.backend,
            [prompt.prefix for prompt in prompts],
            sources or None,
            options,
            eos_id=special.eos_id,
            pad_id=special.pad_id,
            stopped=self._stopped(options),
            rows=numbers,
        )

    def _stopped(self, options: GenerationOptions) -> StopStrings | None:
        return StopStrings(options.stop, self.tokenizer) if options.stop else None

    def _check_chat(self) -> None:
        if self.task != "chat":
            raise InputError("This model is for {task}, not for chat; use generate.", task=self.task)
