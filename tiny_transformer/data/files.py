"""Where data lies: a file, a folder, two parallel files, or a dataset on the Hub; each may be compressed (xz, gzip)."""

import hashlib
import io
import lzma
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from tiny_transformer import atomic
from tiny_transformer.errors import DataError, first_line

HUB = "hf://"
EXTENSIONS = (".tsv", ".jsonl", ".txt")
XZ, GZIP = COMPRESSED = (".xz", ".gz")
_CHECKOUT = Path(__file__).resolve().parents[2]
_USUAL_GROWTH = 4  # when it is decompressed: our files of text grow two- to sevenfold
_MAX_GROWTH = 300  # repetitive text may grow a hundredfold; a file made to fill the memory 7,000-fold, 1,000 in gzip
_MAX_UNCHECKED = 1 << 26  # bytes of text that any compressed file may hold, however small it is
_DICTIONARY_LIMIT = 1 << 27  # bytes of memory: xz -9, the highest level, needs 65 MiB to decompress
_CHUNK = 1 << 16  # bytes read or decompressed at once
_PARALLEL = re.compile(r"^(.*)\{([^{},]+),([^{},]+)\}(.*)$")


@dataclass(frozen=True)
class DataFile:
    """A file under the name the user knows it by: a local one, or one on storage that pyarrow reads."""

    name: str
    path: Path  # of a file on other storage, only the name of the path counts
    address: str = ""  # such as s3://bucket/file.txt; empty for a local file

    @classmethod
    def at(cls, place: str | Path) -> "DataFile":
        """The file of a path, or of an address with a scheme."""
        if isinstance(place, str) and "://" in place:
            try:
                parts = urlsplit(place)
            except ValueError as error:
                shown = place.rpartition("@")[2]
                raise DataError(
                    "{place} is not an address ({reason}).", place=shown, reason=first_line(error)
                ) from None
            host = parts.netloc.rpartition("@")[2]  # before it may stand a password, which no message repeats
            return cls(f"{parts.scheme}://{host}{parts.path}", Path(unquote(parts.path)), place)
        return cls(str(place), Path(place).absolute())  # another process may stand in another folder

    @contextmanager
    def open(self) -> Iterator[io.BufferedReader]:
        """The bytes as they are stored; whatever fails meanwhile is one sentence."""
        try:
            with self._stream() as stream:
                yield stream
        except OSError as error:
            template = "{file} cannot be read ({reason}); check the path."
            raise DataError(template, file=self.name, reason=error.strerror or first_line(error)) from None

    def _stream(self) -> Any:
        if not self.address:
            return self.path.open("rb")
        from pyarrow.fs import FileSystem

        try:
            system, path = FileSystem.from_uri(self.address)
            return io.BufferedReader(system.open_input_file(path), _CHUNK)
        except OSError:
            raise
        except Exception as error:  # each kind of storage has errors of its own
            raise OSError(first_line(error)) from None

    @property
    def suffix(self) -> str:
        """What the text is, by the name of the file: .tsv for pairs.tsv and for pairs.tsv.xz."""
        return Path(without_compression(self.path.name)).suffix

    @property
    def text_bytes(self) -> int:
        """How much text the file holds; of a compressed one, about."""
        size = self.path.stat().st_size
        return _USUAL_GROWTH * size if self.path.suffix in COMPRESSED else size


def without_compression(name: str) -> str:
    """The name that a file has when it is decompressed."""
    return name.removesuffix(XZ).removesuffix(GZIP)


def shipped_data() -> str:
    """The folder `datasets` of the checkout that this package runs from; empty for an installed package."""
    folder = _CHECKOUT / "datasets"
    # Beside an installed package there may be another one that is called datasets; ours lists its files.
    return str(folder) if (folder / "SHA256SUMS").is_file() else ""


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
    return all(_found(part) is not None for part in _alternatives(path))


def locate(path: str) -> list[tuple[DataFile, ...]]:
    """The files behind a path: one unit for a file, one a file for a folder, two files a unit for parallel ones.

    Where there is no file of a name, the names with .xz and .gz are tried.
    """
    found: dict[str, str] = {}
    for alternative in _alternatives(path):
        actual = _found(alternative)
        if actual is None:
            raise DataError(
                "{alternative} does not exist; check the data folder and the recipe's paths.", alternative=alternative
            )
        found[alternative] = actual
    if len(found) == 2 or found[path] != path:
        return [tuple(_fetch(actual, name) for name, actual in found.items())]
    names = _files_below(path)
    if not names:
        template = "{path} holds no {extensions} file; name a file or another folder."
        raise DataError(template, path=path, extensions=", ".join(EXTENSIONS))
    return [(_fetch(name, name),) for name in names]


