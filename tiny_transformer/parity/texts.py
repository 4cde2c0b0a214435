"""The real sentences of parity: the folder's own evaluation examples, and text that is not ASCII."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiny_transformer.backends.base import Backend, Batch
from tiny_transformer.bundle import EVALUATION, Bundle
from tiny_transformer.errors import BundleError
from tiny_transformer.generation import Generated, GenerationOptions, Request, generate_ids
from tiny_transformer.generation.prompt import Prompt, prompt_for
from tiny_transformer.parity.report import CaseResult, finite

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
            raise BundleError(
                "{path}, line {number}: not an example ({reason!r}); restore the file.",
                path=path,
                number=number,
                reason=error,
            ) from None
    if len(examples) > MAX_EXAMPLES:
        raise BundleError(
            "{path} has {n} examples; at most {max_examples} belong in a model folder.",
            path=path,
            n=len(examples),
            max_examples=MAX_EXAMPLES,
        )
    return examples


def _example(bundle: Bundle, values: dict[str, Any]) -> Example:
    if bundle.generation.task == "chat":
        return Example(_prompt(bundle, values["messages"]), str(values["answer"]))
    return Example(_prompt(bundle, str(values["source"])), str(values["target"]))


def _prompt(bundle: Bundle, content: Any) -> Prompt:
    return prompt_for(bundle.tokenizer, bundle.config, bundle.generation, content)


def non_ascii_examples(bundle: Bundle) -> list[Example]:
    """Text in other scripts, joined emoji, right-to-left marks and a NUL: every byte path of the tokenizer."""
    return [Example(_prompt(bundle, text), None) for text in NON_ASCII]


N_GREEDY, N_BEAM, BEAMS = 200, 40, 4
BATCH = 25
MAX_NEW_TOKENS = 64
# How much of the task's figure 8-bit may lose: BLEU points, and percentage points of right answers.
MAX_BLEU_LOSS, MAX_ACCURACY_LOSS = 0.3, 0.5


def text_results(
    bundle: Bundle,
    reference: Backend,
    candidate: Backend,
    tolerance: float | None,
    *,
    progress: Callable[[str], None],
) -> list[CaseResult]:
    """Ids must be equal (or tied); a backend without a tolerance must do its task about as well."""
    examples = evaluation_examples(bundle)
    if tolerance is None:
        progress(f"{candidate.name}: task")
        return [_task(bundle, reference, candidate, examples)]
    foreign = non_ascii_examples(bundle)
    results = []
    for name, chosen, beams in (
        (f"greedy ids, {EVALUATION}", examples[:N_GREEDY], 1),
        (f"beam ids, {EVALUATION}", examples[:N_BEAM], BEAMS),
        ("greedy ids, text that is not ASCII", foreign, 1),
        ("beam ids, text that is not ASCII", foreign, BEAMS),
    ):
        if chosen:
            progress(f"{candidate.name}: {name}")
            results.append(_same_ids(bundle, reference, candidate, name, chosen, beams, tolerance))
    return results


def _generate(
    bundle: Bundle, backend: Backend, examples: Sequence[Example], num_beams: int, at_once: int = BATCH
) -> list[Generated]:
    special = bundle.generation
    options = GenerationOptions(
        max_new_tokens=min(MAX_NEW_TOKENS, special.max_new_tokens),
        num_beams=num_beams,
        length_penalty=special.length_penalty,
        repetition_penalty=special.repetition_penalty,
    )
    found: list[Generated] = []
    for start in range(0, len(examples), at_once):
        prompts = [example.prompt for example in examples[start : start + at_once]]
        found += generate_ids(backend, Request.of(prompts, options, special))
    return found


def _same_ids(
    bundle: Bundle,
    reference: Backend,
    candidate: Backend,
    name: str,
    examples: Sequence[Example],
    num_beams: int,
    tolerance: float,
) -> CaseResult:
    expected = _generate(bundle, reference, examples, num_beams)
    found = _generate(bundle, candidate, examples, num_beams)
    n_equal, ties, detail, largest = 0, 0, "", 0.0
    for i, (example, a, b) in enumerate(zip(examples, expected, found, strict=True)):
        if a.ids == b.ids and a.finish_reason == b.finish_reason:
            n_equal += 1
            continue
        gap = _gap(bundle, reference, example, a, b, greedy=num_beams == 1)
        largest = max(largest, gap)
        if gap <= 2 * tolerance:
            ties += 1
        elif not detail:
            detail = f"text {i} differs from token {_first_difference(a.ids, b.ids)} on, with a gap of {gap:.3g}"
    return CaseResult(
        candidate=candidate.name,
        kind="greedy" if num_beams == 1 else "beam",
        name=name,
        passed=not detail,
        max_absolute=finite(largest),
        argmax_agreement=round(n_equal / len(examples), 6),
        tolerance=tolerance,
        detail=detail or (f"{len(examples)} texts equal" if not ties else f"{n_equal} texts equal, {ties} tied"),
    )


def _gap(bundle: Bundle, reference: Backend, example: Example, a: Generated, b: Generated, *, greedy: bool) -> float:
    """How clearly the reference prefers its own choice: the logit gap, or for beams the score gap."""
    eos = bundle.generation.eos_id
    rows = [_closed(a, eos), _closed(b, eos)]
    prefix = list(example.prompt.prefix)
    logits = [_row_logits(reference, example, prefix + row)[len(prefix) - 1 :] for row in rows]
    if greedy:
        place = _first_difference(*rows)
        if place == min(map(len, rows)):
            return math.inf  # one is the beginning of the other: no choice between tokens explains that
        return float(abs(logits[0][place, rows[0][place]] - logits[0][place, rows[1][place]]))
    penalty = bundle.generation.length_penalty
    scores = [_score(found, row) / max(len(row), 1) ** penalty for found, row in zip(logits, rows, strict=True)]
    return max(0.0, scores[0] - scores[1])


def _first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    """The first place where two rows differ; the shorter length where one begins the other."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _closed(generated: Generated, eos: int) -> list[int]:
    return [*generated.ids, eos] if generated.finish_reason == "eos" else list(generated.ids)


