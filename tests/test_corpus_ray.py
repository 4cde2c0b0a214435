"""`corpus --ray`: workers and machines that die are replaced, and the output is the same bytes as without Ray."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.corpus_answers import echo_corpus, finish, shipped_sources, wait_for
from tests.support.models import ROOT, BundleFactory, Finished, run_python
from tiny_transformer import corpus_run
from tiny_transformer.corpus_engines import ATTEMPTS, Actor, Attempts, Ray, read_blocks
from tiny_transformer.corpus_run import Answerer, Answers, Block, Blocks
from tiny_transformer.errors import BackendError, DataError
from tiny_transformer.generation import GenerationOptions


def without_a_pool(answerer: Answerer, blocks: Blocks) -> Iterator[tuple[Block, Answers]]:
    """What Ray does, in this process: the task that reads, and an actor that a pickle has carried elsewhere."""
    files = {name: (answerer.folder / name).read_bytes() for name in ("config.json", "model.safetensors")}
    actor = Actor(*pickle.loads(pickle.dumps((answerer, answerer.software))), lambda: files, Attempts().count)
    for table in reversed(list(read_blocks(None, pickle.loads(pickle.dumps(blocks))))):  # any order will do
        found = pickle.loads(actor(table).column("found")[0].as_py())
        if isinstance(found, Exception):
            raise found
        yield found


@pytest.fixture
def folder(make_bundle: BundleFactory) -> Path:
    return make_bundle(max_length=32).folder


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(corpus_run, "BLOCK_ROWS", 4)
    path = tmp_path / "a.txt"
    path.write_text("".join(f"text {i}\n" for i in range(23)), encoding="utf-8")
    return path


def test_the_task_that_reads_and_the_actor_give_what_processes_give(folder: Path, text: Path, tmp_path: Path) -> None:
    clean = finish(echo_corpus(folder, tmp_path / "clean", text))
    assert finish(echo_corpus(folder, tmp_path / "out", text), without_a_pool) == clean


def test_a_run_that_began_without_ray_goes_on_with_it(folder: Path, text: Path, tmp_path: Path) -> None:
    clean = finish(echo_corpus(folder, tmp_path / "clean", text))
    corpus = echo_corpus(folder, tmp_path / "out", text)
    asked: list[int] = []

    def three_blocks(answerer: Answerer, blocks: Blocks) -> Iterator[tuple[Block, Answers]]:
        for block, answers in without_a_pool(answerer, blocks):
            if len(asked) == 3:
                raise KeyboardInterrupt
            asked.append(block.number)
            yield block, answers

    with pytest.raises(KeyboardInterrupt):
        finish(corpus, three_blocks)
    written = {path: path.stat().st_mtime_ns for path in (corpus.out / "parts").iterdir()}
    assert len(written) == 3

    def the_rest(answerer: Answerer, blocks: Blocks) -> Iterator[tuple[Block, Answers]]:
        assert [block.number for block in blocks] == [i for i in range(6) if i not in asked]
        yield from without_a_pool(answerer, blocks)
        assert {path: path.stat().st_mtime_ns for path in written} == written, "a block was answered twice"

    assert finish(corpus, the_rest) == clean


def test_an_actor_far_from_the_folder_has_a_copy_of_it(folder: Path, tmp_path: Path) -> None:
    answerer = Answerer(folder, "numpy", "cpu", GenerationOptions(max_new_tokens=3))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    block = Block(0, 0, 0, ("Guten Morgen!", None, ""))
    expected = answerer.answers(answerer.open(), block)
    other = make_other(folder, tmp_path / "other")
    for elsewhere in (tmp_path / "nowhere", other):
        moved = Answerer(elsewhere, "numpy", "cpu", GenerationOptions(max_new_tokens=3))
        actor = Actor(moved, answerer.software, lambda: files, Attempts().count)
        assert answer(actor, block) == (block, expected)


def make_other(folder: Path, path: Path) -> Path:
    """A folder with the same names and other weights: what an old copy on another machine would be."""
    path.mkdir()
    for file in folder.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    (path / "model.safetensors").write_bytes(b"old")
    return path


def answer(actor: Actor, block: Block | Exception) -> object:
    import pyarrow

    table = pyarrow.table({"block": pyarrow.array([pickle.dumps(block)], pyarrow.binary())})
    return pickle.loads(actor(table).column("found")[0].as_py())


def test_other_software_on_a_worker_is_one_sentence(folder: Path) -> None:
    answerer = Answerer(folder, "numpy", "cpu", GenerationOptions())
    actor = Actor(answerer, {**answerer.software, "numpy": "1.0"}, dict, Attempts().count)
    found = answer(actor, Block(0, 0, 0, ("a",)))
    assert isinstance(found, BackendError)
    assert "'numpy': '1.0'" in str(found)


def test_a_block_that_was_begun_too_often_comes_back_alone(folder: Path) -> None:
    attempts, block = Attempts(), Block(0, 0, 0, ("a",))
    answerer = echo_corpus(folder, folder, "a.txt").answerer
    actor = Actor(answerer, answerer.software, dict, attempts.count)
    for _ in range(ATTEMPTS + 1):  # what is done and lost with a machine is not held against a block
        assert isinstance(answer(actor, block), tuple)
    for _ in range(ATTEMPTS):
        attempts.count(block.name, +1)
    assert answer(actor, block) == block
    assert isinstance(answer(actor, Block(0, 1, 1, ("a",))), tuple)


def test_a_cluster_without_a_gpu_is_one_sentence() -> None:
    assert Ray("auto")._all("CPU", {"CPU": 3.0, "memory": 1e9}) == 3
    with pytest.raises(BackendError, match="has no GPU yet; say with --workers"):
        Ray("auto")._all("GPU", {"CPU": 3.0})


def test_what_goes_wrong_where_the_files_are_read_arrives_as_it_is(folder: Path, text: Path, tmp_path: Path) -> None:
    corpus = echo_corpus(folder, tmp_path / "out", text)
    blocks = corpus.blocks
    text.unlink()
    (table,) = read_blocks(None, blocks)
    with pytest.raises(DataError, match="cannot be read"):
        raise pickle.loads(table.column("block")[0].as_py())


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("ray://head:10001", "run the command on a machine of the cluster"),
        ("local", "pip install 'tiny-transformer[ray]'"),
    ],
)
def test_bad_usage_is_one_sentence(
    run_cli: Callable[..., Finished],
    folder: Path,
    text: Path,
    tmp_path: Path,
    address: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if address == "local":
        monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    done = run_cli("corpus", folder, text, "--out", tmp_path / "out", "--backend", "numpy", "--ray", address)
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert sentence in done.err
    assert not (tmp_path / "out" / "a.txt").exists()


# A cluster of two machines, as far as Ray can tell: the head has one core, the other one two.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 10**8})
more = dict(num_cpus=2, object_store_memory=10**8)
node = cluster.add_node(**more)
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(node, allow_graceful=False)
    node = cluster.add_node(**more)
    print("another", flush=True)
cluster.shutdown()
"""
COMMAND = """
import sys
from tiny_transformer import cli, corpus_run

if __name__ == "__main__":
    corpus_run.BLOCK_ROWS = 8
    sys.exit(cli.main(sys.argv[1:]))
"""


