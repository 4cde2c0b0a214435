"""For programs: /chat, /translate and /compare, with the types and words that clients and MCP tools show."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gradio as gr
from gradio.events import api

from tiny_transformer.ui.comparison import Comparison
from tiny_transformer.ui.handlers import QUEUE, language_of, user_errors
from tiny_transformer.ui.i18n import Language, translated
from tiny_transformer.ui.service import PageService, check_history, dialogue


def add_endpoints(service: PageService) -> None:
    """Register the endpoints on the page being built."""

    def chat(
        request: gr.Request,
        message: str,
        history: list[dict] | None = None,
        backend: str = "auto",
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        repetition_penalty: float | None = None,
        num_beams: int = 1,
        seed: int | None = None,
    ) -> Iterator[str]:
        """Answer a message with the chat model, streaming the text so far; the last value is the whole answer.

        Args:
            message: What the user says.
            history: Earlier turns, each {"role": "user" or "assistant", "content": text}.
            backend: auto, eager, torchscript, onnx or onnx-int8.
            max_new_tokens: The longest answer, in tokens.
            temperature: 0 takes the likeliest token each time; above 0 tokens are drawn.
            top_k: Draw among the k likeliest tokens; 0 means all.
            top_p: Draw among the likeliest tokens that together reach this probability.
            repetition_penalty: Above 1 weakens tokens that the text has already.
            num_beams: Beam search with this many candidates.
            seed: The same seed draws the same text.
        """
        controls = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "repetition_penalty": repetition_penalty,
            "num_beams": num_beams,
            "seed": seed,
        }
        turns = dialogue(check_history(history, service.limits), service.text(message))
        with closing(service.answers(service.store.first("chat"), backend, turns, controls)) as answers:
            for answer in answers:
                yield answer.text

    def translate(request: gr.Request, text: str, backend: str = "auto", num_beams: int = 1) -> Iterator[str]:
        """Translate a text with the translation model, streaming the text so far; the last value is the whole.

        Args:
            text: German or Chinese text.
            backend: auto, eager, torchscript, onnx or onnx-int8.
            num_beams: Beam search with this many candidates; 1 is greedy.
        """
        turns = dialogue([], service.text(text))
        name = service.store.first("translate")
        with closing(service.answers(name, backend, turns, {"num_beams": num_beams})) as answers:
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

    for function in (chat, translate, compare):
        api(
            user_errors(function),
            api_name=function.__name__,
            concurrency_id=QUEUE,
            concurrency_limit=service.limits.running,
        )


def comparison_values(comparison: Comparison, language: Language = "en") -> dict[str, Any]:
    """A finished comparison as plain values."""
    differences = {difference.backend: difference for difference in comparison.differences}
    rows = []
    for run in comparison.runs:
        row: dict[str, Any] = {
            "backend": run.backend,
            "text": run.text,
            "tokens": len(run.ids),
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
