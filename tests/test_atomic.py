"""All or nothing: whatever fails, the old content stays, whole, and no temporary name is left behind."""

import ctypes
import fcntl
import os
import stat
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.models import run_python
from tiny_transformer import atomic


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def fail_while_replacing(replacing: AbstractContextManager[Path]) -> None:
    with replacing as temporary:
        (temporary / "file" if temporary.is_dir() else temporary).write_text("half of it")
        raise RuntimeError


@pytest.mark.parametrize("data", ["text ü", b"bytes \xff"])
def test_a_file_is_written_and_replaced(tmp_path: Path, data: str | bytes) -> None:
    path = tmp_path / "new" / "folder" / "file"
    atomic.write_file(path, "old")
    atomic.write_file(path, data)
    assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert names(path.parent) == {"file"}


def test_a_failure_while_writing_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic.write_file(path, "old")
    with pytest.raises(RuntimeError):
        fail_while_replacing(atomic.replacing_file(path))
    assert path.read_text() == "old"
    assert names(tmp_path) == {"file"}


def test_a_failure_to_replace_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    atomic.write_file(path, "old")

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        atomic.write_file(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == {"file"}


def path_of(descriptor: int) -> Path:
    """The file that a descriptor is open on."""
    if sys.platform == "darwin":
        return Path(os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


def test_what_is_written_reaches_the_disk_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renamed before it is synced, a file may be empty after a power cut."""
    order: list[str] = []
    sync, replace, rename = os.fsync, os.replace, os.rename
    monkeypatch.setattr(os, "fsync", lambda d: (order.append(path_of(d).name), sync(d)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("RENAME"), replace(a, b)))
    monkeypatch.setattr(os, "rename", lambda a, b: (order.append("RENAME"), rename(a, b)))
    atomic.write_file(tmp_path / "file", "x")
    at = order.index("RENAME")
    assert order[:at][0].startswith(".file.")
    assert order[at + 1 :] == [tmp_path.name]
    order.clear()
    with atomic.replacing_folder(tmp_path / "folder") as staging:
        (staging / "one").write_text("1")
        (staging / "sub").mkdir()
        (staging / "sub" / "two").write_text("2")
    at = order.index("RENAME")
    assert {"one", "sub", "two"} < set(order[:at])
    assert order[at + 1 :] == [tmp_path.name]


def replace_folder(path: Path, content: str) -> None:
    with atomic.replacing_folder(path) as staging:
        (staging / "file").write_text(content)


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "model"
    replace_folder(path, "old")
    (path / "extra").write_text("goes with the old one")
    replace_folder(path, "new")
    assert names(path) == {"file"}
    assert (path / "file").read_text() == "new"
    assert names(tmp_path) == {"model"}


def test_a_failure_while_filling_keeps_the_old_folder(tmp_path: Path) -> None:
    path = tmp_path / "model"
    replace_folder(path, "old")
    with pytest.raises(RuntimeError):
        fail_while_replacing(atomic.replacing_folder(path))
    assert (path / "file").read_text() == "old"
    assert names(tmp_path) == {"model"}


@pytest.fixture
def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system whose kernel cannot swap two folders in one step."""
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())


@pytest.mark.usefixtures("without_exchange")
def test_without_an_exchange_two_renames_do(tmp_path: Path) -> None:
    path = tmp_path / "model"
    replace_folder(path, "old")
    replace_folder(path, "new")
    assert (path / "file").read_text() == "new"
    assert names(tmp_path) == {"model"}


@pytest.mark.usefixtures("without_exchange")
@pytest.mark.parametrize("failing", [1, 2])
def test_without_an_exchange_a_failed_rename_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    path = tmp_path / "model"
    replace_folder(path, "old")
    rename, calls = os.rename, iter(range(1, 10))

    def sometimes(source: Path, target: Path) -> None:
        if next(calls) == failing:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", sometimes)
    with pytest.raises(OSError, match="Input/output"):
        replace_folder(path, "new")
    assert (path / "file").read_text() == "old"
    assert names(tmp_path) == {"model"}


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        atomic.write_file(tmp_path / "file", "x")
        replace_folder(tmp_path / "folder", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o750


def test_the_umask_of_the_process_is_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to all threads: while it is 0, a file that another thread makes is open to everybody."""

    def touched(mask: int) -> int:
        raise AssertionError(f"os.umask({mask}) was called")

    monkeypatch.setattr(os, "umask", touched)
    atomic.write_file(tmp_path / "file", "x")
    replace_folder(tmp_path / "folder", "old")
    replace_folder(tmp_path / "folder", "new")
    assert names(tmp_path) == {"file", "folder"}


def test_a_folder_is_locked_by_one_and_free_when_its_process_dies(tmp_path: Path) -> None:
    with atomic.locked_folder(tmp_path) as first:
        with atomic.locked_folder(tmp_path) as second:
            assert (first, second) == (True, False)
        with atomic.locked_folder(tmp_path) as third:
            assert not third
    code = (
        "import os, signal, sys; from pathlib import Path; from tiny_transformer import atomic\n"
        "with atomic.locked_folder(Path(sys.argv[1])) as alone:\n"
        "    print(alone, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run_python(code, tmp_path).out == "True\n"
    with atomic.locked_folder(tmp_path) as again:
        assert again


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path; from tiny_transformer import atomic\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    atomic.write_file(Path(sys.argv[1]), b'x' * 8192)\n"
        "except OSError as error:\n"
        "    print(error.filename)\n"
    )
    assert run_python(code, tmp_path / "file").out == f"{tmp_path / 'file'}\n"
    assert names(tmp_path) == set()
