"""The command line: one sentence for every failure, exit codes, help with an example, nothing heavy at the start."""

import json
import os
import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.models import ROOT, BundleFactory, Finished, run_python
from tiny_transformer import __version__, cli
from tiny_transformer.bundle import PARITY
from tiny_transformer.errors import BundleError, ParityError, TinyTransformerError
from tiny_transformer.parity.report import CaseResult, ParityReport

Run = Callable[..., Finished]
HEAVY = ("torch", "onnxruntime", "gradio", "onnx", "huggingface_hub", "matplotlib", "sacrebleu")


@pytest.mark.parametrize(
    "code",
    [
        "import tiny_transformer",
        "import tiny_transformer.cli; tiny_transformer.cli.build_parser()",
        "import tiny_transformer.config, tiny_transformer.bundle, tiny_transformer.tokenizer, tiny_transformer.weights",
        "import tiny_transformer.text_model, tiny_transformer.generation, tiny_transformer.parity",
        "import tiny_transformer.backends, tiny_transformer.evaluation, tiny_transformer.hub",
    ],
    ids=lambda code: code.split(".")[-1][:30],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code: str) -> None:
    done = run_python(f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))")
    assert done.code == 0, done.err
    assert not {name.split(".")[0] for name in json.loads(done.out)} & set(HEAVY)


def test_importing_the_package_loads_nothing_of_it() -> None:
    done = run_python("import tiny_transformer, sys, json; print(json.dumps(sorted(sys.modules)))")
    loaded = {name for name in json.loads(done.out) if name.startswith(("tiny_transformer", "numpy", "tokenizers"))}
    assert loaded == {"tiny_transformer"}


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help_with_an_example_that_parses(run_cli: Run, command: str) -> None:
    done = run_cli(command, "--help")
    assert done.code == 0
    assert done.err == ""
    _, _, epilog = done.out.partition("\nexample:\n")
    (example,) = epilog.strip().splitlines()
    python, dash_m, program, *arguments = shlex.split(example)
    assert [python, dash_m, program] == ["python", "-m", "tiny_transformer"]
    assert cli.build_parser().parse_args(arguments).command == command
    summary = done.out.split("\n\n")[1]
    assert "construction" not in summary
    assert len(summary) > 10


def test_the_overview_names_every_command(run_cli: Run) -> None:
    done = run_cli("--help")
    assert done.code == 0
    for command in cli.COMMANDS:
        assert f"\n    {command} " in done.out


def test_the_version(run_cli: Run) -> None:
    assert run_cli("--version") == Finished(0, f"tiny-transformer {__version__}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("fly",),
        ("init",),
        ("init", "x", "--preset", "huge"),
        ("init", "x", "--norm", "side"),
        ("init", "x", "--d-model", "wide"),
        ("init", "x", "--d-model", "9" * 5_000),
        ("init", "x", "--wings"),
        ("info", "x", "--batch", "two"),
    ],
    ids=lambda arguments: " ".join(arguments)[:30] or "nothing",
)
def test_wrong_usage_is_one_line_that_points_to_help(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_cli(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert "--help)" in done.err
    assert not list(tmp_path.iterdir())


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(_: Namespace) -> None:
        raise error

    monkeypatch.setattr("tiny_transformer.commands.info.run", run)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BundleError("x is broken; mend it."), 2, "error: x is broken; mend it.\n"),
        (TinyTransformerError("So it is."), 2, "error: So it is.\n"),
        (ParityError("They differ."), 1, "error: They differ.\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (
            PermissionError(13, "Permission denied", "/p"),
            2,
            "error: /p: Permission denied; check the path and the disk.\n",
        ),
        (OSError(28, "No space left on device"), 2, "error: No space left on device; check the path and the disk.\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_each_failure_has_its_exit_code_and_its_line(
    run_cli: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    fail_with(monkeypatch, error)
    assert run_cli("info", "x") == Finished(code, "", message)


def test_our_own_mistakes_are_not_hidden(run_cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        run_cli("info", "x")


def test_the_module_runs_and_ends_with_the_code(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tiny_transformer", "info", str(tmp_path / "gone")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert (
        done.stderr
        == f"error: {tmp_path / 'gone'} is not a folder; name a model folder such as checkpoints/translate.\n"
    )


def test_a_reader_that_goes_away_is_no_failure(make_bundle: BundleFactory) -> None:
    """`info … | head -1`: no traceback, no complaint while Python closes its output."""
    command = f"{shlex.quote(sys.executable)} -m tiny_transformer info {make_bundle().folder} | true"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=buffered,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_what_a_strangers_folder_says_commands_no_terminal(make_bundle: BundleFactory, run_cli: Run) -> None:
    bundle = make_bundle()
    case = CaseResult(candidate="onnx", kind="full", name="\x1b[2Jname\x9b31m\u202etxt", passed=False, detail="")
    report = ParityReport(reference="eager", candidates=("onnx",), versions={}, cases=(case,), files={})
    (bundle.folder / PARITY).write_text(report.to_json(), encoding="utf-8")
    done = run_cli("info", bundle.folder)
    assert done.code == 1
    assert "\\x1b[2Jname\\x9b31m\\u202etxt" in done.err
    (bundle.folder / PARITY).unlink()
    (bundle.folder / "\x1b[2J.txt").touch()
    done = run_cli("info", bundle.folder)
    assert done.code == 0
    assert "\\x1b[2J.txt" in done.out
    assert "\x1b" not in done.out + done.err
