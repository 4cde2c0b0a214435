"""Cases of what people type first: how they are read, what counts as right, and that training never sees them."""

import json
import lzma
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import ROOT
from tiny_transformer.accepted_answers import Case, CaseReport, Failure, evaluate_cases, read_cases, spelled_out
from tiny_transformer.cli import main
from tiny_transformer.data.examples import plain_words
from tiny_transformer.errors import DataError

FILE = ROOT / "datasets" / "cases" / "translate.jsonl"
# Everybody types these, and every corpus has them: they may be training sentences, but not of our own word list.
GREETINGS = """Hallo, Hallo!, Bis später, Gute Nacht, Herzlichen Glückwunsch zum Geburtstag!, Wie geht's?, Tschüss,
Ich liebe dich, 晚安, 再见, 干杯！, 祝你生日快乐！, 歡迎光臨, Hello, Thank you very much!""".replace("\n", " ").split(
    ", "
)


@dataclass
class Parrot:
    """A model that says what it is told to."""

    answers: dict[str, str]

    def generate_batch(self, texts: Sequence[str], **options: Any) -> list[Any]:
        return [Answer(self.answers[text]) for text in texts]

    def reply(self, history: Any, **options: Any) -> Any:
        raise AssertionError("cases are texts to translate, and never dialogues")


@dataclass
class Answer:
    text: str


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("house", ["house"]),
        ("{|the }{house|home}", ["house", "home", "the house", "the home"]),
        ("{a{b|c}|d}e", ["abe", "ace", "de"]),
    ],
)
def test_a_pattern_stands_for_every_choice(pattern: str, texts: list[str]) -> None:
    assert spelled_out(pattern) == texts


@pytest.mark.parametrize(
    ("accepted", "answer", "is_right"),
    [
        ("I'm tired", "I am tired!", True),
        ("it's my mom's birthday", "It is my mom's birthday.", True),
        ("at 2:30 p.m.", "At 2:30 pm.", True),
        ("help, fire", "Help! Fire!", True),
        ("you can't go", "You cannot go.", True),
        ("forty-two", "Forty two.", True),
        ("1,250 euros", "1.250 euros", False),
        ("1,250 euros", "1250 euros", False),
        ("let's go", "let is go", False),
        ("Berlin", "Bern", False),
        ("I am tired", "I am not tired", False),
    ],
)
def test_what_is_no_difference_to_a_reader_is_none_to_the_score(accepted: str, answer: str, is_right: bool) -> None:
    assert Case("g", "s", (accepted,)).is_right(answer) is is_right


def test_case_counts_where_a_name_or_an_address_is_to_be_copied() -> None:
    assert not Case("g", "s", ("He lives in Bonn.",), case_matters=True).is_right("He lives in bonn.")
    assert Case("g", "s", ("He lives in Bonn.",)).is_right("he lives in bonn")
    assert not Case("g", "s", ("Write to a.b@c.de",), case_matters=True).is_right("Write to ab@c.de.")


def test_the_report_counts_by_group_and_lists_what_failed(tmp_path: Path) -> None:
    records = [
        {"group": "words", "source": "Haus", "accept": ["{house|home}"]},
        {"group": "words", "source": "Hund", "accept": ["dog"]},
        {"group": "names", "source": "Das ist Tom.", "accept": ["That is Tom."], "case_matters": True},
    ]
    cases = read_cases(write(tmp_path / "cases.jsonl", *records))
    report = evaluate_cases(Parrot({"Haus": "Home.", "Hund": "cat", "Das ist Tom.": "That's Tom."}), cases)
    assert report.groups == {"words": (1, 2), "names": (1, 1)}
    assert report.total == (2, 3)
    assert report.rows[-1] == ("all", 2, 3, pytest.approx(66.67, abs=0.01))
    assert report.failures == (Failure("words", "Hund", "cat", "dog"),)
    (tmp_path / "report.json").write_text(report.to_json(), encoding="utf-8")
    assert CaseReport.read(tmp_path / "report.json") == report


@pytest.mark.parametrize(
    "text", ["", "[]", '{"groups": {}, "failures": []}', '{"groups": {"a": [2, 1]}, "failures": []}', '{"groups": 1}']
)
def test_a_damaged_report_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cases.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"cases\.json is not what evaluate --cases writes"):
        CaseReport.read(tmp_path / "cases.json")


@pytest.mark.parametrize(
    "record",
    [
        {"group": "g", "source": "s"},
        {"group": "g", "source": "s", "accept": []},
        {"group": "g", "source": "s", "accept": [1]},
        {"group": "g", "source": "s", "accept": ["{a|b"]},
        {"group": "g", "source": "s", "accept": ["a"], "case": True},
        [],
    ],
)
def test_a_malformed_case_is_named(tmp_path: Path, record: object) -> None:
    good = {"group": "g", "source": "s", "accept": ["a"]}
    with pytest.raises(DataError, match=r"cases\.jsonl:2"):
        read_cases(write(tmp_path / "cases.jsonl", good, record))


def test_an_empty_file_of_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to evaluate"):
        read_cases(write(tmp_path / "cases.jsonl"))


def test_the_cases_that_ship_are_many_different_and_balanced() -> None:
    cases = read_cases(FILE)
    assert len(cases) >= 330
    assert max(Counter(case.source for case in cases).values()) == 1
    assert min(Counter(case.group for case in cases).values()) >= 8
    n_chinese = sum(bool(re.search("[一-鿿]", case.source)) for case in cases)
    assert 0.35 < n_chinese / len(cases) < 0.45
    assert 0.03 < sum(case.group == "en" for case in cases) / len(cases) < 0.07
    for case in cases:
        assert all(case.is_right(text) for text in case.accept[:3])


_SPELLED_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"})


def folded(text: str) -> str:
    """Without regard to case, punctuation and umlauts: what a transform may make of a sentence is the sentence."""
    return plain_words(text).translate(_SPELLED_OUT)


def training_texts(folder: Path) -> Iterator[str]:
    for file in sorted(file for file in folder.rglob("*.tsv*") if re.search(r"\.(train|back)\.tsv", file.name)):
        content = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
        for line in content.decode().splitlines():
            yield from line.split("\t")[:2]


@pytest.mark.long
def test_no_case_is_a_training_sentence() -> None:
    cases = [case for case in read_cases(FILE) if case.source not in GREETINGS and not case.group.endswith("-words")]
    trained = set(map(folded, training_texts(ROOT / "datasets")))
    assert not [case.source for case in cases if folded(case.source) in trained]


def test_a_task_without_cases_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(ROOT / "checkpoints" / "chat"), "--cases"]) == 2
    assert "This checkout holds no cases for the task chat; name a file with --cases FILE." in capsys.readouterr().err