@contextmanager
def open_text(file: DataFile) -> Iterator[BinaryIO]:
    """The bytes of a file's text, decompressed while they are read."""
    with file.open() as stream:
        if file.path.suffix in COMPRESSED:
            yield io.BufferedReader(_Decompressed(stream, file), _CHUNK)
        else:
            yield stream


def content_hash(file: DataFile) -> str:
    """SHA-256 of a file's text, compressed or not, remembered as long as its size and time of change stay."""
    stat = file.path.stat()
    key = hashlib.sha256(f"{file.path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()
    memory = cache_folder() / "hashes" / key
    if memory.is_file():
        return memory.read_text(encoding="ascii")
    digest = hashlib.sha256()
    with open_text(file) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    atomic.write_file(memory, digest.hexdigest())
    return digest.hexdigest()


class _Decompressor(Protocol):
    """What `lzma` has for one compressed stream."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipDecompressor:
    """The same for gzip, over zlib: what `max_length` holds back is kept for the next call."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: with gzip's header and checksum
        self._full = False  # the last call gave all it was asked for, so that more may come without input

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail and not self._full

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        text = self._stream.decompress(self._stream.unconsumed_tail + data, max_length)
        self._full = len(text) == max_length
        return text


class _Decompressed(io.RawIOBase):
    """The text of a compressed file, a chunk at a time; a file that would fill the memory is refused."""

    def __init__(self, stream: BinaryIO, file: DataFile) -> None:
        self._stream = stream
        self._file = file
        self._limit = max(_MAX_UNCHECKED, _MAX_GROWTH * stream.seek(0, os.SEEK_END))
        stream.seek(0)
        self._decompressor = self._new_decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer; 0 at the end of the file."""
        try:
            text = self._next(len(buffer))
        except (lzma.LZMAError, zlib.error) as error:
            raise self._damaged(str(error)) from None
        self._limit -= len(text)
        if self._limit < 0:
            raise DataError(
                "{file} grows more than {times:,}-fold when it is decompressed, and text does not; "
                "decompress it by hand and look at it.",
                file=self._file.name,
                times=_MAX_GROWTH,
            )
        buffer[: len(text)] = text
        return len(text)

    def _next(self, size: int) -> bytes:
        while True:
            if self._decompressor.eof:  # another stream may follow: both kinds can be joined like text files
                rest = self._decompressor.unused_data.lstrip(b"\0") or self._stream.read(_CHUNK).lstrip(b"\0")
                if not rest:
                    return b""
                self._decompressor = self._new_decompressor()
            else:
                rest = self._stream.read(_CHUNK) if self._decompressor.needs_input else b""
                if not rest and self._decompressor.needs_input:
                    raise self._damaged("it ends too early")
            if text := self._decompressor.decompress(rest, size):
                return text

    def _damaged(self, reason: str) -> DataError:
        return DataError(
            "{file} cannot be decompressed ({reason}); copy or compress it again.", file=self._file.name, reason=reason
        )

    def _new_decompressor(self) -> _Decompressor:
        if self._file.path.suffix == GZIP:
            return _GzipDecompressor()
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DICTIONARY_LIMIT)


def _alternatives(path: str) -> Sequence[str]:
    match = _PARALLEL.match(path)
    if not match:
        return (path,)
    before, first, second, after = match.groups()
    return (before + first + after, before + second + after)


def _found(path: str) -> str | None:
    """The path itself, or that of the compressed file in its place."""
    return next((name for name in (path, *(path + suffix for suffix in COMPRESSED)) if _is_there(name)), None)


def _is_there(path: str) -> bool:
    return bool(_hub().exists(path)) if path.startswith(HUB) else Path(path).exists()


def _files_below(path: str) -> list[str]:
    if path.startswith(HUB):
        hub = _hub()
        if not hub.isdir(path):
            return [path]
        names = {HUB + name for name in hub.find(path)}
    elif not Path(path).is_dir():
        return [path]
    else:
        names = {str(file) for file in Path(path).rglob("*")}
    # Where a file is there in both forms, it is read once.
    return [
        name
        for name in sorted(names)
        if (plain := without_compression(name)).endswith(EXTENSIONS) and (plain == name or plain not in names)
    ]


def _fetch(path: str, name: str) -> DataFile:
    """A Hub file comes down once per version of it; a local file is where it is."""
    if not path.startswith(HUB):
        return DataFile(name, Path(path))
    hub = _hub()
    version = str(hub.info(path)["blob_id"])
    folder = cache_folder() / "hub" / hashlib.sha256(f"{path} {version}".encode()).hexdigest()
    local = folder / path.rsplit("/", 1)[-1]
    if not local.is_file():
        with atomic.replacing_file(local) as temporary:
            hub.get_file(path, str(temporary))
    return DataFile(name, local)


def _hub() -> Any:
    from huggingface_hub import HfFileSystem

    return HfFileSystem()
