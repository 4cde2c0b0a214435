"""Small talk and stories in other words: what changes, what must not, and that nothing held out is given away."""

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.training_fixtures import write_jsonl
from tiny_transformer.data.augment import Balance, Compose, Recast, Rephrase, UseAnalogies
from tiny_transformer.data.augment.characters import CASTS, HEROES, plural, recast
from tiny_transformer.data.augment.small_talk import Analogies
from tiny_transformer.data.augment.stories import ABOUT, story_dialogue, topics
from tiny_transformer.data.examples import plain_words, read_examples, split_of
from tiny_transformer.data.records import texts_of
from tiny_transformer.data.source import Source
from tiny_transformer.errors import ConfigError

DOING = ("sing a song", "dance a waltz", "cook some rice", "read a map")
HELD_OUT = {"dev": 0.2, "test": 0.3}


def can_you(verbs: tuple[str, ...] = DOING) -> list[str]:
    return [f"Can you {verb}?" for verb in verbs] + [f"Are you able to {verb}?" for verb in verbs[:2]]


def talk(tmp_path: Path, **options: object) -> Source:
    """Two intents whose phrasings are made of the same pieces, one of them ten times as large."""
    many = [f"{frame} {thing}" for frame in ("Do you like", "Are you fond of", "Do you enjoy") for thing in THINGS]
    records = [{"questions": can_you(), "answer": "No."}, {"questions": many, "answer": "Yes."}]
    path = write_jsonl(tmp_path / "i.jsonl", records)
    return replace(Source(name="talk", path=str(path), format="intents", variants=9), **options)


THINGS = tuple(f"{color} {thing}" for color in ("red", "blue", "old", "new") for thing in ("cars", "hats", "songs"))


def questions(source: Source, variant: int, split: str = "train") -> Counter:
    return Counter(texts_of(example)[-2] for example in read_examples(source, "", split, variant))


def test_what_stands_in_the_same_places_is_exchanged() -> None:
    analogies = Analogies.learn([can_you(), ["Where do you live?"]])
    assert "Are you able to cook some rice?" in analogies.phrasings("Can you cook some rice?", 0)
    assert "Are you able to sing a song?" not in analogies.phrasings("Can you sing a song?", 0)  # it is there already
    assert analogies.phrasings("Where do you live?", 1) == []


def test_pieces_of_one_intent_stay_in_it_and_those_of_three_go_everywhere() -> None:
    def intent(n: int) -> list[str]:
        return [f"{frame} topic {n} here" for frame in ("please explain", "kindly explain")]

    few = Analogies.learn([intent(1), intent(2), ["please leave now"]])
    many = Analogies.learn([intent(1), intent(2), intent(3), ["please leave now"]])
    assert few.phrasings("please leave now", 2) == []
    assert many.phrasings("please leave now", 3) == ["kindly leave now"]


def test_a_choice_that_is_not_allowed_leaves_the_question_as_it_is() -> None:
    analogies = Analogies.learn([can_you()])
    question = "Can you cook some rice?"
    assert analogies.rephrase(question, 0, random.Random(1), lambda text: True) != question
    assert analogies.rephrase(question, 0, random.Random(1), lambda text: False) == question


def test_no_variant_ever_asks_a_held_out_question(tmp_path: Path) -> None:
    # Contracting or spelling out makes one of these of another, which the hash may have held out.
    twins = [f"{start} {thing}?" for thing in THINGS for start in ("What is it with", "What's it with")]
    path = write_jsonl(tmp_path / "twins.jsonl", [{"questions": twins, "answer": "Who knows."}])
    for source in (
        talk(
            tmp_path,
            transforms=(Rephrase(), UseAnalogies(share=0.5), Balance(strength=0.5)),
            held_out=HELD_OUT,
        ),
        talk(tmp_path, transforms=(Rephrase(),), held_out=HELD_OUT, path=str(path)),
    ):
        held_out = {plain_words(q) for split in ("dev", "test") for q in questions(source, 0, split)}
        asked = {plain_words(q) for variant in range(9) for q in questions(source, variant)}
        assert held_out
        assert len(asked) > 1.5 * len(questions(source, 0))  # they are put in many other words,
        assert not held_out & asked  # but never in these


