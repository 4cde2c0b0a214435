"""Sentences: what people write is cut where a reader would cut it, nothing is lost, and no input takes long."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.sentence_cases import CASES
from tiny_transformer.generation.sentences import Span, split


def sentences(text: str) -> list[str]:
    return [text[span.start : span.end] for span in split(text)]


@pytest.mark.parametrize("case", CASES)
def test_sentences_end_where_a_reader_would_end_them(case: str) -> None:
    assert sentences(case.replace("¦", "")) == [part.strip() for part in case.split("¦")]


def test_there_are_enough_cases() -> None:
    assert len(CASES) == len(set(CASES)) == 119  # the number that the module names


# Characters that the rules look at, and words that they know.
WORDS = "... …… z. B. Dr. usw. 3. am Mai XIV. Hallo wie I Plan www.a.de a@b.de https://a.de/?x=1 你好 他说 🙂 :) 1.5"
PIECES = st.sampled_from([*".!?…。！？；,;:()[]（）\"'„“”»«「」『』- \n\t", "\r\n", "\u2028", *WORDS.split()])
TEXTS = st.one_of(st.text(), st.lists(PIECES).map("".join), st.lists(PIECES).map(" ".join))


@given(TEXTS)
@example("")
@example(" \n ")
def test_the_spans_hold_all_that_is_not_white_space(text: str) -> None:
    spans = split(text)
    ends = [0, *(place for span in spans for place in span), len(text)]
    assert ends == sorted(ends)
    gaps = [text[a:b] for a, b in zip(ends[::2], ends[1::2], strict=True)]
    assert all(not gap or gap.isspace() for gap in gaps)
    assert all(sentence and sentence == sentence.strip() for sentence in sentences(text))
    rebuilt = "".join(gap + text[span.start : span.end] for gap, span in zip(gaps, spans, strict=False)) + gaps[-1]
    assert rebuilt == text
    assert not any(len(sentence.splitlines()) > 1 for sentence in sentences(text)), "a line ends a sentence"


@given(TEXTS)
def test_a_sentence_is_not_cut_again(text: str) -> None:
    for sentence in sentences(text):
        assert split(sentence) == [Span(0, len(sentence))]


@pytest.mark.parametrize(
    "unit",
    [
        ".",
        "…",
        '"',
        "!",
        ". ",
        '." ',
        "。",
        "a.",
        "A. ",
        "a.B",
        "3. ",
        "(",
        ")",
        "!)",
        "\n",
        " ",
        "🙂",
        "!🙂",
        ":)",
        "，",
    ],
)
def test_hostile_input_takes_linear_time(unit: str) -> None:
    text = "x" + unit * (100_000 // len(unit)) + "x"
    start = time.process_time()
    split(text)
    assert time.process_time() - start < 5  # 0.5 s where it was written; quadratic time would be minutes
