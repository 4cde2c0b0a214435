"""The controls of decoding: one component for each option on the page, made from the option's own declaration."""

import math
from typing import Any

import gradio as gr
from gradio.components import Component

from tiny_transformer.bundle import Bundle
from tiny_transformer.config import GenerationConfig
from tiny_transformer.generation.options import OptionInfo
from tiny_transformer.ui.page_settings import Limits
from tiny_transformer.ui.service import FROM_MODEL, OFFERED

USUAL = 2  # controls that are always in sight: the first of those offered


def build_controls(bundle: Bundle | None, limits: Limits, i18n: gr.I18n) -> list[Component]:
    """One component for each of the options offered, with the defaults of a model."""
    controls = [(info, value) for info, value in zip(OFFERED.values(), defaults(bundle, limits).values(), strict=True)]
    usual = [_control(info, value, limits, i18n) for info, value in controls[:USUAL]]
    with gr.Accordion(i18n("more"), open=False, elem_id="tt-more"):
        return usual + [_control(info, value, limits, i18n) for info, value in controls[USUAL:]]


def _control(info: OptionInfo, value: float | None, limits: Limits, i18n: gr.I18n) -> Component:
    words: dict[str, Any] = {
        "label": i18n(info.name),
        "info": i18n(f"{info.name}_info"),
        "elem_id": f"tt-{info.name.replace('_', '-')}",
    }
    slider = _slider(info, limits)
    if slider is None:
        # A number box of Gradio's shows 0 where it is empty, and rounds what has more than 53 bits.
        return gr.Textbox("" if value is None else str(value), max_lines=1, **words)
    low, high, step = slider
    return gr.Slider(low, high, value, step=step, **words)


def _slider(info: OptionInfo, limits: Limits) -> tuple[float, float, float] | None:
    """Low, high and step; a number of tokens without an upper bound goes up to the page's limit."""
    if info.slider is None:
        return None
    low, high, step = info.slider
    return low, limits.new_tokens if math.isinf(high) else high, step


def defaults(bundle: Bundle | None, limits: Limits) -> dict[str, float | None]:
    """The value that each control starts with: the model's own where it has one, within the slider's ends."""
    generation = bundle.generation if bundle else GenerationConfig()
    values: dict[str, float | None] = {}
    for name, info in OFFERED.items():
        value: float | None = getattr(generation, name) if name in FROM_MODEL else info.default
        slider = _slider(info, limits)
        values[name] = value if slider is None or value is None else min(max(value, slider[0]), slider[1])
    return values
