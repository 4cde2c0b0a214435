"""Cases of what people type first: each with every answer that counts as right, and a model measured by them."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tiny_transformer.errors import DataError
from tiny_transformer.evaluation import Answerer

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
class Failure:
    """A case that a model got wrong."""

    group: str
    source: str
    answer: str
    accepted: str  # the first of those that would have been right


@dataclass(frozen=True)
class CaseReport:
    """How a model did on cases: right answers and cases of each group, and what failed."""

    groups: dict[str, tuple[int, int]]  # (right, of so many), in the file's order
    failures: tuple[Failure, ...]

    @property
    def total(self) -> tuple[int, int]:
        """Right answers of all groups, and of how many."""
        return sum(right for right, _ in self.groups.values()), sum(count for _, count in self.groups.values())

    @property
    def rows(self) -> list[tuple[str, int, int, float]]:
        """Of each group and then of all: its name, right answers, cases and the share in percent."""
        return [(name, n, of, 100.0 * n / of) for name, (n, of) in [*self.groups.items(), ("all", self.total)]]

    def to_json(self) -> str:
        """For programs, and for the model's card."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> "CaseReport":
        """What `to_json` wrote."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            groups = {str(group): (int(right), int(count)) for group, (right, count) in values["groups"].items()}
            failures = tuple(
                Failure(**{f.name: str(item[f.name]) for f in fields(Failure)}) for item in values["failures"]
            )
            if not groups or not all(0 <= right <= count and count for right, count in groups.values()):
                raise ValueError("no group, or more right answers than cases")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                "{file} is not what evaluate --cases writes ({reason}); make it anew or remove it.",
                file=path,
                reason=error,
            ) from None
        return cls(groups, failures)


def evaluate_cases(model: Answerer, cases: Sequence[Case], **options: Any) -> CaseReport:
    """Let a loaded model answer every case; `options` are those of generation."""
    results = model.generate_batch([case.source for case in cases], **options)
    answers = [(case, str(result.text)) for case, result in zip(cases, results, strict=True)]
    failures = tuple(
        Failure(case.group, case.source, answer, case.accept[0])
        for case, answer in answers
        if not case.is_right(answer)
    )
    counts, failed = Counter(case.group for case in cases), Counter(failure.group for failure in failures)
    return CaseReport({group: (count - failed[group], count) for group, count in counts.items()}, failures)


def read_cases(path: Path) -> list[Case]:
    """Lines of {"group", "source", "accept"}: in "accept" {a|b} stands for either, {|a} for a or nothing."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            "{file} cannot be read as JSON lines ({reason}); check the file.", file=path, reason=error
        ) from None
    found = [_case(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]
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


def _case(line: str, where: str) -> Case:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError("{where} is not JSON; correct it.", where=where) from None
    match record:
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
