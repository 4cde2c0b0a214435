"""Files whose rows a model answers: lines, TSV, JSON lines and Parquet, read and written in constant memory.

Lines may be compressed with xz or gzip. A row that cannot be read has a problem instead of a text, and the next row
follows.
"""

import gzip
import json
import lzma
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO

from tiny_transformer.data.files import COMPRESSED, GZIP, XZ, DataFile, open_text
from tiny_transformer.errors import DataError, first_line

# Format → the extension of its files.
FORMATS = {"text": ".txt", "tsv": ".tsv", "jsonl": ".jsonl", "parquet": ".parquet"}
DEFAULT_COLUMNS = {"text": "", "tsv": "1", "jsonl": "text", "parquet": "text"}
MAX_LINE = 1 << 20  # bytes of a line or a text: 200 pages
PARQUET_ROWS = 8_192  # of a row group that is written
# Everything that some reader takes for the end of a line.
LINE_BREAKS = dict.fromkeys(map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_IN_A_CELL = LINE_BREAKS | {ord("\t"): " "}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Answer = Sequence[str] | None  # a text and notices about it; None for a row that has a problem


@dataclass(frozen=True)
class Row:
    """One row of a file; the header of a TSV file is one too."""

    number: int  # from 1, as editors count lines
    text: str | None  # None for a header, and where there is a problem
    problem: str = ""
    content: bytes = b""  # the line itself; empty for Parquet

    @property
    def is_header(self) -> bool:
        """Whether the row names the columns."""
        return self.text is None and not self.problem


@dataclass(frozen=True)
class RowFile:
    """A file, which column of it is read, and under which name the answers are written beside it."""

    file: DataFile
    format: str
    column: str  # a name; for TSV also a number from 1, and the file then has no header
    output_column: str

    @classmethod
    def of(cls, path: str | Path, format: str | None, column: str | None, output_column: str) -> "RowFile":
        """The file of a path or an address; the format is that of its name, unless given."""
        file = DataFile.at(path)
        names = {suffix: name for name, suffix in FORMATS.items()}
        found = format or names.get(file.suffix)
        if found is None:
            template = "{file} is not called {suffixes}; say what it is with --format."
            raise DataError(template, file=path, suffixes=", ".join(names))
        if found == "parquet" and file.path.suffix in COMPRESSED:
            raise DataError("{file} is Parquet, which is compressed inside; decompress the file around it.", file=path)
        if found == "text" and column is not None:
            raise DataError("{file} is plain text, which has no columns; leave --column out.", file=path)
        column = DEFAULT_COLUMNS[found] if column is None else column
        if column == output_column or (found == "tsv" and column.isdecimal() and not int(column)):
            template = "The column {column} of {file} cannot be read and written; choose another."
            raise DataError(template, column=column, file=path)
        if not output_column or output_column != output_column.translate(_IN_A_CELL):
            raise DataError("The name of the column to write is empty or has a break in it; choose another.")
        return cls(file, found, column, output_column)

    @property
    def has_header(self) -> bool:
        """Whether the first line names the columns."""
        return self.format == "tsv" and not self.column.isdecimal()

    def rows(self) -> Iterator[Row]:
        """Every row in order, read as it is asked for."""
        if self.format == "parquet":
            for first, texts in _parquet_texts(self):
                yield from (_checked(first + i, text) for i, text in enumerate(texts))
            return
        with open_text(self.file) as stream:
            if self.format == "text":
                yield from _lines(stream)
            elif self.format == "tsv":
                yield from self._cells(stream)
            else:
                yield from (self._field(row) for row in _lines(stream))

    def write(self, answers: Iterator[Answer], path: Path) -> Iterator[tuple[Row, Answer]]:
        """Write the file again with one answer for each row that is no header; gives what was written, in order.

        A row with a problem is left out; in plain text an empty line stands for it, so that line n answers line n.
        """
        if self.format == "parquet":
            yield from _write_parquet(self, answers, path)
            return
        with _open_output(path, self.file.path.suffix) as out:
            for row in self.rows():
                if row.is_header:
                    out.write(row.content + f"\t{self.output_column}\n".encode())
                    continue
                answer = next(answers)
                out.write(self._line(row, answer))
                yield row, answer

    def _line(self, row: Row, answer: Answer) -> bytes:
        if answer is None:
            return b"\n" if self.format == "text" else b""
        if self.format == "text":
            return answer[0].translate(LINE_BREAKS).encode() + b"\n"
        if self.format == "tsv":
            return row.content + b"\t" + answer[0].translate(_IN_A_CELL).encode() + b"\n"
        # Put before the last brace: the rest of the line stays as it was written.
        added = f", {json.dumps(self.output_column)}: {json.dumps(answer[0], ensure_ascii=False)}}}\n"
        return row.content.rstrip()[:-1] + added.encode()

    def _cells(self, stream: BinaryIO) -> Iterator[Row]:
        """The rows of a TSV file: every one has as many columns as the first that can be read."""
        place = None if self.has_header else int(self.column) - 1
        n_columns = None
        for row in _lines(stream):
            cells = [] if row.text is None else row.text.split("\t")
            if place is None:
                if cells.count(self.column) != 1 or self.output_column in cells:
                    template = "The first line of {file} must name one column {column}, and no {output}; it is {line}."
                    line = row.problem or ", ".join(cells)
                    raise DataError(
                        template, file=self.file.name, column=self.column, output=self.output_column, line=line
                    )
                place, n_columns = cells.index(self.column), len(cells)
                yield Row(row.number, None, content=row.content)
            elif row.text is None:
                yield row
            elif place >= len(cells):
                yield Row(row.number, None, f"has {len(cells)} columns, and column {place + 1} is wanted", row.content)
            elif len(cells) != (n_columns := n_columns or len(cells)):
                yield Row(row.number, None, f"has {len(cells)} columns, not {n_columns}", row.content)
            else:
                yield Row(row.number, cells[place], content=row.content)

    def _field(self, row: Row) -> Row:
        """The row of a line that should be a JSON object."""
        if row.text is None:
            return row
        try:
            values = json.loads(row.text)
        except (ValueError, RecursionError):
            return Row(row.number, None, "is not JSON", row.content)
        if not isinstance(values, dict) or not isinstance(values.get(self.column), str):
            return Row(row.number, None, f"has no text in the field {self.column}", row.content)
        if self.output_column in values:
            return Row(row.number, None, f"has a field {self.output_column} already", row.content)
        return _checked(row.number, values[self.column], row.content)


def _lines(stream: BinaryIO) -> Iterator[Row]:
    """Lines as texts; of one that is too long no more than MAX_LINE is ever in memory."""
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        whole = line.endswith(b"\n") or len(line) <= MAX_LINE
        rest = b"" if whole else line
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE)
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            content = content.removeprefix(_BYTE_ORDER_MARK)
        if not whole:
            yield Row(number, None, f"is longer than {MAX_LINE:,} bytes", content)
            continue
        if b"\0" in content:  # half of the bytes of UTF-16 are, and text has none
            yield Row(number, None, "holds NUL bytes; it is not UTF-8 text", content)
            continue
        try:
            yield Row(number, content.decode("utf-8"), content=content)
        except UnicodeDecodeError:
            yield Row(number, None, "is not UTF-8", content)


