"""The command line of `python -m export`. A subcommand loads its libraries only when it runs."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from tiny_transformer.cli import Parser, add_commands, guarded

if TYPE_CHECKING:
    from tiny_transformer.bundle import Bundle
    from tiny_transformer.parity import ParityReport
    from tiny_transformer.parity.microscope import Located
    from tiny_transformer.parity.verification import Progress


MARK = ">"  # before the number of the first part that differs
NO_PROOF = "agreed in a quick look, which is no proof; without --quick all is compared"


def build_parser() -> argparse.ArgumentParser:
    """The parser with every subcommand."""
    parser = Parser(prog="python -m export", description="Export, verify and publish a model folder.")
    add_commands(parser, COMMANDS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 done, 1 a check failed, 2 wrong usage."""
    return guarded(build_parser(), arguments)


def export_all(folder: Path) -> list[str]:
    """Write every graph and archive, and the report and the card if all backends agree; the file names."""
    from tiny_transformer.backends.torchscript import write_archive
    from tiny_transformer.bundle import CARD, EVALUATION, INT8_FILES, PARITY, TORCHSCRIPT, Bundle, remove_derived
    from tiny_transformer.parity import write_report

    from .model_card import refresh_card
    from .quantize import export_int8
    from .to_onnx import export_onnx

    (folder / PARITY).unlink(missing_ok=True)  # from here on it would vouch for other files
    write_archive(Bundle.open(folder), folder / TORCHSCRIPT)
    names = [TORCHSCRIPT, *export_onnx(folder)]
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


def verified(
    bundle: "Bundle", device: str | None = None, *, backends: Sequence[str] | None = None, quick: bool = False
) -> "ParityReport":
    """The folder's report, made now; on a terminal a bar says what is compared and how long it will take."""
    from tiny_transformer.parity import verify_bundle, verify_device

    with _bar() as progress:
        if device is not None:
            report = verify_device(bundle, device, progress=progress)
        else:
            report = verify_bundle(bundle, backends, quick=quick, progress=progress)
    if report.failures:
        on = f" --device {device}" if device else ""
        sys.stderr.write(
            f"To see in which part of the model it begins: python -m export verify {bundle.folder} --where{on}\n"
        )
    return report


@contextmanager
def _bar() -> "Iterator[Progress]":
    from tqdm import tqdm

    with tqdm(total=1.0, disable=None, bar_format="{percentage:3.0f}% {bar:20} {remaining} left, {desc}") as bar:

        def progress(case: str, done: float) -> None:
            bar.set_description_str(case, refresh=False)
            bar.update(done - bar.n)

        yield progress


def table(report: "ParityReport") -> str:
    """One line per backend and kind of case, then the figures, the failures and the verdict."""
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
    lines += [f"{case.name}: {case.detail}" for case in report.cases if case.kind in ("task", "training")]
    lines += [f"failed: {case.candidate}: {case.name}: {case.detail}" for case in report.failures]
    verdict = report.verdict if report.files or report.failures else NO_PROOF
    return "\n".join([*lines, verdict]) + "\n"


def _torchscript(options: argparse.Namespace) -> None:
    from tiny_transformer.backends.torchscript import write_archive
    from tiny_transformer.bundle import TORCHSCRIPT, Bundle

    write_archive(Bundle.open(options.bundle), options.bundle / TORCHSCRIPT)


def _onnx(options: argparse.Namespace) -> None:
    from .to_onnx import export_onnx

    export_onnx(options.bundle)


def _int8(options: argparse.Namespace) -> None:
    from .quantize import export_int8

    export_int8(options.bundle)


def _all(options: argparse.Namespace) -> None:
    names = export_all(options.bundle)
    sys.stderr.write(f"wrote {', '.join(names)} in {options.bundle}\n")


