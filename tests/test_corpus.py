"""`corpus`: killed, resumed, on one process or three, the output is the same bytes; every mistake is one sentence."""

import errno
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.corpus_answers import echo_corpus, finish, shipped_sources, wait_for
from tests.support.models import ROOT, BundleFactory, Finished, run_python
from tiny_transformer import atomic, corpus_run
from tiny_transformer.data.rows import RowFile
from tiny_transformer.errors import BackendError, DataError, InputError

FILES = ["a.txt", "b.tsv", "bad_lines.jsonl", "manifest.json", "notices.jsonl"]
Run = Callable[..., Finished]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_run, "BLOCK_ROWS", 4)


@pytest.fixture
def folder(make_bundle: BundleFactory) -> Path:
    return make_bundle(max_length=32).folder


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[Path, Path]:
    text, cells = tmp_path / "a.txt", tmp_path / "b.tsv"
    text.write_bytes(b"".join(b"text %d\n" % i for i in range(23)) + b"\xff\xfe\n\nlong\nlast")
    cells.write_bytes(b"".join(b"%d\tone\n" % i for i in range(9)) + b"only one cell\nlong\tx\n")
    return text, cells


def test_each_row_is_answered_once_and_in_its_place(folder: Path, tmp_path: Path, inputs: tuple[Path, ...]) -> None:
    corpus = echo_corpus(folder, tmp_path / "out", *inputs)
    files = finish(corpus)
    assert list(files) == FILES, "and nothing half done beside them"
    rows = files["a.txt"].decode().split("\n")[:-1]
    assert [row.split("|")[0] for row in rows] == [*(f"text {i}" for i in range(23)), "", "", "long", "last"]
    assert [row.split("|")[1] for row in rows if row] == [str(i) for i in range(27) if i not in (23, 24)]
    assert len({row.split("|")[2] for row in rows if row}) == 7
    assert [row.split("\t")[:2] for row in files["b.tsv"].decode().splitlines()] == [
        *([str(i), "one"] for i in range(9)),
        ["long", "x"],
    ]
    assert [json.loads(line) for line in files["bad_lines.jsonl"].splitlines()] == [
        {"file": "a.txt", "line": 24, "problem": "is not UTF-8", "content": "\\xff\\xfe"},
        {"file": "b.tsv", "line": 10, "problem": "has 1 columns, not 2", "content": "only one cell"},
    ]
    assert [json.loads(line) for line in files["notices.jsonl"].splitlines()] == [
        {"file": "a.txt", "line": 26, "notice": "too long"},
        {"file": "b.tsv", "line": 11, "notice": "too long"},
    ]
    manifest = json.loads(files["manifest.json"])
    assert [(file["file"], file["rows"]) for file in manifest["inputs"]] == [("a.txt", 27), ("b.tsv", 11)]
    for file in (*manifest["inputs"], *manifest["outputs"]):
        place = tmp_path if file in manifest["inputs"] else corpus.out
        assert corpus_run.sha256(place / file["file"]) == file["sha256"]
    assert manifest["model"]["files"]["model.safetensors"] == corpus_run.sha256(folder / "model.safetensors")


def test_a_block_of_long_texts_ends_earlier(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"xxxxx\n" * 8)
    monkeypatch.setattr(corpus_run, "BLOCK_CHARACTERS", 10)
    blocks = list(echo_corpus(folder, tmp_path / "out", tmp_path / "a.txt").blocks)
    assert [len(block.texts) for block in blocks] == [2, 2, 2, 2]
    assert [block.first for block in blocks] == [0, 2, 4, 6]


@pytest.mark.long
def test_workers_change_nothing(folder: Path, tmp_path: Path, inputs: tuple[Path, ...]) -> None:
    one, three = (finish(echo_corpus(folder, tmp_path / f"out{n}", *inputs), n) for n in (1, 3))
    assert one == three


