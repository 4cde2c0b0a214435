"""A thousand sentences of mixed length through the shipped translator: `generate_batch` against `translate_batch`.

    python -m benchmarks.many_texts SENTENCES [--count 1000] [--threads 2] [--rounds 5]

SENTENCES is a text file with one sentence a line (of a TSV, the first column). Both sides get the same ids, sort and
batch as they like, search with beams of 1 and of 4, and end sentences where the model ends them. In turns, in one
process each, as in `benchmarks.speed`; tokens are counted as written.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiny_transformer.atomic import write_file
from tiny_transformer.bundle import Bundle

from .comparison import RESULTS, ROOT, Record, Task, compare
from .machine import describe
from .models import copies
from .summary import agreement, ratio

PAIRS = (("onnx", "ctranslate2"), ("onnx-int8", "ctranslate2-int8"))
BEAMS = (1, 4)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", type=Path, metavar="SENTENCES")
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=Path, default=ROOT / ".cache" / "benchmarks")
    parser.add_argument("--json", type=Path, default=RESULTS / "many-texts-cpu.json")
    options = parser.parse_args()
    bundle = Bundle.open(ROOT / "checkpoints" / "translate")
    rows = sentence_ids(bundle, options.sentences, options.count)
    folders = copies(options.models / "translate", bundle, [name for pair in PAIRS for name in pair])
    found: dict[str, Any] = {"machine": describe(), "threads": options.threads, "sentences": len(rows), "beams": {}}
    for beams in BEAMS:
        tasks = [Task("texts", rows, 0, beams=beams)]
        records = compare(folders, tasks, rounds=options.rounds, threads=options.threads)
        entries = {name: summed_up(record, records["onnx"], len(rows)) for name, record in records.items()}
        for name, entry in entries.items():
            speed, same = entry["sentences_per_second"], entry["rows_as_ours"]
            print(
                f"beam {beams}  {name:<18}{speed:>8.0f} sentences/s {entry['tokens']:>8,} tokens {same:>6.1%} as ours"
            )
        ratios = {f"{ours} / {peer}": ratio(entries[ours]["seconds"], entries[peer]["seconds"]) for ours, peer in PAIRS}
        for names, figures in ratios.items():
            print(
                f"beam {beams}  {names:<36}{figures['median']:>6.2f} ({figures['least']:.2f} to {figures['most']:.2f})"
            )
        found["beams"][str(beams)] = {"entries": entries, "ratios": ratios}
        write_file(options.json, json.dumps(found, indent=1) + "\n")
    print(f"wrote {options.json}", file=sys.stderr)


def summed_up(record: Record, reference: Record, n_rows: int) -> dict[str, Any]:
    """Plain values of one engine; its ids are compared with the reference's."""
    seconds, ids = record.seconds["texts"], record.ids["texts"]
    return {
        "seconds": seconds,
        "tokens": sum(map(len, ids)),
        "sentences_per_second": n_rows / statistics.median(seconds),
        "rows_as_ours": agreement(ids, reference.ids["texts"]),
    }


def sentence_ids(bundle: Bundle, path: Path, count: int) -> list[list[int]]:
    """The first sentences as the translator reads them."""
    lines = path.read_text(encoding="utf-8").splitlines()[:count]
    texts: Sequence[str] = [line.split("\t")[0] for line in lines]
    limit = bundle.generation.max_source_tokens
    return [[*bundle.tokenizer.encode(text)[: limit - 1], bundle.generation.eos_id] for text in texts]


if __name__ == "__main__":
    main()
