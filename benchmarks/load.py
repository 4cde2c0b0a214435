"""Many visitors at once: clients that ask the page one question after the other, through its OpenAI protocol.

    python -m benchmarks.load [--clients 32] [--seconds 120] [--rounds 4] [--running 2]

Half of the questions are small talk, four in ten are translations and one in ten is a story. Every answer must be the
library's own greedy text. Printed for each kind: how many, the median and the 95th percentile of the seconds until
the end, and the median until the first text. Then the page's memory after each round, the seconds of a short question
beside long ones, and what continuous batches over the simultaneous questions could bring at most. That is counted in
seconds of the processor, which hardly depend on who else uses the machine.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tiny_transformer.atomic import write_file
from tiny_transformer.text_model import TextModel, load

from .comparison import RESULTS, ROOT
from .machine import describe

KINDS = {
    "chat": ("Hello! How are you today?", "Tell me a joke.", "What is your name?", "Good night!", "I am bored."),
    "translate": ("Guten Morgen! Wie geht es dir?", "Der Hund schläft unter dem Tisch.", "我明天要去北京。"),
    "story": ("Tell me a story.", "Tell me a story about a cat."),
}
SHARES = {"chat": 5, "translate": 4, "story": 1}
SHARED = "other work ran on the same cores, so seconds and answers per second are worse than on a machine of its own"
STATE_ROUNDS = 3  # in which pages that send many and few states take turns
MIXED = 60  # questions to measure batches with
BESIDE = 3  # long answers that a short question has to pass, each a search with eight beams


@dataclass(frozen=True)
class Question:
    """A text for one of the page's models, and the answer that the library gives."""

    kind: str
    model: str
    text: str
    expected: str


@dataclass
class Record:
    """What the clients saw."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    first: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    megabytes: list[list[float]] = field(default_factory=list)  # of the page in each round, once a second
    cpu_seconds: float = 0.0  # of the page

    @property
    def n_answers(self) -> int:
        """Complete and right answers."""
        return sum(map(len, self.seconds.values()))

    def summary(self, seconds: float) -> dict[str, Any]:
        """Plain values."""
        everything = [value for values in self.seconds.values() for value in values]
        kinds = {**self.seconds, "all": everything}
        rows = {
            kind: {
                "n": len(values),
                "median_s": round(statistics.median(values), 3),
                "p95_s": round(sorted(values)[int(0.95 * (len(values) - 1))], 3),
                **({"first_text_median_s": round(statistics.median(self.first[kind]), 3)} if kind != "all" else {}),
            }
            for kind, values in kinds.items()
            if values
        }
        memory = [round(statistics.median(values[len(values) // 2 :])) for values in self.megabytes if values]
        return {
            "answers_per_second": round(self.n_answers / seconds, 2),
            "errors": len(self.errors),
            "wrong_texts": len(self.wrong),
            "kinds": rows,
            "page_cpu_ms_per_answer": round(1e3 * self.cpu_seconds / max(1, self.n_answers), 1),
            "megabytes_by_round": memory,  # the median of each round's second half
        }


def questions(models: dict[str, TextModel], kinds: dict[str, Sequence[str]] | None = None) -> list[Question]:
    """Every text with the library's own answer; a story is for the chat model."""
    found = []
    for kind, texts in (kinds or KINDS).items():
        name = "translate" if kind == "translate" else "chat"
        found += [Question(kind, name, text, models[name].generate(text).text) for text in texts]
    return found


