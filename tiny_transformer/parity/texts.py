"""Comparison on generated text: greedy and beam ids, and for 8-bit weights the task itself."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from tiny_transformer.backends.base import Backend, Batch, Writer
from tiny_transformer.bundle import EVALUATION, TRAINING, Bundle
from tiny_transformer.config import GenerationConfig, ModelConfig
from tiny_transformer.errors import BundleError
from tiny_transformer.evaluation import Question, accuracy, bleu, bleu_error, read_evaluation
from tiny_transformer.generation import (
    FinishReason,
    Generated,
    GeneratedToken,
    GenerationOptions,
    Request,
    generate_ids,
)
from tiny_transformer.generation.prompt import Prompt, prompt_for
from tiny_transformer.generation.sampling import forbid_early_end, log_normalizer, penalized
from tiny_transformer.generation.tokens import length_score
from tiny_transformer.parity.report import CaseResult, finite
from tiny_transformer.tokenizer import Message, Tokenizer
from tiny_transformer.training_record import Figure, TrainingRecord

BEAMS = 4
# (greedy, of a backend that is slow) → how many texts of a set are compared.
N_TEXTS = {(True, False): 200, (False, False): 40, (True, True): 8, (False, True): 2}
BATCH = 50  # at 25, PyTorch takes a quarter more time for a text
# Other kernels may run for many texts, for a few of different length, and for one: 8-bit weights do the task in each.
TASK_BATCHES = (BATCH, 3, 1)
N_QUICK = 8  # for a quick look
SLOWNESS = 12  # of a slow backend beside others
MAX_NEW_TOKENS = 64
MAX_EXAMPLES = 500
# How much of the task's figure 8-bit may lose: BLEU points, and percentage points of right answers.
MAX_BLEU_LOSS, MAX_ACCURACY_LOSS = 0.3, 0.5
# How far the figure of a folder's examples may lie from those of whole test sets: 3 standard errors are 4.2 BLEU of
# the shipped translator, and 2.9 points of the shipped chat's accuracy.
STANDARD_ERRORS = 3.0
NOT_ASCII = "text that is not ASCII"
# Text in other scripts, joined emoji, right-to-left marks and a NUL: every byte path of the tokenizer.
NON_ASCII = (
    "Wie schön, dass ihr da seid – für immer!",
    "今天天氣真好，我喜歡你。",
    "naïve café 🎉👩‍👩‍👧",
    "\u202eعربى\x00",
)


@dataclass(frozen=True)
class Step:
    """A part of the work that is still to do. Steps of one kind depend on nothing of each other."""

    name: str
    work: float  # about as much as so many tokens of a tensor case
    run: Callable[[], list[CaseResult]]


@dataclass(frozen=True)
class Example:
    """A text, the prompt that the model reads of it, and the reference answer where there is one."""

    content: str | tuple[Message, ...]
    prompt: Prompt
    reference: str | None


def evaluation_examples(bundle: Bundle) -> list[Example]:
    """The folder's `evaluation.jsonl`; empty without the file."""
    path = bundle.folder / EVALUATION
    questions = read_evaluation(path) if path.is_file() else []
    if len(questions) > MAX_EXAMPLES:
        template = "{path} has {n} examples; at most {limit} belong in a model folder."
        raise BundleError(template, path=path, n=len(questions), limit=MAX_EXAMPLES)
    return _examples(bundle.tokenizer, bundle.config, bundle.generation, questions)


def _examples(
    tokenizer: Tokenizer, config: ModelConfig, generation: GenerationConfig, questions: Sequence[Question]
) -> list[Example]:
    return [Example(q.prompt, prompt_for(tokenizer, config, generation, q.prompt), q.answer) for q in questions]


def sample_texts(
    tokenizer: Tokenizer,
    config: ModelConfig,
    generation: GenerationConfig,
    backend: Backend,
    questions: Sequence[Question],
) -> list[str]:
    """A model's texts for the examples of its folder, exactly as a proof makes them: training records their figure."""
    examples = _examples(tokenizer, config, generation, questions)
    return [tokenizer.decode(text.ids) for text in _generate(generation, backend, examples, _options(generation, 1))]


