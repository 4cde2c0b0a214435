"""The decoding controls, each with a default that is right for most and a line that says what it does."""

from collections.abc import Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from tiny_transformer.bundle import Bundle
from tiny_transformer.config import GenerationConfig
from tiny_transformer.ui.settings import Limits
from tiny_transformer.ui.wishes import MAX_BEAMS

# In the order of the components below, which is the order in which handlers receive their values.
NAMES = ("temperature", "max_new_tokens", "num_beams", "top_k", "top_p", "repetition_penalty", "seed")
OF_THE_MODEL = ("max_new_tokens", "repetition_penalty")  # whose defaults a model brings along


def build_controls(bundle: Bundle | None, limits: Limits, i18n: gr.I18n) -> list[Component]:
    """One component for each of NAMES, with the defaults of a model."""
    new_tokens, penalty = model_defaults(bundle, limits)

    def labelled(name: str) -> dict[str, Any]:
        return {"label": i18n(name), "info": i18n(f"{name}_info"), "elem_id": f"tt-{name.replace('_', '-')}"}

    usual: list[Component] = [
        gr.Slider(0, 1.5, 0, step=0.1, **labelled("temperature")),
        gr.Slider(1, limits.new_tokens, new_tokens, step=1, **labelled("max_new_tokens")),
    ]
    with gr.Accordion(i18n("more"), open=False, elem_id="tt-more"):
        rare: list[Component] = [
            gr.Slider(1, MAX_BEAMS, 1, step=1, **labelled("num_beams")),
            gr.Slider(0, 100, 0, step=1, **labelled("top_k")),
            gr.Slider(0.05, 1, 1, step=0.05, **labelled("top_p")),
            gr.Slider(1, 2, penalty, step=0.05, **labelled("repetition_penalty")),
            gr.Number(None, precision=0, minimum=0, **labelled("seed")),
        ]
    return usual + rare


def model_defaults(bundle: Bundle | None, limits: Limits) -> tuple[int, float]:
    """The values of OF_THE_MODEL, within what the page allows."""
    special = bundle.generation if bundle else GenerationConfig()
    return min(special.max_new_tokens, limits.new_tokens), min(max(special.repetition_penalty, 1.0), 2.0)


def control_values(values: Sequence[Any]) -> dict[str, Any]:
    """The controls' values by name."""
    return dict(zip(NAMES, values, strict=True))
