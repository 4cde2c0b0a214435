"""On a GPU: this project's PyTorch path against transformers `generate`, with the same weights and the same work.

    python -m benchmarks.gpu [--precision float32] [--rows 1 64] [--rounds 7] [--device cuda]

As in `benchmarks.speed`: processes of their own, in turns, greedy, a fixed number of tokens from ids. In the same run,
every token that the GPU chose is put before the model on the CPU: how far was it from the best one there?
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tiny_transformer.atomic import write_file
from tiny_transformer.backends import device_name, open_backend
from tiny_transformer.backends.base import Batch
from tiny_transformer.bundle import Bundle

from .comparison import RESULTS, ROOT, Task, compare
from .machine import describe
from .models import make
from .shapes import SHAPES
from .summary import ratio, summed_up

OURS, PEER = "eager", "transformers"
GOALS = {1: 12.0, 64: 6.0}
SEED = 1
NEAR = {"float32": 1e-3, "bfloat16": 0.05}  # of a logit: what another order of sums, or rounding, may change


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="G")
    parser.add_argument("--precision", choices=NEAR, default="float32")
    parser.add_argument("--rows", nargs="+", type=int, default=list(GOALS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", type=Path, default=ROOT / ".cache" / "benchmarks")
    parser.add_argument("--json", type=Path, help="default: speed-cuda.json, or speed-cuda-bfloat16.json")
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    suffix = "" if options.precision == "float32" else f"-{options.precision}"  # of entries and of the file
    target = options.json or RESULTS / f"speed-cuda{suffix}.json"
    ours, peer = OURS + suffix, PEER + suffix
    machine = describe() | {"device": device_name(options.device)}
    folders = make(options.models, shape, [ours, peer])
    tasks = [Task(str(n), shape.rows(n, SEED), shape.n_new) for n in options.rows]
    records = compare(folders, tasks, rounds=options.rounds, threads=1, device=options.device)
    entries = summed_up(records, tasks, ours)
    found: dict[str, Any] = {
        "machine": machine,
        "precision": options.precision,
        "shape": shape.name,
        "says": shape.says,
        "n_read": shape.n_read,
        "n_new": shape.n_new,
        "rounds": options.rounds,
        "entries": entries,
        "rows": {},
    }
    read = f"{shape.n_read} tokens read, {shape.n_new} written"
    print(f"{shape.name} ({shape.says}), {options.precision}, {read}, {machine['device']}")
    for n, task in zip(options.rows, tasks, strict=True):
        figures = ratio(records[ours].seconds[task.name], records[peer].seconds[task.name])
        behind = shortfall(Bundle.open(folders[ours]), task.rows, records[ours].ids[task.name])
        found["rows"][task.name] = {
            "ratio": figures,
            "goal": GOALS.get(n),
            "furthest_from_the_best_on_the_cpu": behind,
            "equal": behind <= NEAR[options.precision],
        }
        speeds = [f"{name} {entries[name]['tokens_per_second'][task.name]:,.0f} tokens/s" for name in (ours, peer)]
        wanted = f", wanted {GOALS[n]:g}" if n in GOALS else ""
        print(f"  {n} rows: {', '.join(speeds)}")
        print(f"    ratio {figures['median']:.2f} ({figures['least']:.2f} to {figures['most']:.2f}){wanted}")
        print(f"    no token's score lies further than {behind:.1e} below the best one on the CPU")
    write_file(target, json.dumps(found, indent=1) + "\n")
    print(f"wrote {target}", file=sys.stderr)
    if not all(line["equal"] for line in found["rows"].values()):
        raise SystemExit("The GPU chose tokens that the CPU would not have chosen.")


def shortfall(bundle: Bundle, rows: Sequence[Sequence[int]], ids: Sequence[Sequence[int]]) -> float:
    """How far below the CPU's best score a chosen token lies, at worst; 0 where the CPU would have chosen the same."""
    backend = open_backend(bundle, "eager", device="cpu")
    worst = 0.0
    for row, new in zip(rows, ids, strict=True):
        # The last token is chosen, never read.
        if bundle.config.is_encoder_decoder:
            target, source = [bundle.generation.bos_id, *new[:-1]], Batch.of([row])
        else:
            target, source = [*row, *new[:-1]], None
        scores = backend.logits(Batch.of([target]), source)[0, -len(new) :]  # T V
        worst = max(worst, float((scores.max(axis=-1) - scores[np.arange(len(new)), new]).max()))
    return worst


if __name__ == "__main__":
    main()
