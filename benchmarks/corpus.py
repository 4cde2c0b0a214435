"""Corpora: what runs beside a text changes it, how many texts a second `corpus` answers, and what exactly once costs.

    python -m benchmarks.corpus [--lines 100000] [--ray local] [--backends eager --device cuda --workers 1]

The first table counts the texts that differ from the same texts alone. The second has texts and written tokens per
second from when every worker has finished a block, so that the start of processes, of Ray and of the model is apart.
The third has what reading, shards, hashes and the last step add to the time that the model takes, in one process by the
clock: once without a break, and once stopped halfway and begun again, the second opening of the model included.
"""

import argparse
import json
import lzma
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tiny_transformer as tt
from tiny_transformer import corpus_run
from tiny_transformer.atomic import write_file
from tiny_transformer.corpus_engines import Processes, Ray
from tiny_transformer.corpus_run import Answerer, Answers, Block, Blocks, Corpus, Engine, Progress
from tiny_transformer.data.files import shipped_data
from tiny_transformer.data.rows import RowFile
from tiny_transformer.generation import GenerationOptions
from tiny_transformer.text_model import TextModel

from .comparison import RESULTS
from .machine import describe

BACKENDS = ("onnx", "onnx-int8")
SHARED_LINES = 10_240  # at most, of the third table, which needs two runs; what a run adds once weighs more in few


