"""Questions with an answer to be measured by: of a recipe's splits, or of any file."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from tiny_transformer.bundle import TRAINING
from tiny_transformer.data.augment.characters import plural
from tiny_transformer.data.augment.composition import in_mid_talk
from tiny_transformer.data.augment.stories import story_requests
from tiny_transformer.data.examples import held_out, read_examples, source_files, takes_turns
from tiny_transformer.data.files import DataFile, locate, open_text
from tiny_transformer.data.records import FORMATS, Dialogue, Example, Pair, read_all, turns
from tiny_transformer.data.source import Source
from tiny_transformer.errors import DataError
from tiny_transformer.evaluation import Question, parse_evaluation
from tiny_transformer.training.recipe import Recipe, load_recipe, recipe_from_record
from tiny_transformer.training_record import TrainingRecord


@dataclass(frozen=True)
class QuestionSet:
    """The questions of one source."""

    name: str
    questions: tuple[Question, ...]


def question_sets(recipe: Recipe, root: str, split: str, names: Sequence[str] = ()) -> list[QuestionSet]:
    """The sets of questions of a recipe, or of the sources that are named; sources without questions are left out.

    A chat model is asked everything twice: alone, and in mid-talk, after a few exchanges about other things.
    """
    families = _families(recipe, root, split)
    unknown = [name for name in names if name not in families]
    if unknown:
        template = "Recipe {recipe} has no {split} set {unknown}; choose among {known}."
        known = ", ".join(families) or "none"
        raise DataError(template, recipe=recipe.name, split=split, unknown=unknown[0], known=known)
    chosen = [family for name, family in families.items() if not names or name in names]
    return [group for family in chosen for group in family() if group.questions]


def _families(recipe: Recipe, root: str, split: str) -> dict[str, Callable[[], list[QuestionSet]]]:
    """By the name of a source, what makes its sets of questions; stories of all sources are asked for as one."""
    sources = recipe.of_split(split)
    pools = cache(partial(_pools, sources, root, split, recipe.sources))
    found: dict[str, Callable[[], list[QuestionSet]]] = {}
    for source in sources:
        if source.format == "stories":
            found["stories"] = partial(_story_sets, split, pools)
        elif FORMATS[source.format].has_answer:
            found[source.name] = partial(_source_sets, source, root, split, recipe.sources, pools)
    return found


Pools = Callable[[], list[list[Dialogue]]]
_MID_TALK = "{} in mid-talk"
_STORY_REQUESTS = {"dev": 64, "test": 200}  # so many requests are made of the held-out forms


def _source_sets(source: Source, root: str, split: str, among: Sequence[Source], pools: Pools) -> list[QuestionSet]:
    examples = held_out(source, root, split, among)
    if source.is_pairs:
        return [QuestionSet(source.name, tuple(Question(e.source, e.target) for e in examples if isinstance(e, Pair)))]
    jokes = _jokes_of(source, root)
    dialogues = [example for example in examples if isinstance(example, Dialogue)]
    first = [dialogue for dialogue in dialogues if len(dialogue.messages) == 2]
    later = [dialogue for dialogue in dialogues if len(dialogue.messages) > 2]
    found = []
    for name, asked in ((source.name, first), (f"{source.name}, another one", later)):
        for form, group in (("{}", asked), (_MID_TALK, in_mid_talk(asked, pools(), f"{split} {name}"))):
            found.append(QuestionSet(form.format(name), tuple(_reply_question(d, jokes) for d in group)))
    return found


def _story_sets(split: str, pools: Pools) -> list[QuestionSet]:
    """Requests in forms that no story of the training data is asked for by."""
    requests = story_requests(split, _STORY_REQUESTS[split])
    alone = [turns((request, "")) for request, _ in requests]
    talks = in_mid_talk(alone, pools(), f"{split} stories")
    wanted = [tuple((thing, plural(thing)) for thing in things) for _, things in requests]
    return [
        QuestionSet(
            form.format("stories"),
            tuple(Question(d.messages[:-1], "", story_of=of) for d, of in zip(dialogues, wanted, strict=True)),
        )
        for form, dialogues in (("{}", alone), (_MID_TALK, talks))
    ]


def _pools(sources: Sequence[Source], root: str, split: str, among: Sequence[Source]) -> list[list[Dialogue]]:
    """What may have been said before: the held-out dialogues of each source in which the user begins."""
    found = [
        [e for e in held_out(source, root, split, among) if isinstance(e, Dialogue) and takes_turns(e)]
        for source in sources
        if not source.is_pairs
    ]
    return [pool for pool in found if pool]


def _jokes_of(source: Source, root: str) -> tuple[str, ...]:
    if source.format != "jokes":
        return ()
    records = read_all(source_files(source, root), source.format, source.name, again=True)
    return tuple(joke for record in records for joke in record.jokes)


def _reply_question(dialogue: Dialogue, jokes: Sequence[str] = ()) -> Question:
    *history, last = dialogue.messages
    told = {message["content"] for message in history}
    return Question(tuple(history), last["content"], tuple(joke for joke in jokes if joke not in told))


def sampled(groups: Sequence[QuestionSet], count: int) -> list[QuestionSet]:
    """About `count` questions in all, equally many of each set, the same ones every time."""
    each = max(1, count // max(1, len(groups)))
    return [QuestionSet(group.name, _spread(group.questions, each)) for group in groups]


def card_questions(
    folder: Path, root: str, names: Sequence[str] = (), recipe_name: str = ""
) -> tuple[Recipe, list[QuestionSet]]:
    """The recipe a folder was trained by, and all that it was measured by in the end: the figures of its card.

    With the name of another recipe it is measured by that one's sets. Without a data folder (`root` is empty) the
    files are those of the checkout's folder `datasets`.
    """
    if recipe_name:
        recipe = load_recipe(recipe_name)
        return recipe, question_sets(recipe, root or recipe.default_root(), "test", names)
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
        return _reply_question(example)
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