@pytest.mark.long
@pytest.mark.parametrize(("backend", "beams"), [("onnx", "2"), ("onnx-int8", "1"), ("onnx-int8", "3")])
def test_the_shipped_translator_gives_the_same_bytes_on_any_number_of_processes(
    run_cli: Run, tmp_path: Path, backend: str, beams: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 8 bits, what runs beside a text changes some of them."""
    monkeypatch.setattr(corpus_run, "BLOCK_ROWS", 10)
    found = []
    for workers in ("1", "3"):
        text, out = shipped_sources(tmp_path / "a.txt", 28), tmp_path / workers
        flags = ("--workers", workers, "--num-beams", beams, "--backend", backend)
        done = run_cli("corpus", ROOT / "checkpoints/translate", text, "--out", out, *flags)
        assert (done.code, done.err.count("\n")) == (0, 1), done.err
        found.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert found[0] == found[1]
    assert found[0]["a.txt"].count(b"\n") == 28


def test_the_command_answers_as_generate_does(run_cli: Run, folder: Path, tmp_path: Path) -> None:
    import tiny_transformer as tt

    (tmp_path / "a.jsonl").write_text('{"de": "Eins. Zwei!"}\n{"de": ""}\n{"de": "Drei"}\n', encoding="utf-8")
    flags = ("--backend", "numpy", "--column", "de", "--output-column", "en", "--max-new-tokens", "5")
    drawn = ("--temperature", "1", "--seed", "3", "--no-split")
    model = tt.load(folder, "numpy")
    for more, keywords in (((), {}), (drawn, {"temperature": 1, "seed": 3, "split": False})):
        out = tmp_path / f"out{len(more)}"
        done = run_cli("corpus", folder, tmp_path / "a.jsonl", "--out", out, *flags, *more, "--workers", "1")
        assert done.code == 0, done.err
        rows = [json.loads(line) for line in (out / "a.jsonl").read_text(encoding="utf-8").splitlines()]
        expected = model.generate_batch(["Eins. Zwei!", "Drei"], numbers=[0, 2], max_new_tokens=5, **keywords)
        assert [row["en"] for row in rows] == [expected[0].text, "", expected[1].text]
    again = run_cli("corpus", folder, tmp_path / "a.jsonl", "--out", out, *flags, *drawn)
    assert (again.code, again.err) == (0, done.err), "what is done is checked, and not done again"


# A small process forks the victims; a block takes 4 ms, and all that is killed is the writing and reading of files.
KILLER = """
import json, os, random, shutil, signal, sys, time
from pathlib import Path
from tests.support.corpus_answers import echo_corpus, finish, shipped_sources, wait_for
from tiny_transformer import atomic, corpus_run

corpus_run.BLOCK_ROWS = 4
folder, place, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
inputs = [place / "a.txt", place / "b.tsv"]

start = time.perf_counter()
clean = finish(echo_corpus(folder, place / "clean", *inputs, seconds=0.004))
whole = time.perf_counter() - start
corpus = echo_corpus(folder, place / "out", *inputs, seconds=0.004)
chance, seen = random.Random(0), dict.fromkeys(("nothing", "begun", "parts", "outputs", "done"), 0)
for _ in range(kills):
    child = os.fork()
    if child == 0:
        finish(corpus)
        os._exit(0)
    time.sleep(chance.uniform(0, 0.8 * whole))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    manifest = corpus.out / "manifest.json"
    if not manifest.exists():
        seen["nothing"] += 1
    elif "outputs" in json.loads(manifest.read_text()):
        seen["done"] += 1
        assert finish(corpus) == clean
        shutil.rmtree(corpus.out)
    elif (corpus.out / "a.txt").exists():
        seen["outputs"] += 1
    else:
        seen["parts" if list(corpus.out.glob("parts/*.jsonl")) else "begun"] += 1
assert finish(corpus) == clean
print(json.dumps(seen))
"""


@pytest.mark.long
def test_a_kill_at_any_moment_loses_nothing_and_doubles_nothing(
    folder: Path, tmp_path: Path, inputs: tuple[Path, ...]
) -> None:
    done = run_python(KILLER, folder, tmp_path, "60")
    assert done.code == 0, done.err
    seen = json.loads(done.out)
    assert seen["parts"] > 5, f"the kills came at other moments: {seen}"
    assert seen["done"] > 2, f"no run ever finished: {seen}"


KILLED_WITH_WORKERS = """
import sys
from tiny_transformer import cli, corpus_run

if __name__ == "__main__":
    corpus_run.BLOCK_ROWS = 8
    sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_killed_with_its_workers_it_goes_on_and_none_of_them_stays(tmp_path: Path) -> None:
    program, text = tmp_path / "program.py", shipped_sources(tmp_path / "a.txt", 40)
    program.write_text(KILLED_WITH_WORKERS, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}

    def command(out: Path, workers: str) -> list[str]:
        flags = ("--out", out, "--backend", "onnx-int8", "--workers", workers)
        return list(map(str, (sys.executable, program, "corpus", ROOT / "checkpoints/translate", text, *flags)))

    killed, clean = tmp_path / "killed", tmp_path / "clean"
    victim = subprocess.Popen(command(killed, "2"), env=environment, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list(killed.glob("parts/*.jsonl"))) > 0)
    workers = children(victim.pid)
    victim.kill()
    victim.wait()
    assert len(workers) >= 2
    wait_for(lambda: not any(map(is_running, workers)))
    assert not (killed / "a.txt").exists()
    for out, n in ((killed, "3"), (clean, "1")):
        subprocess.run(command(out, n), env=environment, check=True, capture_output=True)
    for path in clean.iterdir():
        assert (killed / path.name).read_bytes() == path.read_bytes()


