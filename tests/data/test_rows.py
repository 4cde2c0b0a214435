"""Rows of files: every format, compressed or not, comes out as it went in with an answer more; bad rows stay apart."""

import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tiny_transformer.data.rows import MAX_LINE, RowFile
from tiny_transformer.errors import DataError

PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".xz": lzma.compress, ".gz": gzip.compress}
UNPACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".xz": lzma.decompress, ".gz": gzip.decompress}


def row_file(path: Path, data: bytes, column: str | None = None, format: str | None = None) -> RowFile:
    path.write_bytes(data)
    return RowFile.of(path, format, column, "generated")


def texts(file: RowFile) -> list[str | None]:
    return [row.text for row in file.rows() if not row.is_header]


def problems(file: RowFile) -> dict[int, str]:
    return {row.number: row.problem for row in file.rows() if row.problem}


def answered(file: RowFile, out: Path, break_lines: bool = False) -> bytes:
    """What is written where the answer to a text is the text in capitals."""
    more = "\n\t\u2028!" if break_lines else ""
    answers = (None if row.text is None else [row.text.upper() + more] for row in file.rows() if not row.is_header)
    written = list(file.write(answers, out))
    assert [row for row, _ in written] == [row for row in file.rows() if not row.is_header]
    return out.read_bytes()


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize(
    ("name", "column", "data", "expected"),
    [
        ("a.txt", None, "ä\n\n 你 \r\nlast", "Ä\n\n 你 \nLAST\n"),
        ("a.tsv", None, "a\tb\nc\td\n", "a\tb\tA\nc\td\tC\n"),
        ("a.tsv", "2", "a\tb\r\nc\td\r\n", "a\tb\tB\nc\td\tD\n"),
        ("a.tsv", "en", "de\ten\na\tb\n", "de\ten\tgenerated\na\tb\tB\n"),
        ("a.jsonl", None, '{"n": 1.50, "text": "ä"} \n', '{"n": 1.50, "text": "ä", "generated": "Ä"}\n'),
        ("a.jsonl", "x", '\ufeff{"x":"\\u00e4"}\n', '{"x":"\\u00e4", "generated": "Ä"}\n'),
    ],
)
def test_lines_come_out_with_their_answers(
    tmp_path: Path,
    pack: str,
    name: str,
    column: str | None,
    data: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = row_file(tmp_path / (name + pack), PACK[pack](data.encode()), column)
    first = answered(file, tmp_path / "one")
    assert UNPACK[pack](first).decode() == expected
    monkeypatch.setattr("time.time", lambda: 1.0)
    assert answered(file, tmp_path / "two") == first, "neither time nor name is in the file"


def test_an_answer_stays_on_its_line_and_in_its_cell(tmp_path: Path) -> None:
    text, tsv, lines = (
        row_file(tmp_path / name, data)
        for name, data in (("a.txt", b"a"), ("a.tsv", b"a"), ("a.jsonl", b'{"text":"a"}'))
    )
    assert answered(text, tmp_path / "1", break_lines=True).decode() == "A \t !\n"
    assert answered(tsv, tmp_path / "2", break_lines=True).decode() == "a\tA   !\n"
    assert json.loads(answered(lines, tmp_path / "3", break_lines=True))["generated"] == "A\n\t\u2028!"


def test_parquet_comes_out_with_a_column_more(tmp_path: Path) -> None:
    n = 20_000  # more than are read at once
    table = pyarrow.table({"id": range(n), "text": [f"text {i}" if i % 5 else None for i in range(n)]})
    parquet.write_table(table, tmp_path / "a.parquet")
    file = RowFile.of(tmp_path / "a.parquet", None, None, "generated")
    assert problems(file) == {i + 1: "holds no text" for i in range(0, n, 5)}
    first = answered(file, tmp_path / "b.parquet")
    found = parquet.read_table(tmp_path / "b.parquet")
    assert found.column_names == ["id", "text", "generated"]
    assert found["id"].to_pylist() == [i for i in range(n) if i % 5]
    assert found["generated"].to_pylist() == [f"TEXT {i}" for i in range(n) if i % 5]
    assert answered(file, tmp_path / "c.parquet") == first
    parquet.write_table(table.slice(0, 0), tmp_path / "none.parquet")
    answered(RowFile.of(tmp_path / "none.parquet", None, None, "generated"), tmp_path / "d.parquet")
    assert parquet.read_table(tmp_path / "d.parquet").column_names == ["id", "text", "generated"]


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", b"good\n\xff\n" + b"x" * (MAX_LINE + 1) + b"\nlast\n", {2: "is not UTF-8", 3: "is longer than"}),
        ("c.txt", "a\nb\n".encode("utf-16-le"), {1: "holds NUL bytes", 2: "holds NUL bytes", 3: "holds NUL bytes"}),
        ("b.txt", b"x" * MAX_LINE + b"\n" + b"x" * MAX_LINE, {}),
        ("a.tsv", b"a\tb\nc\nd\te\tf\n\xff\ng\th\n", {2: "has 1 columns, not 2", 3: "has 3 columns", 4: "UTF-8"}),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"text"\n[]\n{"other": "a"}\n{"text": 1}\n{"text": "\\ud800"}\n'
            b'{"text": "a", "generated": ""}\n' + b"[" * 200_000 + b'\n{"text": "b"}',
            {
                2: "is not JSON",
                3: "has no text in the field text",
                4: "has no text in the field text",
                5: "has no text in the field text",
                6: "lone surrogate",
                7: "has a field generated already",
                8: "is not JSON",
            },
        ),
    ],
)
def test_bad_rows_are_named_and_the_next_ones_read(
    tmp_path: Path, name: str, data: bytes, expected: dict[int, str]
) -> None:
    file = row_file(tmp_path / name, data)
    found = problems(file)
    assert found.keys() == expected.keys()
    assert all(part in found[number] for number, part in expected.items())
    good = sum(text is not None for text in texts(file))
    n_lines = answered(file, tmp_path / "out").count(b"\n")
    assert n_lines == (good + len(expected) if name.endswith(".txt") else good), "plain text keeps its line numbers"


