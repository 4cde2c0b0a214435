"""Writing that is all or nothing: a kill at any moment leaves the old file or folder whole. Linux and macOS."""

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # the disk, the largest file, the user's share


def write_file(path: Path, data: bytes | str) -> None:
    """Replace one file: temporary name beside it, fsync, rename."""
    with replacing_file(path) as temporary:
        temporary.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; what is there when the block ends replaces `path`."""
    temporary = _beside(path)
    # The kernel applies the umask to the mode. To read the umask, a process would have to change it for all threads.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = str(path)  # the system does not say which disk it is
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path`; it replaces `path` when the block ends."""
    temporary = _beside(path)
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            _sync(file)
        _sync(temporary)
        if path.exists():
            _exchange(temporary, path)
        else:
            os.rename(temporary, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def locked_folder(path: Path) -> Iterator[bool]:
    """Whether this process alone uses the folder while the block runs; the system ends the lock with the process."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except OSError as error:
            alone = error.errno not in (errno.EWOULDBLOCK, errno.EACCES)  # else the file system knows no locks
        yield alone
    finally:
        os.close(descriptor)


def _beside(path: Path) -> Path:
    """A hidden name that nothing has yet, in the same folder, which is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _exchange(new: Path, old: Path) -> None:
    """Swap two folders in one step; where the system cannot (macOS, some file systems), with two renames."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None:
        if rename(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE) == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(old))
    # Between the two renames the old folder is whole under another name.
    aside = new.with_name(f"{new.name}.old")
    os.rename(old, aside)
    try:
        os.rename(new, old)
    except OSError:
        os.rename(aside, old)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