def children(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(status.parent.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_damaged_part_or_that_of_other_texts_is_made_again(
    folder: Path, tmp_path: Path, inputs: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = finish(echo_corpus(folder, tmp_path / "clean", *inputs))
    corpus = echo_corpus(folder, tmp_path / "out", *inputs)
    with monkeypatch.context() as patch:
        patch.setattr(corpus_run.Corpus, "_put_together", no_space)
        with pytest.raises(OSError, match="No space"):
            finish(corpus)
    parts = sorted((corpus.out / "parts").iterdir())
    assert len(parts) == 10
    parts[0].write_bytes(parts[0].read_bytes()[:-3])
    parts[1].write_bytes(b"")
    parts[2].write_bytes(parts[3].read_bytes())
    parts[4].write_bytes(b"{}\n")
    parts[5].unlink()
    assert finish(corpus) == clean


def no_space(*_: object) -> Iterator[None]:
    raise OSError(errno.ENOSPC, "No space left on device", "the disk")


@pytest.mark.parametrize("where", ["parts", "outputs"])
def test_a_full_disk_is_one_sentence_and_the_rest_follows(
    run_cli: Run, folder: Path, tmp_path: Path, inputs: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def command(out: str) -> Finished:
        flags = ("--backend", "numpy", "--max-new-tokens", "2", "--workers", "1")
        return run_cli("corpus", folder, *inputs, "--out", tmp_path / out, *flags)

    assert command("clean").code == 0
    with monkeypatch.context() as patch:
        write = corpus_run._write_part
        if where == "parts":
            patch.setattr(
                corpus_run, "_write_part", lambda path, *more: no_space() if "-2" in path.name else write(path, *more)
            )
            patch.setattr(corpus_run.Block, "name", property(lambda block: f"{block.file:05}-{block.number}.jsonl"))
        else:
            patch.setattr(RowFile, "_line", no_space)
        done = command("out")
        assert (done.code, done.err) == (2, "error: the disk: No space left on device; check the path and the disk.\n")
    assert not (tmp_path / "out" / "a.txt").exists()
    assert command("out").code == 0
    for path in (tmp_path / "clean").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.long
def test_a_worker_that_ends_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n" * 8 + "die\n" + "b\n" * 8, encoding="utf-8")
    corpus = echo_corpus(folder, tmp_path / "out", tmp_path / "a.txt")
    with pytest.raises(BackendError, match=r"lines 9 to 12 of .*a\.txt has ended.*the same command goes on where it"):
        finish(corpus, 2)


def test_what_has_changed_is_refused_and_nothing_is_lost(
    run_cli: Run, folder: Path, tmp_path: Path, inputs: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, cells = inputs
    flags = ("--backend", "numpy", "--max-new-tokens", "2", "--workers", "1", "--out", str(tmp_path / "out"))
    with monkeypatch.context() as patch:
        patch.setattr(RowFile, "_line", no_space)
        assert run_cli("corpus", folder, text, cells, *flags).code == 2
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.json*")}

    def refusal(*arguments: str | Path) -> str:
        done = run_cli("corpus", folder, *arguments, *flags)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err
        assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.json*")} == before
        return done.err

    assert "begun with the inputs a.txt, b.tsv" in refusal(cells, text)
    assert "begun with another options (num_beams)" in refusal(text, cells, "--num-beams", "2")
    assert "another format or column of a.txt" in refusal(text, cells, "--output-column", "x")
    original = text.read_bytes()
    text.write_bytes(original.replace(b"text 3", b"text 4"))
    assert "a.txt has changed since" in refusal(text, cells)
    text.write_bytes(original)
    generation = folder / "generation.json"
    original = generation.read_bytes()
    generation.write_bytes(original + b"\n")
    assert "begun with another model (files)" in refusal(text, cells)
    generation.write_bytes(original)
    with monkeypatch.context() as patch:
        patch.setattr(corpus_run, "__version__", "9")
        assert "begun with another software (tiny_transformer)" in refusal(text, cells)
    assert run_cli("corpus", folder, text, cells, *flags).code == 0
    (tmp_path / "out" / "b.tsv").write_bytes(b"")
    done = run_cli("corpus", folder, text, cells, *flags)
    assert (done.code, "is not what this command wrote there" in done.err) == (2, True)


def test_an_input_that_changes_during_the_run_is_refused(
    folder: Path, tmp_path: Path, inputs: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = echo_corpus(folder, tmp_path / "out", *inputs)
    original, clean = inputs[0].read_bytes(), finish(echo_corpus(folder, tmp_path / "clean", *inputs))
    count = corpus._begun

    def begun() -> dict:
        manifest = count()
        inputs[0].write_bytes(original.replace(b"text 3", b"text 4"))
        return manifest

    with monkeypatch.context() as patch:
        patch.setattr(corpus_run.Corpus, "_begun", lambda _: begun())
        with pytest.raises(DataError, match=r"a\.txt has changed since"):
            finish(corpus)
    inputs[0].write_bytes(original)
    assert finish(corpus) == clean, "answers to the other text are not used"


@pytest.mark.parametrize("change", [b"a line more\n", b""])
def test_an_input_that_grows_or_shrinks_before_it_is_read_for_the_last_time_is_refused(
    folder: Path, tmp_path: Path, inputs: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch, change: bytes
) -> None:
    corpus = echo_corpus(folder, tmp_path / "out", *inputs)
    original = inputs[0].read_bytes()
    put_together = corpus_run.Corpus._put_together

    def changed(self: corpus_run.Corpus, manifest: dict) -> list:
        inputs[0].write_bytes(original + b"\n" + change if change else original[:20])
        return put_together(self, manifest)

    with monkeypatch.context() as patch:
        patch.setattr(corpus_run.Corpus, "_put_together", changed)
        with pytest.raises(DataError, match=r"a\.txt has changed since"):
            finish(corpus)
    assert not (corpus.out / "a.txt").exists()
    inputs[0].write_bytes(original)
    assert finish(corpus) == finish(echo_corpus(folder, tmp_path / "clean", *inputs))


def test_two_runs_do_not_meet_in_a_folder(folder: Path, tmp_path: Path, inputs: tuple[Path, ...]) -> None:
    corpus = echo_corpus(folder, tmp_path / "out", *inputs)
    corpus.out.mkdir()
    with atomic.locked_folder(corpus.out), pytest.raises(DataError, match="Another run is writing"):
        finish(corpus)
    finish(corpus)


def test_names_must_not_meet_either(folder: Path, tmp_path: Path, inputs: tuple[Path, ...]) -> None:
    for names in ((inputs[0], tmp_path / "x" / "a.txt"), (tmp_path / "bad_lines.jsonl",)):
        with pytest.raises(InputError, match="would stand twice"):
            echo_corpus(folder, tmp_path / "out", *names)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("missing.txt",), "No such file"),
        (("folder.txt",), "Is a directory"),
        (("a.csv",), "--format"),
        (("a.txt", "--column", "x"), "has no columns"),
        (("a.txt", "--format", "jsonl", "--column", "generated"), "cannot be read and written"),
        (("a.txt", "--workers", "0"), "workers is 0"),
        (("a.txt", "--backend", "fast"), "There is no backend"),
        (("a.txt", "--num-beams", "0"), "num_beams is 0"),
        (("a.txt", "--threads", "2"), "unrecognized"),
        (("a.txt", "--out", "full"), "is not empty"),
        (("a.txt", "--out", "other"), "is not a manifest"),
        (("a.txt", "--out", "a.txt"), "File exists"),
        (("pipe.txt",), "can be read only once"),
        ((os.fsdecode(b"\xff.txt"),), "is not UTF-8"),
        (("a.parquet",), "pip install 'tiny-transformer[parquet]'"),
        ((), "required: INPUT"),
    ],
)
def test_bad_usage_is_one_sentence(
    run_cli: Run,
    folder: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    for name in ("folder.txt", "full", "other"):
        Path(name).mkdir()
    os.mkfifo("pipe.txt")
    for name in ("a.txt", "a.csv", "a.parquet", "full/x"):
        Path(name).write_text("x\n", encoding="utf-8")
    Path("other/manifest.json").write_text("[]", encoding="utf-8")
    done = run_cli("corpus", folder, *arguments[:1], "--out", "out", "--backend", "numpy", *arguments[1:])
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert sentence in done.err
    assert not list(Path().glob("out/*.txt"))


@pytest.mark.long
def test_memory_stays_the_same_however_many_rows_there_are(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_run, "BLOCK_ROWS", 128)
    path, peaks = tmp_path / "a.txt", []
    for n_rows in (1_000, 8_000):
        path.write_text("a line of text that is a little longer than the others\n" * n_rows, encoding="utf-8")
        tracemalloc.start()
        corpus = echo_corpus(folder, tmp_path / str(n_rows), path)
        finish(corpus)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_the_bar_tells_speed_and_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tiny_transformer.commands.corpus import _Bar
    from tiny_transformer.corpus_run import Progress

    clock = iter([100.0, 110.0, 120.0])
    monkeypatch.setattr("tiny_transformer.commands.corpus.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with _Bar() as bar:
        bar.start(1_000)
        bar.add(Progress(500, 5_000, resumed=True))
        bar.add(Progress(100, 1_000, resumed=False))
        bar.add(Progress(100, 1_000, resumed=False))
    shown = capsys.readouterr().err.replace("\r", "\n").splitlines()
    assert "60% |████████████        | 600 of 1,000 texts · 10 texts/s · 100 tokens/s · 0:00:40 left" in shown[0]
    assert "70%" in shown[1]
