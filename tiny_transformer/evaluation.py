"""How good a model's texts are: metrics as pure functions, questions with answers, and models measured by them."""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol
from unicodedata import east_asian_width

from tiny_transformer.errors import DataError, InputError
from tiny_transformer.tokenizer import Message, message_parts

_AT_ONCE = 256  # questions between two reports of progress: some seconds on two CPU cores with five beams
Progress = Callable[[int], object]  # takes how many questions were answered since the last call


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
    also_right: tuple[str, ...] = ()  # further answers that are as good: any joke that was not told yet
    # A story is the answer: for each thing that it must speak of, the forms of its name ("fox", "foxes").
    story_of: tuple[tuple[str, ...], ...] | None = None

    @property
    def has_one_answer(self) -> bool:
        """Whether there is one text by which alone a reply can be measured."""
        return self.story_of is None and not self.also_right


@dataclass(frozen=True)
class Evaluation:
    """The figures of one model on one set of examples."""

    examples: int
    metrics: dict[str, float]
    signatures: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


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


def bleu_error(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The standard error of corpus BLEU, by sacrebleu's bootstrap: half a 95 % interval is 1.96 of it."""
    from sacrebleu.metrics.bleu import BLEU

    _check(hypotheses, references)
    score = BLEU(force=True).corpus_score(list(hypotheses), [list(references)], n_bootstrap=1000)
    return float(score._ci) / 1.96


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


def reply_metrics(replies: Sequence[str], questions: Sequence[Question]) -> Evaluation:
    """Share of replies that are right; where stories were asked for, also the share that are stories at all."""
    _check(replies, questions)
    pairs = list(zip(replies, questions, strict=True))
    metrics = {"accuracy": _percentage(is_right(reply, question) for reply, question in pairs)}
    if all(question.story_of is not None for question in questions):
        metrics["stories"] = _percentage(map(is_story, replies))
    return Evaluation(len(questions), metrics)


def is_right(reply: str, question: Question) -> bool:
    """Whether a reply is an answer to the question, or a story of every thing that was asked for."""
    if question.story_of is None:
        return _plain(reply) in {_plain(answer) for answer in (question.answer, *question.also_right)}
    words = set(re.findall(r"[a-z-]+", reply.lower()))
    return is_story(reply) and all(words.intersection(forms) for forms in question.story_of)


_SHORTEST_STORY = 200  # characters; every fixed answer is shorter
_SENTENCE_END = re.compile(r"""[.!?]["'”’)]*(?=\s|$)""")


def is_story(text: str) -> bool:
    """Whether a reply has the form of a story: 200 characters or more, three sentences or more, and an end."""
    text = text.strip()
    ends = list(_SENTENCE_END.finditer(text))
    return len(text) >= _SHORTEST_STORY and len(ends) >= 3 and ends[-1].end() == len(text)


def evaluate_model(
    model: Answerer,
    questions: Sequence[Question],
    *,
    tokenize: str | None = None,
    progress: Progress = lambda answered: None,
    **options: Any,
) -> Evaluation:
    """Let a loaded model answer every question and measure; `options` are those of generation.

    Each text is put to the model as it is: the figures are the model's own, and those of training, whatever splitting
    into sentences would add. `progress` is called again and again with the number of questions that were answered since
    the last call.
    """
    if not questions:
        raise DataError("There is nothing to evaluate; name a file with examples.")
    answers = [question.answer for question in questions]
    texts = [_single_text(question) for question in questions]
    if all(text is not None for text in texts):
        found = _answers(model, [str(text) for text in texts], progress, split=False, **options)
    else:
        found = []
        for question in questions:
            found.append(model.reply(list(_dialogue(question)), **options).text)
            progress(1)
    if isinstance(questions[0].prompt, str):
        return translation_metrics(found, answers, tokenize)
    return reply_metrics(found, questions)


def evaluate_paragraphs(
    model: Answerer,
    questions: Sequence[Question],
    size: int,
    *,
    tokenize: str | None = None,
    progress: Progress = lambda answered: None,
    **options: Any,
) -> Evaluation:
    """BLEU over paragraphs of `size` consecutive texts: translated as one text each, and one by one and then joined."""
    if not questions:
        raise DataError("There is nothing to evaluate; name a file with examples.")
    sources = [question.prompt for question in questions if isinstance(question.prompt, str)]
    if len(sources) < len(questions):
        raise InputError("Paragraphs are made of texts to translate, but some examples are dialogues.")
    groups = [slice(first, first + size) for first in range(0, len(sources), size)]
    alone = _answers(model, sources, progress, split=False, **options)
    paragraphs = _answers(model, [_paragraph(sources[group]) for group in groups], lambda answered: None, **options)
    references = [" ".join(question.answer for question in questions[group]) for group in groups]
    scores = {
        "bleu": bleu(paragraphs, references, tokenize),
        "bleu_alone": bleu([" ".join(alone[group]) for group in groups], references, tokenize),
    }
    metrics = {name: score.value for name, score in scores.items()}
    return Evaluation(len(groups), metrics, {name: score.signature for name, score in scores.items()})


def _answers(model: Answerer, texts: Sequence[str], progress: Progress, **options: Any) -> list[str]:
    found: list[str] = []
    for first in range(0, len(texts), _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, len(texts)))
        streams = {"numbers": numbers} if first else {}  # each text draws its random numbers by its own number
        found += [result.text for result in model.generate_batch([texts[i] for i in numbers], **streams, **options)]
        progress(len(numbers))
    return found


def _paragraph(sentences: Sequence[str]) -> str:
    """Sentences one after the other, as they are written: Chinese has no space between them."""
    spaced = [text if east_asian_width(text[-1:] or " ") in "WF" else f"{text} " for text in sentences]
    return "".join(spaced).rstrip()


def read_evaluation(path: Path) -> list[Question]:
    """The questions of an `evaluation.jsonl`, strictly read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(str(path), error) from None
    return parse_evaluation(content, str(path))


def parse_evaluation(content: bytes, name: str) -> list[Question]:
    """The questions in the bytes of an `evaluation.jsonl`, strictly read: its only reader."""
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise _unreadable(name, error) from None
    return [_question(line, f"{name}:{number}") for number, line in enumerate(lines, start=1)]


def _unreadable(name: str, error: Exception) -> DataError:
    return DataError("{file} cannot be read as JSON lines ({reason}); check the file.", file=name, reason=error)


def evaluation_line(question: Question) -> str:
    """One line of an `evaluation.jsonl`."""
    if isinstance(question.prompt, str):
        values: dict[str, Any] = {"source": question.prompt, "target": question.answer}
    else:
        values = {"messages": list(question.prompt), "answer": question.answer}
    return json.dumps(values, ensure_ascii=False) + "\n"


def _question(line: str, where: str) -> Question:
    """A line with {"source", "target"}, or with {"messages", "answer"}."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError("{where} is not JSON; correct it.", where=where) from None
    match record:
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


def _percentage(right: Iterable[bool]) -> float:
    found = list(right)
    return 100.0 * sum(found) / len(found)


def _check(hypotheses: Sequence[str], references: Sequence[object]) -> None:
    if not references or len(hypotheses) != len(references):
        template = "{texts} texts cannot be compared with {references} references; pair them up."
        raise InputError(template, texts=len(hypotheses), references=len(references))


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