def _verify(options: argparse.Namespace) -> None:
    """Nothing is written; a failed report ends the command with exit code 1."""
    from tiny_transformer.bundle import Bundle
    from tiny_transformer.errors import InputError
    from tiny_transformer.text_model import resolve

    folder = resolve(options.bundle, all_files=True, trust_code=options.trust_code)
    if options.where:
        _where(Bundle.open(folder), options)
        return
    if options.quick and options.device:
        raise InputError("A quick look is on the CPU; leave out --device.")
    if options.backends and options.device:
        raise InputError("With --device eager is compared; leave out --backends.")
    with _complete(Bundle.open(folder), options.backends) as bundle:
        report = verified(bundle, options.device, backends=options.backends, quick=options.quick)
    sys.stdout.write(report.to_json() if options.json else table(report))
    report.raise_if_failed()


@contextmanager
def _complete(bundle: "Bundle", backends: Sequence[str] | None) -> "Iterator[Bundle]":
    """The folder, or a copy with the graphs of web-int8 where that is asked for: only a page has them."""
    from .to_web import WEB_INT8, page_folder

    if WEB_INT8 not in (backends or ()):
        yield bundle
        return
    with page_folder(bundle, int8=True, proved=False) as copy:
        yield copy


def _where(bundle: "Bundle", options: argparse.Namespace) -> None:
    """Part by part instead of case by case; a part that differs ends the command with exit code 1."""
    from tiny_transformer.errors import InputError, ParityError
    from tiny_transformer.parity.microscope import where_bundle

    if options.quick:
        raise InputError("--where looks at every part; leave out --quick.")
    with _bar() as progress:
        located = where_bundle(bundle, device=options.device, progress=progress)
    if options.json:
        sys.stdout.write(json.dumps([found.to_dict() for found in located], indent=1) + "\n")
    else:
        sys.stdout.write(growth_table(located))
    faults = [found.sentence for found in located if found.first is not None]
    if faults:
        raise ParityError("{found}", found=" ".join(faults))


def growth_table(located: "Sequence[Located]") -> str:
    """One line per part with every backend's distance from the reference, then what was found in those that agree."""
    width = max(len(part.name) for part in located[0].parts)
    lines = [f"{'part':<{width}}" + "".join(f"  {found.candidate:>9}" for found in located)]
    for i, part in enumerate(located[0].parts):
        cells = []
        for found in located:
            share = found.parts[i].error / (found.parts[i].scale or 1.0)
            mark = MARK if found.parts[i] is found.first else ""
            cells.append(f"  {mark + format(share, '.1e'):>{max(9, len(found.candidate))}}")
        lines.append(f"{part.name:<{width}}" + "".join(cells))
    lines.append(
        f"differences from {located[0].reference}, beside the largest number; {MARK} marks the first part at fault"
    )
    lines += [found.sentence for found in located if found.first is None]
    return "\n".join(lines) + "\n"


def _card(options: argparse.Namespace) -> None:
    """Write README.md; the report and everything it vouches for stay as they are."""
    from tiny_transformer.bundle import CARD, Bundle
    from tiny_transformer.errors import ExportError
    from tiny_transformer.parity import stored_report

    from .model_card import refresh_card

    bundle = Bundle.open(options.bundle)
    report = stored_report(bundle)
    if report is None:
        template = "{folder} has no {files}; make it first: python -m export all {folder}."
        raise ExportError(template, folder=bundle.folder, files="parity report")
    refresh_card(bundle, report, str(options.bundle))
    sys.stderr.write(f"wrote {bundle.folder / CARD}\n")


def _web(options: argparse.Namespace) -> None:
    """What was written goes to stderr: the page itself is the result."""
    from .to_web import export_site, named_folders

    forms = {"int8": options.int8, "transformers_js": options.transformers_js}
    site = export_site(named_folders(options.bundles), options.out, verified, **forms)
    sys.stderr.write(
        f"wrote {site.folder}: version {site.version}, {site.bytes / 1e6:.1f} MB; look at it with "
        f"python -m http.server --directory {site.folder}\n"
    )