def actors() -> set[int]:
    """The processes in which Ray has our actor."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"MapWorker(MapBatches(Actor))" in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.alone
def test_a_worker_a_machine_and_the_command_itself_are_killed(tmp_path: Path) -> None:
    """On a real cluster: the command is killed and run again, then an actor dies, then a machine is another one."""
    if find_spec("ray") is None:
        pytest.fail("This test needs Ray, which `make test-all` installs: pip install -r requirements-ray.txt")
    text = shipped_sources(tmp_path / "a.txt", 500)
    program, out, clean = tmp_path / "program.py", tmp_path / "out", tmp_path / "clean"
    program.write_text(COMMAND, encoding="utf-8")
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}

    def command(out: Path, *more: str) -> list[str]:
        flags = ("--out", out, "--backend", "onnx-int8", *more)
        return list(map(str, (sys.executable, program, "corpus", ROOT / "checkpoints/translate", text, *flags)))

    def n_parts() -> int:
        return len(list(out.glob("parts/*.jsonl")))

    subprocess.run(command(clean), env=environment, check=True, capture_output=True)
    with subprocess.Popen([sys.executable, "-c", CLUSTER], env=environment, text=True, **pipes) as cluster:
        try:
            assert cluster.stdin is not None
            assert cluster.stdout is not None
            address = cluster.stdout.readline().strip()
            ray = command(out, "--ray", address, "--workers", "3")
            with subprocess.Popen(ray, env=environment, stderr=subprocess.DEVNULL) as first:
                wait_for(lambda: n_parts() > 1)
                first.kill()
            written = {path: path.stat().st_mtime_ns for path in out.glob("parts/*.jsonl")}
            wait_for(lambda: not actors())
            with subprocess.Popen(ray, env=environment, stderr=subprocess.PIPE) as second:
                wait_for(lambda: n_parts() > len(written) and len(actors()) == 3)
                victims = actors()
                os.kill(min(victims), 9)
                wait_for(lambda: len(actors() - victims) > 0)
                kept = {path: path.stat().st_mtime_ns for path in written}
                assert n_parts() < 63, "the run ended before anything could go wrong"
                cluster.stdin.write("\n")
                cluster.stdin.flush()
                assert cluster.stdout.readline() == "another\n"
                _, errors = second.communicate(timeout=300)
            assert second.returncode == 0, errors
            assert kept == written, "a block was answered twice"
        finally:
            cluster.stdin.close()
            cluster.wait(60)
    assert {path.name for path in out.iterdir()} == {path.name for path in clean.iterdir()}
    for file in clean.iterdir():
        assert (out / file.name).read_bytes() == file.read_bytes()


@pytest.mark.slow
@pytest.mark.alone
def test_ray_on_this_machine_for_one_run(tmp_path: Path) -> None:
    """Parquet in 8 bits and float32, and what Ray started is gone afterwards."""
    if find_spec("ray") is None:
        pytest.fail("This test needs Ray, which `make test-all` installs: pip install -r requirements-ray.txt")
    import pyarrow
    from pyarrow import parquet

    lines = shipped_sources(tmp_path / "a.txt", 60).read_text(encoding="utf-8").splitlines()
    parquet.write_table(pyarrow.table({"text": [*lines, None]}), tmp_path / "b.parquet")
    found = []
    for name, flags in (("out", ("--ray", "local")), ("clean", ("--workers", "1"))):
        arguments = (
            "corpus",
            "checkpoints/translate",
            tmp_path / "b.parquet",
            "--out",
            tmp_path / name,
            "--backend",
            "onnx",
        )
        done = run_python(
            "import sys; from tiny_transformer.cli import main; sys.exit(main(sys.argv[1:]))", *arguments, *flags
        )
        assert done.code == 0, done.err
        found.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert found[0] == found[1]
    assert not actors()


DEADLY = """
import sys
from pathlib import Path
from tests.support.corpus_answers import echo_corpus, finish
from tiny_transformer import corpus_run
from tiny_transformer.corpus_engines import Ray
from tiny_transformer.errors import BackendError