def test_a_column_that_is_not_there_is_a_problem_of_every_row(tmp_path: Path) -> None:
    file = row_file(tmp_path / "a.tsv", b"a\tb\nc\td\n", "3")
    assert set(problems(file).values()) == {"has 2 columns, and column 3 is wanted"}


@pytest.mark.parametrize(
    ("name", "data", "column", "sentence"),
    [
        ("a.csv", b"a,b", None, "is not called"),
        ("a.txt", b"a", "text", "has no columns"),
        ("a.jsonl", b"", "generated", "cannot be read and written"),
        ("a.tsv", b"", "0", "cannot be read and written"),
        ("a.tsv", b"", "00", "cannot be read and written"),
        ("a.tsv", b"de\tde\n", "de", "must name one column de"),
        ("a.tsv", b"de\ten\n", "fr", "must name one column fr"),
        ("a.tsv", b"de\tgenerated\n", "de", "and no generated; it is de, generated"),
        ("a.tsv", b"\xff\n", "de", "it is is not UTF-8"),
        ("a.parquet.gz", b"", None, "decompress the file around it"),
        ("a.parquet", b"PAR1", None, "cannot be read"),
        ("a.txt.gz", gzip.compress(b"a" * 10_000, mtime=0)[:-9], None, "ends too early"),
        ("a.txt.gz", b"no", None, "cannot be decompressed"),
        ("a.txt.gz", gzip.compress(b"a" * (1 << 24), mtime=0) * 8, None, "grows more than 300-fold"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, name: str, data: bytes, column: str | None, sentence: str
) -> None:
    with pytest.raises(DataError) as error:
        list(row_file(tmp_path / name, data, column).rows())
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_parquet_without_the_column_is_one_sentence(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"a": ["b"]}), tmp_path / "a.parquet")
    for column, output in (("text", "generated"), ("a", "a2"), ("a", "generated")):
        file = RowFile.of(tmp_path / "a.parquet", None, column, output)
        if column == "a":
            assert texts(file) == ["b"]
            continue
        with pytest.raises(DataError, match="must have one column text, and no generated; it has a"):
            list(file.rows())
    twice = pyarrow.table([pyarrow.array(["b"]), pyarrow.array(["c"])], names=["text", "text"])
    parquet.write_table(twice, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="it has text, text"):
        list(RowFile.of(tmp_path / "a.parquet", None, "text", "generated").rows())


def test_parquet_has_text_of_every_kind_and_refuses_what_is_none(tmp_path: Path) -> None:
    path, found = tmp_path / "a.parquet", pyarrow.array(["a", None])
    for kind in (found.dictionary_encode(), found.cast("large_string"), found.cast("string_view")):
        parquet.write_table(pyarrow.table({"text": kind}), path)
        file = RowFile.of(path, None, None, "generated")
        assert texts(file) == ["a", None]
        answered(file, tmp_path / "b.parquet")
        assert parquet.read_table(tmp_path / "b.parquet").to_pylist() == [{"text": "a", "generated": "A"}]
    for other in ([1], [["a"]], [{"a": "b"}], [b"a"]):
        parquet.write_table(pyarrow.table({"text": other}), path)
        with pytest.raises(DataError, match=r"The column text of .* holds .*, not text"):
            list(RowFile.of(path, None, None, "generated").rows())


def test_a_column_to_write_has_a_name(tmp_path: Path) -> None:
    for name in ("", "a\tb", "a\n"):
        with pytest.raises(DataError, match="is empty or has a break in it"):
            RowFile.of(tmp_path / "a.tsv", None, None, name)


def test_any_name_will_do_with_a_format(tmp_path: Path) -> None:
    assert texts(row_file(tmp_path / "news.de", b"a\nb\n", format="text")) == ["a", "b"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_joined_gzip_files_and_long_ones_are_read_whole(tmp_path: Path, pack: Any) -> None:
    lines = [f"line {i} {i * i}" for i in range(50_000)]
    half = "\n".join(lines).encode() + b"\n"
    name = "a.txt" if pack is bytes else "a.txt.gz"
    assert texts(row_file(tmp_path / name, pack(half) + pack(half))) == lines * 2


@pytest.mark.long
def test_memory_stays_the_same_however_long_file_and_lines_are(tmp_path: Path) -> None:
    file = row_file(tmp_path / "a.txt", b"a line of text\n" * (1 << 16) + b"x" * (1 << 26) + b"\nend")
    tracemalloc.start()
    n_rows = sum(1 for _ in file.rows())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n_rows == (1 << 16) + 2
    assert peak < 6 * MAX_LINE  # of 65 times as much
