"""Transforms of pairs: both sides stay translations of each other, and no case or test sentence comes of them."""

import random
import re
from functools import cache
from pathlib import Path

import pytest

from tests.data.test_datasets import FOLDER, HELD_OUT, sentences
from tests.test_cases import folded
from tiny_transformer.accepted_answers import read_cases
from tiny_transformer.data.augment import (
    CasePairs,
    DropUmlauts,
    FillSlots,
    InsertCopies,
    SubstituteNames,
    SubstituteNumbers,
    SwapSides,
    Tag,
    Transform,
)
from tiny_transformer.data.augment.numerals import chinese_number, number_words, parse_chinese
from tiny_transformer.data.augment.pairs import (
    filled,
    transformed,
    with_copies,
    with_other_casing,
    with_other_names,
    with_other_numbers,
    without_umlauts,
)
from tiny_transformer.data.augment.values import SLOTS, names
from tiny_transformer.data.examples import plain_words, read_examples
from tiny_transformer.data.records import Pair
from tiny_transformer.data.source import Source
from tiny_transformer.errors import DataError
from tiny_transformer.training.recipe import load_recipe

NAMES = ("Tom gab Maria Toms Uhr in München.", "Tom gave Mary Tom's watch in Munich.")
ALL: tuple[Transform, ...] = (
    *(SubstituteNames(share=1.0), SubstituteNumbers(share=1.0), InsertCopies(share=1.0)),
    *(DropUmlauts(share=1.0), CasePairs(share=1.0)),
)


def many(n: int = 200) -> list[random.Random]:
    return [random.Random(i) for i in range(n)]


def test_a_new_name_stands_on_both_sides_with_its_genitive_and_its_english_form() -> None:
    english = {name.source: name.english for kind in ("men", "women", "cities") for name in names(kind, "de")}
    seen = set()
    for rng in many():
        source, target = with_other_names(NAMES, rng)
        man, woman, owner, city = re.fullmatch(r"(.+?) gab (.+) (\S+?)s Uhr in (.+)\.", source).groups()  # type: ignore[union-attr]
        told = re.fullmatch(r"(.+?) gave (.+) (\S+?)'s watch in (.+)\.", target)
        assert told is not None, (source, target)
        assert man.endswith(owner)
        assert told[1].endswith(told[3])
        assert told[4] == english.get(city, city)
        # Maria is Mary or Maria: of one spelling, either English form is right.
        assert told[2].split()[0] in {english.get(woman.split()[0], woman.split()[0]), "Maria", "Mary"}
        assert "Tom" not in source + target
        seen.add((man, woman, city))
    assert len(seen) > 150


def test_chinese_names_become_pinyin_and_places_their_english_name() -> None:
    cities = {spelling: n.english for n in names("cities", "zh") for spelling in (n.source, n.traditional)}
    for rng in many():
        source, target = with_other_names(("汤姆住在北京。", "Tom lives in Beijing."), rng)
        name, city = re.fullmatch(r"(.+)住在(.+)。", source).groups()  # type: ignore[union-attr]
        assert cities[city] == re.fullmatch(r".+ lives in (.+)\.", target)[1]  # type: ignore[index]
        assert name != "汤姆"
        assert re.fullmatch(r"[A-Z][a-zü']+( [A-Z][a-z']+)?", target.removesuffix(f" lives in {cities[city]}."))


@pytest.mark.parametrize(
    "texts",
    [
        ("Der Mann schläft.", "The man is sleeping."),
        ("Tom schläft.", "He is sleeping."),  # the name stands on one side alone
        ("Die Halle ist kalt.", "The hall is cold."),  # Halle is a city too
        ("Herr Richter kommt.", "The judge is coming."),
        ("Der Richter kommt.", "Richter is coming."),  # a surname only after a title
        ("他叫简单。", "He is called simple."),
    ],
)
def test_what_is_no_name_on_both_sides_is_left_alone(texts: tuple[str, str]) -> None:
    assert {with_other_names(texts, rng) for rng in many(20)} == {texts}


@pytest.mark.parametrize(
    ("texts", "pattern"),
    [
        (("Es kostet 1.250,50 Euro.", "It costs 1,250.50 euros."), r"\D+([\d.,]+) Euro\.|\D+([\d.,]+) euros\."),
        (("Ich habe 47 Bücher.", "I have 47 books."), r"\D+(\d+) Bücher\.|\D+(\d+) books\."),
        (("Es war 1990.", "It was in 1990."), r"\D+(\d{4})\.|\D+(\d{4})\."),
    ],
)
def test_figures_are_the_same_on_both_sides_with_separators_of_the_language(
    texts: tuple[str, str], pattern: str
) -> None:
    german, english = pattern.split("|")
    for rng in many(50):
        source, target = with_other_numbers(texts, rng)
        ours, theirs = re.fullmatch(german, source), re.fullmatch(english, target)
        assert ours is not None
        assert theirs is not None
        assert ours[1].translate(str.maketrans(".,", ",.")) == theirs[1]


