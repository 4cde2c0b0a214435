"""`all`: write every artefact of a model folder, prove them equal, and write the parity report and the card."""

import argparse
import sys
from pathlib import Path

EXAMPLE = "python -m export all checkpoints/translate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder."""
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="a model folder")


def run(options: argparse.Namespace) -> None:
    """Write archives, graphs and report."""
    names = export_all(options.bundle)
    sys.stderr.write(f"wrote {', '.join(names)} in {options.bundle}\n")


def export_all(folder: Path) -> list[str]:
    """Write every artefact, and the report if all backends agree; the file names."""
    from tiny_transformer.bundle import CARD, EVALUATION, INT8_FILES, PARITY, Bundle, remove_derived
    from tiny_transformer.parity import write_report

    from .model_card import refresh_card
    from .quantize import export_int8
    from .to_onnx import export_onnx
    from .to_torchscript import export_torchscript
    from .verify import verified

    (folder / PARITY).unlink(missing_ok=True)  # from here on it would vouch for other files
    names = [*export_torchscript(folder), *export_onnx(folder)]
    if (folder / EVALUATION).is_file():
        names += export_int8(folder)
    else:
        # 8-bit graphs are proved by the task alone: without examples of it they could never be.
        sys.stderr.write(f"note: no 8-bit graphs, since {folder} has no {EVALUATION} to judge them by\n")
        remove_derived(folder, INT8_FILES)
    bundle = Bundle.open(folder)
    report = verified(bundle)
    write_report(bundle, report)
    refresh_card(bundle, report, str(folder))
    return [*names, PARITY, CARD]
