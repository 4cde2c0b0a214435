"""Distillation: a larger translator writes what a smaller model learns from.

Either targets for sources, or paraphrases of small talk: questions of another language that have the same answers
as ours, translated.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tiny_transformer import atomic
from tiny_transformer.bundle import WEIGHTS, sha256
from tiny_transformer.data.augment.small_talk import Intent
from tiny_transformer.data.examples import source_files
from tiny_transformer.data.files import DataFile, locate
from tiny_transformer.data.records import Faults, on_one_line, plain_words, read_all, read_records, split_of
from tiny_transformer.data.source import Source
from tiny_transformer.errors import ConfigError, DataError, InputError
from tiny_transformer.generation import Generated, GenerationOptions, Request, generate_ids
from tiny_transformer.generation.prompt import Prompt
from tiny_transformer.generation.text import text_of
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.recipe import Recipe

_MAX_LIKENESS = 0.7  # words that two phrasings share, of all their words: above, too like one that is held out
_ALSO = "train --also reads files like a recipe's first source"


@dataclass(frozen=True)
class TranslatedParaphrases:
    """Intents of two languages, and the phrasings of ours that a model will be evaluated by."""

    own: tuple[Intent, ...]  # with the phrasings of the training split alone
    held_out: tuple[str, ...]
    foreign: tuple[Intent, ...]

    @classmethod
    def read(
        cls, recipe: Recipe, root: str, paths: Iterable[str], excluded: Iterable[str] = ()
    ) -> "TranslatedParaphrases":
        """For the small talk of a recipe, from files of the same form in another language.

        Held out is whatever the recipe evaluates by, and every phrasing of the files that are `excluded`.
        """
        first = recipe.sources[0]
        if first.format != "intents" or first.split != "train":
            template = "The first source of recipe {recipe} teaches no intents, and {also}; name chat."
            raise ConfigError(template, recipe=recipe.name, also=_ALSO)
        held_out = [q for path in excluded for questions, _ in _intents(locate(path), path) for q in questions]
        for source in (source for source in recipe.sources if source.format == "intents"):
            intents = _intents(source_files(source, root), source.path)
            held_out += [q for questions, _ in intents for q in questions if not _is_trained_on(q, source)]
            if source == first:
                own = tuple(
                    ([q for q in questions if _is_trained_on(q, source)], answer) for questions, answer in intents
                )
        return cls(own, tuple(held_out), tuple(intent for path in paths for intent in _intents(locate(path), path)))

    @property
    def sources(self) -> tuple[str, ...]:
        """What is to be translated: every foreign question once."""
        return tuple(dict.fromkeys(on_one_line(q) for questions, _ in self.foreign for q in questions))

    def lines(self, said: Sequence[tuple[str, str]]) -> list[str]:
        """Our intents as JSON lines, with the phrasings that translations of foreign questions add to them."""
        translations: dict[str, list[str]] = defaultdict(list)
        for question, translation in said:
            translations[question].append(translation)
        spoken = [  # by foreign intent: plain words → phrasing
            {plain_words(t): t for question in questions for t in translations[on_one_line(question)]}
            for questions, _ in self.foreign
        ]
        uses = Counter(words for phrasings in spoken for words in phrasings)
        kept: dict[int, list[str]] = defaultdict(list)
        for number, phrasings in zip(self._matched(spoken), spoken, strict=True):
            if number is not None:
                # Words that ask for two answers teach neither.
                kept[number] += [t for words, t in phrasings.items() if uses[words] == 1 and self._is_new(words)]
        if not any(kept.values()):
            raise DataError(
                "Of {n:,} translations none is a new phrasing: each belongs to no intent of ours, is ours "
                "already, or comes near one that is held out; check that both files hold the same small talk.",
                n=len(said),
            )
        return [
            json.dumps({"answer": self.own[number][1], "questions": phrasings}, ensure_ascii=False)
            for number, phrasings in sorted(kept.items())
            if phrasings
        ]

    def _matched(self, spoken: Sequence[Iterable[str]]) -> list[int | None]:
        """For every foreign intent ours: the one with which it shares most phrasings, and no other shares more."""
        shared = [Counter(n for words in phrasings for n in self._asks.get(words, ())) for phrasings in spoken]
        highest: Counter[int] = Counter()
        for counts in shared:
            highest |= counts
        found: list[int | None] = []
        for counts in shared:
            ((number, most),) = counts.most_common(1) or [(0, 0)]
            found.append(number if 2 * most > counts.total() and most == highest[number] else None)
        return found

    def _is_new(self, words: str) -> bool:
        """Whether a phrasing is in none of our intents yet, nor like one that is held out."""
        bag = frozenset(words.split())
        if not bag or words in self._asks:
            return False
        # Too like is only what shares so many words that one of these, the rarest, is among them.
        rarest = sorted(bag, key=lambda word: len(self._held.get(word, ())))[
            : len(bag) - ceil(_MAX_LIKENESS * len(bag)) + 1
        ]
        return not any(_likeness(bag, held) >= _MAX_LIKENESS for word in rarest for held in self._held.get(word, ()))

    @cached_property
    def _asks(self) -> dict[str, list[int]]:
        """The intents of a trained phrasing, by its plain words."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, (questions, _) in enumerate(self.own):
            for words in {plain_words(question) for question in questions}:
                found[words].append(number)
        return dict(found)

    @cached_property
    def _held(self) -> dict[str, list[frozenset[str]]]:
        """The words of every held-out phrasing, by each of them."""
        found: dict[str, list[frozenset[str]]] = defaultdict(list)
        for bag in {frozenset(plain_words(question).split()) for question in self.held_out}:
            for word in bag:
                found[word].append(bag)
        return dict(found)


