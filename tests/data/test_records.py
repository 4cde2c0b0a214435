"""Reading data: every format, and what happens to lines that are not in it."""

import os
from pathlib import Path

import pytest

from tests.support.training_fixtures import write_jsonl, write_pairs
from tiny_transformer.data import records
from tiny_transformer.data.examples import read_examples
from tiny_transformer.data.records import Dialogue, Pair, Text, texts_of
from tiny_transformer.data.source import Source
from tiny_transformer.errors import DataError


def read(path: Path, kind: str, **options: object) -> list:
    source = Source.from_dict({**Source().to_dict(), "name": "data", "path": str(path), "format": kind, **options})
    return list(read_examples(source, "", "train"))


def test_pairs_are_the_same_from_tsv_jsonl_and_two_parallel_files(tmp_path: Path) -> None:
    pairs = [("Guten Tag!", "Good day!"), ("我喜欢你。", "I like you.")]
    write_pairs(tmp_path / "a.tsv", pairs)
    write_jsonl(tmp_path / "a.jsonl", [{"source": a, "target": b} for a, b in pairs])
    for column, name in enumerate(("x.de", "x.en")):
        (tmp_path / name).write_text("".join(pair[column] + "\n" for pair in pairs), encoding="utf-8")
    wanted = [Pair(a, b) for a, b in pairs]
    assert read(tmp_path / "a.tsv", "pairs") == wanted
    assert read(tmp_path / "a.jsonl", "pairs") == wanted
    assert read(tmp_path / "x.{de,en}", "pairs") == wanted
    swapped = read(tmp_path / "a.tsv", "pairs", transforms=[{"name": "swap"}])
    assert swapped == [Pair(b, a) for a, b in pairs]
    tagged = read(tmp_path / "a.tsv", "pairs", transforms=[{"name": "swap"}, {"name": "tag", "text": "2de "}])
    assert tagged == [Pair("2de " + b, a) for a, b in pairs]


def test_a_folder_is_read_file_after_file(tmp_path: Path) -> None:
    write_pairs(tmp_path / "2.tsv", [("c", "d")])
    write_pairs(tmp_path / "1.tsv", [("a", "b")])
    (tmp_path / "notes.md").write_text("not data", encoding="utf-8")
    assert read(tmp_path, "pairs") == [Pair("a", "b"), Pair("c", "d")]


def test_dialogues_of_turns_and_of_messages(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    write_jsonl(tmp_path / "d.jsonl", [{"turns": ["Hi", "Hello"]}, {"messages": messages}])
    assert read(tmp_path / "d.jsonl", "dialogues") == [Dialogue(tuple(messages))] * 2


def test_each_phrasing_of_an_intent_is_a_dialogue(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "i.jsonl", [{"questions": ["Hi", "Hey"], "answer": "Hello!"}])
    assert [texts_of(example) for example in read(tmp_path / "i.jsonl", "intents")] == [
        ["Hi", "Hello!"],
        ["Hey", "Hello!"],
    ]


def test_questions_are_the_second_side_of_pairs_and_get_one_reply(tmp_path: Path) -> None:
    pairs = [("Wie spät ist es?", "What time is it?"), ("Guten Tag!", "Good day!"), ("Wer ist da?", "Who is there?")]
    write_pairs(tmp_path / "a.tsv", pairs)
    write_jsonl(tmp_path / "a.jsonl", [{"source": a, "target": b} for a, b in pairs])
    for name in ("a.tsv", "a.jsonl"):
        found = read(tmp_path / name, "questions", reply="No idea.", keep="^wh.*[?]$")
        assert [texts_of(example) for example in found] == [
            ["What time is it?", "No idea."],
            ["Who is there?", "No idea."],
        ]


def test_blank_lines_end_the_documents_of_plain_text(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("one\ntwo\n\n\nthree\n", encoding="utf-8")
    assert read(tmp_path / "t.txt", "text") == [Text("one\ntwo"), Text("three")]


def test_a_text_without_blank_lines_is_no_document_of_its_whole_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_TEXT", 12)
    (tmp_path / "t.txt").write_text("one\ntwo\nthree\nfour\n\nfive\n", encoding="utf-8")
    assert [example.text for example in read(tmp_path / "t.txt", "text")] == ["one\ntwo", "three\nfour", "five"]


@pytest.mark.parametrize("name", ["d.jsonl", "d.tsv", "d.txt"])
def test_a_line_that_would_fill_the_memory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x\ty\n")
    os.truncate(tmp_path / name, 1 << 33)  # zeros without a line end, on no disk space
    kind = {".jsonl": "dialogues", ".tsv": "pairs", ".txt": "text"}[Path(name).suffix]
    with pytest.raises(DataError, match=rf"Line 2 of .*{name} is longer than 1,048,576 bytes; break it into shorter"):
        read(tmp_path / name, kind)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_text_in_another_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_text("Guten Morgen\n" * 300, encoding=encoding)
    with pytest.raises(DataError, match=r"lines of data are malformed \(.*a\.txt:1: not UTF-8 text"):
        read(tmp_path / "a.txt", "text")


def test_few_malformed_lines_are_left_out_and_shown_with_file_and_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [b"a\tb\n"] * 300
    lines[6], lines[9] = b"no tab\n", b"\xff\xfe\tx\n"
    (tmp_path / "a.tsv").write_bytes(b"".join(lines))
    assert len(read(tmp_path / "a.tsv", "pairs")) == 298
    assert "2 of 300 lines of data are malformed" in caplog.text
    assert "a.tsv:7: not two texts" in caplog.text
    assert "a.tsv:10: not UTF-8" in caplog.text
    caplog.clear()
    assert len(read(tmp_path / "a.tsv", "pairs")) == 298
    assert not caplog.text, "a source is read several times; what is wrong with it is said once"


@pytest.mark.parametrize(
    ("kind", "record", "reason"),
    [
        ("dialogues", {"turns": "Hi"}, "'turns' is not a list of texts"),
        ("dialogues", {"messages": [{"role": "judge", "content": "x"}]}, "role 'judge' is unknown"),
        ("intents", {"questions": ["Hi"]}, "no text under 'answer'"),
        ("stories", {"title": "x"}, "no text under 'story'"),
        ("questions", {"source": "x"}, "no text under 'target'"),
        ("pairs", ["a", "b"], "not a JSON object"),
    ],
)
def test_more_than_one_percent_malformed_is_an_error(tmp_path: Path, kind: str, record: object, reason: str) -> None:
    path = write_jsonl(tmp_path / "d.jsonl", [record] * 3)
    with pytest.raises(DataError, match=r"3 of 3 lines of data are malformed .*d\.jsonl:1") as error:
        read(path, kind, reply="No idea." if kind == "questions" else "")
    assert reason in str(error.value)


def test_parallel_files_of_different_length_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.de").write_text("eins\nzwei\n", encoding="utf-8")
    (tmp_path / "x.en").write_text("one\n", encoding="utf-8")
    with pytest.raises(DataError, match="different numbers of lines"):
        read(tmp_path / "x.{de,en}", "pairs")


def test_what_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.tsv does not exist"):
        read(tmp_path / "nowhere.tsv", "pairs")
    with pytest.raises(DataError, match=r"holds no \.tsv"):
        read(tmp_path, "pairs")
