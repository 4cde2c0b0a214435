"""Tokens a second of the static page's JavaScript, beside Python's ONNX Runtime and beside transformers.js.

    python -m benchmarks.web [--rounds 9] [--python transformers-js=ENV/bin/python] [--json FILE]

Each engine is open and warm, runs on one thread and writes greedily, one text at a time, prompts included. The shipped
models write the same texts in Chromium, in Node and in Python. transformers.js cannot hold those: it is compared on
models of `benchmarks.shapes` with random weights, M2M100 (S1) and GPT-2 (G) in its own export of them by optimum, from
ids and with a fixed number of new tokens. Engines take turns in an order that rotates: the ratios are medians over
rounds, so that a busy neighbor slows all of them.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny_transformer as tt
from benchmarks.comparison import Task, compare
from benchmarks.machine import describe
from benchmarks.models import make
from benchmarks.shapes import SHAPES
from benchmarks.speed import SEED
from benchmarks.summary import agreement, ratio
from tiny_transformer.backends.javascript import BROWSERS, JavaScriptBackend, engine
from tiny_transformer.bundle import Bundle

ROOT = Path(__file__).resolve().parent.parent
# In turns, so that no engine finds the prompt in the cache of its last text.
TEXTS = {
    "chat": ("Tell me a story about a dog.", "What do you like to do on a rainy day?", "Once more: a story, please!"),
    "translate": (
        "Als ich gestern Abend nach Hause kam, saß die Katze schon vor der Tür und wartete auf ihr Futter.",
        "Wenn das Wetter am Wochenende so schön bleibt, fahren wir mit dem Fahrrad an den See und bleiben dort.",
        "我昨天在图书馆里看了一本很有意思的书，今天想把它推荐给我的朋友。",
    ),
}
NEW_TOKENS = 64
PEER = "transformers-js"
PEER_SHAPES = ("S1", "G")
Write = Callable[[str], list[int]]  # the ids of what is written for a text


def engines(folder: Path) -> dict[str, Write]:
    """Name → a function that writes, for every engine that is there; the first is the measure of the others."""
    bundle = Bundle.open(folder)
    model = tt.load(folder, "onnx", threads=1)
    found: dict[str, Write] = {
        "Python": lambda text: list(model.generate(text, split=False, max_new_tokens=NEW_TOKENS).ids)
    }
    for name, program in (("Chromium", engine(BROWSERS)), ("Node", engine(("node",)))):
        if program is not None:
            backend = JavaScriptBackend(bundle, "web", program)
            found[name] = lambda text, backend=backend: backend.written(text, NEW_TOKENS)[0]
    return found


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    """Tokens a second by engine, and each one's share of Python's in the same round."""
    writers = engines(folder)
    texts = TEXTS[folder.name]
    wanted = [writers["Python"](text) for text in texts]
    for name, write in writers.items():  # which warms them up, too
        assert [write(text) for text in texts] == wanted, f"{name} writes another text"
    tokens = sum(map(len, wanted))
    speeds: dict[str, list[float]] = {name: [] for name in writers}
    names = list(writers)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            began = time.perf_counter()
            for text in texts:
                writers[name](text)
            speeds[name].append(tokens / (time.perf_counter() - began))
    return {
        name: {
            "tokens_per_second": round(statistics.median(found), 1),
            "fastest": round(max(found), 1),
            "share_of_python": round(
                statistics.median(one / python for one, python in zip(found, speeds["Python"], strict=True)), 3
            ),
        }
        for name, found in speeds.items()
    }


def beside_peer(models: Path, rounds: int, python: str) -> dict[str, Any]:
    """Shape → tokens a second by engine, and how many times as fast our page is as each."""
    found = {}
    for shape in (SHAPES[name] for name in PEER_SHAPES):
        task = Task("one", shape.rows(1, SEED), shape.n_new, times=2)
        folders = make(models, shape, ("onnx", "web", PEER))
        records = compare(folders, [task], rounds=rounds, threads=1, pythons={PEER: python})
        seconds = {name: record.seconds[task.name] for name, record in records.items()}
        wanted = records["onnx"].ids[task.name]
        found[shape.name] = {
            name: {
                "tokens_per_second": round(task.n_tokens / statistics.median(times), 1),
                "fastest": round(task.n_tokens / min(times), 1),
                "page_as_fast": {key: round(value, 2) for key, value in ratio(seconds["web"], times).items()},
                "same_ids": agreement(records[name].ids[task.name], wanted) == 1,
            }
            for name, times in seconds.items()
        }
    return found


def main() -> None:
    """Measure, and print a table for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--python", metavar=f"{PEER}=PATH", help="the peer's interpreter, with optimum and playwright")
    parser.add_argument("--models", type=Path, default=ROOT / ".cache" / "benchmarks", help="where models are kept")
    parser.add_argument("--json", type=Path, help="keep the figures in this file")
    options = parser.parse_args()
    kept = json.loads(options.json.read_text(encoding="utf-8")) if options.json and options.json.is_file() else {}
    kept |= {"machine": describe(), "rounds": options.rounds}
    kept["shipped"] = {task: measure(ROOT / "checkpoints" / task, options.rounds) for task in TEXTS}
    print(f"{'model':<10} {'engine':<10} {'tokens/s':>9} {'fastest':>9} {'of Python':>10}")
    for task, figures in kept["shipped"].items():
        for name, figure in figures.items():
            numbers = (
                f"{figure['tokens_per_second']:>9.0f} {figure['fastest']:>9.0f} {figure['share_of_python']:>10.2f}"
            )
            print(f"{task:<10} {name:<10} {numbers}")
    if options.python:
        kept["peer"] = beside_peer(options.models, options.rounds, options.python.removeprefix(f"{PEER}="))
        print(f"\n{'shape':<6} {'engine':<16} {'tokens/s':>9} {'fastest':>9} {'page is':>9} {'same ids':>9}")
        for shape, figures in kept["peer"].items():
            for name, figure in figures.items():
                numbers = f"{figure['tokens_per_second']:>9.0f} {figure['fastest']:>9.0f}"
                times = f"{figure['page_as_fast']['median']:.2f} x"
                print(f"{shape:<6} {name:<16} {numbers} {times:>9} {figure['same_ids']!s:>9}")
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
