"""`chat`: (under construction)."""

import argparse

EXAMPLE = "python -m tiny_transformer chat checkpoints/translate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""


def run(options: argparse.Namespace) -> None:
    """Run."""
