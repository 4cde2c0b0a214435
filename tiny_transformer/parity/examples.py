"""The real sentences of parity: the folder's own evaluation examples, and text that is not ASCII."""

import json
from dataclasses import dataclass
from typing import Any

from tiny_transformer.bundle import EVALUATION, Bundle
from tiny_transformer.errors import BundleError
from tiny_transformer.generation.prompt import Prompt, prompt_for

MAX_EXAMPLES = 500
NON_ASCII = (
    "Wie schön, dass ihr da seid – für immer!",
    "今天天氣真好，我喜歡你。",
    "naïve café 🎉👩‍👩‍👧",
    "\u202eعربى\x00",
)


@dataclass(frozen=True)
class Example:
    """A prompt as the model reads it, and the reference answer where there is one."""

    prompt: Prompt
    reference: str | None


def evaluation_examples(bundle: Bundle) -> list[Example]:
    """The folder's `evaluation.jsonl`, strictly read; empty without the file."""
    path = bundle.folder / EVALUATION
    if not path.is_file():
        return []
    examples = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        try:
            values = json.loads(line)
            examples.append(_example(bundle, values))
        except (ValueError, KeyError, TypeError) as error:
            raise BundleError(f"{path}, line {number}: not an example ({error!r}); restore the file.") from None
    if len(examples) > MAX_EXAMPLES:
        raise BundleError(f"{path} has {len(examples)} examples; at most {MAX_EXAMPLES} belong in a model folder.")
    return examples


def _example(bundle: Bundle, values: dict[str, Any]) -> Example:
    if bundle.generation.task == "chat":
        return Example(prompt_for(bundle, values["messages"]), str(values["answer"]))
    return Example(prompt_for(bundle, str(values["source"])), str(values["target"]))


def non_ascii_examples(bundle: Bundle) -> list[Example]:
    """Text in other scripts, joined emoji, right-to-left marks and a NUL: every byte path of the tokenizer."""
    return [Example(prompt_for(bundle, text), None) for text in NON_ASCII]
