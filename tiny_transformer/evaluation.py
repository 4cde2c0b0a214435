"""How good a model's texts are: metrics as pure functions, questions with answers, and models measured by them."""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tiny_transformer.errors import DataError, InputError
from tiny_transformer.tokenizer import Message, message_parts

_CONTRACTIONS = (  # English short forms and what they stand for
    (r"\bcannot\b|\bcan't\b", "can not"),
    (r"\bwon't\b", "will not"),
    (r"n't\b", " not"),
    (r"'m\b", " am"),
    (r"'re\b", " are"),
    (r"'ll\b", " will"),
    (r"'ve\b", " have"),
    (r"'d\b", " would"),
    (r"(?<!\blet)'s\b", " is"),  # an owner's too, on either side of the comparison
)


@dataclass(frozen=True)
class Score:
    """A figure of sacrebleu, with the signature that says how it was computed."""

    value: float
    signature: str


@dataclass(frozen=True)
class Question:
    """What is put to a model, and the answer it is measured by."""

    prompt: str | tuple[Message, ...]  # a source text, or a dialogue that ends with the user's turn
    answer: str


@dataclass(frozen=True)
class Evaluation:
    """The figures of one model on one set of examples."""

    examples: int
    metrics: dict[str, float]
    signatures: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """What a visitor may type, and every answer that a careful reader would call right."""

    group: str  # what it is about, such as "de-dates"
    source: str
    accept: tuple[str, ...]  # the first is the one to show
    case_matters: bool = False  # "berlin" is no right answer where a name is to be copied

    def is_right(self, answer: str) -> bool:
        """Whether an answer is among those to accept; punctuation and contractions are no difference."""
        found = _comparable(answer, keep_case=self.case_matters)
        return any(found == _comparable(text, keep_case=self.case_matters) for text in self.accept)


@dataclass(frozen=True)
class CaseReport:
    """How a model did on cases: right answers and cases of each group, and what failed."""

    groups: dict[str, tuple[int, int]]  # (right, of so many), in the file's order
    failures: tuple[tuple[Case, str], ...]  # each with the answer that was given

    @property
    def total(self) -> tuple[int, int]:
        """Right answers of all groups, and of how many."""
        return sum(right for right, _ in self.groups.values()), sum(count for _, count in self.groups.values())

    def to_dict(self) -> dict[str, Any]:
        """For JSON: shares in percent, and each failure with its answer and the first one to accept."""
        right, count = self.total
        return {
            "cases": count,
            "right": 100.0 * right / count,
            "groups": {group: 100.0 * right / count for group, (right, count) in self.groups.items()},
            "failures": [
                {"group": case.group, "source": case.source, "answer": answer, "accepted": case.accept[0]}
                for case, answer in self.failures
            ],
        }


class Answerer(Protocol):
    """The part of a loaded model that evaluation needs."""

    def generate_batch(self, texts: Sequence[str], **options: Any) -> Sequence[Any]:
        """One result per text, each with `.text`."""
        ...

    def reply(self, history: Sequence[Message], **options: Any) -> Any:
        """The assistant's next turn, with `.text`."""
        ...


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str | None = None) -> Score:
    """Corpus BLEU from 0 to 100; `tokenize="none"` for text that is tokenized already."""
    from sacrebleu.metrics.bleu import BLEU

    return _sacrebleu(BLEU(tokenize=tokenize or "13a", force=True), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2 from 0 to 100."""
    from sacrebleu.metrics.chrf import CHRF

    return _sacrebleu(CHRF(), hypotheses, references)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Share of texts, in percent, that are the reference itself."""
    _check(hypotheses, references)
    return 100.0 * sum(h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True)) / len(references)


def accuracy(replies: Sequence[str], answers: Sequence[str]) -> float:
    """Share of questions, in percent, that got their own answer; case and spacing are no difference."""
    _check(replies, answers)
    return exact_match([_plain(reply) for reply in replies], [_plain(answer) for answer in answers])


def perplexity(loss: float) -> float:
    """exp of the mean negative log-likelihood: among how many tokens the model is torn."""
    return math.exp(loss) if loss < 700 else math.inf


def translation_metrics(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str | None = None
) -> Evaluation:
    """BLEU, chrF and exact match of translations."""
    scores = {"bleu": bleu(hypotheses, references, tokenize), "chrf": chrf(hypotheses, references)}
    metrics = {name: score.value for name, score in scores.items()}
    metrics["exact_match"] = exact_match(hypotheses, references)
    return Evaluation(len(references), metrics, {name: score.signature for name, score in scores.items()})


def reply_metrics(replies: Sequence[str], answers: Sequence[str]) -> Evaluation:
    """Share of replies that are the intended answer."""
    return Evaluation(len(answers), {"accuracy": accuracy(replies, answers)})


def evaluate_model(
    model: Answerer, questions: Sequence[Question], *, tokenize: str | None = None, **options: Any
) -> Evaluation:
    """Let a loaded model answer every question and measure; `options` are those of generation."""
    if not questions:
        raise DataError("There is nothing to evaluate; name a file with examples.")
    answers = [question.answer for question in questions]
    texts = [_single_text(question) for question in questions]
    if all(text is not None for text in texts):
        found = [result.text for result in model.generate_batch([str(text) for text in texts], **options)]
    else:
        found = [model.reply(list(_dialogue(question)), **options).text for question in questions]
    if isinstance(questions[0].prompt, str):
        return translation_metrics(found, answers, tokenize)
    return reply_metrics(found, answers)


