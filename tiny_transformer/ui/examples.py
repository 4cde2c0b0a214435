"""Texts to begin with, by what a model is for."""

import json
from collections.abc import Mapping

EXAMPLES = {
    "chat": ("Hello! How are you today?", "Tell me a joke.", "Tell me a story."),
    "translate": ("Guten Morgen! Wie geht es dir?", "Der Hund schläft unter dem Tisch.", "我明天要去北京。"),
    "complete": ("Once upon a time", "The little fox", "One day"),
}


def swap_script(tasks: Mapping[str, str]) -> str:
    """For the browser, when another model is chosen: its first example, unless the text is the visitor's own."""
    first = {name: EXAMPLES[task][0] for name, task in tasks.items()}
    every = [text for texts in EXAMPLES.values() for text in texts]
    return f"(text, model) => [text.trim() && !{json.dumps(every)}.includes(text) ? text : {json.dumps(first)}[model]]"
