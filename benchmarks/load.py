"""Many visitors at once: clients that ask the page one question after the other, through its OpenAI protocol.

    python -m benchmarks.load [--clients 32] [--seconds 120] [--running 2] [--url http://127.0.0.1:7860]

Half of the questions are small talk, four in ten are translations and one in ten is a story. Every answer must be the
library's own greedy text. Printed for each kind: how many, the median and the 95th percentile of the seconds until
the end, and the median until the first text. Then the page's memory over time, the seconds of a short question beside
long ones, and what continuous batches over the simultaneous questions could bring at most.
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
from collections.abc import Iterator, Sequence
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
    megabytes: list[float] = field(default_factory=list)  # of the page, once a second

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
        quarter = max(1, len(self.megabytes) // 4)
        starts = range(0, min(len(self.megabytes), 4 * quarter), quarter)
        memory = [round(statistics.median(self.megabytes[i : i + quarter])) for i in starts]
        return {
            "answers_per_second": round(self.n_answers / seconds, 2),
            "errors": len(self.errors),
            "wrong_texts": len(self.wrong),
            "kinds": rows,
            "megabytes_by_quarter": memory,
        }


def questions(models: dict[str, TextModel], kinds: dict[str, Sequence[str]] | None = None) -> list[Question]:
    """Every text with the library's own answer; a story is for the chat model."""
    found = []
    for kind, texts in (kinds or KINDS).items():
        name = "translate" if kind == "translate" else "chat"
        found += [Question(kind, name, text, models[name].generate(text).text) for text in texts]
    return found


def drive(url: str, asked: Sequence[Question], clients: int, seconds: float, pid: int | None = None) -> Record:
    """So many clients at once for so long; each asks, reads the stream to its end, and asks again."""
    record, lock, deadline = Record(), threading.Lock(), time.monotonic() + seconds
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
            record.megabytes.append(megabytes(pid))
            time.sleep(1)
        for future in work:
            future.result()
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


def batch_gain(models: dict[str, TextModel], asked: Sequence[Question], page_seconds: float) -> dict[str, float]:
    """How much faster the page could be at most if its questions shared batches.

    `page_seconds` is what an answer costs the page under load. Of that the model takes a part; batches make this part
    cheaper and leave the rest, which is the server's, as it is.
    """
    choose = random.Random(0)
    by_kind = {kind: [question for question in asked if question.kind == kind] for kind in SHARES}
    mix = [choose.choice(by_kind[kind]) for kind, share in SHARES.items() for _ in range(4 * share)]
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:  # as many as the page runs at the same time
        list(pool.map(lambda question: models[question.model].generate(question.text), mix))
    alone = (time.monotonic() - began) / len(mix)
    began = time.monotonic()
    for name, model in models.items():
        model.generate_batch([question.text for question in mix if question.model == name])
    together = (time.monotonic() - began) / len(mix)
    server = max(page_seconds - alone, 0.0)
    return {
        "page_ms": round(1e3 * page_seconds, 2),
        "model_alone_ms": round(1e3 * alone, 2),
        "model_in_batch_ms": round(1e3 * together, 2),
        "at_most": round((server + alone) / (server + together), 2),
    }


def megabytes(pid: int) -> float:
    """Memory of a process that is really in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def served(*options: str) -> Iterator[tuple[str, int]]:
    """The page as `python app.py` serves it: its address and its process."""
    command = [sys.executable, str(ROOT / "app.py"), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
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
    parser.add_argument("--running", type=int, default=None, help="requests that the page answers at the same time")
    parser.add_argument("--json", type=Path, default=RESULTS / "load-cpu.json")
    options = parser.parse_args()
    models = {name: load(ROOT / "checkpoints" / name, "onnx", threads=1) for name in ("chat", "translate")}
    asked = questions(models)
    running = [] if options.running is None else ["--max-running", str(options.running)]
    with served(*running) as (url, pid):
        drive(url, asked, 4, 5)  # loads the models
        record = drive(url, asked, options.clients, options.seconds, pid)
        found = record.summary(options.seconds)
        short = next(question for question in asked if question.kind == "chat")
        found["short_beside_long_s"] = round(beside_long_answers(url, short), 2)
    found["batches"] = batch_gain(models, asked, options.seconds / max(1, record.n_answers))
    found |= {"machine": describe(), "clients": options.clients, "seconds": options.seconds}
    for kind, row in found["kinds"].items():
        print(f"{kind:<10}" + "".join(f"  {name} {value}" for name, value in row.items()))
    for name in (
        "answers_per_second",
        "errors",
        "wrong_texts",
        "megabytes_by_quarter",
        "short_beside_long_s",
        "batches",
    ):
        print(f"{name}: {found[name]}")
    for problem in [*record.errors, *record.wrong][:5]:
        print(problem, file=sys.stderr)
    write_file(options.json, json.dumps(found, indent=1) + "\n")
    print(f"wrote {options.json}", file=sys.stderr)
    if record.errors or record.wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