corpus_run.BLOCK_ROWS = 4
folder, out, text = map(Path, sys.argv[1:])
try:
    finish(echo_corpus(folder, out, text, column="de"), Ray("local", 2))
except BackendError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.alone
def test_a_block_that_ends_every_actor_ends_the_run_in_one_sentence(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("ray") is None:
        pytest.fail("This test needs Ray, which `make test-all` installs: pip install -r requirements-ray.txt")
    monkeypatch.setattr(corpus_run, "BLOCK_ROWS", 4)
    cells, out = tmp_path / "a.tsv", tmp_path / "out"
    lines = [f"text {i}" for i in range(80)]
    lines[37] = "die"
    cells.write_text("de\n" + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = run_python(DEADLY, folder, out, cells)
    assert done.code == 0, done.err
    sentence = f"Lines 38 to 41 of {cells} have ended 3 workers of Ray, perhaps for lack of memory; the same command"
    assert [line for line in done.out.splitlines() if line.startswith(sentence)], done.out  # Ray writes there too
    assert not actors()
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("parts/*.jsonl")}
    assert len(kept) > 4, "what the other actor had finished is kept"
    healthy = echo_corpus(folder, out, cells, column="de", mortal=False)

    def the_rest(answerer: Answerer, blocks: Blocks) -> Iterator[tuple[Block, Answers]]:
        assert not kept.keys() & {block.name for block in blocks}
        yield from without_a_pool(answerer, blocks)

    clean = finish(echo_corpus(folder, tmp_path / "clean", cells, column="de", mortal=False))
    assert finish(healthy, the_rest) == clean
