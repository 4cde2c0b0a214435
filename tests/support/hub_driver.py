"""A push or a pull in a process of its own, with a stand-in for parity and little patience.

`python tests/support/hub_driver.py push BUNDLE USER/NAME …` or `pull USER/NAME OPTIONS-AS-JSON`.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from huggingface_hub import constants

from export.commands import add_push_arguments
from export.push import PushOptions, push
from tiny_transformer import hub
from tiny_transformer.bundle import Bundle
from tiny_transformer.cli import Parser, guarded
from tiny_transformer.errors import TinyTransformerError
from tiny_transformer.parity.report import CaseResult, ParityReport


def stand_in_report(bundle: Bundle, *, backends: Sequence[str] | None = None) -> ParityReport:
    """A report for the bytes that are there; it fails if it is told to, for all backends or for one."""
    names = tuple(backends or ("onnx",))
    passed = os.environ.get("STAND_IN_FAILS") not in ("1", *names)
    cases = [
        CaseResult(candidate=name, kind="full", name="stand-in", passed=passed, detail="as told") for name in names
    ]
    return ParityReport(reference="eager", candidates=names, versions={}, cases=tuple(cases), files=bundle.hashes())


def pushing(arguments: list[str]) -> int:
    """The command as it is, but for the verifier and the checkout."""
    parser = Parser(prog="push")
    add_push_arguments(parser)
    checkout = Path(os.environ["CHECKOUT"])
    parser.set_defaults(run=lambda o: push(replace(PushOptions.from_arguments(o), checkout=checkout), stand_in_report))
    return guarded(parser, arguments)


def pulling(repo_id: str, options: str) -> int:
    """The folder on stdout, or the error with its type on stderr."""
    from tiny_transformer.hub import pull

    try:
        print(pull(repo_id, **json.loads(options)))
    except TinyTransformerError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    assert os.environ["HF_ENDPOINT"] == constants.ENDPOINT, "the client has read the environment of another process"
    hub.PATIENCE, hub.FIRST_WAIT = float(os.environ.get("PATIENCE", "60")), 0.05
    sys.exit(pushing(sys.argv[2:]) if sys.argv[1] == "push" else pulling(*sys.argv[2:]))
