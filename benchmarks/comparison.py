"""Engines in turns: processes that are all open at once, one working at a time, in an order that rotates."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
WARM_UPS = 2
PAUSE = 0.05  # seconds between turns, so that no thread of the last one still runs


@dataclass(frozen=True)
class Task:
    """Work that is timed: rows to continue by so many tokens, a few times over."""

    name: str
    rows: Sequence[Sequence[int]]
    n_new: int  # 0: to the end of each text
    times: int = 1
    beams: int = 1

    @property
    def n_tokens(self) -> int:
        """Tokens written each time."""
        return len(self.rows) * self.n_new


@dataclass
class Record:
    """What one engine did."""

    name: str
    import_mb: float
    load_s: float  # of the model, its library's own import included
    start_s: float  # from the start of the process until the model was open
    peak_mb: float = 0.0  # after the first task
    seconds: dict[str, list[float]] = field(default_factory=dict)  # task → one figure a round
    ids: dict[str, list[list[int]]] = field(default_factory=dict)


class Process:
    """A worker and the pipe to it."""

    def __init__(self, python: str, name: str, folder: Path, threads: int, device: str) -> None:
        environment = os.environ | {
            # Threads that wait in a loop would take the core from whoever's turn it is, and from CTranslate2 itself.
            "OMP_WAIT_POLICY": "PASSIVE",
            "OMP_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT),
        }
        command = [python, "-m", "benchmarks.worker", name, str(folder), str(threads), device]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        began = time.monotonic()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        self._name = name
        opened = self._answer()
        self.record = Record(name, opened["import_mb"], opened["load_s"], time.monotonic() - began)

    def work(self, task: Task) -> dict[str, Any]:
        """Do a task; seconds, ids, peak memory."""
        assert self._process.stdin is not None
        print(json.dumps(asdict(task)), file=self._process.stdin)
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            said = self._errors.read()[-3000:]
            self.close()
            raise SystemExit(f"{self._name} stopped:\n{said}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


def compare(
    folders: Mapping[str, Path],
    tasks: Sequence[Task],
    *,
    rounds: int,
    threads: int,
    device: str = "cpu",
    pythons: Mapping[str, str] | None = None,
) -> dict[str, Record]:
    """Every engine does every task, once a round, in turns; entry → record."""
    interpreters = pythons or {}
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(Process(interpreters.get(name, sys.executable), name, folder, threads, device))
            for name, folder in folders.items()
        }
        for process in processes.values():
            process.record.peak_mb = process.work(tasks[0])["peak_mb"]
        for task in tasks:
            for process in processes.values():
                for _ in range(WARM_UPS):
                    process.work(task)
            for turn in range(rounds):
                names = list(processes)
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    time.sleep(PAUSE)
                    answer = processes[name].work(task)
                    record = processes[name].record
                    record.seconds.setdefault(task.name, []).append(answer["seconds"])
                    record.ids[task.name] = answer["ids"]
        return {name: process.record for name, process in processes.items()}