def test_numbers_in_words_are_the_same_on_both_sides() -> None:
    german = {number_words(n, "de"): number_words(n, "en") for n in range(2, 100)}
    chinese = {chinese_number(n, counted=True): number_words(n, "en") for n in range(2, 100)}
    for rng in many(50):
        source, target = with_other_numbers(("Ich habe drei Hunde.", "I have three dogs."), rng)
        assert target == f"I have {german[source.removeprefix('Ich habe ').removesuffix(' Hunde.')]} dogs."
        source, target = with_other_numbers(("我有三只狗。", "I have three dogs."), rng)
        assert target == f"I have {chinese[source.removeprefix('我有').removesuffix('只狗。')]} dogs."


@pytest.mark.parametrize(
    "texts",
    [
        ("Es ist 14:30 Uhr.", "It is 2:30 p.m."),
        ("Um drei Uhr dreißig.", "At three thirty."),
        ("Ich habe 3 Hunde.", "I have three dogs."),  # figures on one side, a word on the other
        ("Ich habe einen Hund.", "I have one dog."),
        ("三分之二的人来了。", "Two thirds of the people came."),
        ("他三月五号来。", "He comes on March 5."),
    ],
)
def test_numbers_that_are_not_surely_the_same_are_left_alone(texts: tuple[str, str]) -> None:
    assert {with_other_numbers(texts, rng) for rng in many(20)} == {texts}


def test_ordinals_follow_their_figure() -> None:
    found = {with_other_numbers(("Heute ist der 3. Tag.", "Today is the 3rd day."), rng)[1] for rng in many(80)}
    assert "Today is the 2nd day." in found
    assert all(re.search(r"(?<!1)1st|(?<!1)2nd|(?<!1)3rd|[04-9]th|1[123]th", text) for text in found)


def test_copies_are_the_same_on_both_sides() -> None:
    for texts in (("Er kommt.", "He is coming."), ("他来了。", "He is coming.")):
        for rng in many(50):
            source, target = with_copies(texts, rng)
            copied = re.findall(r"[A-Za-z0-9@:/._?=-]{4,}", source.removeprefix("Er kommt").removeprefix("他来了"))
            copied = [part.rstrip(".") for part in copied if part not in ("siehe", "Datei", "schreibt")]
            assert copied
            assert all(part in target for part in copied)
    assert with_copies(("Kommst du?", "Are you coming?"), random.Random(0)) == ("Kommst du?", "Are you coming?")


def test_umlauts_are_typed_otherwise_and_the_target_stays() -> None:
    found = {without_umlauts(("Größe übt Äpfel.", "Göttingen."), rng) for rng in many(80)}
    assert found == {("Groesse uebt Aepfel.", "Göttingen."), ("Grosse ubt Apfel.", "Göttingen.")}


def test_casing_is_of_the_source_alone() -> None:
    texts = ("Ich heiße Tom.", "My name is Tom.")
    for rng in many():
        source, target = with_other_casing(texts, rng)
        assert target == texts[1]
        assert plain_words(source) == plain_words(texts[0])
    assert {"ich heiße tom.", "ich heiße tom", "Ich heiße Tom"} <= {with_other_casing(texts, rng)[0] for rng in many()}
    assert {with_other_casing(("Wer?", "Who?"), rng)[0] for rng in many()} == {"wer", "wer?", "Wer"}
    assert all(with_other_casing(("他来了。", "He came."), rng)[1] == "He came." for rng in many())
    address = ("Schreib an Max@web.de.", "Write to Max@web.de.")
    assert all("Max@web.de" in with_other_casing(address, rng)[0] for rng in many())


def test_the_first_variant_is_the_text_and_the_others_are_always_the_same() -> None:
    assert list(transformed(NAMES, ALL, 0)) == [NAMES]
    assert list(transformed(NAMES, ALL, 1)) == list(transformed(NAMES, ALL, 1))
    assert len({pair for variant in range(1, 9) for pair in transformed(NAMES, ALL, variant)}) > 5
    none = tuple(type(transform)(share=0.0) for transform in ALL)  # type: ignore[call-arg]
    assert list(transformed(NAMES, none, 3)) == [NAMES]


@pytest.mark.parametrize("language", ["de", "zh"])
@pytest.mark.parametrize("slot", SLOTS)
def test_every_slot_gives_a_text_on_both_sides(slot: str, language: str) -> None:
    values = [SLOTS[slot](language, rng) for rng in many(100)]
    assert all(ours and theirs for ours, theirs in values)
    assert len(set(values)) > 6
    assert not any(re.search("[一-鿿]", theirs) for _, theirs in values)