def test_every_answer_stays_with_its_own_question(tmp_path: Path) -> None:
    source = talk(tmp_path, transforms=(Rephrase(), UseAnalogies(share=1.0)))
    answers = [[texts_of(e)[1] for e in read_examples(source, "", "train", variant)] for variant in range(9)]
    assert all(found == answers[0] for found in answers)
    analogies = Analogies.learn([can_you(), [f"Do you like {thing}" for thing in THINGS]])
    mixed = [new for question in can_you() for new in analogies.phrasings(question, 0) if "like" in new]
    assert mixed == []


def test_balance_shows_small_intents_more_often(tmp_path: Path) -> None:
    def counts(balance: float, variant: int) -> Counter:
        source = talk(tmp_path, transforms=(Balance(strength=balance),))
        return Counter(texts_of(example)[1] for example in read_examples(source, "", "train", variant))

    assert counts(0.0, 1) == counts(1.0, 0) == {"No.": 6, "Yes.": 36}  # the first variant is the file itself
    assert counts(1.0, 1) == {"No.": 36, "Yes.": 36}
    assert 6 < counts(0.5, 1)["No."] < 36


def test_questions_come_in_the_midst_of_talk_about_other_things(tmp_path: Path) -> None:
    dialogues = [[f"{i} {turn}" for turn in "abcdefghi"] for i in range(40)]
    write_jsonl(tmp_path / "d.jsonl", [{"turns": turns} for turns in dialogues])
    source = talk(tmp_path, transforms=(Compose(interleave_with=str(tmp_path / "d.jsonl")),), held_out={"test": 0.5})
    found = [example for variant in range(9) for example in read_examples(source, "", "train", variant)]
    shapes = Counter()
    for example in found:
        roles = [message["role"] for message in example.messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2)  # whole exchanges, so that the question is the user's
        kinds = ["talk" if text[0].isdigit() else "question" for text in texts_of(example)]
        shapes[tuple(kind for kind, _ in groupby(kinds))] += 1
    assert 0.1 < 1 - shapes[("question",)] / len(found) < 0.6
    for shape in (("talk", "question"), ("question", "talk"), ("question", "talk", "question")):
        assert shapes.pop(shape) > 3, shape
    assert list(shapes) == [("question",)]  # one piece of talk is enough, and never without a question
    heard = {text.split()[0] for example in found for text in texts_of(example) if text[0].isdigit()}
    allowed = {turns[0].split()[0] for turns in dialogues if split_of(" ".join(turns), {"test": 0.5}) == "train"}
    assert len(heard) > 5
    assert heard <= allowed  # what is held out is not heard either


def test_a_dialogue_that_does_not_begin_with_the_user_is_not_interleaved(tmp_path: Path) -> None:
    messages = [{"role": role, "content": "0"} for role in ("system", "user", "assistant")]
    write_jsonl(tmp_path / "d.jsonl", [{"messages": messages}, {"turns": ["1 a", "1 b"]}])
    source = talk(tmp_path, transforms=(Compose(interleave_with=str(tmp_path / "d.jsonl")),))
    said = {text for variant in range(9) for e in read_examples(source, "", "train", variant) for text in texts_of(e)}
    assert "1 a" in said
    assert "0" not in said


def test_what_cannot_be_answered_is_asked_in_many_ways_and_never_as_what_is_held_out(tmp_path: Path) -> None:
    lines = [f"Frage\tWhat is it that {name} is going to do on day {i}?" for i in range(40) for name in ("Tom", "Ann")]
    (tmp_path / "q.tsv").write_text("\n".join(lines), encoding="utf-8")
    source = Source(name="q", path=str(tmp_path / "q.tsv"), format="questions", reply="Who knows?", held_out=HELD_OUT)
    source = replace(source, variants=9, transforms=(Rephrase(),))
    trained = [texts_of(example)[0] for example in read_examples(source, "", "train")]
    assert 20 < len(trained) < 60
    asked = [texts_of(example) for variant in range(9) for example in read_examples(source, "", "train", variant)]
    assert {reply for _, reply in asked} == {"Who knows?"}
    assert len({question for question, _ in asked}) > 2 * len(trained)
    assert {split_of(question, HELD_OUT) for question, _ in asked} == {"train"}
    talking = replace(source, format="intents", reply="", path=str(tmp_path / "i.jsonl"), transforms=())
    write_jsonl(tmp_path / "i.jsonl", [{"questions": [line.split("\t")[1] for line in lines], "answer": "No."}])
    judged = {texts_of(example)[0] for split in HELD_OUT for example in read_examples(talking, "", split)}
    assert judged.isdisjoint(trained)
    assert len(judged) + len(trained) == len(lines)  # the same share of both sources holds the same questions out