class TextReference:
    """The reference's texts: what all candidates are compared with, each generated once."""

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        self.bundle, self.backend = bundle, backend
        foreign = [
            Example(text, prompt_for(bundle.tokenizer, bundle.config, bundle.generation, text), None)
            for text in NON_ASCII
        ]
        self.examples = {EVALUATION: evaluation_examples(bundle), NOT_ASCII: foreign}
        self._wanted: dict[tuple[str, int], int] = {}
        self._batches: dict[tuple[str, int, int], list[Generated]] = {}

    def texts(self, name: str, n: int, num_beams: int) -> list[Generated]:
        """The first `n` texts of a set of examples; those that no step has generated are generated now."""
        starts = range(0, n, BATCH)
        for start in starts:
            if (name, num_beams, start) not in self._batches:
                self._generate(name, num_beams, start)
        return [text for start in starts for text in self._batches[name, num_beams, start]][:n]

    def want(self, name: str, n: int, num_beams: int) -> None:
        """Generate so many texts of a set in the steps of the reference."""
        self._wanted[name, num_beams] = max(n, self._wanted.get((name, num_beams), 0))

    def steps(self) -> Iterator[Step]:
        """Generate what is wanted; to be done before the candidates' steps."""
        for (name, num_beams), n in self._wanted.items():
            for start in range(0, n, BATCH):
                generate = partial(self._generate, name, num_beams, start)
                work = _work(min(BATCH, n - start), num_beams)
                yield Step(f"{self.backend.name}: {_title(name, num_beams)}", work, generate)

    def _generate(self, name: str, num_beams: int, start: int) -> list[CaseResult]:
        stop = min(start + BATCH, self._wanted.get((name, num_beams), start + BATCH))
        examples, generation = self.examples[name][start:stop], self.bundle.generation
        found = _generate(generation, self.backend, examples, _options(generation, num_beams))
        self._batches[name, num_beams, start] = found
        return []


def text_steps(
    reference: TextReference, candidate: Backend, tolerance: float | None, *, small: bool = False, quick: bool = False
) -> Iterator[Step]:
    """Ids must be equal (or tied); a backend without a tolerance must do its task about as well."""
    if tolerance is None:
        n = len(reference.examples[EVALUATION])
        if not quick:
            reference.want(EVALUATION, n, 1)
            work = len(TASK_BATCHES) * _work(n, 1) / 2  # 8-bit weights take half the time
            yield Step(f"{candidate.name}: task", work, partial(_task, reference, candidate))
        return
    for name, examples in reference.examples.items():
        for num_beams in (1, BEAMS):
            n = min(len(examples), N_QUICK if quick else N_TEXTS[num_beams == 1, small])
            if n and not (quick and num_beams > 1):
                reference.want(name, n, num_beams)
                compare = partial(_same_ids, reference, candidate, name, n, num_beams, tolerance)
                work = _work(n, num_beams) * (SLOWNESS if small else 1)
                yield Step(f"{candidate.name}: {_title(name, num_beams)}", work, compare)


def _work(n: int, num_beams: int) -> float:
    """What texts cost beside a token of a tensor case: measured on two cores."""
    return n * (25 if num_beams == 1 else 60)


def _title(name: str, num_beams: int) -> str:
    return f"{'greedy' if num_beams == 1 else 'beam'} ids, {name}"


def _options(generation: GenerationConfig, num_beams: int) -> GenerationOptions:
    """The model's own decoding, as it is served."""
    keywords = {"num_beams": num_beams, "max_new_tokens": min(MAX_NEW_TOKENS, generation.max_new_tokens)}
    return GenerationOptions.from_keywords(keywords, generation)


def _generate(
    generation: GenerationConfig,
    backend: Backend,
    examples: Sequence[Example],
    options: GenerationOptions,
    at_once: int = BATCH,
) -> list[Generated]:
    if isinstance(backend, Writer) and options.num_beams == 1:
        return [_written(generation, backend, example, options) for example in examples]
    found: list[Generated] = []
    for start in range(0, len(examples), at_once):
        prompts = [example.prompt for example in examples[start : start + at_once]]
        found += generate_ids(backend, Request.of(prompts, options, generation))
    return found


def _written(generation: GenerationConfig, writer: Writer, example: Example, options: GenerationOptions) -> Generated:
    """What a backend's own code makes of a text: so its tokenizer, prompts and loop are judged, too."""
    ids, reason = writer.written(example.content, options.max_new_tokens)
    ending = [GeneratedToken(generation.eos_id, math.nan)] if reason == "eos" else []
    tokens = (*(GeneratedToken(i, math.nan) for i in ids), *ending)
    return Generated(tokens, cast(FinishReason, reason), math.nan)


def _same_ids(
    reference: TextReference, candidate: Backend, name: str, n: int, num_beams: int, tolerance: float
) -> list[CaseResult]:
    bundle, examples = reference.bundle, reference.examples[name][:n]
    options = _options(bundle.generation, num_beams)
    expected = reference.texts(name, n, num_beams)
    found = _generate(bundle.generation, candidate, examples, options)
    n_equal, ties, detail, largest = 0, 0, "", 0.0
    for i, (example, a, b) in enumerate(zip(examples, expected, found, strict=True)):
        if a.ids == b.ids and a.finish_reason == b.finish_reason:
            n_equal += 1
            continue
        gap = preference(reference.backend, example.prompt, options, bundle.generation.eos_id, a, b)
        largest = max(largest, gap)
        if gap <= 2 * tolerance:
            ties += 1
        elif not detail:
            detail = f"text {i} differs from token {first_difference(a.ids, b.ids)} on, with a gap of {gap:.3g}"
    result = CaseResult(
        candidate=candidate.name,
        kind="greedy" if num_beams == 1 else "beam",
        name=_title(name, num_beams),
        passed=not detail,
        max_absolute=finite(largest),
        argmax_agreement=round(n_equal / len(examples), 6),
        tolerance=tolerance,
        detail=detail or (f"{len(examples)} texts equal" if not ties else f"{n_equal} texts equal, {ties} tied"),
    )
    return [result]


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


