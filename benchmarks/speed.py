"""Who is faster, side by side: this project's backends and its peers, with the same weights and the same work.

    python -m benchmarks.speed [--shapes S1 S2 G] [--threads 1 2] [--rounds 7] [--python optimum=ENV/bin/python]

Every engine is a process of its own; all are open at once, work one at a time, and take turns in an order that
rotates. What is timed is greedy generation of a fixed number of tokens from ids: no tokenizer, no early end. Ratios
are medians over rounds of times measured in the same round. Prints a table, writes the JSON and draws the chart.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tiny_transformer.atomic import write_file
from tiny_transformer.backends.onnx_runtime import read_per_step
from tiny_transformer.bundle import WEIGHTS, WEIGHTS_INT8, Bundle
from tiny_transformer.weights import read_index

from .chart import draw
from .comparison import RESULTS, ROOT, Record, Task, compare
from .engines import ENTRIES
from .machine import describe
from .models import make
from .shapes import SHAPES, Shape
from .summary import print_entries, print_ratios, ratios, summed_up

SEED = 1
WEIGHT_FILES = {"float32": WEIGHTS, "int8": WEIGHTS_INT8}
# What each entry reads from disk to run: graphs, weights and vocabulary; nobody's tokenizer.
FILES = {
    "onnx": ("*_model.onnx", "model.safetensors"),
    "onnx-int8": ("*_model_int8*.onnx", "model_int8.safetensors"),
    "eager": ("model.safetensors",),
    "ctranslate2": ("float32/*",),
    "ctranslate2-int8": ("int8/*",),
    "transformers": ("*.safetensors",),
    "optimum": ("exported/*.onnx",),
    "genai": ("float32/*.onnx", "float32/*.safetensors"),
    "genai-int8": ("int8/*.onnx", "int8/*.safetensors"),
}


def main() -> None:
    """Run every comparison that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    usual = [name for name in FILES if name != "optimum"]  # which wants an interpreter of its own
    parser.add_argument("--entries", nargs="+", choices=FILES, default=usual)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--python", action="append", default=[], metavar="ENTRY=PATH", help="an entry's own interpreter"
    )
    parser.add_argument("--models", type=Path, default=ROOT / ".cache" / "benchmarks", help="where models are kept")
    parser.add_argument("--json", type=Path, default=RESULTS / "speed-cpu.json")
    parser.add_argument("--chart", type=Path, default=RESULTS / "speed.png")
    options = parser.parse_args()
    pythons = dict(item.split("=", 1) for item in options.python)
    entries = [*options.entries, *(name for name in pythons if name not in options.entries)]
    found: dict[str, Any] = {"machine": describe(), "rounds": options.rounds, "comparisons": []}
    if options.json.is_file():
        kept = json.loads(options.json.read_text(encoding="utf-8"))
        if (kept["machine"], kept["rounds"]) == (found["machine"], found["rounds"]):
            found = kept
    for name in options.shapes:
        folders = make(options.models, SHAPES[name], entries)
        for threads in options.threads:
            new = one_comparison(SHAPES[name], folders, threads, options, pythons)
            found["comparisons"] = [*(old for old in found["comparisons"] if key(old) != key(new)), new]
            found["comparisons"].sort(key=lambda one: (list(SHAPES).index(one["shape"]), one["threads"]))
            # Kept as it grows: whoever ends a long run early still has what was measured.
            write_file(options.json, json.dumps(found, indent=1) + "\n")
    draw(found, options.chart)
    print(f"\nwrote {options.json} and {options.chart}", file=sys.stderr)


def key(comparison: Mapping[str, Any]) -> tuple[str, int]:
    """What a later run of the same comparison replaces, on the same machine and by the same rules."""
    return comparison["shape"], comparison["threads"]


def one_comparison(
    shape: Shape, folders: Mapping[str, Path], threads: int, options: argparse.Namespace, pythons: Mapping[str, str]
) -> dict[str, Any]:
    """One shape, one number of threads."""
    one, many = shape.batches
    tasks = [
        Task("one", shape.rows(one, SEED), shape.n_new, times=3),
        Task("many", shape.rows(many, SEED), shape.n_new),
        Task("first", shape.rows(one, SEED), 1, times=3),
    ]
    records: dict[str, Record] = compare(folders, tasks, rounds=options.rounds, threads=threads, pythons=pythons)
    entries = summed_up(records, tasks, next(iter(folders)))
    for name, entry in entries.items():
        entry["disk_mb"] = disk(folders[name], FILES[name]) / 2**20
    title = f"{shape.name} ({shape.says}), {shape.n_read} tokens read, {shape.n_new} written, {many} rows in a batch"
    print_entries(f"{title}, threads: {threads}", entries)
    compared = ratios(shape.name, entries)
    print_ratios(compared)
    ours = [folders[name] for name in folders if ENTRIES[name].ours]
    floors = floor(ours[0], threads) if ours else {}
    for precision, figures in floors.items():
        print(f"  {precision} cannot be faster than {figures['tokens_per_second']:,.0f} tokens/s: {figures['says']}")
    return {
        "shape": shape.name,
        "says": shape.says,
        "threads": threads,
        "n_read": shape.n_read,
        "n_new": shape.n_new,
        "rows": many,
        "entries": entries,
        "ratios": compared,
        "floor": floors,
    }


def floor(ours: Path, threads: int) -> dict[str, Any]:
    """For one row: every weight of the decoder is read once a token, as fast as so many cores can read."""
    found = {}
    for precision, name in WEIGHT_FILES.items():
        if not (ours / name).is_file():  # made where an entry runs our graphs
            continue
        config = Bundle.open(ours).config
        n_bytes = read_per_step(read_index(ours / name), config, int8=precision == "int8")
        program = f"from benchmarks.machine import bandwidth; print(bandwidth({n_bytes}, {threads}))"
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
        )
        speed = float(done.stdout)
        found[precision] = {
            "bytes_per_token": n_bytes,
            "bytes_per_second": speed,
            "tokens_per_second": speed / n_bytes,
            "says": f"{n_bytes / 1e6:.1f} MB of weights a token, {speed / 1e9:.1f} GB/s",
        }
    return found


def disk(folder: Path, patterns: Sequence[str]) -> int:
    """Bytes of the files that match."""
    return sum(path.stat().st_size for pattern in patterns for path in folder.glob(pattern))


if __name__ == "__main__":
    main()