def read_evaluation(path: Path) -> list[Question]:
    """The questions of an `evaluation.jsonl`, strictly read: its only reader."""
    return [_question(line, f"{path}:{number}") for number, line in enumerate(_lines(path), start=1)]


def evaluate_cases(model: Answerer, cases: Sequence[Case], **options: Any) -> CaseReport:
    """Let a loaded model answer every case; `options` are those of generation."""
    results = model.generate_batch([case.source for case in cases], **options)
    answers = [(case, str(result.text)) for case, result in zip(cases, results, strict=True)]
    failures = tuple((case, answer) for case, answer in answers if not case.is_right(answer))
    counts, failed = Counter(case.group for case in cases), Counter(case.group for case, _ in failures)
    return CaseReport({group: (count - failed[group], count) for group, count in counts.items()}, failures)


def read_cases(path: Path) -> list[Case]:
    """Lines of {"group", "source", "accept"}: in "accept" {a|b} stands for either, {|a} for a or nothing."""
    found = [_case(line, f"{path}:{number}") for number, line in enumerate(_lines(path), start=1)]
    if not found:
        raise DataError("There is nothing to evaluate; name a file with examples.")
    return found


def spelled_out(pattern: str) -> list[str]:
    """Every text that a pattern such as "{|the }{house|home}" stands for; braces may lie in braces."""
    before, brace, rest = pattern.partition("{")
    if not brace:
        return [pattern]
    choices, depth, end = [""], 1, 0
    while depth:
        if end == len(rest):
            raise ValueError("a brace is not closed")
        letter = rest[end]
        depth += (letter == "{") - (letter == "}")
        if letter == "|" and depth == 1:
            choices.append("")
        elif depth:
            choices[-1] += letter
        end += 1
    inner = [text for choice in choices for text in spelled_out(choice)]
    return [before + text + after for text in inner for after in spelled_out(rest[end:])]


def evaluation_line(question: Question) -> str:
    """One line of an `evaluation.jsonl`."""
    if isinstance(question.prompt, str):
        values: dict[str, Any] = {"source": question.prompt, "target": question.answer}
    else:
        values = {"messages": list(question.prompt), "answer": question.answer}
    return json.dumps(values, ensure_ascii=False) + "\n"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            "{file} cannot be read as JSON lines ({reason}); check the file.", file=path, reason=error
        ) from None


def _json(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise DataError("{where} is not JSON; correct it.", where=where) from None


def _case(line: str, where: str) -> Case:
    match _json(line, where):
        case {"group": str(group), "source": str(source), "accept": [_, *_] as accept, **rest} if all(
            isinstance(text, str) for text in accept
        ) and rest in ({}, {"case_matters": True}):
            try:
                texts = [text for pattern in accept for text in spelled_out(pattern)]
            except ValueError as error:
                raise DataError("{where}: {reason}; correct it.", where=where, reason=error) from None
            unique = dict.fromkeys(" ".join(text.split()) for text in texts)
            return Case(group, source, tuple(unique), bool(rest))
    raise DataError('{where} is not {{"group", "source", "accept": [texts]}}; correct it.', where=where)


def _question(line: str, where: str) -> Question:
    """A line with {"source", "target"}, or with {"messages", "answer"}."""
    match _json(line, where):
        case {"source": str(source), "target": str(target)}:
            return Question(source, target)
        case {"messages": [_, *_] as messages, "answer": str(answer)}:
            try:
                parts = [message_parts(message) for message in messages]
            except InputError as error:
                raise DataError("{where}: {reason}", where=where, reason=error) from None
            return Question(tuple(Message(role=role, content=content) for role, content in parts), answer)
    raise DataError('{where} is neither {{"source", "target"}} nor {{"messages", "answer"}}; correct it.', where=where)


def _single_text(question: Question) -> str | None:
    """The text of a prompt that is one text, or one user's turn; such prompts can be answered in batches."""
    if isinstance(question.prompt, str):
        return question.prompt
    first, *rest = question.prompt
    return None if rest or first["role"] != "user" else first["content"]


def _dialogue(question: Question) -> Sequence[Message]:
    if isinstance(question.prompt, str):
        raise InputError("Some examples are texts and some are dialogues; evaluate them apart.")
    return question.prompt


def _sacrebleu(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    _check(hypotheses, references)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(float(score.score), str(metric.get_signature()))


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if not references or len(hypotheses) != len(references):
        template = "{texts} texts cannot be compared with {references} references; pair them up."
        raise InputError(template, texts=len(hypotheses), references=len(references))


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _comparable(text: str, *, keep_case: bool) -> str:
    """A text without what makes no difference to a reader: contractions, quotation marks, punctuation between words."""
    text = re.sub("[’‘]", "'", text if keep_case else text.lower())
    for short, long in _CONTRACTIONS:
        text = re.sub(short, long, text, flags=re.IGNORECASE)
    text = re.sub(r"\b([ap])\.?\s?m\b\.?", r"\1m", text, flags=re.IGNORECASE)
    text = re.sub(r'["“”„«»]|(?<!\S)[-–—]+(?!\S)', " ", text)
    text = re.sub(r"[.,;:!?…。！？]+(?=\s|$)", " ", text)  # a comma or a full stop within a number or an address stays
    text = re.sub(r"(?<=[a-z])-(?=[a-z])", " ", text, flags=re.IGNORECASE)
    return " ".join(text.split())
