"""Files through a model, exactly once: killed at any moment and started again, a run gives the same bytes.

A row of a batch may differ in its last bits with the rows beside it, and in 8 bits that changes a few texts. So
what runs together is a function of the input alone: rows are cut into blocks by their position, and a block is always
one batch on one thread. An engine answers blocks, here or on other machines; the answers of each become a file, which
only the process that runs this code writes, in one step. What a resumed run has to do is every block that has no such
file. The last step puts them together.
"""

import hashlib
import json
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tiny_transformer import __version__, atomic
from tiny_transformer.backends import BACKENDS, files_read
from tiny_transformer.bundle import Bundle, sha256
from tiny_transformer.data.rows import Answer, Row, RowFile
from tiny_transformer.errors import DataError, InputError
from tiny_transformer.generation import GenerationOptions
from tiny_transformer.text_model import TextModel

MANIFEST, BAD_LINES, NOTICES, PARTS = "manifest.json", "bad_lines.jsonl", "notices.jsonl", "parts"
# The last rows of a block run in smaller and smaller batches, so small blocks are slow (`python -m benchmarks.corpus
# --block-rows N` measures it). With more rows, a kill loses more, and the last blocks keep fewer processes busy.
BLOCK_ROWS = 1_024
BLOCK_CHARACTERS = 1 << 18  # a block of long texts ends earlier
_SHOWN = 200  # bytes of a bad line that are reported


@dataclass(frozen=True)
class Block:
    """Rows that run together: some thousand sentences of one file."""

    file: int  # which of the inputs
    number: int  # in its file, from 0
    first: int  # how many rows of the file stand before it
    texts: tuple[str | None, ...]  # None for a row that has a problem

    @property
    def name(self) -> str:
        """The file of its answers."""
        return f"{self.file:05}-{self.number:08}.jsonl"

    @property
    def digest(self) -> str:
        """What tells its texts from others."""
        return hashlib.sha256(json.dumps(self.texts).encode()).hexdigest()


@dataclass(frozen=True)
class Blocks:
    """The blocks of files that have no answers yet: the same at every reading, in this process or in another."""

    inputs: tuple[RowFile, ...]
    n_rows: int  # of a block
    n_characters: int
    answered: frozenset[str] = frozenset()  # names of blocks to leave out

    def __iter__(self) -> Iterator[Block]:
        for i, file in enumerate(self.inputs):
            for block in self._of_file(i, file.rows()):
                if block.name not in self.answered:
                    yield block

    def place(self, block: Block) -> dict[str, Any]:
        """Where a block stands, for a message: its file, and its lines as editors count them."""
        file = self.inputs[block.file]
        first = block.first + 1 + file.has_header
        return {"file": file.file.name, "first": first, "last": first + len(block.texts) - 1}

    def _of_file(self, file: int, rows: Iterator[Row]) -> Iterator[Block]:
        """Rows by their position alone, so that every run cuts them alike."""
        texts: list[str | None] = []
        number = first = size = 0
        for row in rows:
            if row.is_header:
                continue
            texts.append(row.text)
            size += len(row.text or "")
            if len(texts) == self.n_rows or size >= self.n_characters:
                yield Block(file, number, first, tuple(texts))
                number, first, size, texts = number + 1, first + len(texts), 0, []
        if texts:
            yield Block(file, number, first, tuple(texts))


@dataclass(frozen=True)
class Answers:
    """What a block gave."""

    rows: list[Answer]
    n_tokens: int


@dataclass(frozen=True)
class Answerer:
    """A model and how it is asked; each process opens it for itself, with one thread."""

    folder: Path
    backend: str
    device: str | None
    options: GenerationOptions
    raw: bool = False
    split: bool = True

    def open(self) -> TextModel:
        """The model, which whoever made this has checked."""
        bundle = Bundle.open(self.folder, require_float_weights=False)
        return TextModel(bundle, BACKENDS[self.backend].open(bundle, self.device, 1))

    @property
    def software(self) -> dict[str, str]:
        """What, apart from the model and the text, decides the answers; of the machine that asks."""
        package = BACKENDS[self.backend].package
        return {"tiny_transformer": __version__, package: version(package), "machine": platform.machine()}

    def answers(self, model: TextModel, block: Block) -> Answers:
        """One batch; an empty text gives an empty answer, and each draws random numbers by its row."""
        asked = [i for i, text in enumerate(block.texts) if text]
        results = model.generate_batch(
            [text for text in block.texts if text],
            raw=self.raw,
            split=self.split,
            numbers=[block.first + i for i in asked],
            **asdict(self.options),
        )
        rows: list[Answer] = [None if text is None else ("",) for text in block.texts]
        for i, result in zip(asked, results, strict=True):
            rows[i] = (result.text, *map(str, result.notices))
        return Answers(rows, sum(len(result.ids) for result in results))


# Answers every block, in whichever order they are done.
Engine = Callable[[Answerer, Blocks], Iterator[tuple[Block, Answers]]]


