"""For programs: /chat, /translate, /answer and /compare, with the types and words that clients and MCP tools show."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import gradio as gr
from gradio.events import api

from tiny_transformer.generation.options import OptionInfo
from tiny_transformer.ui.comparison import Comparison
from tiny_transformer.ui.handlers import QUEUE, language_of, user_errors
from tiny_transformer.ui.i18n import Language, translated
from tiny_transformer.ui.page_settings import BACKENDS_HELP
from tiny_transformer.ui.service import FROM_MODEL, OFFERED, PageService, check_history, dialogue
from tiny_transformer.ui.streaming import Answer

# Programs may pass arguments by position: these keep theirs, and an option that is not among them comes behind.
_FIRST = ("max_new_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "num_beams", "seed")


RESULTS = {"chat": "text", "translate": "translation", "answer": "answer", "compare": "comparison"}  # of each endpoint


def add_endpoints(service: PageService) -> None:
    """Register the endpoints on the page being built."""

    def chat(
        request: gr.Request, message: str, history: list[dict] | None = None, backend: str = "auto", **options: Any
    ) -> Iterator[str]:
        """Answer a message with the chat model, streaming the text so far; the last value is the whole answer.

        Args:
            message: What the user says.
            history: Earlier turns, each {"role": "user" or "assistant", "content": text}.
            backend: BACKENDS
        """
        turns = dialogue(check_history(history, service.limits), service.text(message))
        yield from texts("chat", backend, turns, options)

    def translate(request: gr.Request, text: str, backend: str = "auto", **options: Any) -> Iterator[str]:
        """Translate a text with the translation model, streaming the text so far; the last value is the whole.

        Args:
            text: German or Chinese text of one or more sentences; its line breaks are kept.
            backend: BACKENDS
        """
        yield from texts("translate", backend, dialogue([], service.text(text)), options)

    def answer(
        request: gr.Request,
        text: str,
        model: str = "",
        history: list[dict] | None = None,
        backend: str = "auto",
        stop: list[str] | None = None,
        **options: Any,
    ) -> Iterator[dict]:
        """Answer or translate a text, streaming the result so far: text, finish_reason, notices, language and counts.

        Args:
            text: What the user says, or what is to be translated.
            model: Which of the page's models; the first if empty.
            history: Earlier turns for a chat model, each {"role": "user" or "assistant", "content": text}.
            backend: BACKENDS
            stop: The text ends before the first of these.
        """
        name = service.store.default if model == "" else model
        turns = dialogue(check_history(history, service.limits), service.text(text))
        with closing(service.answers(name, backend, turns, options | {"stop": stop})) as answers:
            for state in answers:
                yield answer_values(name, state, language_of(request))

    def texts(task: str, backend: str, turns: Sequence[Any], options: dict[str, Any]) -> Iterator[str]:
        with closing(service.answers(service.store.first(task), backend, turns, options)) as answers:
            for answer in answers:
                yield answer.text

    def compare(request: gr.Request, text: str, model: str = "") -> dict:
        """Run one text on every available backend and say how far their numbers are apart.

        Args:
            text: What all backends read.
            model: Which of the page's models; the first if empty.
        """
        *_, last = service.compare(service.store.default if model == "" else model, text)
        return comparison_values(last, language_of(request))

    rank = {name: number for number, name in enumerate(_FIRST)}
    every = sorted(OFFERED.values(), key=lambda info: rank.get(info.name, len(rank)))
    functions = (
        with_options(chat, every),
        with_options(translate, [OFFERED["num_beams"]]),
        with_options(answer, every),
        compare,
    )
    for function in functions:
        api(
            user_errors(function),
            api_name=function.__name__,
            concurrency_id=QUEUE,
            concurrency_limit=service.limits.running,
        )


def with_options(function: Callable[..., Iterator[Any]], options: Sequence[OptionInfo]) -> Callable[..., Iterator[Any]]:
    """A function of keywords whose signature and documentation name each option, as clients must see them."""
    signature = inspect.signature(function)
    fixed = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    added = [
        inspect.Parameter(
            info.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None if info.name in FROM_MODEL else info.default,
            annotation=info.kind | None if info.name in FROM_MODEL or info.default is None else info.kind,
        )
        for info in options
    ]
    whole = signature.replace(parameters=[*fixed, *added])

    def endpoint(*values: Any, **named: Any) -> Iterator[Any]:
        yield from function(**whole.bind(*values, **named).arguments)

    endpoint.__name__ = function.__name__
    lines = "".join(f"    {info.name}: {info.help}\n" for info in options)
    endpoint.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("BACKENDS", f"{BACKENDS_HELP}.") + "\n" + lines
    endpoint.__signature__ = whole  # type: ignore[attr-defined]
    endpoint.__annotations__ = {p.name: p.annotation for p in whole.parameters.values()}
    endpoint.__annotations__["return"] = whole.return_annotation
    return endpoint


def answer_values(name: str, answer: Answer, language: Language = "en") -> dict[str, Any]:
    """An answer so far as plain values; it is complete when it has a finish reason."""
    return {
        "text": answer.text,
        "finish_reason": answer.finish_reason,
        "notices": [translated(notice, language) for notice in answer.notices],
        "language": answer.language,
        "model": name,
        "backend": answer.backend,
        "source_tokens": answer.n_source_tokens,
        "tokens": answer.n_tokens,
        "seconds": round(answer.seconds, 4),
    }


def comparison_values(comparison: Comparison, language: Language = "en") -> dict[str, Any]:
    """A finished comparison as plain values."""
    differences = {difference.backend: difference for difference in comparison.differences}
    rows = []
    for run in comparison.runs:
        row: dict[str, Any] = {
            "backend": run.backend,
            "text": run.text,
            "tokens": run.n_tokens,
            "tokens_per_second": round(run.tokens_per_second, 1),
            "first_token_seconds": run.first_seconds,
            "memory_bytes": run.memory,
            "problem": run.problem and translated(run.problem, language),
        }
        difference = differences.get(run.backend)
        if difference is not None:
            row |= {
                "text_equal": difference.first_difference is None,
                "first_difference": difference.first_difference,
                "max_logit_difference": difference.max_difference,
                "tolerance": difference.tolerance,
                "passed": difference.passed,
            }
        rows.append(row)
    return {"verdict": comparison.verdict, "reference": comparison.reference, "backends": rows}