def test_only_questions_have_a_reply_and_they_need_one() -> None:
    for wrong in ({"format": "questions"}, {"format": "intents", "reply": "No idea."}):
        with pytest.raises(ConfigError, match="needs a reply, and no other has one"):
            Source(name="q", **wrong)
    for wrong in ("(", "a{99999999999999999999}"):
        with pytest.raises(ConfigError, match="keep of q is no regular expression"):
            Source(name="q", format="stories", keep=wrong)


def test_examples_with_unwanted_texts_are_left_out(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "d.jsonl", [{"turns": ["Hi", "I am (User 2)"]}, {"turns": ["Hi", "hello"]}])
    source = Source(name="d", path=str(path), format="dialogues", leave_out=r"\(user")
    assert [texts_of(example) for example in read_examples(source, "", "train")] == [["Hi", "hello"]]
    with pytest.raises(ConfigError, match="no regular expression"):
        replace(source, leave_out="(")


STORY = (
    "Once upon a time, there was a little girl named Lily. Lily had a fox and an owl. The fox ran. "
    "Foxes run, but Lily could not bear it, and the owl flew to the castle. The castle was old."
)


def test_a_recast_story_has_other_heroes_all_through() -> None:
    seen = set()
    for seed in range(30):
        told = recast(STORY, random.Random(seed))
        words = re.findall(r"\w+", told)
        assert not {"Lily", "fox", "Foxes", "owl"} & set(words)
        assert "could not bear it" in told
        assert told.count(words[words.index("named") + 1]) == 3
        assert len(words) == len(re.findall(r"\w+", STORY))
        assert not re.search(r"\ba [aeio]|\ban [^aeiou]", told)
        (hero,) = re.findall(r"had an? (\w+)", told)
        assert hero in CASTS[0] + HEROES
        assert f"The {hero} ran. {plural(hero).capitalize()} run" in told
        seen.add(hero)
    assert len(seen) > 10
    assert seen & set(CASTS[0])
    assert seen - set(CASTS[0])  # mostly of its kind, now and then of any
    assert recast(STORY, random.Random(3)) == recast(STORY, random.Random(3))
    assert recast("Nothing is known here.", random.Random(1)) == "Nothing is known here."


def test_the_request_names_who_the_story_is_about() -> None:
    assert topics(STORY)[0] == "a girl named Lily"
    assert "the volcanic" not in topics("The volcanic plain. The volcanic rock was hot. The rock was red.")
    requests = {texts_of(story_dialogue(STORY, "", random.Random(seed)))[0] for seed in range(60)}
    assert any(" and " in request for request in requests)
    assert any("Lily" in request for request in requests)
    assert "**" not in texts_of(story_dialogue("**The Fox** sat. The fox ate.", "", random.Random(1)))[1]


def test_nobody_asks_for_what_comes_up_late() -> None:
    late = "A ship came to the bay. The ship saw the bay. The ship met a whale. The whale met the ship. The whale sang."
    begun = "A bear sat by a pond. The bear saw the pond. " + "It was a long and quiet day. " * 6
    assert set(topics(begun)) == {"a bear", "a pond"}
    assert set(topics(begun + late)) == {"a bear", "a pond"}
    assert "a whale" in topics(late)


def asked_for(request: str) -> list[str]:
    """The things that a request names."""
    forms = (re.escape(form).replace(re.escape("{}"), "(.+)") for form in ABOUT)
    found = next((match.group(1) for form in forms if (match := re.fullmatch(form, request))), "")
    return [thing for thing in re.split(r", | and ", found) if thing]


def test_a_recast_source_asks_for_the_new_heroes_and_keeps_its_split(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "s.jsonl", [{"story": STORY, "title": "Lily"}] * 3)
    source = Source(name="s", path=str(path), format="stories", transforms=(Recast(),), variants=20)
    assert texts_of(next(read_examples(source, "", "train", 0)))[1] == STORY
    for variant in range(1, 20):
        request, story = texts_of(next(read_examples(source, "", "train", variant)))
        assert "Lily" not in request + story
        for thing in asked_for(request):
            noun = thing.split()[-1]
            assert {noun, plural(noun)} & set(re.findall(r"[\w-]+", story)) or noun[:-1] in story, (request, story)