@dataclass(frozen=True)
class Progress:
    """What a run reports after every block."""

    n_rows: int
    n_tokens: int
    resumed: bool  # answered by an earlier run


@dataclass(frozen=True)
class Corpus:
    """Everything that decides the output, and the folder that it goes to."""

    answerer: Answerer
    inputs: tuple[RowFile, ...]
    out: Path

    def __post_init__(self) -> None:
        names = [file.file.path.name for file in self.inputs]
        for name in names:
            if any(
                0xD800 <= ord(character) < 0xE000 for character in name
            ):  # how Python shows bytes of another encoding
                template = "The name of {file} is not UTF-8, so a manifest cannot hold it; rename the file."
                raise InputError(template, file=name.encode(errors="backslashreplace").decode())
            if names.count(name) > 1 or name in (MANIFEST, BAD_LINES, NOTICES, PARTS):
                template = "The name {name} would stand twice in {out}; rename the file, or run it by itself."
                raise InputError(template, name=name, out=self.out)

    def run(
        self, engine: Engine, started: Callable[[int], None], progress: Callable[[Progress], None]
    ) -> dict[str, Any]:
        """Do what is not done yet; the finished manifest. `started` hears how many rows there are in all."""
        self.out.mkdir(parents=True, exist_ok=True)
        with atomic.locked_folder(self.out) as alone:
            if not alone:
                raise DataError("Another run is writing to {out}; wait for it, or choose another --out.", out=self.out)
            manifest = self._begun()
            started(sum(file["rows"] for file in manifest["inputs"]))
            if "outputs" not in manifest:
                _remove_leftovers(self.out)
                n_tokens = 0
                for report in self._answer(engine):
                    progress(report)
                    n_tokens += report.n_tokens
                manifest = {**manifest, "tokens": n_tokens, "outputs": self._put_together(manifest)}
                _write_json(self.out / MANIFEST, manifest)
            else:
                self._check_outputs(manifest)
            shutil.rmtree(self.out / PARTS, ignore_errors=True)
        return manifest

    def _begun(self) -> dict[str, Any]:
        """The manifest of the run that is to go on, or a new one; what differs from it is refused."""
        path = self.out / MANIFEST
        stored = _read_manifest(path) if path.exists() else None
        if stored is None and any(not file.name.startswith(f".{MANIFEST}.") for file in self.out.iterdir()):
            template = "{out} is not empty and holds no {manifest} of an earlier run; choose another --out."
            raise DataError(template, out=self.out, manifest=MANIFEST)
        bundle = Bundle.open(self.answerer.folder, require_float_weights=False)
        promise: dict[str, Any] = {
            "software": self.answerer.software,
            "model": {
                "backend": self.answerer.backend,
                "files": {name: sha256(bundle.folder / name) for name in files_read(bundle, self.answerer.backend)},
            },
            "options": {
                **asdict(self.answerer.options),
                "stop": list(self.answerer.options.stop),
                "raw": self.answerer.raw,
                "split": self.answerer.split,
                "device": self.answerer.device,
                "block": [BLOCK_ROWS, BLOCK_CHARACTERS],
            },
        }
        inputs = [_described(file) for file in self.inputs]
        if stored is not None:
            for what, value in promise.items():
                if stored.get(what) != value:
                    template = "{out} was begun with another {what}; repeat that command, or choose another --out."
                    raise DataError(template, out=self.out, what=_differing(what, stored.get(what), value))
            self._check_same(inputs, stored["inputs"])
            return stored
        counted = [
            {**known, "rows": sum(not row.is_header for row in file.rows())}
            for known, file in zip(inputs, self.inputs, strict=True)
        ]
        manifest = {**promise, "inputs": counted}
        _write_json(path, manifest)
        return manifest

    def _check_same(self, inputs: Sequence[dict[str, Any]], stored: Sequence[dict[str, Any]]) -> None:
        """The inputs must be those that the run began with."""
        if [file["file"] for file in inputs] != [file["file"] for file in stored]:
            template = "{out} was begun with the inputs {names}; repeat that command, or choose another --out."
            raise DataError(template, out=self.out, names=", ".join(file["file"] for file in stored))
        for now, then in zip(inputs, stored, strict=True):
            if now["sha256"] != then["sha256"]:
                self._refuse_changed(now["file"])
            if now | {"rows": then["rows"]} != then:
                template = "{out} was begun with another format or column of {file}; repeat that command."
                raise DataError(template, out=self.out, file=now["file"])

    def _refuse_changed(self, name: str) -> None:
        template = "{file} has changed since {out} was begun; put it back as it was, or choose another --out."
        raise DataError(template, file=name, out=self.out)

    @property
    def blocks(self) -> Blocks:
        """Everything that is to be answered."""
        return Blocks(self.inputs, BLOCK_ROWS, BLOCK_CHARACTERS)

    def _answer(self, engine: Engine) -> Iterator[Progress]:
        """See to it that every block has its file of answers."""
        parts = self.out / PARTS
        parts.mkdir(exist_ok=True)
        answered: set[str] = set()
        for block in self.blocks if any(parts.iterdir()) else ():
            found = _read_part(parts / block.name, block.digest)
            if found is not None:
                answered.add(block.name)
                yield Progress(len(block.texts), found.n_tokens, resumed=True)
        for block, answers in engine(self.answerer, replace(self.blocks, answered=frozenset(answered))):
            _write_part(parts / block.name, block.digest, answers)
            yield Progress(len(block.texts), answers.n_tokens, resumed=False)

    def _put_together(self, manifest: dict[str, Any]) -> list[dict[str, Any]]:
        """Write the outputs from the inputs and the answers of all blocks."""
        written: list[dict[str, Any]] = []
        with ExitStack() as stack:
            bad, notices = (
                stack.enter_context(
                    stack.enter_context(atomic.replacing_file(self.out / name)).open("w", encoding="utf-8")
                )
                for name in (BAD_LINES, NOTICES)
            )
            for i, (file, known) in enumerate(zip(self.inputs, manifest["inputs"], strict=True)):
                name, n_bad = file.file.path.name, 0
                with atomic.replacing_file(self.out / name) as temporary:
                    for row, answer in file.write(self._stored_answers(i), temporary):
                        if answer is None:
                            n_bad += 1
                            content = row.content[:_SHOWN].decode("utf-8", errors="backslashreplace")
                            _write_line(bad, file=name, line=row.number, problem=row.problem, content=content)
                        else:
                            for notice in answer[1:]:
                                _write_line(notices, file=name, line=row.number, notice=notice)
                    if _sha256(file) != known["sha256"]:  # while it was read for the last time
                        self._refuse_changed(name)
                written.append({"file": name, "rows": known["rows"] - n_bad, "bad_lines": n_bad})
        written += [{"file": name} for name in (BAD_LINES, NOTICES)]
        return [{**file, "sha256": sha256(self.out / file["file"])} for file in written]

    def _stored_answers(self, file: int) -> Iterator[Answer]:
        """The answers to the rows of a file; whoever asks for one more has read more rows than there were."""
        number = 0
        while (found := _read_part(self.out / PARTS / Block(file, number, 0, ()).name)) is not None:
            yield from found.rows
            number += 1
        self._refuse_changed(self.inputs[file].file.path.name)

    def _check_outputs(self, manifest: dict[str, Any]) -> None:
        for file in manifest["outputs"]:
            path = self.out / file["file"]
            if not path.is_file() or sha256(path) != file["sha256"]:
                template = "{file} is not what this command wrote there; remove {out} to make it again."
                raise DataError(template, file=path, out=self.out)


