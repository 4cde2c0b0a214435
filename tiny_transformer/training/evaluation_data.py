"""Questions with an answer to be measured by: of a recipe's splits, or of any file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiny_transformer.bundle import TRAINING
from tiny_transformer.data.examples import held_out, read_examples
from tiny_transformer.data.files import DataFile, locate, open_text
from tiny_transformer.data.records import FORMATS, Dialogue, Example, Pair, read_all
from tiny_transformer.data.source import Source
from tiny_transformer.errors import DataError
from tiny_transformer.evaluation import Question, parse_evaluation
from tiny_transformer.training.recipe import Recipe, recipe_from_record
from tiny_transformer.training_record import TrainingRecord


@dataclass(frozen=True)
class QuestionSet:
    """The questions of one source."""

    name: str
    questions: tuple[Question, ...]


def questions_of(source: Source, root: str, split: str) -> list[Question]:
    """What a split asks: translations, or replies with one right answer (intents)."""
    return [question for example in held_out(source, root, split) if (question := _question(source, example))]


def question_sets(recipe: Recipe, root: str, split: str, names: Sequence[str] = ()) -> list[QuestionSet]:
    """One set of questions per source, or per source that is named; sources without questions are left out."""
    sources = recipe.of_split(split)
    known = [source.name for source in sources]
    unknown = [name for name in names if name not in known]
    if unknown:
        template = "Recipe {recipe} has no {split} set {unknown}; choose among {known}."
        raise DataError(template, recipe=recipe.name, split=split, unknown=unknown[0], known=", ".join(known) or "none")
    wanted = [source for source in sources if not names or source.name in names]
    found = [QuestionSet(source.name, tuple(questions_of(source, root, split))) for source in wanted]
    return [group for group in found if group.questions]


def sampled(groups: Sequence[QuestionSet], count: int) -> list[QuestionSet]:
    """About `count` questions in all, equally many of each set, the same ones every time."""
    each = max(1, count // max(1, len(groups)))
    return [QuestionSet(group.name, _spread(group.questions, each)) for group in groups]


def card_questions(folder: Path, root: str, names: Sequence[str] = ()) -> tuple[Recipe, list[QuestionSet]]:
    """The recipe a folder was trained by, and all that it was measured by in the end: the figures of its card.

    Without a data folder (`root` is empty) the files are those of the checkout's folder `datasets`.
    """
    record = TrainingRecord.read(folder)
    if not record.recipe_name:
        template = "{folder} has no {training} that names its test data; name a file of examples."
        raise DataError(template, folder=folder, training=TRAINING)
    recipe = recipe_from_record(record.recipe)
    return recipe, question_sets(recipe, root or recipe.default_root(), "test", names)


def read_questions(files: Sequence[Path]) -> list[Question]:
    """The questions of a file (pairs, intents, or lines of `evaluation.jsonl`) or of two parallel files."""
    if len(files) not in (1, 2):
        raise DataError("{n} files were given; name one file, or two parallel ones.", n=len(files))
    units = [unit for file in files for unit in locate(str(file))]
    if len(files) == 2:
        parallel = tuple(file for unit in units for file in unit)
        return [Question(a, b) for a, b in read_all([parallel], "pairs", parallel[0].name)]
    kind = _kind(units[0][0])
    if kind == "evaluation":
        with open_text(units[0][0]) as stream:
            return parse_evaluation(stream.read(), units[0][0].name)
    source = Source(name=str(files[0]), path=str(files[0]), format=kind, split="test")
    return [question for example in read_examples(source, "", "test") if (question := _question(source, example))]


def _question(source: Source, example: Example) -> Question | None:
    if isinstance(example, Pair):
        return Question(example.source, example.target)
    # A free dialogue or a story has no single right answer: it counts in the loss alone.
    if isinstance(example, Dialogue) and FORMATS[source.format].has_answer:
        return Question(example.messages[:-1], example.messages[-1]["content"])
    return None


def _spread(questions: tuple[Question, ...], count: int) -> tuple[Question, ...]:
    if len(questions) <= count:
        return questions
    return tuple(questions[int(i)] for i in np.linspace(0, len(questions) - 1, count))


def _kind(file: DataFile) -> str:
    """What a file holds, by its ending and its first line."""
    if file.suffix != ".jsonl":
        return "pairs"
    try:
        with open_text(file) as stream:
            first = json.loads(next((line for line in stream if line.strip()), b"{}"))
    except ValueError as error:
        raise DataError(
            "{file} cannot be read as JSON lines ({reason}); check the file.", file=file.name, reason=error
        ) from None
    if not isinstance(first, dict):
        raise DataError("{file} does not hold JSON objects; check the file.", file=file.name)
    return "intents" if "questions" in first else "evaluation"
