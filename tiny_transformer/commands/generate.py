"""`generate`: translate, answer or continue a text, or every line of stdin."""

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from tiny_transformer.backends import NAMES
from tiny_transformer.data.rows import LINE_BREAKS
from tiny_transformer.generation.options import OPTIONS

if TYPE_CHECKING:
    from tiny_transformer.generation.text import GenerationResult
    from tiny_transformer.text_model import TextModel

EXAMPLE = 'python -m tiny_transformer generate checkpoints/translate "Guten Morgen!"'

ONLY_IN_JSON = ("n_best", "alternatives")  # nothing else could show them
CHUNK = 512  # lines of stdin read before any is answered: enough to sort them into even batches


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The text, and how to go on from it."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a model folder")
    parser.add_argument("text", metavar="TEXT", help="the text, or - for one answer to each line of stdin")
    parser.add_argument("--raw", action="store_true", help="let a chat model continue plain text")
    parser.add_argument("--prefix", default="", metavar="TEXT", help="a given start of the answer")
    parser.add_argument(
        "--no-split", action="store_true", help="translate a text as one, instead of sentence by sentence"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per text, with tokens and scores")
    add_decoding_arguments(parser, only_in_json=True)
    add_backend_arguments(parser)
    add_decoding_arguments(parser)


def add_backend_arguments(parser: argparse.ArgumentParser, *, threads: bool = True) -> None:
    """Where the model runs."""
    parser.add_argument("--backend", default="auto", metavar="NAME", help=f"auto, {', '.join(NAMES)}")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: a GPU where there is one)")
    if threads:
        parser.add_argument("--threads", type=int, metavar="N", help="CPU threads")


def add_decoding_arguments(parser: argparse.ArgumentParser, only_in_json: bool = False) -> None:
    """A flag for each option of generation; without any of them, text is made greedily."""
    for name, info in OPTIONS.items():
        if (name in ONLY_IN_JSON) == only_in_json:
            help = f"with --json: {info.help}" if only_in_json else info.help
            metavar = "N" if info.kind is int else "X"
            parser.add_argument(f"--{name.replace('_', '-')}", type=info.kind, metavar=metavar, help=help)
    if not only_in_json:
        parser.add_argument("--stop", action="append", metavar="TEXT", help="End before this text; may be repeated.")


def decoding_options(options: argparse.Namespace) -> dict[str, Any]:
    """The keywords of generation that were given on the command line."""
    return {name: getattr(options, name) for name in (*OPTIONS, "stop") if getattr(options, name, None) is not None}


def run(options: argparse.Namespace) -> None:
    """Answer the text as it comes, or line by line."""
    from tiny_transformer.text_model import load

    utf8_stdout()
    model = load(options.bundle, options.backend, options.device, options.threads)
    if options.text == "-":
        _answer_lines(model, options)
    elif options.json:
        result = model.generate(options.text, **_reading(options), **decoding_options(options))
        _print_notices(result.notices)
        print(json.dumps(result.to_dict()))
    else:
        with model.stream_tokens(options.text, **_reading(options), **decoding_options(options)) as stream:
            _print_notices(stream.notices)
            for piece in stream.pieces():
                print(piece, end="", flush=True)
        print()


def _reading(options: argparse.Namespace) -> dict[str, Any]:
    """How the text is read."""
    return {"prefix": options.prefix, "raw": options.raw, "split": not options.no_split}


def _answer_lines(model: "TextModel", options: argparse.Namespace) -> None:
    """Exactly one line out for each line in, in order."""
    lines = read_lines()
    first = 0
    while chunk := list(islice(lines, CHUNK)):
        for number, result in enumerate(_answers(model, chunk, first, options), first + 1):
            _print_notices(result.notices, f"line {number}: ")
            print(json.dumps(result.to_dict()) if options.json else result.text.translate(LINE_BREAKS))
        sys.stdout.flush()
        first += len(chunk)


def _answers(
    model: "TextModel", lines: list[str], first: int, options: argparse.Namespace
) -> "Iterator[GenerationResult]":
    """The results of some lines; nothing in gives nothing out."""
    from tiny_transformer.generation.text import EMPTY_RESULT

    results = model.generate_batch(
        [line for line in lines if line],
        **_reading(options),
        numbers=[first + i for i, line in enumerate(lines) if line],
        **decoding_options(options),
    )
    following = iter(results)
    return (next(following) if line else EMPTY_RESULT for line in lines)


def read_lines() -> Iterator[str]:
    """The lines of stdin without their ends; bytes that are not UTF-8 become U+FFFD."""
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", errors="replace")


def utf8_stdout() -> None:
    """Text is UTF-8 whatever the terminal's locale says."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")


def _print_notices(notices: tuple[str, ...], where: str = "") -> None:
    for notice in notices:
        print(f"note: {where}{notice}", file=sys.stderr)