def _checked(number: int, text: Any, content: bytes = b"") -> Row:
    """A row of a value from JSON or Parquet, which lines cannot vouch for."""
    if not isinstance(text, str):
        return Row(number, None, "holds no text", content)
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        return Row(number, None, "holds half a character (a lone surrogate)", content)
    return (
        Row(number, None, f"is longer than {MAX_LINE:,} bytes", content)
        if size > MAX_LINE
        else Row(number, text, content=content)
    )


@contextmanager
def _open_output(path: Path, compression: str) -> Iterator[Any]:
    """A file of bytes, compressed as the input is; nothing in it depends on when or where it was written."""
    with path.open("wb") as plain:
        if compression == XZ:
            with lzma.open(plain, "wb") as packed:
                yield packed
        elif compression == GZIP:
            with gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0) as packed:
                yield packed
        else:
            yield plain


def _parquet_schema(file: RowFile) -> Any:
    """The columns of a Parquet file, which has the one to read, and none of the name to write."""
    import pyarrow

    schema = next(_parquet_parts(file))
    if schema.names.count(file.column) != 1 or file.output_column in schema.names:
        template = "{file} must have one column {column}, and no {output}; it has {names}."
        names = ", ".join(schema.names)
        raise DataError(template, file=file.file.name, column=file.column, output=file.output_column, names=names)
    kind = schema.field(file.column).type
    value = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    if str(value) not in ("string", "large_string", "string_view", "null"):
        template = "The column {column} of {file} holds {kind}, not text; choose another with --column."
        raise DataError(template, column=file.column, file=file.file.name, kind=kind)
    return schema


def _parquet_parts(file: RowFile, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """The schema, then the rows, some thousands at a time."""
    import pyarrow
    from pyarrow import parquet

    try:
        with file.file.open() as stream, parquet.ParquetFile(stream) as opened:
            yield opened.schema_arrow
            yield from opened.iter_batches(batch_size=PARQUET_ROWS, columns=columns)
    except pyarrow.ArrowException as error:
        template = "{file} cannot be read ({reason}); check it."
        raise DataError(template, file=file.file.name, reason=first_line(error)) from None


def _parquet_texts(file: RowFile) -> Iterator[tuple[int, list[Any]]]:
    _parquet_schema(file)
    first = 1
    for batch in islice(_parquet_parts(file, [file.column]), 1, None):
        yield first, batch.column(0).to_pylist()
        first += len(batch)


def _write_parquet(file: RowFile, answers: Iterator[Answer], path: Path) -> Iterator[tuple[Row, Answer]]:
    import pyarrow
    from pyarrow import parquet

    added = pyarrow.field(file.output_column, pyarrow.string())
    first = 1
    with parquet.ParquetWriter(path, _parquet_schema(file).append(added)) as writer:
        for batch in islice(_parquet_parts(file), 1, None):
            rows = [_checked(first + i, text) for i, text in enumerate(batch.column(file.column).to_pylist())]
            found = [next(answers) for _ in rows]
            column = pyarrow.array([answer and answer[0] for answer in found], pyarrow.string())
            whole = batch.append_column(added, column)
            # Runs of rows instead of a filter, which Arrow does not have for every type of the other columns.
            gaps = [-1, *(i for i, answer in enumerate(found) if answer is None), len(found)]
            runs = [whole.slice(a + 1, b - a - 1) for a, b in pairwise(gaps) if b > a + 1]
            if runs:
                writer.write_table(pyarrow.Table.from_batches(runs), row_group_size=PARQUET_ROWS)
            yield from zip(rows, found, strict=True)
            first += len(batch)
