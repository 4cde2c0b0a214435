"""The command line of `python -m export`: one subcommand a module, failures like everywhere else."""

import argparse
from collections.abc import Sequence
from importlib import import_module

from tiny_transformer import __version__
from tiny_transformer.cli import Parser, guarded

COMMANDS = {
    "torchscript": "to_torchscript",
    "onnx": "to_onnx",
    "int8": "quantize",
    "all": "everything",
    "verify": "verify",
    "push": "push",
}


def build_parser() -> argparse.ArgumentParser:
    """The parser with every subcommand, none of them imported beyond its arguments."""
    parser = Parser(prog="python -m export", description="Export, verify and publish a model folder.")
    parser.add_argument("--version", action="version", version=f"tiny-transformer {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for name, module_name in COMMANDS.items():
        module = import_module(f".{module_name}", __package__)
        assert module.__doc__ is not None
        summary = module.__doc__.splitlines()[0].removeprefix(f"`{name}`: ")
        command = subparsers.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 done, 1 a check failed, 2 wrong usage."""
    return guarded(build_parser(), arguments)
