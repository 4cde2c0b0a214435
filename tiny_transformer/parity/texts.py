"""Comparison on generated text: greedy and beam ids, and for 8-bit weights the task itself."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tiny_transformer.backends.base import Backend, Batch
from tiny_transformer.bundle import EVALUATION, Bundle
from tiny_transformer.errors import BundleError
from tiny_transformer.evaluation import accuracy, bleu, read_evaluation
from tiny_transformer.generation import Generated, GenerationOptions, Request, generate_ids
from tiny_transformer.generation.prompt import Prompt, prompt_for
from tiny_transformer.generation.sampling import forbid_early_end, log_normalizer, penalized
from tiny_transformer.generation.tokens import length_score
from tiny_transformer.parity.report import CaseResult, finite
from tiny_transformer.tokenizer import Message

N_GREEDY, N_BEAM, BEAMS = 200, 40, 4
BATCH, FEW = 25, 3
MAX_NEW_TOKENS = 64
MAX_EXAMPLES = 500
# How much of the task's figure 8-bit may lose: BLEU points, and percentage points of right answers.
MAX_BLEU_LOSS, MAX_ACCURACY_LOSS = 0.3, 0.5
# Text in other scripts, joined emoji, right-to-left marks and a NUL: every byte path of the tokenizer.
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
    """The folder's `evaluation.jsonl`; empty without the file."""
    path = bundle.folder / EVALUATION
    questions = read_evaluation(path) if path.is_file() else []
    if len(questions) > MAX_EXAMPLES:
        template = "{path} has {n} examples; at most {limit} belong in a model folder."
        raise BundleError(template, path=path, n=len(questions), limit=MAX_EXAMPLES)
    return [Example(_prompt(bundle, question.prompt), question.answer) for question in questions]


def _prompt(bundle: Bundle, content: str | Sequence[Message]) -> Prompt:
    return prompt_for(bundle.tokenizer, bundle.config, bundle.generation, content)


def text_results(
    bundle: Bundle,
    reference: Backend,
    candidate: Backend,
    tolerance: float | None,
    *,
    n_texts: int = N_GREEDY,
    progress: Callable[[str], None],
) -> list[CaseResult]:
    """Ids must be equal (or tied); a backend without a tolerance must do its task about as well."""
    examples = evaluation_examples(bundle)
    if tolerance is None:
        progress(f"{candidate.name}: task")
        return [_task(bundle, reference, candidate, examples)]
    foreign = [Example(_prompt(bundle, text), None) for text in NON_ASCII]
    results = []
    for name, chosen, beams in (
        (f"greedy ids, {EVALUATION}", examples[:n_texts], 1),
        (f"beam ids, {EVALUATION}", examples[: min(n_texts, N_BEAM)], BEAMS),
        ("greedy ids, text that is not ASCII", foreign, 1),
        ("beam ids, text that is not ASCII", foreign, BEAMS),
    ):
        if chosen:
            progress(f"{candidate.name}: {name}")
            results.append(_same_ids(bundle, reference, candidate, name, chosen, beams, tolerance))
    return results


def _options(bundle: Bundle, num_beams: int) -> GenerationOptions:
    """The model's own decoding, as it is served."""
    keywords = {"num_beams": num_beams, "max_new_tokens": min(MAX_NEW_TOKENS, bundle.generation.max_new_tokens)}
    return GenerationOptions.from_keywords(keywords, bundle.generation)


def _generate(
    bundle: Bundle, backend: Backend, examples: Sequence[Example], options: GenerationOptions, at_once: int = BATCH
) -> list[Generated]:
    found: list[Generated] = []
    for start in range(0, len(examples), at_once):
        prompts = [example.prompt for example in examples[start : start + at_once]]
        found += generate_ids(backend, Request.of(prompts, options, bundle.generation))
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
    options = _options(bundle, num_beams)
    expected = _generate(bundle, reference, examples, options)
    found = _generate(bundle, candidate, examples, options)
    n_equal, ties, detail, largest = 0, 0, "", 0.0
    for i, (example, a, b) in enumerate(zip(examples, expected, found, strict=True)):
        if a.ids == b.ids and a.finish_reason == b.finish_reason:
            n_equal += 1
            continue
        gap = preference(reference, example.prompt, options, bundle.generation.eos_id, a, b)
        largest = max(largest, gap)
        if gap <= 2 * tolerance:
            ties += 1
        elif not detail:
            detail = f"text {i} differs from token {first_difference(a.ids, b.ids)} on, with a gap of {gap:.3g}"
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


def preference(
    backend: Backend, prompt: Prompt, options: GenerationOptions, eos_id: int, a: Generated, b: Generated
) -> float:
    """How clearly a backend prefers its own text `a` to `b`, by the scores that decoding itself compared.

    Greedy decoding compares logits at the first token that differs, under the repetition penalty and the minimum
    length; beam search compares length-normalized sums of log-probabilities under the same rules.
    """
    a_ids, b_ids = _with_end(a, eos_id), _with_end(b, eos_id)
    a_scores, a_normalizers = _decoding_scores(backend, prompt, options, eos_id, a_ids)
    if options.num_beams == 1:
        position = first_difference(a_ids, b_ids)
        if position == min(len(a_ids), len(b_ids)):
            return math.inf  # one is the beginning of the other: no choice between two tokens explains that
        return float(abs(a_scores[position, a_ids[position]] - a_scores[position, b_ids[position]]))
    b_scores, b_normalizers = _decoding_scores(backend, prompt, options, eos_id, b_ids)
    totals = [
        float((scores[np.arange(len(ids)), ids] - normalizers).sum())
        for ids, scores, normalizers in ((a_ids, a_scores, a_normalizers), (b_ids, b_scores, b_normalizers))
    ]
    best, other = (
        length_score(total, len(ids), options.length_penalty) for total, ids in zip(totals, (a_ids, b_ids), strict=True)
    )
    return max(0.0, best - other)


def _decoding_scores(
    backend: Backend, prompt: Prompt, options: GenerationOptions, eos_id: int, ids: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """What decoding compares at each of a text's tokens: adjusted logits T V, and their log-normalizers T."""
    tokens = [*prompt.prefix, *ids]
    source = None if prompt.source is None else Batch.of([prompt.source])
    logits = backend.logits(Batch.of([tokens[: backend.config.max_length]]), source)[0]
    logits = logits[len(prompt.prefix) - 1 :][: len(ids)].astype(np.float64)  # T V
    texts = [tokens[: len(prompt.prefix) + n] for n in range(len(ids))]
    scores = penalized(logits, options, eos_id, texts)
    return forbid_early_end(scores, options, eos_id, range(len(ids))), log_normalizer(scores)


def first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    """The first position where two rows differ; the shorter length where one begins the other."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _with_end(generated: Generated, eos_id: int) -> list[int]:
    return [*generated.ids, eos_id] if generated.finish_reason == "eos" else list(generated.ids)


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
    references = [example.reference or "" for example in examples]
    chat = bundle.generation.task == "chat"
    unit, allowed = ("accuracy", MAX_ACCURACY_LOSS) if chat else ("BLEU", MAX_BLEU_LOSS)

    def figure(backend: Backend, at_once: int) -> float:
        found = _generate(bundle, backend, examples, _options(bundle, 1), at_once)
        texts = [bundle.tokenizer.decode(generated.ids) for generated in found]
        return accuracy(texts, references) if chat else bleu(texts, references).value

    expected = figure(reference, BATCH)
    # Other kernels may run for many texts, for a few of different length, and for one: the worst counts.
    found = min(figure(candidate, at_once) for at_once in (BATCH, FEW, 1))
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