def test_chinese_numerals_are_read_as_they_are_written() -> None:
    numbers = [*range(2_000), *(n * 10**k for k in range(3, 11) for n in (1, 2, 14, 25, 101, 230))]
    assert [parse_chinese(chinese_number(n)) for n in numbers] == numbers
    assert [chinese_number(n) for n in (14 * 10**8, 2_300, 10, 10_010)] == ["十四亿", "两千三百", "十", "一万零一十"]
    assert parse_chinese("三三") is None


def test_a_template_names_each_value_once() -> None:
    template = (
        "{person} und {person2} wohnen in {city}, {person}!",
        "{person} and {person2} live in {city}, {person}!",
    )
    for rng in many(50):
        source, target = filled(template, rng)
        ours = re.fullmatch(r"(.+) und (.+) wohnen in .+, (.+)!", source)
        theirs = re.fullmatch(r"(.+) and (.+) live in .+, (.+)!", target)
        assert ours is not None
        assert theirs is not None
        assert ours[1] == ours[3]
        assert theirs[1] == theirs[3]


@pytest.mark.parametrize("template", [("{nobody} kommt.", "{nobody} comes."), ("{person} kommt.", "He comes.")])
def test_a_template_whose_slots_do_not_fit_is_refused(template: tuple[str, str]) -> None:
    with pytest.raises(DataError, match="slot"):
        filled(template, random.Random(0))


def test_a_source_of_pairs_applies_its_transforms_and_then_swaps_and_tags(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("Am {date} kommt {person}.\t{person} is coming on {date}.\n", encoding="utf-8")
    transforms = (Tag(text="2de "), SwapSides(), FillSlots(times=5))
    source = Source(name="t", path="p.tsv", transforms=transforms, variants=2)
    pairs = [list(read_examples(source, str(tmp_path), "train", variant)) for variant in (0, 0, 1)]
    assert pairs[0] == pairs[1] != pairs[2]
    assert len(pairs[0]) == 5
    for pair in pairs[0]:
        assert isinstance(pair, Pair)
        assert re.fullmatch(r"2de .+ is coming on .+ \d+\.", pair.source)
        assert re.fullmatch(r"Am \d+\. .+ kommt .+\.", pair.target)


def own_pairs(name: str) -> list[tuple[str, str]]:
    source = next(source for source in load_recipe("translate").sources if source.name == name)
    found = (pair for v in range(source.variants) for pair in read_examples(source, str(FOLDER), "train", v))
    return [(pair.source, pair.target) for pair in found if isinstance(pair, Pair)]


@pytest.mark.long
def test_our_own_text_holds_no_case_and_no_sentence_of_a_test_set() -> None:
    cases = {folded(case.source) for case in read_cases(FOLDER / "cases" / "translate.jsonl")}
    held_out = set().union(*(sentences(str(FOLDER / name)) for name in HELD_OUT))
    for name in ("own-words", "own-templates"):
        pairs = own_pairs(name)
        assert len(pairs) > 10_000
        assert [a for a, _ in pairs if folded(a) in cases] == []
        assert [text for pair in pairs for text in pair if plain_words(text) in held_out] == []


@pytest.mark.slow
def test_hardly_a_held_out_sentence_comes_about_by_chance() -> None:
    """Another number or name may make a sentence of a test set: 20 of 53,432 in all variants of the recipe."""
    held_out = set().union(*(sentences(str(FOLDER / name)) for name in HELD_OUT))
    made = set()
    for source in load_recipe("translate").of_split("train"):
        for variant in range(1, source.variants):
            for pair in read_examples(source, str(FOLDER), "train", variant):
                assert isinstance(pair, Pair)
                made |= {plain_words(pair.source), plain_words(pair.target)} & held_out
    assert len(made) < len(held_out) / 1000


@cache
def any_value(slot: str, language: str) -> str:
    """A pattern for what a slot may hold: up to three German words, or any row of the characters that it draws from."""
    if language == "de":
        return r"\w+(?: \w+){0,2}"
    drawn = "".join(SLOTS[slot](language, rng)[0] for rng in many(500))
    return f"[{''.join(sorted(set(plain_words(drawn)) - {' '}))}]+"


def test_no_template_has_the_words_of_a_case() -> None:
    cases = [folded(case.source) for case in read_cases(FOLDER / "cases" / "translate.jsonl")]
    for line in (FOLDER / "own" / "templates.tsv").read_text(encoding="utf-8").splitlines():
        source = line.split("\t")[0]
        language = "zh" if re.search("[一-鿿]", source) else "de"
        parts = [folded(part) for part in re.split(r"\{\w+\}", source)]
        slots = [any_value(slot, language) for slot in re.findall(r"\{([a-z_]+)\d?\}", source)]
        if any(parts):  # a slot alone fits every case
            pieces = [
                piece for part, slot in zip(parts, [*slots, ""], strict=True) for piece in (re.escape(part), slot)
            ]
            pattern = r"\s*".join(pieces)
            assert [case for case in cases if re.fullmatch(rf"\s*{pattern}\s*", case)] == [], line
