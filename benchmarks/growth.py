"""What a longer text costs: time a token and memory, as the past and the batch grow.

    python -m benchmarks.growth [--rounds 7]

Shape G of `benchmarks.speed`, one thread. Times: one row, single steps behind pasts of 16 to 512 tokens, float32 and
8 bits in turns. Memory: fresh processes that fill caches of several lengths and batches. Prints, writes JSON, draws.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiny_transformer.atomic import write_file
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.onnx_runtime import OrtBackend, open_ort
from tiny_transformer.bundle import Bundle

from .comparison import RESULTS, ROOT
from .machine import describe
from .models import make
from .shapes import FIRST_WORD, SHAPES

PASTS = (16, 32, 64, 128, 256, 512)
STEPS = 24  # timed behind each past, whose length is the middle of them
LIMITS = {"float32": 1.5, "int8": 2.0}  # how much longer a token may take behind 512 than behind 16
SIZES = [(1, 128), (1, 256), (1, 512), (1, 1_024), (4, 512), (8, 512), (16, 512)]  # rows, tokens

MEMORY = """
import sys, numpy as np
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.onnx_runtime import open_ort
from tiny_transformer.bundle import Bundle
rows, length = int(sys.argv[2]), int(sys.argv[3])
backend = open_ort(Bundle.open(sys.argv[1]), threads=1)
logits, state = backend.start(Batch.of([[9]] * rows), None, length)
for _ in range(length - 1):
    logits, state = backend.step(np.full((rows, 1), 9), state)
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmRSS:")))
"""


def main() -> None:
    """Measure, print, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models", type=Path, default=ROOT / ".cache" / "benchmarks")
    parser.add_argument("--json", type=Path, default=RESULTS / "growth-cpu.json")
    parser.add_argument("--chart", type=Path, default=RESULTS / "growth.png")
    options = parser.parse_args()
    folder = make(options.models, SHAPES["G"], ["onnx"])["onnx"]
    found = {"machine": describe(), "rounds": options.rounds, "times": times(folder, options.rounds)}
    for precision, figures in found["times"].items():
        shown = ", ".join(f"{past}: {1e6 * seconds:.0f}" for past, seconds in figures["seconds"].items())
        print(f"{precision:<8} µs a token behind a past of {shown}")
        growth = figures["growth"]
        print(f"         {growth:.2f} times from {PASTS[0]} to {PASTS[-1]} (wanted: at most {LIMITS[precision]})")
    found["memory_mb"] = {f"{rows} x {length}": memory(folder, rows, length) for rows, length in SIZES}
    print(
        "memory of the process, rows x tokens: " + ", ".join(f"{k}: {v:.0f} MB" for k, v in found["memory_mb"].items())
    )
    write_file(options.json, json.dumps(found, indent=1) + "\n")
    draw(found, options.chart)
    print(f"wrote {options.json} and {options.chart}", file=sys.stderr)


def times(folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds a token behind each past: the median of the rounds' medians."""
    backends = {precision: open_ort(Bundle.open(folder), threads=1, int8=precision == "int8") for precision in LIMITS}
    seconds: dict[str, dict[int, list[float]]] = {name: {past: [] for past in PASTS} for name in backends}
    for _ in range(rounds):
        for past in PASTS:
            for name, backend in backends.items():
                seconds[name][past].append(step_time(backend, past))
    found = {}
    for name, measured in seconds.items():
        medians = {past: statistics.median(figures) for past, figures in measured.items()}
        found[name] = {"seconds": medians, "growth": medians[PASTS[-1]] / medians[PASTS[0]]}
    return found


def step_time(backend: OrtBackend, past: int) -> float:
    """Seconds of one step, the median of several around this past."""
    generator = np.random.default_rng(past)
    prompt = generator.integers(FIRST_WORD, backend.config.vocab_size, past - STEPS // 2 if past > STEPS else 1)
    logits, state = backend.start(Batch.of([prompt.tolist()]), None, past + STEPS)
    taken = []
    for _ in range(STEPS):
        ids = logits.argmax(axis=-1)[:, None]
        began = time.perf_counter()
        logits, state = backend.step(ids, state)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def memory(folder: Path, rows: int, length: int) -> float:
    """MB of a fresh process whose cache is full."""
    command = [sys.executable, "-c", MEMORY, str(folder), str(rows), str(length)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    return int(done.stdout) / 1024


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Two panels: time against past, memory against places of the cache."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for (precision, figures), color in zip(found["times"].items(), ("#4f46e5", "#059669"), strict=True):
        pasts = [int(past) for past in figures["seconds"]]
        left.plot(pasts, [1000 * s for s in figures["seconds"].values()], marker="o", color=color, label=precision)
    left.set(title="Time a token", xlabel="tokens before it", ylabel="milliseconds", ylim=(0, None))
    left.legend(frameon=False)
    places = [int(size.split(" x ")[0]) * int(size.split(" x ")[1]) for size in found["memory_mb"]]
    right.plot(
        *zip(*sorted(zip(places, found["memory_mb"].values(), strict=True)), strict=True), marker="o", color="#4f46e5"
    )
    right.set(title="Memory of the process", xlabel="rows × tokens in the cache", ylabel="MB", ylim=(0, None))
    for panel in (left, right):
        panel.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