def count_phrasings(lines: Iterable[str]) -> int:
    """How many questions are in lines of intents."""
    return sum(len(json.loads(line)["questions"]) for line in lines)


def _intents(units: Iterable[tuple[DataFile, ...]], name: str) -> list[Intent]:
    found: list[Intent] = list(read_all(units, "intents", name))
    if not found:
        raise DataError("{name} holds no intents; name a JSONL file of questions and answers.", name=name)
    return found


def _is_trained_on(question: str, source: Source) -> bool:
    return source.split == "train" and split_of(question, source.held_out) == "train"


def _likeness(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b)


Said = tuple[str, str]  # a source, and what the teacher says to it


@dataclass(frozen=True)
class Distillation:
    """A teacher, what it is asked, and what it must not say."""

    teacher: TextModel
    sources: tuple[str, ...]
    options: GenerationOptions
    forbidden: frozenset[str] = frozenset()  # sentences of dev and test, as `plain_words` spells them
    tag: str = ""  # put before every source: tells a teacher of several languages which one is wanted
    batch_rows: int = 512  # hypotheses the teacher works on at once

    def __post_init__(self) -> None:
        if self.teacher.task != "translate":
            raise InputError(
                "The teacher is for {task}, not for translation; name a translator.", task=self.teacher.task
            )
        if self.batch_rows < 1:
            raise InputError("--batch-rows is {batch_rows}; choose a number of at least 1.", batch_rows=self.batch_rows)

    @property
    def signature(self) -> dict[str, Any]:
        """What the answers depend on: an unfinished file goes on only if all of it is the same."""
        options = asdict(self.options)
        return {
            "teacher": sha256(self.teacher.bundle.folder / WEIGHTS),
            "sources": hashlib.sha256("\n".join(self.sources).encode()).hexdigest(),
            "options": json.loads(json.dumps(options)),
            **({"tag": self.tag} if self.tag else {}),
        }


def tab_separated(said: Sequence[Said]) -> list[str]:
    """The lines of a TSV file."""
    return [f"{source}\t{target}" for source, target in said]


def back_translated(said: Sequence[Said]) -> list[str]:
    """The same with the teacher's text first: what people wrote is the target that a student learns to write."""
    return [f"{target}\t{source}" for source, target in said]