def drive(
    url: str,
    asked: Sequence[Question],
    clients: int,
    seconds: float,
    pid: int | None = None,
    record: Record | None = None,
) -> Record:
    """So many clients at once for so long; each asks, reads the stream to its end, and asks again."""
    record, lock, deadline = record or Record(), threading.Lock(), time.monotonic() + seconds
    began_with = 0.0 if pid is None else cpu_seconds(pid)
    memory: list[float] = []
    by_kind: dict[str, list[Question]] = {}
    for question in asked:
        by_kind.setdefault(question.kind, []).append(question)
    kinds = [kind for kind in by_kind for _ in range(SHARES[kind])]

    def client(number: int) -> None:
        choose = random.Random(number)
        with httpx.Client(base_url=url, timeout=120) as http:
            while time.monotonic() < deadline:
                question = choose.choice(by_kind[choose.choice(kinds)])
                began = time.monotonic()
                try:
                    text, first = ask(http, question.model, question.text)
                except (httpx.HTTPError, ValueError) as error:
                    with lock:
                        record.errors.append(repr(error))
                    continue
                with lock:
                    if text != question.expected:
                        record.wrong.append(f"{question.text!r}: {text!r}")
                    record.seconds.setdefault(question.kind, []).append(time.monotonic() - began)
                    record.first.setdefault(question.kind, []).append(first - began)

    with ThreadPoolExecutor(clients) as pool:
        work = [pool.submit(client, number) for number in range(clients)]
        while pid is not None and time.monotonic() < deadline:
            memory.append(megabytes(pid))
            time.sleep(1)
        for future in work:
            future.result()
    if pid is not None:
        record.megabytes.append(memory)
        record.cpu_seconds += cpu_seconds(pid) - began_with
    return record


def ask(http: httpx.Client, model: str, text: str, **options: Any) -> tuple[str, float]:
    """The answer, and when its first text came."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "stream": True, **options}
    pieces, first = [], 0.0
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        response.read() if response.status_code != httpx.codes.OK else None
        response.raise_for_status()
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                raise ValueError(event["error"]["message"])
            for choice in event["choices"]:
                if choice["delta"].get("content"):
                    first = first or time.monotonic()
                    pieces.append(choice["delta"]["content"])
    return "".join(pieces), first or time.monotonic()


def beside_long_answers(url: str, question: Question) -> float:
    """Seconds of a short question while others search for long answers."""
    with httpx.Client(base_url=url, timeout=300) as http, ThreadPoolExecutor(BESIDE) as pool:
        ask(http, question.model, question.text)
        others = [pool.submit(ask, http, "chat", "Tell me a story.", num_beams=8) for _ in range(BESIDE)]
        time.sleep(0.5)
        began = time.monotonic()
        ask(http, question.model, question.text)
        seconds = time.monotonic() - began
        for other in others:
            other.result()
    return seconds


def batch_gain(
    models: dict[str, TextModel],
    asked: Sequence[Question],
    record: Record,
    costs_by_states: dict[str, float],
    clients: int,
    repeats: int = 3,
) -> dict[str, Any]:
    """How many times as many answers the page could give at most if its questions shared batches.

    An answer costs the page some time of the processor. Of that the model takes a part, measured here with the same
    shares of questions, alone and together in turns. The rest is the server's, and most of that goes into the states
    of an answer that are sent while it grows. In a shared batch all answers grow slowly: every token is a state.
    """
    choose = random.Random(0)
    shares = {kind: len(record.seconds[kind]) / record.n_answers for kind in record.seconds}
    mix = [
        choose.choice([question for question in asked if question.kind == kind])
        for kind, share in shares.items()
        for _ in range(round(MIXED * share))
    ]

    def alone() -> None:
        for question in mix:
            models[question.model].generate(question.text)

    def together() -> None:  # texts that wait take the place of those that end, as in a batch that visitors share
        for name, model in models.items():
            texts = [question.text for question in mix if question.model == name]
            model.backend.max_rows = max(1, round(clients * len(texts) / len(mix)))
            model.generate_batch(texts)

    def cost(work: Callable[[], None]) -> float:
        began = time.process_time()
        work()
        return 1e3 * (time.process_time() - began) / len(mix)

    costs = [(cost(alone), cost(together)) for _ in range(repeats)]
    each = costs_by_states["a state for every token"]
    shared_page = [each - by_itself + shared for by_itself, shared in costs]
    return {
        "page_cpu_ms": {states: round(page, 1) for states, page in costs_by_states.items()},
        "model_alone_cpu_ms": [round(by_itself, 1) for by_itself, _ in costs],
        "model_in_batch_cpu_ms": [round(shared, 1) for _, shared in costs],
        "at_most": {
            states: [round(page / shared, 2) for shared in shared_page] for states, page in costs_by_states.items()
        },
        "at_most_median": {
            states: round(statistics.median(page / shared for shared in shared_page), 2)
            for states, page in costs_by_states.items()
        },
    }


def cost_by_states(asked: Sequence[Question], clients: int, seconds: float, *options: str) -> dict[str, float]:
    """Milliseconds of the processor that an answer costs a page which sends every token, and one which sends none.

    How many states an answer has depends on how fast it grows: these are the ends. Both pages take turns.
    """
    found: dict[str, Record] = {}
    with served(*options, seconds_between=0.0) as every, served(*options, seconds_between=1e3) as one:
        pages = {"a state for every token": every, "one state": one}
        for url, _ in pages.values():
            drive(url, asked, 4, 5)  # loads the models
        for _ in range(STATE_ROUNDS):
            for states, (url, pid) in pages.items():
                found[states] = drive(url, asked, clients, seconds / STATE_ROUNDS, pid, found.get(states))
    return {states: 1e3 * record.cpu_seconds / record.n_answers for states, record in found.items()}


def cpu_seconds(pid: int) -> float:
    """What a process has had of the processor so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")  # as user and as system


