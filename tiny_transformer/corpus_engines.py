"""Who answers the blocks of a corpus: this process, several processes on this machine, or workers of a Ray cluster."""

import logging
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import tempfile
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tiny_transformer.backends import Choice, files_read, on_cpu
from tiny_transformer.bundle import Bundle
from tiny_transformer.corpus_run import Answerer, Answers, Block, Blocks
from tiny_transformer.errors import BackendError, TinyTransformerError, last_line
from tiny_transformer.text_model import TextModel

LOCAL = "local"  # the address that starts a Ray cluster on this machine, for one run
_MEMORY = "perhaps for lack of memory; the same command goes on where it stopped, with fewer --workers if need be."
ATTEMPTS = 3  # workers of Ray that may end while they have one and the same block


@dataclass(frozen=True)
class Processes:
    """As many processes as workers; one worker is this process itself."""

    workers: int

    def __call__(self, answerer: Answerer, blocks: Blocks) -> Iterator[tuple[Block, Answers]]:
        """The blocks with their answers, in whichever order they are done."""
        if self.workers > 1:
            yield from _in_processes(answerer, blocks, self.workers)
            return
        model: TextModel | None = None
        for block in blocks:
            model = model or answerer.open()
            yield block, answerer.answers(model, block)


@dataclass(frozen=True)
class Ray:
    """Ray Data: a task beside the files reads blocks, a pool of actors that have the model open answers them.

    Ray starts an actor that has died again and gives it the same blocks, without end: when a machine goes, Ray used up
    a bound of five tries (`max_task_retries`) before another machine was there. So the bound is our own, and counts
    only actors that had begun the block.
    """

    address: str
    workers: int | None = None  # None: one for each CPU of the cluster, or for each GPU

    def __post_init__(self) -> None:
        if "://" in self.address:
            template = (
                "The address {address} is that of a client; run the command on a machine of the cluster, with auto."
            )
            raise BackendError(template, address=self.address)

    def __call__(self, answerer: Answerer, blocks: Blocks) -> Iterator[tuple[Block, Answers]]:
        """The blocks with their answers, in whichever order they are done."""
        import ray
        from ray.data import ActorPoolStrategy, DataContext
        from ray.exceptions import RayError

        self._connect()
        try:
            context = DataContext.get_current()
            context.enable_progress_bars = context.print_on_execution_start = False
            context.target_max_block_size = 1  # byte: a block of Ray is one of ours, so that a task is one batch
            unit = "CPU" if on_cpu(Choice(answerer.backend, answerer.device)) else "GPU"
            files = ray.put({name: (answerer.folder / name).read_bytes() for name in _names(answerer)})
            # The files lie on this machine, and reading them takes no core from a model.
            here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
            attempts = ray.remote(num_cpus=0, label_selector=here)(Attempts).remote()
            read = ray.data.from_items([{"all": 0}], override_num_blocks=1).map_batches(
                read_blocks, fn_args=(blocks,), batch_format="pyarrow", num_cpus=0, label_selector=here
            )
            done = read.map_batches(
                Actor,
                fn_constructor_args=(answerer, answerer.software, partial(ray.get, files), partial(_counted, attempts)),
                batch_size=1,
                batch_format="pyarrow",
                compute=ActorPoolStrategy(size=self.workers or self._all(unit, ray.cluster_resources())),
                num_cpus=int(unit == "CPU"),
                num_gpus=int(unit == "GPU"),
            )
            for batch in done.iter_batches(batch_size=None, batch_format="pyarrow"):
                for packed in batch.column("found").to_pylist():
                    found = pickle.loads(packed)
                    if isinstance(found, Exception):
                        raise found
                    if isinstance(found, Block):
                        template = "Lines {first:,} to {last:,} of {file} have ended {n} workers of Ray, " + _MEMORY
                        raise BackendError(template, n=ATTEMPTS, **blocks.place(found))
                    yield found
        except RayError as error:
            template = "Ray gave up ({reason}); the same command goes on where it stopped."
            raise BackendError(template, reason=last_line(error)) from None
        finally:
            ray.shutdown()

    def _all(self, unit: str, resources: Mapping[str, float]) -> int:
        """How many of a unit the cluster has; a pool without any would wait for ever."""
        found = int(resources.get(unit, 0))
        if not found:
            template = "The Ray cluster at {address} has no {unit} yet; say with --workers how many it will have."
            raise BackendError(template, address=self.address, unit=unit)
        return found

    def _connect(self) -> None:
        import ray

        # Ray reports its use to its makers unless told otherwise, and Ray Data makes it log an error for every actor.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", module=r"ray\.data")  # it advises those who write its pipelines
        more = {"include_dashboard": False, "num_cpus": self.workers} if self.address == LOCAL else {}
        try:
            host, _, port = self.address.rpartition(":")
            if host:  # Ray would try for longer than ten minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(self.address, logging_level="error", log_to_driver=False, **more)
        except (OSError, RuntimeError, ValueError) as error:
            template = "There is no Ray cluster at {address} ({reason}); start one, or use the address local."
            raise BackendError(template, address=self.address, reason=last_line(error)) from None