def distil(
    work: Distillation,
    out: Path,
    *,
    overwrite: bool = False,
    lines: Callable[[Sequence[Said]], list[str]] = tab_separated,
) -> list[str]:
    """Write all that the teacher says, put into `lines`, which are given back too. A killed run goes on."""
    if out.exists() and not overwrite:
        raise DataError("{out} is there already; add --overwrite to replace it.", out=out)
    partial = out.with_name(out.name + ".partial")
    done = _resumed(partial, work.signature)
    prompts = [work.teacher.prompt(work.tag + source) for source in work.sources]
    # A source the teacher could read only a part of would get half a translation, and back-translated, a sentence that
    # the student will be evaluated by would be what it learns to write.
    for i, (source, prompt) in enumerate(zip(work.sources, prompts, strict=True)):
        if prompt.notices or plain_words(source) in work.forbidden:
            done[i] = []
    left = sorted((i for i in range(len(prompts)) if i not in done), key=lambda i: prompts[i].n_tokens)
    rows = max(1, work.batch_rows // work.options.num_beams)
    with (
        partial.open("a", encoding="utf-8") as file,
        tqdm(total=len(prompts), initial=len(done), unit="sentence", disable=None) as bar,
    ):
        for first in range(0, len(left), rows):
            positions = left[first : first + rows]
            for i, targets in zip(positions, _answers(work, [prompts[i] for i in positions], positions), strict=True):
                done[i] = targets
                file.write(json.dumps([i, targets], ensure_ascii=False) + "\n")
            file.flush()
            bar.update(len(positions))
    said = [(work.sources[i], target) for i in range(len(prompts)) for target in _kept(done[i], work.forbidden)]
    if not said:
        raise DataError(
            "The teacher gave no usable target for {n:,} sources; look at it with generate.", n=len(prompts)
        )
    written = lines(said)
    atomic.write_file(out, "".join(line + "\n" for line in written))
    partial.unlink()
    return written


def read_sources(paths: Iterable[str], side: int = 0) -> tuple[str, ...]:
    """One side of pairs (0 or 1), or the lines of a .txt file; each text once, in order."""
    found: dict[str, None] = {}
    for path in paths:
        faults = Faults()
        for unit in locate(path):
            for text in _texts(unit, faults, (side,)):
                found.setdefault(on_one_line(text))
        faults.settle(path)
    return tuple(found)


def read_forbidden(paths: Iterable[str]) -> frozenset[str]:
    """Every source and every target of these files, without regard to case and punctuation."""
    found: set[str] = set()
    for path in paths:
        faults = Faults()
        found |= {plain_words(text) for unit in locate(path) for text in _texts(unit, faults, (0, 1))}
        faults.settle(path)
    return frozenset(found)


def _texts(unit: tuple[DataFile, ...], faults: Faults, sides: Sequence[int]) -> Iterator[str]:
    if unit[0].suffix != ".txt":
        for pair in read_records(unit, "pairs", faults):
            yield from (pair[side] for side in sides)
        return
    for document in read_records(unit, "text", faults):
        yield from document.splitlines()


def _answers(work: Distillation, prompts: Sequence[Prompt], numbers: Sequence[int]) -> list[list[str]]:
    """All that the teacher says to each prompt; what did not come to its end is left out."""
    teacher = work.teacher
    request = Request.of(prompts, work.options, teacher.bundle.generation, streams=numbers)
    found = generate_ids(teacher.backend, request)
    return [_whole_texts((best, *best.others), teacher.tokenizer) for best in found]


def _whole_texts(found: Sequence[Generated], tokenizer: Tokenizer) -> list[str]:
    return [text_of(tokenizer, one.ids) for one in found if one.finish_reason == "eos"]


def _kept(targets: Sequence[str], forbidden: frozenset[str]) -> list[str]:
    """Different texts on one line each, none of them a sentence the student will be evaluated by."""
    lines = dict.fromkeys(map(on_one_line, targets))
    return [line for line in lines if line and plain_words(line) not in forbidden]


def _resumed(partial: Path, signature: dict[str, Any]) -> dict[int, list[str]]:
    """What an unfinished file holds already; a new one gets its first line."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    done: dict[int, list[str]] = {}
    whole: list[str] = []
    # A kill may cut a character in two.
    for line in partial.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if partial.is_file() else ():
        try:
            value = json.loads(line)
        except ValueError:
            break  # cut short by a kill
        if not whole and value != signature:
            raise DataError(
                "{partial} was begun with another teacher, data or options; remove it to start anew.", partial=partial
            )
        if whole:
            done[value[0]] = value[1]
        whole.append(line)
    atomic.write_file(partial, "".join(line + "\n" for line in whole or [json.dumps(signature)]))
    return done
