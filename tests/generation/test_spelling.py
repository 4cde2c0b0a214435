"""Capitals and missing umlauts: a sentence is read as it is usually written, and nothing else is touched."""

import lzma
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.generation_fixtures import EchoBackend
from tiny_transformer.bundle import Bundle
from tiny_transformer.generation.spelling import with_umlauts, without_capitals
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"})


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.open(ROOT / "checkpoints" / "translate")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ICH BIN MÜDE!", "Ich bin müde!"),
        ("  HALLO", "  Hallo"),
        ("WIR SIND 3", "Wir sind 3"),
        *((text, text) for text in ("USA", "NATO", "A1B2C3", "Die USA!", "你好 HELLO", "你好", "12", "", " ", "ß")),
    ],
)
def test_a_sentence_in_capitals_alone_is_read_in_small_letters(typed: str, meant: str) -> None:
    assert without_capitals(typed) == meant


def test_umlauts_come_back_and_other_words_stay(bundle: Bundle) -> None:
    text = "Das Maedchen moechte die Strasse ueberqueren, Hoer auf, neue teure Steuer, aktuell muss Samuel quer essen."
    wanted = "Das Mädchen möchte die Straße überqueren, Hör auf, neue teure Steuer, aktuell muss Samuel quer essen."
    assert with_umlauts(text, bundle.tokenizer) == wanted
    for kept in ("Für Samuel und Tuer", "bluete@example.com", "Das Haus ist alt.", "poet.de/tuer", "x2 Tuer"):
        assert with_umlauts(kept, bundle.tokenizer) == kept


def test_of_sentences_without_an_umlaut_hardly_one_changes_and_most_get_theirs_back(bundle: Bundle) -> None:
    with lzma.open(ROOT / "datasets" / "tatoeba" / "de-en.dev.tsv.xz", "rt", encoding="utf-8") as lines:
        sources = [line.split("\t")[0] for line in lines]
    plain = [source for source in sources if source == source.translate(WITHOUT)]
    umlauts = [source for source in sources if source != source.translate(WITHOUT) and "ß" not in source]
    changed = [source for source in plain if with_umlauts(source, bundle.tokenizer) != source]
    restored = [source for source in umlauts if with_umlauts(source.translate(WITHOUT), bundle.tokenizer) == source]
    assert len(changed) <= len(plain) / 200
    assert len(restored) >= 0.95 * len(umlauts)


@pytest.mark.long
@given(st.text(max_size=40))
def test_any_text_has_a_spelling_and_keeps_its_length_but_for_umlauts(text: str) -> None:
    spelled = with_umlauts(text, Tokenizer.synthetic(300))
    assert spelled == text or spelled.translate(WITHOUT) == text


def test_a_translator_reads_the_usual_spelling_unless_the_text_is_not_split(bundle: Bundle) -> None:
    model = TextModel(bundle, EchoBackend(bundle.tokenizer.vocab_size, 128))
    assert model.generate("DIE TUER IST OFFEN. Mach sie schoen zu!").text == "Die tür ist offen. Mach sie schön zu!"
    assert model.generate("Die Tuer ist offen.", split=False).text == "Die Tuer ist offen."
    model = TextModel(replace(bundle, generation=replace(bundle.generation, source_languages=("zh",))), model.backend)
    assert model.generate("Die Tuer ist offen.").text == "Die Tuer ist offen."
