"""`verify`: compare every backend of a model folder with eager PyTorch; exit 1 if one differs."""

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiny_transformer.bundle import Bundle
    from tiny_transformer.parity import ParityReport

EXAMPLE = "python -m export verify checkpoints/translate --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, and how to print."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a model folder with its exports, or USER/NAME[@REVISION]")
    parser.add_argument("--trust-code", action="store_true", help="of a model on the Hub, its TorchScript archive too")
    parser.add_argument("--device", help="cuda: compare eager on the GPU with the ONNX graphs instead")
    parser.add_argument("--json", action="store_true", help="print the report for programs")


def run(options: argparse.Namespace) -> None:
    """Print the report; a failed one ends the command with exit code 1. Nothing is written."""
    from tiny_transformer.bundle import Bundle
    from tiny_transformer.text_model import resolve

    folder = resolve(options.bundle, all_files=True, trust_code=options.trust_code)
    report = verified(Bundle.open(folder), options.device)
    sys.stdout.write(report.to_json() if options.json else table(report))
    report.raise_if_failed()


def verified(bundle: "Bundle", device: str | None = None) -> "ParityReport":
    """The folder's report, made now, with progress on stderr."""
    from tqdm import tqdm

    from tiny_transformer.parity import verify_bundle, verify_device

    with tqdm(unit="case", disable=None) as bar:

        def progress(case: str) -> None:
            bar.set_description(case, refresh=False)
            bar.update()

        if device is not None:
            return verify_device(bundle, device, progress=progress)
        return verify_bundle(bundle, progress=progress)


def table(report: "ParityReport") -> str:
    """One line a backend and kind of case, then the failures and the verdict."""
    lines = [f"{'backend':<12} {'case':<10} {'passed':>9} {'max abs':>9} {'max rel':>9} {'argmax':>8}"]
    groups: dict[tuple[str, str], list[int]] = {}
    for i, case in enumerate(report.cases):
        groups.setdefault((case.candidate, case.kind), []).append(i)
    for (candidate, kind), members in groups.items():
        cases = [report.cases[i] for i in members]
        passed = f"{sum(case.passed for case in cases)}/{len(cases)}"
        absolute, relative = max(case.max_absolute for case in cases), max(case.max_relative for case in cases)
        agreement = min(case.argmax_agreement for case in cases)
        lines.append(f"{candidate:<12} {kind:<10} {passed:>9} {absolute:>9.1e} {relative:>9.1e} {agreement:>8.2%}")
    lines += [f"failed: {case.candidate}: {case.name}: {case.detail}" for case in report.failures]
    return "\n".join([*lines, report.verdict]) + "\n"
