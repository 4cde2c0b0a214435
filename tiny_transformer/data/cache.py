"""Tokenized data on disk: written once, memory-mapped ever after, found by the hash of all that made it."""

import hashlib
import json
import logging
from array import array
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tiny_transformer import atomic
from tiny_transformer.data.augment import Compose
from tiny_transformer.data.encoding import Encoded, encode_examples
from tiny_transformer.data.examples import interleaved_files, partners, read_examples, source_files
from tiny_transformer.data.files import cache_folder, content_hash
from tiny_transformer.data.source import Source
from tiny_transformer.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

# Settings that the ids don't depend on.
_WITHOUT_EFFECT = ("path", "repeat", "variants", "evaluated", "licence", "attribution", "url")
_VERSION = 6  # counts changes of the layout and of how examples become ids
_FLUSH = 1 << 18  # numbers gathered in memory before they go to the file


@dataclass(frozen=True)
class Column:
    """Sequences laid end to end: row i is ids[offsets[i]:offsets[i + 1]]."""

    ids: np.ndarray  # uint16 or uint32, memory-mapped
    offsets: np.ndarray  # int64, one more than rows, memory-mapped

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Part:
    """One source in one variant, as ids."""

    source: Column | None  # None for decoder-only data
    target: Column
    learn: np.ndarray  # uint8, beside target.ids: 1 where the token is predicted
    learned: np.ndarray  # int32 a row: how many of its tokens are predicted

    def __len__(self) -> int:
        return len(self.learned)


def tokenized(
    source: Source,
    root: str,
    tokenizer: Tokenizer,
    max_length: int,
    *,
    split: str = "train",
    variant: int = 0,
    among: Sequence[Source] = (),
) -> Part:
    """The ids of one split of a source among those of a recipe; only the first call for the same content works."""
    # Only training is varied: what is evaluated stays as the tokenizer spells it.
    variant = variant % source.variants if split == "train" else 0
    folder = cache_folder() / "tokens" / _key(source, root, tokenizer, max_length, split, variant, among)
    if not folder.is_dir():
        dropout = source.bpe_dropout if variant else 0.0
        examples = read_examples(source, root, split, variant, among)
        if split == "train" and not variant:
            logger.info(
                "tokenizing %s%s", source.name, f" in {source.variants} variants" if source.variants > 1 else ""
            )
        with atomic.replacing_folder(folder) as staging:
            rows = encode_examples(examples, tokenizer, source, max_length, dropout=dropout)
            _write(staging, rows, tokenizer.vocab_size)
    return _open(folder)


def _key(
    source: Source,
    root: str,
    tokenizer: Tokenizer,
    max_length: int,
    split: str,
    variant: int,
    among: Sequence[Source],
) -> str:
    """Hash of everything the ids depend on; where the file lies and how often it is repeated are not among it."""
    varied = source if split == "train" else replace(source.without(Compose), bpe_dropout=0.0)
    values = {
        "version": _VERSION,
        **_content(varied, root),
        "partners": [_content(other, root) for other in _partners_of_all(varied, among)],
        "tokenizer": hashlib.sha256(tokenizer.to_json().encode()).hexdigest(),
        "output_size": tokenizer.output_size,
        "max_length": max_length,
        "split": split,
        "variant": variant,
    }
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _content(source: Source, root: str) -> dict[str, Any]:
    """The settings of a source that its examples depend on, and the hashes of its files."""
    settings = {k: v for k, v in source.to_dict().items() if k not in _WITHOUT_EFFECT}
    for transform in settings["transforms"]:
        transform.pop("interleave_with", None)  # a path: what the files hold is hashed below
    return {
        "files": [[content_hash(file) for file in unit] for unit in source_files(source, root)],
        "interleaved": [[content_hash(file) for file in unit] for unit in interleaved_files(source, root)],
        "settings": settings,
    }


def _partners_of_all(source: Source, among: Sequence[Source]) -> list[Source]:
    """What is joined to a source, and what those leave their phrasings to."""
    direct = partners(source, among)
    further = (other for partner in direct for other in partners(partner.without(Compose), among))
    return [other.without(Compose) for other in {found.name: found for found in (*direct, *further)}.values()]


def _write(folder: Path, rows: Iterable[Encoded], vocab_size: int) -> None:
    """Append row after row, never holding more than a buffer of them."""
    code = "H" if vocab_size <= 1 << 16 else "I"
    codes = {"source.ids": code, "source.offsets": "q", "target.ids": code, "target.offsets": "q"}
    codes |= {"learn": "B", "learned": "i"}
    with ExitStack() as stack:
        files = {n: _Appended(stack.enter_context((folder / f"{n}.bin").open("wb")), c) for n, c in codes.items()}
        totals = {"source": 0, "target": 0}
        for name in totals:
            files[f"{name}.offsets"].add([0])
        for row in rows:
            for name, ids in (("source", row.source), ("target", row.target)):
                totals[name] += len(ids)
                files[f"{name}.ids"].add(ids)
                files[f"{name}.offsets"].add([totals[name]])
            files["learn"].add(row.learn)
            files["learned"].add([sum(row.learn)])
        for file in files.values():
            file.flush()
    manifest = {"dtype": "uint16" if code == "H" else "uint32", "source": totals["source"] > 0}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


class _Appended:
    """A file of numbers of one type, written a buffer at a time."""

    def __init__(self, file: BinaryIO, code: str) -> None:
        self._file = file
        self._buffer = array(code)

    def add(self, values: Iterable[int]) -> None:
        self._buffer.extend(values)
        if len(self._buffer) >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        self._file.write(self._buffer.tobytes())
        del self._buffer[:]


def _open(folder: Path) -> Part:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    target = _column(folder, "target", manifest["dtype"])
    return Part(
        source=_column(folder, "source", manifest["dtype"]) if manifest["source"] else None,
        target=target,
        learn=_map(folder / "learn.bin", "uint8"),
        learned=_map(folder / "learned.bin", "int32"),
    )


def _column(folder: Path, name: str, dtype: str) -> Column:
    return Column(_map(folder / f"{name}.ids.bin", dtype), _map(folder / f"{name}.offsets.bin", "int64"))


def _map(path: Path, dtype: str) -> np.ndarray:
    """A plain array over the file's pages; slicing a numpy.memmap itself costs ten times as much."""
    # An empty file cannot be mapped.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if path.stat().st_size else np.empty(0, dtype=dtype)