def _push(options: argparse.Namespace) -> None:
    from .push import PushOptions, push

    push(PushOptions.from_arguments(options), verified)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="a model folder")


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="BUNDLE", help="a model folder with its exports, or USER/NAME[@REVISION]")
    parser.add_argument("--trust-code", action="store_true", help="of a model on the Hub, its TorchScript archive too")
    parser.add_argument("--device", help="cuda: compare eager on the GPU with the ONNX graphs instead")
    parser.add_argument(
        "--backends",
        metavar="NAME,NAME",
        type=lambda names: names.split(","),
        help="compare these alone; web and web-int8 only where they are named, in Chromium or in Node",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the report for programs")
    parser.add_argument(
        "--where", action="store_true", help="name the first part of the model that differs, and how errors grow"
    )
    form.add_argument("--quick", action="store_true", help="a look of some seconds at a part of the cases; no proof")


def _add_card(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="a model folder with its parity report")


def _add_web(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundles", metavar="BUNDLE", type=Path, nargs="+", help="a model folder with its parity report")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="the site's folder; an older site goes")
    parser.add_argument(
        "--int8",
        action="store_true",
        help="weights in 8 bits: half the download, judged by the task instead of each number",
    )
    parser.add_argument(
        "--transformers-js",
        action="store_true",
        help="also the model as transformers.js opens it, in the site's folder transformers.js; decoder-only models",
    )


def add_push_arguments(parser: argparse.ArgumentParser) -> None:
    """What to publish, where, and how."""
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="a model folder with its exports")
    parser.add_argument("repo_id", metavar="USER/NAME", help="the model repo on the Hub; made if it is not there")
    parser.add_argument("--private", action="store_true", help="make a new repo (and Space) private")
    parser.add_argument("--revision", metavar="BRANCH", default="main", help="branch to publish to (default main)")
    parser.add_argument("--create-pr", action="store_true", help="propose the commit as a pull request")
    parser.add_argument("--message", metavar="TEXT", default="", help="of the commit")
    parser.add_argument("--license", metavar="ID", default="", help="of the weights, such as apache-2.0, for the card")
    parser.add_argument(
        "--space", metavar="USER/NAME", default="", help="also publish a Gradio Space that serves the model"
    )
    parser.add_argument(
        "--static-space",
        metavar="USER/NAME",
        default="",
        help="also publish a static Space, free for everyone: the model runs in the visitor's browser",
    )
    parser.add_argument("--int8", action="store_true", help="with --static-space: its weights in 8 bits, as in web")
    parser.add_argument("--space-hardware", metavar="NAME", default="", help="such as t4-small or zero-a10g")
    parser.add_argument(
        "--space-token",
        metavar="VARIABLE",
        default="",
        help="environment variable with a read token, which becomes the secret of a private model's Space",
    )
    parser.add_argument("--dry-run", action="store_true", help="print files, sizes, hashes and card; no network")


# Name → summary, the function that runs it, the one that adds its arguments, and an example's arguments.
_TABLE = (
    ("torchscript", "write the TorchScript archive of a model folder.", _torchscript, _add_folder, ""),
    ("onnx", "write the ONNX graphs of a model folder, over its own weights file.", _onnx, _add_folder, ""),
    ("int8", "write the 8-bit weights of a model folder and the graphs over them.", _int8, _add_folder, ""),
    (
        "all",
        "write every graph and archive of a model folder, prove them equal, and write the parity report and the card.",
        _all,
        _add_folder,
        "",
    ),
    (
        "verify",
        "compare every backend of a model folder with eager PyTorch; exit 1 if one differs.",
        _verify,
        _add_verify,
        " --json",
    ),
    (
        "card",
        "write the card of a verified model folder anew, with what the model says to a few prompts.",
        _card,
        _add_card,
        "",
    ),
    (
        "web",
        "write a static page that runs verified model folders in the visitor's browser, after a proof of its own.",
        _web,
        _add_web,
        " --out site",
    ),
    (
        "push",
        "publish a verified model folder on the Hugging Face Hub, and a Space for it.",
        _push,
        add_push_arguments,
        " USER/NAME --space USER/NAME",
    ),
)
COMMANDS = {
    name: SimpleNamespace(
        __doc__=summary,
        EXAMPLE=f"python -m export {name} checkpoints/translate{example}",
        add_arguments=add_arguments,
        run=run,
    )
    for name, summary, run, add_arguments, example in _TABLE
}