def _row_logits(backend: Backend, example: Example, tokens: list[int]) -> np.ndarray:
    """Logits (T, V) that predict every token after the first, and one more."""
    source = Batch.of([example.prompt.source]) if example.prompt.source is not None else None
    length = min(len(tokens), backend.config.max_length)
    return backend.logits(Batch.of([tokens[:length]]), source)[0]


def _score(logits: np.ndarray, row: list[int]) -> float:
    """Sum of log-probabilities of the row's tokens."""
    logits = logits[: len(row)].astype(np.float64)
    highest = logits.max(-1)
    normaliser = highest + np.log(np.exp(logits - highest[:, None]).sum(-1))
    return float((logits[np.arange(len(row)), row] - normaliser).sum())


def _task(bundle: Bundle, reference: Backend, candidate: Backend, examples: Sequence[Example]) -> CaseResult:
    """8-bit weights change logits; what counts is whether the task is still done as well."""
    if not examples:
        return CaseResult(
            candidate=candidate.name,
            kind="task",
            name="task",
            passed=False,
            detail=f"the folder has no {EVALUATION}, so nothing can judge it",
        )
    from tiny_transformer.evaluation import accuracy, bleu

    references = [example.reference or "" for example in examples]
    chat = bundle.generation.task == "chat"
    unit, allowed = ("accuracy", MAX_ACCURACY_LOSS) if chat else ("BLEU", MAX_BLEU_LOSS)

    def figure(backend: Backend, at_once: int) -> float:
        texts = [bundle.tokenizer.decode(g.ids) for g in _generate(bundle, backend, examples, 1, at_once)]
        return accuracy(texts, references) if chat else bleu(texts, references).value

    expected = figure(reference, BATCH)
    # Other kernels may run for a batch than for a single text: the worse of the two counts.
    found = min(figure(candidate, at_once) for at_once in (BATCH, 1))
    loss = expected - found
    return CaseResult(
        candidate=candidate.name,
        kind="task",
        name=f"{unit} on {EVALUATION}",
        passed=loss <= allowed,
        max_absolute=finite(max(loss, 0.0)),
        tolerance=allowed,
        detail=f"{found:.2f} {unit} against {expected:.2f}",
    )
