"""Tokenised data on disk: written once, memory-mapped ever after, found by the hash of all that made it."""

import hashlib
import json
import logging
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tiny_transformer import atomic
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.encoding import Encoded, encode_examples, with_dropout
from tiny_transformer.training.files import cache_folder, content_hash
from tiny_transformer.training.settings import Source
from tiny_transformer.training.sources import read_examples, source_files

logger = logging.getLogger(__name__)

_VERSION = 1  # counts changes of the layout and of how examples become ids
_FLUSH = 1 << 20  # tokens gathered in memory before they go to the file


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
    learnt: np.ndarray  # int32 a row: how many of its tokens are predicted

    def __len__(self) -> int:
        return len(self.learnt)


def tokenised(
    source: Source, root: str, tokenizer: Tokenizer, max_length: int, *, split: str = "train", variant: int = 0
) -> Part:
    """The ids of one split of a source; only the first call for the same content does any work."""
    # Only training is varied: what is evaluated stays as the tokenizer spells it.
    variant = variant % source.variants if split == "train" else 0
    folder = cache_folder() / "tokens" / _key(source, root, tokenizer, max_length, split, variant)
    if not folder.is_dir():
        encoder = with_dropout(tokenizer, source.bpe_dropout if variant else 0.0)
        examples = read_examples(source, root, split, variant)
        if split == "train" and not variant:
            logger.info("tokenising %s%s", source.name, f" in {source.variants} variants" if source.variants > 1 else "")
        with atomic.replacing_folder(folder) as staging:
            _write(staging, encode_examples(examples, encoder, source, max_length), tokenizer.vocab_size)
    return _open(folder)


def _key(source: Source, root: str, tokenizer: Tokenizer, max_length: int, split: str, variant: int) -> str:
    """Hash of everything the ids depend on; where the file lies and how often it is repeated are not among it."""
    options = {k: v for k, v in source.to_dict().items() if k not in ("path", "repeat", "variants")}
    if split != "train":
        options |= {"compose": 1, "compose_share": 0, "bpe_dropout": 0.0}
    values = {
        "version": _VERSION,
        "files": [[content_hash(file) for file in unit] for unit in source_files(source, root)],
        "tokenizer": hashlib.sha256(tokenizer.to_json().encode()).hexdigest(),
        "options": options,
        "max_length": max_length,
        "split": split,
        "variant": variant,
    }
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _write(folder: Path, rows: Iterable[Encoded], vocab_size: int) -> None:
    code = "H" if vocab_size <= 1 << 16 else "I"
    source, target = _ColumnWriter(folder, "source", code), _ColumnWriter(folder, "target", code)
    learn, learnt = array("B"), array("i")
    with (folder / "learn.bin").open("wb") as stream:
        for row in rows:
            source.add(row.source)
            target.add(row.target)
            learn.extend(row.learn)
            learnt.append(sum(row.learn))
            if len(learn) >= _FLUSH:
                _drain(learn, stream)
        _drain(learn, stream)
    (folder / "learnt.bin").write_bytes(learnt.tobytes())
    has_source = source.close() > 0
    target.close()
    manifest: Mapping[str, Any] = {"dtype": "uint16" if code == "H" else "uint32", "source": has_source}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


class _ColumnWriter:
    """Appends sequences to two files without holding more than a buffer of them."""

    def __init__(self, folder: Path, name: str, code: str) -> None:
        self._ids_file = (folder / f"{name}.ids.bin").open("wb")
        self._offsets_file = (folder / f"{name}.offsets.bin").open("wb")
        self._ids = array(code)
        self._offsets = array("q", [0])
        self._total = 0

    def add(self, ids: list[int]) -> None:
        self._ids.extend(ids)
        self._total += len(ids)
        self._offsets.append(self._total)
        if len(self._ids) >= _FLUSH:
            self._flush()

    def close(self) -> int:
        """Write what is left; the number of tokens."""
        self._flush()
        self._ids_file.close()
        self._offsets_file.close()
        return self._total

    def _flush(self) -> None:
        _drain(self._ids, self._ids_file)
        _drain(self._offsets, self._offsets_file)


def _drain(values: array, stream: BinaryIO) -> None:
    stream.write(values.tobytes())
    del values[:]


def _open(folder: Path) -> Part:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    target = _column(folder, "target", manifest["dtype"])
    return Part(
        source=_column(folder, "source", manifest["dtype"]) if manifest["source"] else None,
        target=target,
        learn=_map(folder / "learn.bin", "uint8"),
        learnt=_map(folder / "learnt.bin", "int32"),
    )


def _column(folder: Path, name: str, dtype: str) -> Column:
    return Column(_map(folder / f"{name}.ids.bin", dtype), _map(folder / f"{name}.offsets.bin", "int64"))


def _map(path: Path, dtype: str) -> np.ndarray:
    # An empty file cannot be mapped.
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype=dtype)