def read_blocks(_: Any, blocks: Blocks) -> Iterator[Any]:
    """The task that reads: one row of a table for each block. A task that is started again reads the same ones."""
    try:
        for block in blocks:
            yield _table("block", block)
    except Exception as error:
        yield _table("block", error)


class Attempts:
    """How many actors have begun a block and not finished it; kept on the machine that started the run."""

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()

    def count(self, name: str, change: int) -> int:
        """One more for a block that begins, one less for a block that is done."""
        self._begun[name] += change
        return self._begun[name] or self._begun.pop(name)


def _counted(attempts: Any, name: str, change: int) -> int:
    import ray

    return int(ray.get(attempts.count.remote(name, change)))


class Actor:
    """What Ray starts on a worker: the model, opened at the first block, so that its errors are answers too."""

    def __init__(
        self,
        answerer: Answerer,
        software: Mapping[str, str],
        files: Callable[[], Mapping[str, bytes]],
        count: Callable[[str, int], int],
    ) -> None:
        self._answerer = answerer  # with the folder of the machine that started the run
        self._software = software
        self._files = files
        self._count = count
        self._model: TextModel | None = None

    def __call__(self, batch: Any) -> Any:
        """The block and its answers; the block alone if it ended too many actors; or the error that ends the run."""
        block: Block | Exception = pickle.loads(batch.column("block")[0].as_py())
        try:
            if isinstance(block, Exception):
                raise block
            if self._count(block.name, +1) > ATTEMPTS:
                return _table("found", block)
            self._model = self._model or self._open()
            answers = self._answerer.answers(self._model, block)
            self._count(block.name, -1)
            return _table("found", (block, answers))
        except Exception as error:  # whoever started the run sees to it, as if it had happened there
            return _table("found", error)

    def _open(self) -> TextModel:
        """The model of the one who started the run, from its folder where that is here, else from a copy."""
        if self._answerer.software != self._software:
            template = "A worker of Ray has {there}, and this machine has {here}; texts could differ."
            raise BackendError(template, there=self._answerer.software, here=dict(self._software))
        folder, files = self._answerer.folder, self._files()
        if not all((folder / name).is_file() and (folder / name).read_bytes() == files[name] for name in files):
            folder = Path(tempfile.mkdtemp(prefix="tiny-transformer-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            for name, data in files.items():
                (folder / name).write_bytes(data)
        return replace(self._answerer, folder=folder).open()


def _names(answerer: Answerer) -> list[str]:
    return files_read(Bundle.open(answerer.folder, require_float_weights=False), answerer.backend)


def _table(column: str, value: Any) -> Any:
    """One value as a table, which is what Ray Data moves."""
    import pyarrow

    return pyarrow.table({column: pyarrow.array([pickle.dumps(value)], pyarrow.binary())})


def _in_processes(answerer: Answerer, blocks: Blocks, workers: int) -> Iterator[tuple[Block, Answers]]:
    waiting = iter(blocks)
    context = multiprocessing.get_context("spawn")  # a fork would share locks of other threads
    processes: list[Any] = []
    free: list[Connection] = []
    busy: dict[Connection, Block] = {}
    try:
        while True:
            while (free or len(processes) < workers) and (block := next(waiting, None)) is not None:
                if not free:
                    ours, theirs = context.Pipe()
                    processes.append(context.Process(target=_serve, args=(theirs, answerer), daemon=True))
                    processes[-1].start()
                    theirs.close()
                    free.append(ours)
                connection = free.pop()
                busy[connection] = block
                _checked(blocks.place(block), connection.send, block)
            if not busy:
                return
            ready = wait(list(busy))
            for connection in [connection for connection in busy if connection in ready]:
                found = _checked(blocks.place(busy[connection]), connection.recv)
                if isinstance(found, TinyTransformerError):
                    raise found
                yield busy.pop(connection), found
                free.append(connection)
    finally:
        for process in processes:
            process.terminate()
            process.join()
        for ours in (*free, *busy):
            ours.close()


def _checked(place: dict[str, Any], call: Callable[..., Any], *arguments: Any) -> Any:
    """A call over a pipe whose other end may have died."""
    try:
        return call(*arguments)
    except (EOFError, ConnectionError):
        template = "The process that had lines {first:,} to {last:,} of {file} has ended, " + _MEMORY
        raise BackendError(template, **place) from None


def _serve(connection: Connection, answerer: Answerer) -> None:
    """A process: answer blocks until the one that sends them is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one sees to it
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes fill the cores already
    try:
        model = answerer.open()
        while True:
            connection.send(answerer.answers(model, connection.recv()))
    except (EOFError, ConnectionError):
        return
    except TinyTransformerError as error:
        connection.send(error)
