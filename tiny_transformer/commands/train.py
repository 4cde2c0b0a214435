"""`train`: (under construction)."""

import argparse

EXAMPLE = "python -m tiny_transformer train checkpoints/translate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""


def run(options: argparse.Namespace) -> None:
    """Run."""