def sentences(count: int) -> list[str]:
    """German and Chinese sentences that the translator was not trained on, half of each, repeated where need be."""
    found: list[str] = []
    for pair in ("de-en", "zh-en"):
        with lzma.open(f"{shipped_data()}/tatoeba/{pair}.dev.tsv.xz", "rt", encoding="utf-8") as lines:
            sources = [line.split("\t")[0] for line in lines]
        found += sources[:: max(1, len(sources) // (count // 2))][: count // 2]
    return (found * (count // len(found) + 1))[:count]


def compare_batches(folder: Path, backends: Sequence[str], texts: Sequence[str]) -> None:
    """Count the texts that come out otherwise than alone."""
    print(f"texts of {len(texts)} that differ from the same texts alone on one thread")
    for backend in backends:
        for beams in (1, 4):
            alone: list[str] = []
            for threads in (1, 2):
                model = tt.load(folder, backend, threads=threads)
                for size in (1, 8, 64, len(texts)):
                    batches = [texts[i : i + size] for i in range(0, len(texts), size)]
                    found = [r.text for batch in batches for r in model.generate_batch(batch, num_beams=beams)]
                    alone = alone or found
                    differ = sum(one != other for one, other in zip(alone, found, strict=True))
                    print(f"{backend:10} {beams} beams, {threads} threads, {size:4} together: {differ}", flush=True)


@dataclass(frozen=True)
class Timed(Answerer):
    """Adds up the seconds that the model takes."""

    opened: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)

    def open(self) -> TextModel:
        """The same, timed."""
        start = time.perf_counter()
        model = super().open()
        self.opened.append(time.perf_counter() - start)
        return model

    def answers(self, model: TextModel, block: Block) -> Answers:
        """The same, timed."""
        start = time.perf_counter()
        answers = super().answers(model, block)
        self.answered.append(time.perf_counter() - start)
        return answers


def measure_run(answerer: Answerer, source: Path, out: Path, engine: Processes | Ray) -> dict[str, float]:
    """One whole run; it is under way when every worker has finished its first block."""
    times, reports = [time.perf_counter()], []

    def progress(report: Progress) -> None:
        times.append(time.perf_counter())
        reports.append(report)

    corpus_of(answerer, source, out).run(engine, lambda n_rows: None, progress)
    seconds = time.perf_counter() - times[0]
    begun = engine.workers or 1
    if len(reports) <= begun:
        raise SystemExit("There is no second block for a worker to measure; more --lines, or fewer --block-rows.")
    steady = times[-1] - times[begun]
    return {
        "seconds": seconds,
        "first_block": times[1] - times[0],
        "texts_per_second": sum(report.n_rows for report in reports[begun:]) / steady,
        "tokens_per_second": sum(report.n_tokens for report in reports[begun:]) / steady,
    }


def measure_shares(answerer: Answerer, source: Path, place: Path) -> dict[str, float]:
    """What a run adds to the model's time, as a share of it: without a break, and stopped halfway."""
    values = {name: value for name, value in vars(answerer).items() if name not in ("opened", "answered")}

    def seconds(timed: Timed, engine: Engine, out: Path) -> float:
        start = time.perf_counter()
        corpus_of(timed, source, out).run(engine, lambda n_rows: None, lambda report: None)
        return time.perf_counter() - start

    whole, halves = Timed(**values), Timed(**values)
    total = seconds(whole, Processes(1), place / "whole")
    n_blocks = len(whole.answered)

    def half(answerer: Answerer, blocks: Blocks) -> Iterator[tuple[Block, Answers]]:
        for i, found in enumerate(Processes(1)(answerer, blocks)):
            yield found
            if i + 1 == n_blocks // 2:
                raise KeyboardInterrupt

    start = time.perf_counter()
    try:
        seconds(halves, half, place / "halves")
    except KeyboardInterrupt:
        resumed = time.perf_counter() - start + seconds(halves, Processes(1), place / "halves")
    for path in (place / "whole").iterdir():
        if path.read_bytes() != (place / "halves" / path.name).read_bytes():
            raise SystemExit(f"{path.name} is another one after a break.")
    return {
        "whole": (total - sum(whole.opened)) / sum(whole.answered) - 1,
        "resumed": (resumed - halves.opened[0]) / sum(halves.answered) - 1,
    }


def corpus_of(answerer: Answerer, source: Path, out: Path) -> Corpus:
    """A run over one file of text."""
    return Corpus(answerer, (RowFile.of(source, None, None, "generated"),), out)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The second and the third table."""
    sizes = {"lines": options.lines, "block_rows": options.block_rows}
    # How many processes want a core: where it is more than there are cores, a figure says little about this code.
    found: dict[str, Any] = {"machine": describe(), "load": os.getloadavg()[0], **sizes, "backends": {}}
    texts = sentences(options.lines)
    engines: dict[str, Processes | Ray] = {
        f"{n} process{'es' if n > 1 else ''}": Processes(n) for n in dict.fromkeys(options.workers)
    }
    if options.ray:
        n = max(options.workers)
        engines[f"Ray, {n} actors"] = Ray(options.ray, n)
    for backend in options.backends:
        answerer = Answerer(options.bundle.resolve(), backend, options.device, GenerationOptions(logprobs=False))
        with tempfile.TemporaryDirectory() as place:
            source = Path(place) / "a.txt"
            source.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
            runs = {}
            for name, engine in engines.items():
                runs[name] = run = measure_run(answerer, source, Path(place) / name, engine)
                print(
                    f"{backend:10} {name:16} {run['texts_per_second']:,.0f} texts/s, "
                    f"{run['tokens_per_second']:,.0f} target tokens/s; {run['seconds']:.0f} s in all, "
                    f"{run['first_block']:.1f} s to the first block",
                    flush=True,
                )
            few = Path(place) / "few.txt"
            few.write_text("".join(f"{text}\n" for text in texts[:SHARED_LINES]), encoding="utf-8")
            shares = measure_shares(answerer, few, Path(place))
            print(f"{backend:10} added by files and shards {shares['whole']:.1%}, with a break {shares['resumed']:.1%}")
        found["backends"][backend] = {"runs": runs, "added": shares}
    return found


def main() -> None:
    """All tables."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=Path("checkpoints/translate"))
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS))
    parser.add_argument("--device", help="cuda for a GPU (with --backends eager and --workers 1)")
    parser.add_argument("--compared", type=int, default=400, help="texts of the first table; 0 leaves it out")
    parser.add_argument("--lines", type=int, default=100_000, help="texts of the others; 0 leaves them out")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, cores], help="default: one, and all cores")
    parser.add_argument("--ray", metavar="ADDRESS", help="measure Ray too, with the most of --workers; local starts it")
    parser.add_argument("--block-rows", type=int, default=corpus_run.BLOCK_ROWS, help="rows that run together")
    parser.add_argument("--json", type=Path, help=f"write the results, such as {RESULTS.name}/corpus-cpu.json")
    options = parser.parse_args()
    corpus_run.BLOCK_ROWS = options.block_rows
    if options.compared:
        compare_batches(options.bundle, options.backends, sentences(options.compared))
    if options.lines:
        found = measure(options)
        if options.json:
            write_file(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
