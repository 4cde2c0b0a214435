"""`generate`: (under construction)."""

import argparse

EXAMPLE = "python -m tiny_transformer generate checkpoints/translate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""


def run(options: argparse.Namespace) -> None:
    """Run."""
