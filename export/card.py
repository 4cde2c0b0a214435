"""`card`: write the card of a verified model folder anew, with what the model says to a few prompts."""

import argparse
import sys
from pathlib import Path

EXAMPLE = "python -m export card checkpoints/translate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder."""
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="a model folder with its parity report")


def run(options: argparse.Namespace) -> None:
    """Write README.md; the report and everything it vouches for stay as they are."""
    from tiny_transformer.bundle import CARD, Bundle
    from tiny_transformer.errors import ExportError
    from tiny_transformer.parity import stored_report

    from .model_card import refresh_card

    bundle = Bundle.open(options.bundle)
    report = stored_report(bundle)
    if report is None:
        raise ExportError(
            "{folder} has no parity report; make it first: python -m export all {folder}.", folder=bundle.folder
        )
    refresh_card(bundle, report, str(options.bundle))
    sys.stderr.write(f"wrote {bundle.folder / CARD}\n")