def _task(reference: TextReference, candidate: Backend) -> list[CaseResult]:
    """8-bit weights change logits; what counts is whether the task is still done as well."""
    bundle, examples = reference.bundle, reference.examples[EVALUATION]
    if not examples:
        detail = f"the folder has no {EVALUATION}, so nothing can judge it"
        return [CaseResult(candidate=candidate.name, kind="task", name="task", passed=False, detail=detail)]
    unit, allowed = _unit(bundle)
    options = _options(bundle.generation, 1)
    expected = _figure(unit, *_decoded(reference, reference.texts(EVALUATION, len(examples), 1)))
    sizes = (1,) if isinstance(candidate, Writer) else TASK_BATCHES
    batches = [_generate(bundle.generation, candidate, examples, options, at_once) for at_once in sizes]
    found = min(_figure(unit, *_decoded(reference, generated)) for generated in batches)
    loss = expected - found
    result = CaseResult(
        candidate=candidate.name,
        kind="task",
        name=f"{unit} on {EVALUATION}",
        passed=loss <= allowed,
        max_absolute=finite(max(loss, 0.0)),
        tolerance=allowed,
        detail=f"{found:.2f} {unit} against {expected:.2f}",
    )
    return [result]


def training_step(reference: TextReference) -> Step:
    """The reference does the task as well as its training recorded.

    All backends read the same tokenizer and the same weights: whether these are the ones that were trained, only this
    shows.
    """
    if reference.examples[EVALUATION] and _recorded(reference.bundle):
        reference.want(EVALUATION, len(reference.examples[EVALUATION]), 1)
    return Step("the figure of the training", 1, partial(_as_trained, reference))


def _recorded(bundle: Bundle) -> tuple[Figure, ...]:
    """What training measured: on exactly the folder's examples, or in older records on whole test sets."""
    unit, _ = _unit(bundle)
    record = TrainingRecord.read(bundle.folder)
    sample = record.sample(unit.lower())
    return (sample,) if sample else tuple(figure for figure in record.figures if _comparable(figure, unit))


def _as_trained(reference: TextReference) -> list[CaseResult]:
    bundle, examples = reference.bundle, reference.examples[EVALUATION]
    unit, allowed = _unit(bundle)
    recorded = _recorded(bundle)
    result = partial(CaseResult, candidate=reference.backend.name, kind="training", name=f"{unit} against {TRAINING}")
    if not examples or not recorded:
        return [result(passed=True, detail="no figure of the training was there to compare")]
    texts, answers = _decoded(reference, reference.texts(EVALUATION, len(examples), 1))
    found = _figure(unit, texts, answers)
    values = [figure.value for figure in recorded]
    said = " and ".join(f"{value:.2f}" for value in values)
    if recorded[0].split == "sample":
        passed = recorded[0].examples == len(examples)
        said += f" on the same {recorded[0].examples} examples"
    else:
        # The sample has equally many texts of each set, so its figure lies among theirs, but for the sample's error.
        passed, allowed = True, STANDARD_ERRORS * _error(unit, found, texts, answers)
        said += f" on whole test sets, {TrainingRecord.read(bundle.folder).decoding}"
    distance = max(min(values) - found, found - max(values), 0.0)
    case = result(
        passed=passed and distance <= allowed,
        max_absolute=finite(distance),
        tolerance=finite(allowed),
        detail=f"{found:.2f} {unit} on {len(examples)} examples; training recorded {said}; {allowed:.2f} allowed",
    )
    return [case]


def _comparable(figure: Figure, unit: str) -> bool:
    """Whether a recorded figure is of the test data, of the same kind, and of texts that were cut in the same way."""
    cut = "tok:13a" in figure.signature.split("|")
    return figure.split == "test" and figure.metric == unit.lower() and (unit != "BLEU" or cut)


def _error(unit: str, found: float, texts: Sequence[str], answers: Sequence[str]) -> float:
    """The standard error of a figure, by its sample alone."""
    if unit == "BLEU":
        return bleu_error(texts, answers)
    return math.sqrt(max(found * (100.0 - found), 1.0) / len(texts))


def _unit(bundle: Bundle) -> tuple[str, float]:
    """The task's figure, and how much of it may be lost."""
    chat = bundle.generation.task == "chat"
    return ("accuracy", MAX_ACCURACY_LOSS) if chat else ("BLEU", MAX_BLEU_LOSS)


def _figure(unit: str, texts: Sequence[str], answers: Sequence[str]) -> float:
    return accuracy(texts, answers) if unit == "accuracy" else bleu(texts, answers).value


def _decoded(reference: TextReference, generated: Sequence[Generated]) -> tuple[list[str], list[str]]:
    """The texts for the folder's examples, and the answers they are measured by."""
    answers = [example.reference or "" for example in reference.examples[EVALUATION]]
    return [reference.bundle.tokenizer.decode(text.ids) for text in generated], answers
