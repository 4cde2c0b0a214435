"""Where data lies: a file, a folder, two parallel files, or a dataset on the Hub."""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiny_transformer import atomic
from tiny_transformer.bundle import sha256
from tiny_transformer.errors import DataError

HUB = "hf://"
EXTENSIONS = (".tsv", ".jsonl", ".txt")
_PARALLEL = re.compile(r"^(.*)\{([^{},]+),([^{},]+)\}(.*)$")


@dataclass(frozen=True)
class DataFile:
    """A local file, under the name the user knows it by."""

    name: str
    path: Path


def cache_folder() -> Path:
    """Where tokenized data and files from the Hub are kept: $TINY_TRANSFORMER_CACHE, or .cache here."""
    return Path(os.environ.get("TINY_TRANSFORMER_CACHE") or Path(".cache") / "tiny_transformer")


def join(root: str, path: str) -> str:
    """A recipe's path below the data folder; absolute paths and Hub addresses stand for themselves."""
    if not root or path.startswith(HUB) or Path(path).is_absolute():
        return path
    return f"{root.rstrip('/')}/{path}"


def exists(path: str) -> bool:
    """Whether a path leads to data."""
    return all(_is_there(part) for part in _alternatives(path))


def locate(path: str) -> list[tuple[DataFile, ...]]:
    """The files behind a path: one unit for a file, one a file for a folder, two files a unit for parallel ones."""
    alternatives = _alternatives(path)
    for alternative in alternatives:
        if not _is_there(alternative):
            raise DataError(
                "{alternative} does not exist; check the data folder and the recipe's paths.", alternative=alternative
            )
    if len(alternatives) == 2:
        return [tuple(_fetch(alternative) for alternative in alternatives)]
    names = _files_below(path)
    if not names:
        template = "{path} holds no {extensions} file; name a file or another folder."
        raise DataError(template, path=path, extensions=", ".join(EXTENSIONS))
    return [(_fetch(name),) for name in names]


def content_hash(file: DataFile) -> str:
    """SHA-256 of a file, remembered as long as its size and time of change stay."""
    stat = file.path.stat()
    key = hashlib.sha256(f"{file.path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()
    memory = cache_folder() / "hashes" / key
    if memory.is_file():
        return memory.read_text(encoding="ascii")
    found = sha256(file.path)
    atomic.write_file(memory, found)
    return found


def _alternatives(path: str) -> Sequence[str]:
    match = _PARALLEL.match(path)
    if not match:
        return (path,)
    before, first, second, after = match.groups()
    return (before + first + after, before + second + after)


def _is_there(path: str) -> bool:
    return bool(_hub().exists(path)) if path.startswith(HUB) else Path(path).exists()


def _files_below(path: str) -> list[str]:
    if path.startswith(HUB):
        hub = _hub()
        if not hub.isdir(path):
            return [path]
        return [HUB + name for name in sorted(hub.find(path)) if name.endswith(EXTENSIONS)]
    if not Path(path).is_dir():
        return [path]
    return [str(file) for file in sorted(Path(path).rglob("*")) if file.suffix in EXTENSIONS]


def _fetch(path: str) -> DataFile:
    """A Hub file comes down once per version of it; a local file is where it is."""
    if not path.startswith(HUB):
        return DataFile(path, Path(path))
    hub = _hub()
    version = str(hub.info(path)["blob_id"])
    folder = cache_folder() / "hub" / hashlib.sha256(f"{path} {version}".encode()).hexdigest()
    local = folder / path.rsplit("/", 1)[-1]
    if not local.is_file():
        with atomic.replacing_file(local) as temporary:
            hub.get_file(path, str(temporary))
    return DataFile(path, local)


def _hub() -> Any:
    from huggingface_hub import HfFileSystem

    return HfFileSystem()
