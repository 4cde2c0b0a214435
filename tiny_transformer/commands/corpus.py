"""`corpus`: translate, answer or continue every row of files, exactly once, on all cores."""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tiny_transformer.commands.generate import add_backend_arguments, add_decoding_arguments, decoding_options
from tiny_transformer.data.rows import FORMATS

if TYPE_CHECKING:
    from tiny_transformer.corpus_run import Answerer, Progress

EXAMPLE = "python -m tiny_transformer corpus checkpoints/translate news.txt.xz --out translated"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the files, where the answers go, and how they are made."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a model folder")
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help=f"files called {', '.join(FORMATS.values())}, all but Parquet also with .xz or .gz behind; or addresses "
        "of such files, as s3://bucket/file.txt",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="a folder for one file per input, bad lines and a manifest; the same command again goes on there",
    )
    parser.add_argument("--format", choices=tuple(FORMATS), help="what the files are, whatever they are called")
    parser.add_argument(
        "--column",
        metavar="NAME",
        help="the column or field to read; of TSV a number from 1, or a name where the first line has the names "
        "(default: 1 for TSV, text for JSONL and Parquet)",
    )
    parser.add_argument(
        "--output-column", default="generated", metavar="NAME", help="the column or field to write (default: generated)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes (default: one for each core; 1 on a GPU; with --ray one for each core or GPU of the cluster)",
    )
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="run on Ray: local starts it on this machine, auto finds the cluster that this machine belongs to",
    )
    parser.add_argument("--raw", action="store_true", help="let a chat model continue plain text")
    parser.add_argument(
        "--no-split", action="store_true", help="translate a text as one, instead of sentence by sentence"
    )
    add_backend_arguments(parser, threads=False)
    add_decoding_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Answer what is not answered yet, with a bar on stderr."""
    from tiny_transformer.checks import check_whole
    from tiny_transformer.corpus_engines import Processes, Ray
    from tiny_transformer.corpus_run import BAD_LINES, Corpus
    from tiny_transformer.data.rows import RowFile
    from tiny_transformer.errors import InputError

    if options.workers is not None:
        check_whole("workers", options.workers, 1, 1024, InputError)
    inputs = [RowFile.of(path, options.format, options.column, options.output_column) for path in options.inputs]
    answerer = _answerer(options)
    corpus = Corpus(answerer, tuple(inputs), options.out)
    engine = Ray(options.ray, options.workers) if options.ray else Processes(options.workers or _workers(answerer))
    with _Bar() as bar:
        manifest = corpus.run(engine, bar.start, bar.add)
    n_bad = sum(file.get("bad_lines", 0) for file in manifest["outputs"])
    n_rows = sum(file.get("rows", 0) for file in manifest["outputs"])
    problems = f"; {n_bad:,} bad lines are listed in {options.out / BAD_LINES}" if n_bad else ""
    print(
        f"{options.out} has the answers to {n_rows:,} texts, {manifest['tokens']:,} tokens{problems}", file=sys.stderr
    )


class _Bar:
    """How far the run is, on one line of the terminal; where there is none, a line a minute."""

    def __init__(self) -> None:
        self._total = self._done = self._new = self._tokens = 0  # rows, rows, rows of this run, their tokens
        self._started = self._shown = 0.0

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and sys.stderr.isatty():
            print(file=sys.stderr)

    def start(self, total: int) -> None:
        """Now the first block begins."""
        self._total, self._started = total, time.monotonic()

    def add(self, block: "Progress") -> None:
        """A block is done; what an earlier run did says nothing about this one's speed."""
        self._done += block.n_rows
        if block.resumed:
            return
        self._new += block.n_rows
        self._tokens += block.n_tokens
        now = time.monotonic()
        on_terminal = sys.stderr.isatty()
        if now - (self._shown or self._started) > (0.2 if on_terminal else 60):
            self._shown = now
            print(self._line(now - self._started), end="\r" if on_terminal else "\n", file=sys.stderr, flush=True)

    def _line(self, seconds: float) -> str:
        left = int((self._total - self._done) * seconds / self._new)
        share = self._done / self._total
        return (
            f"{share:4.0%} |{'█' * int(20 * share):20}| {self._done:,} of {self._total:,} texts · "
            f"{self._new / seconds:,.0f} texts/s · {self._tokens / seconds:,.0f} tokens/s · "
            f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left "
        )


def _answerer(options: argparse.Namespace) -> "Answerer":
    """The model and how it is asked, checked before any process opens it."""
    from tiny_transformer.backends import choose
    from tiny_transformer.corpus_run import Answerer
    from tiny_transformer.generation import GenerationOptions
    from tiny_transformer.text_model import load

    model = load(options.bundle, options.backend, options.device, 1)
    bundle = model.bundle
    # What a self-test has put in the place of the backend that was asked for is the one that runs.
    choice = choose(bundle, model.backend_name if model.warning else options.backend, options.device)
    # A run that goes on must draw what it would have drawn: the seed is 0 unless one is given.
    keywords = {"seed": 0, **decoding_options(options), "logprobs": False}
    decoding = GenerationOptions.from_keywords(keywords, bundle.generation)
    return Answerer(bundle.folder, choice.name, choice.device, decoding, options.raw, not options.no_split)


def _workers(answerer: "Answerer") -> int:
    """One for each core that this process may use; one alone for a GPU, whose rows are its parallelism."""
    from tiny_transformer.backends import Choice, on_cpu

    if not on_cpu(Choice(answerer.backend, answerer.device)):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
