"""Corpora: what runs beside a text changes it, and what blocks and processes cost.

    python -m benchmarks.corpus

The first table counts the texts that differ from the same texts alone; the second has texts per second of `corpus`, by
the clock and by the CPU time of the first process.
"""

import argparse
import lzma
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import tiny_transformer as tt
from tiny_transformer import corpus_run
from tiny_transformer.corpus_engines import Processes
from tiny_transformer.corpus_run import Answerer, Corpus
from tiny_transformer.data.files import shipped_data
from tiny_transformer.data.rows import RowFile
from tiny_transformer.generation import GenerationOptions

BACKENDS = ("onnx", "onnx-int8")


def sentences(count: int) -> list[str]:
    """German and Chinese sentences that the translator was not trained on, half of each."""
    found: list[str] = []
    for pair in ("de-en", "zh-en"):
        with lzma.open(f"{shipped_data()}/tatoeba/{pair}.dev.tsv.xz", "rt", encoding="utf-8") as lines:
            sources = [line.split("\t")[0] for line in lines]
        found += sources[:: max(1, len(sources) // (count // 2))][: count // 2]
    return found


def compare_batches(folder: Path, texts: Sequence[str]) -> None:
    """Count the texts that come out otherwise than alone."""
    print(f"texts of {len(texts)} that differ from the same texts alone on one thread")
    for backend in BACKENDS:
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


def measure_runs(folder: Path, texts: Sequence[str], workers: Sequence[int]) -> None:
    """Texts per second of whole runs, the start of processes included."""
    for backend in BACKENDS:
        answerer = Answerer(folder, backend, None, GenerationOptions(logprobs=False))
        for n in workers:
            with tempfile.TemporaryDirectory() as place:
                source = Path(place) / "a.txt"
                source.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
                corpus = Corpus(answerer, (RowFile.of(source, None, None, "generated"),), Path(place) / "out")
                start, cpu = time.perf_counter(), time.process_time()
                corpus.run(Processes(n), lambda n_rows: None, lambda progress: None)
                seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            by_cpu = f", {len(texts) / cpu:.0f} per second of CPU time" if n == 1 else ""
            print(f"{backend:10} {n} workers: {len(texts) / seconds:.0f} texts/s{by_cpu}", flush=True)


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=Path("checkpoints/translate"))
    parser.add_argument("--compared", type=int, default=400, help="texts of the first table; 0 leaves it out")
    parser.add_argument("--texts", type=int, default=4_096, help="texts of the second; 0 leaves it out")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--block-rows", type=int, default=corpus_run.BLOCK_ROWS, help="rows that run together")
    options = parser.parse_args()
    corpus_run.BLOCK_ROWS = options.block_rows
    if options.compared:
        compare_batches(options.bundle, sentences(options.compared))
    if options.texts:
        texts = sentences(options.texts)
        measure_runs(options.bundle, (texts * (options.texts // len(texts) + 1))[: options.texts], options.workers)


if __name__ == "__main__":
    main()
