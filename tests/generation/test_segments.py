"""Texts of several sentences: each is translated as if it stood alone, and the text around them is kept."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_transformer as tt
from tests.support.generation_fixtures import EchoBackend
from tests.support.models import BundleFactory
from tests.support.sentence_cases import CASES
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import GenerationConfig
from tiny_transformer.errors import InputError
from tiny_transformer.generation import Cancelled
from tiny_transformer.generation.sentences import split
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Tokenizer

LETTER = "Liebe Anna,\n\nvielen Dank! Am 3. Mai komme ich.\n  - Milch\n  1. Brot. Und Eier.\n\n\nDein Tom\n"
TEXTS = [LETTER, "Hallo.Wie geht's?", "你好！你叫什么？", "Guten Morgen!", "a. B? c"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0, "seed": 4},
    {"num_beams": 3, "n_best": 2, "alternatives": 2},
    {"stop": ["a", "é", "!"], "temperature": 1.0, "seed": 5},
    {"max_new_tokens": 3},
]


def echo(**generation: Any) -> TextModel:
    """A "translator" whose every translation is its source."""
    backend = EchoBackend(300)
    settings = GenerationConfig(max_source_tokens=64, max_new_tokens=64, **generation)
    # The folder is not there: its tokenizer and configs are enough for a fake backend.
    return TextModel(Bundle(Path(), backend.config, settings, Tokenizer.synthetic(300)), backend)


ECHO = echo(target_language="en")


@pytest.fixture
def translator(make_bundle: BundleFactory) -> TextModel:
    return tt.load(make_bundle(max_length=32).folder, "eager", device="cpu")


@pytest.mark.parametrize("options", OPTIONS)
def test_every_way_of_asking_gives_the_same(translator: TextModel, options: dict[str, Any]) -> None:
    options = {"max_new_tokens": 6} | options
    batch = translator.generate_batch(TEXTS, **options)
    for number, text in enumerate(TEXTS):
        (alone,) = translator.generate_batch([text], numbers=[number], **options)
        assert alone.ids == batch[number].ids
        whole = translator.generate(text, **options)
        assert "".join(translator.stream(text, **options)) == whole.text
        streamed = translator.stream_tokens(text, **options).result()
        assert (streamed.text, streamed.ids, streamed.finish_reason) == (whole.text, whole.ids, whole.finish_reason)
        assert streamed.sentences == whole.sentences
        assert len(whole.ids) == len(whole.tokens) == len(whole.logprobs) == len(whole.alternatives)
        reasons = [event.token.finish_reason for event in translator.stream_tokens(text, **options)]
        assert reasons == [None] * (len(reasons) - 1) + [whole.finish_reason]


def test_each_sentence_is_what_it_is_alone(translator: TextModel) -> None:
    whole = translator.generate(LETTER, num_beams=3, n_best=3)
    sentences = [LETTER[slice(*sentence.source)] for sentence in whole.sentences]
    assert sentences == [
        "Liebe Anna,",
        "vielen Dank!",
        "Am 3. Mai komme ich.",
        "Milch",
        "Brot.",
        "Und Eier.",
        "Dein Tom",
    ]
    alone = [translator.generate(sentence, num_beams=3, n_best=3) for sentence in sentences]
    assert [whole.text[slice(*sentence.target)] for sentence in whole.sentences] == [one.text for one in alone]
    assert whole.ids == [i for one in alone for i in one.ids]
    assert whole.score == pytest.approx(sum(one.score for one in alone))
    assert whole.n_source_tokens == sum(one.n_source_tokens for one in alone)
    assert len(whole.others) == 2
    assert whole.others[1].ids == [i for one in alone for i in one.others[1].ids]


@pytest.mark.parametrize("text", ["Guten Morgen!", "  Hallo Welt\n", "x", " ", "z. B. am 3. Mai"])
def test_one_sentence_is_read_as_before(translator: TextModel, text: str) -> None:
    for options in OPTIONS:
        split_ = translator.generate(text, **options)
        assert split_.sentences
        assert asdict(replace(split_, sentences=(), others=())) == asdict(
            replace(translator.generate(text, split=False, **options), others=())
        )


def test_lines_and_what_begins_them_are_kept() -> None:
    assert ECHO.generate(LETTER).text == LETTER
    assert ECHO.generate("Eins.   Zwei.Drei!\tVier").text == "Eins. Zwei. Drei! Vier"
    assert ECHO.generate("你好！你叫什么？\n我").text == "你好！ 你叫什么？\n我"
    assert echo(target_language="zh").generate("Eins. Zwei.\nDrei").text == "Eins.Zwei.\nDrei"
    assert ECHO.generate("Eins.\r\n\r\n\tZwei.\u2028Drei.").text == "Eins.\r\n\r\n\tZwei.\u2028Drei."


def test_a_list_marker_is_not_translated_but_a_date_is() -> None:
    text = "Heute:\n1. Mai\n1. Milch\n- Brot\n2) Eier\n3.\nNr. 1. Ja"
    sources = [text[slice(*sentence.source)] for sentence in ECHO.generate(text).sentences]
    assert sources == ["Heute:", "1. Mai", "Milch", "Brot", "Eier", "3.", "Nr. 1.", "Ja"]


def test_equal_sentences_draw_numbers_of_their_own(translator: TextModel) -> None:
    result = translator.generate("Ja. Ja. Ja.", temperature=1.0, seed=1, max_new_tokens=8)
    assert len({result.text[slice(*sentence.target)] for sentence in result.sentences}) == 3
    alone = translator.generate("Ja.", temperature=1.0, seed=1, max_new_tokens=8)
    assert result.ids[: len(alone.ids)] == alone.ids


@settings(max_examples=60)
@given(st.one_of(st.sampled_from([case.replace("¦", "") for case in CASES]), st.text(min_size=1, max_size=80)))
def test_nothing_is_lost(text: str) -> None:
    """A translator that copies gives the text back, but for the spaces between sentences."""
    result = ECHO.generate(text)
    assert "".join(result.text.split()) == "".join(text.split())
    assert [line.split() for line in result.text.splitlines()] == [
        " ".join(text[slice(*span)] for span in split(line_text)).split()
        for line_text in text.splitlines()
        for text in [line_text]
    ]
    for sentence in result.sentences:
        assert result.text[slice(*sentence.target)] == text[slice(*sentence.source)]


@pytest.mark.parametrize(
    ("unit", "end"),
    [("wort ", "wort"), ("wort, und ", ","), ("wort, oder; ", ";"), ("x", "x"), ("汉字，", "，"), (".", ".")],
)
def test_a_sentence_of_any_length_is_translated_in_parts(unit: str, end: str) -> None:
    text = unit * 200
    result = ECHO.generate(text)
    assert "".join(result.text.split()) == "".join(text.split())
    assert "it was translated in" in result.notices[0]
    assert all(sentence.source.end - sentence.source.start > 5 for sentence in result.sentences)
    assert all(result.text[slice(*sentence.target)].endswith(end) for sentence in result.sentences[:-1])


def test_a_start_of_the_answer_is_for_one_sentence() -> None:
    assert ECHO.generate("Hallo Welt", prefix="Hallo").text == " Welt"
    for prefix in ("Hi", [5]):
        with pytest.raises(InputError, match="for one sentence, but the text has 2"):
            ECHO.generate("Hallo. Welt.", prefix=prefix)
        assert ECHO.generate("Hallo. Welt.", prefix=prefix, split=False)


def test_a_stop_string_ends_the_whole() -> None:
    result = ECHO.generate("Eins. Zwei drei.\nVier. Fünf.", stop="drei")
    assert (result.text, result.finish_reason) == ("Eins. Zwei ", "stop")
    assert "".join(ECHO.stream("Eins. Zwei drei.\nVier. Fünf.", stop="drei")) == result.text
    assert ECHO.generate("Eins. Zwei.", max_new_tokens=3).finish_reason == "length"


def test_cancellation_ends_all_sentences() -> None:
    asked = iter([False, False, True])
    with pytest.raises(Cancelled):
        ECHO.generate("Eins. Zwei. Drei.", should_stop=lambda: next(asked))


def test_the_first_sentence_does_not_wait_for_the_others() -> None:
    model = ECHO
    before = model.backend.rows_stepped  # type: ignore[attr-defined]
    with model.stream_tokens("Eins. " + "Zwei drei vier fünf sechs. " * 5) as stream:
        assert next(stream).text == "E"
        assert model.backend.rows_stepped == before, "the first token needs no step"  # type: ignore[attr-defined]
        pieces = [next(stream).text for _ in range(5)]
        assert pieces == ["i", "n", "s", ".", ""]
        assert model.backend.rows_stepped - before == 5 * 6  # type: ignore[attr-defined]


@pytest.mark.parametrize("max_rows", [1, 4, 64])
@pytest.mark.parametrize("options", [{}, {"num_beams": 2}])
def test_many_sentences_come_in_order(max_rows: int, options: dict[str, Any]) -> None:
    model = echo(target_language="en")
    model.backend.max_rows = max_rows
    text = "".join(f"Satz {'x' * (n % 7)} {n}! " for n in range(40)).rstrip()
    assert "".join(model.stream(text, **options)) == text == model.generate(text, **options).text


TRANSLATOR = {"source_languages": ("de", "zh"), "target_language": "en"}


def test_the_language_of_the_translation_is_copied() -> None:
    model = echo(**TRANSLATOR)
    text = "The weather is nice today."
    result = model.generate(text)
    assert (result.text, result.ids, result.finish_reason) == (text, [], "eos")
    assert result.notices == ("This looks like English; it is returned unchanged.",)
    assert "".join(model.stream(text)) == text
    assert model.stream_tokens(text).result() == result
    mixed = model.generate("Das ist gut. The weather is nice today.\n---\nNein.")
    assert [sentence.copied for sentence in mixed.sentences] == [False, True, True, False]
    assert mixed.text == "Das ist gut. The weather is nice today.\n---\nNein."
    assert mixed.notices == ("Returned unchanged, since they look like English: 1 of 4 sentences.",)
    english = model.generate("I think so too. Nice try. What do you want?")
    assert english.ids == [], "the sentences around it say what a short one is"
    with pytest.raises(InputError):
        model.generate("The weather is nice today.\ud800")
    for unsure in ("Hand", "Tom", "New York", "3.50"):
        assert model.generate(unsure).ids


def test_models_that_do_not_name_their_languages_translate_everything() -> None:
    assert ECHO.generate("The weather is nice today.").ids
    assert ECHO.generate("The weather is nice today.").notices == ()
    assert echo(source_languages=("en",), target_language="de").generate("How are you?").notices == ()
    assert "like German" in echo(source_languages=("en",), target_language="de").generate("Das ist gut.").notices[0]


def test_other_languages_are_translated_with_a_notice() -> None:
    model = echo(**TRANSLATOR)
    for text in ("Je ne sais pas.", "今日は天気がいいです。", "Я устал."):
        result = model.generate(text)
        assert result.text == text
        assert result.notices == ("This does not look like German or Chinese, which this model translates.",)
    for text in ("Ich weiß nicht.", "你好", "Hotel", "42"):
        assert model.generate(text).notices == ()


def test_a_chat_model_says_which_language_it_speaks(make_bundle: BundleFactory) -> None:
    made = make_bundle("decoder-only", name="chat", max_length=48)
    bundle = replace(made, generation=made.generation.with_changes(target_language="en"))
    model = TextModel(bundle, tt.load(made.folder, "eager", device="cpu").backend)
    notice = "This does not look like English, which this model speaks."
    assert notice in model.generate("Wie heißt du?").notices
    assert notice in model.stream_reply_tokens([{"role": "user", "content": "你好，你叫什么名字？"}]).notices
    assert notice not in model.generate("What is your name?").notices
    assert notice not in model.generate("Hi").notices
    assert notice not in model.generate("Wie heißt du?", raw=True).notices