def _described(file: RowFile) -> dict[str, Any]:
    path = file.file.path
    if not file.file.address and path.exists() and not path.is_file() and not path.is_dir():
        raise DataError("{file} can be read only once; write it to a file first.", file=file.file.name)
    return {
        "file": path.name,
        "sha256": _sha256(file),
        "format": file.format,
        "column": file.column,
        "output_column": file.output_column,
    }


def _sha256(file: RowFile) -> str:
    with file.file.open() as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _differing(what: str, then: Any, now: dict[str, Any]) -> str:
    """Which value of the model, the options or the software is another one."""
    names = [name for name in now if not isinstance(then, dict) or then.get(name) != now[name]]
    return f"{what} ({', '.join(names)})" if names else what


def _write_part(path: Path, digest: str, answers: Answers) -> None:
    body = "".join(json.dumps(row) + "\n" for row in answers.rows).encode()
    head = {"texts": digest, "answers": hashlib.sha256(body).hexdigest(), "tokens": answers.n_tokens}
    atomic.write_file(path, json.dumps(head).encode() + b"\n" + body)


def _read_part(path: Path, digest: str | None = None) -> Answers | None:
    """The answers of a block; None if there are none yet, or if they are damaged or those of other texts."""
    if not path.is_file():
        return None
    line, _, body = path.read_bytes().partition(b"\n")
    try:
        head = json.loads(line)
        if head["answers"] != hashlib.sha256(body).hexdigest() or head["texts"] != (digest or head["texts"]):
            return None
        return Answers([json.loads(row) for row in body.splitlines()], head["tokens"])
    except (ValueError, KeyError, TypeError):
        return None


def _remove_leftovers(out: Path) -> None:
    """Files that a kill left half written."""
    for folder in (out, out / PARTS):
        for path in folder.glob(".*.tmp"):
            path.unlink()


def _write_json(path: Path, value: dict[str, Any]) -> None:
    atomic.write_file(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def _write_line(out: Any, **values: Any) -> None:
    out.write(json.dumps(values, ensure_ascii=False) + "\n")


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and {"software", "model", "options", "inputs"} <= found.keys():
            return found
    except ValueError:
        pass
    raise DataError("{file} is not a manifest of this command; choose another --out.", file=path)
