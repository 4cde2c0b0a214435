"""The command line: one subcommand a file in `commands`, one way to fail."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

from tiny_transformer import __version__
from tiny_transformer.checks import printable
from tiny_transformer.errors import ParityError, TinyTransformerError

COMMANDS = ("init", "info", "train", "distil", "evaluate", "generate", "corpus", "chat")
# Heavy libraries stay out of the base install; whoever lacks one is told where it comes from.
EXTRAS = {
    "torch": "torch",
    "matplotlib": "train",
    "sacrebleu": "train",
    "tqdm": "train",
    "onnx": "export",
    "onnxscript": "export",
    "jinja2": "export",
    "gradio": "app",
    "pyarrow": "parquet",
    "ray": "ray",
}
DONE, CHECK_FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are one sentence, like all others."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is; exit 2."""
        self.exit(WRONG_USAGE, f"error: {message} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser with every subcommand, none of them imported beyond its arguments."""
    parser = Parser(prog="python -m tiny_transformer", description="Train, inspect and use a small Transformer.")
    add_commands(parser, {name: import_module(f"tiny_transformer.commands.{name}") for name in COMMANDS})
    return parser


def add_commands(parser: argparse.ArgumentParser, modules: Mapping[str, Any]) -> None:
    """A subcommand per module, or object like one: its docstring is the help, EXAMPLE an example, `run` does it."""
    parser.add_argument("--version", action="version", version=f"tiny-transformer {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for name, module in modules.items():
        summary = (module.__doc__ or "").splitlines()[0].removeprefix(f"`{name}`: ")
        command = subparsers.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 done, 1 a check failed, 2 wrong usage."""
    return guarded(build_parser(), arguments)


def guarded(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    """Parse, run, and turn every failure a user can cause into one sentence on stderr."""
    options = parser.parse_args(arguments)
    try:
        code = options.run(options)
        sys.stdout.flush()
        return DONE if code is None else int(code)
    except ParityError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return CHECK_FAILED
    except TinyTransformerError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return WRONG_USAGE
    except ModuleNotFoundError as error:
        library = (error.name or "").split(".")[0]
        if library not in EXTRAS:
            raise
        extra = "train" if options.command == "train" else EXTRAS[library]  # torch alone would not do to train
        needed = f"pip install 'tiny-transformer[{extra}]'"
        print(f"error: {options.command} needs {library}, which is not installed: {needed}.", file=sys.stderr)
        return WRONG_USAGE
    except BrokenPipeError:
        # The reader went away (`| head`). Python would complain again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"error: {place}{error.strerror or error}; check the path and the disk.", file=sys.stderr)
        return WRONG_USAGE
