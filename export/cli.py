"""The command line of `python -m export`: one subcommand a module, failures like everywhere else."""

import argparse
from collections.abc import Sequence
from importlib import import_module

from tiny_transformer.cli import Parser, add_commands, guarded

COMMANDS = {
    "torchscript": "to_torchscript",
    "onnx": "to_onnx",
    "int8": "quantize",
    "all": "everything",
    "verify": "verify",
    "card": "card",
    "push": "push",
}


def build_parser() -> argparse.ArgumentParser:
    """The parser with every subcommand, none of them imported beyond its arguments."""
    parser = Parser(prog="python -m export", description="Export, verify and publish a model folder.")
    add_commands(parser, {name: import_module(f".{module}", __package__) for name, module in COMMANDS.items()})
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 done, 1 a check failed, 2 wrong usage."""
    return guarded(build_parser(), arguments)