def megabytes(pid: int) -> float:
    """Memory of a process that is really in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# The page with another time between two states of an answer.
OTHER_STATES = """import sys
from tiny_transformer.ui import server, streaming
streaming.SECONDS_BETWEEN = float(sys.argv.pop(1))
sys.exit(server.main())"""


@contextmanager
def served(*options: str, seconds_between: float | None = None) -> Iterator[tuple[str, int]]:
    """The page as `python app.py` serves it: its address and its process."""
    program = [str(ROOT / "app.py")] if seconds_between is None else ["-c", OTHER_STATES, str(seconds_between)]
    command = [sys.executable, *program, "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if "is at http" in line)
        yield line.split()[-1].rstrip("/"), process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rounds", type=int, default=1, help="to see whether memory goes on growing")
    parser.add_argument("--running", type=int, default=None, help="requests that the page answers at the same time")
    parser.add_argument("--shared", action="store_true", help="note that other work used the cores, too")
    parser.add_argument("--json", type=Path, default=RESULTS / "load-cpu.json")
    options = parser.parse_args()
    models = {name: load(ROOT / "checkpoints" / name, "onnx", threads=1) for name in ("chat", "translate")}
    asked = questions(models)
    running = [] if options.running is None else ["--max-running", str(options.running)]
    with served(*running) as (url, pid):
        drive(url, asked, 4, 5)  # loads the models
        record = Record()
        for _ in range(options.rounds):
            drive(url, asked, options.clients, options.seconds, pid, record)
        found = record.summary(options.rounds * options.seconds)
        short = next(question for question in asked if question.kind == "chat")
        found["short_beside_long_s"] = round(beside_long_answers(url, short), 2)
    by_states = {"as it is": 1e3 * record.cpu_seconds / max(1, record.n_answers)}
    by_states |= cost_by_states(asked, options.clients, options.seconds, *running)
    found["batches"] = batch_gain(models, asked, record, by_states, options.clients)
    found |= {"machine": describe(), "clients": options.clients, "seconds": options.seconds, "rounds": options.rounds}
    found |= {"note": SHARED} if options.shared else {}
    for name, value in found.items():
        if name == "kinds":
            for kind, row in value.items():
                print(f"{kind:<10}" + "".join(f"  {key} {number}" for key, number in row.items()))
        elif name != "machine":
            print(f"{name}: {value}")
    for problem in [*record.errors, *record.wrong][:5]:
        print(problem, file=sys.stderr)
    write_file(options.json, json.dumps(found, indent=1) + "\n")
    print(f"wrote {options.json}", file=sys.stderr)
    if record.errors or record.wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
