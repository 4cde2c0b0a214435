"""The wheel: everything in it, nothing beside it, and it works where torch was never installed."""

import email
import json
import os
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.models import ROOT, BundleFactory, run_python
from tiny_transformer import __version__

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def pins(*names: str) -> dict[str, str]:
    """Package → version of the requirements files; each line must be an exact pin or another file of ours."""
    found: dict[str, str] = {}
    for name in names:
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
            line = line.split("#")[0].strip()
            if line and not line.startswith("-r "):
                package, version = re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups()  # type: ignore[union-attr]
                found[canonicalize_name(package)] = version
    return found


def ranges(lines: list[str]) -> list[Requirement]:
    return [requirement for line in lines if (requirement := Requirement(line)).name != "tiny-transformer"]


PINS = pins("requirements.txt", "requirements-dev.txt", "requirements-bench.txt", "requirements-ray.txt")
ALL_RANGES = ranges(
    [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)]
)


@pytest.mark.parametrize("requirement", ALL_RANGES, ids=str)
def test_every_range_was_tried_with_the_pinned_version(requirement: Requirement) -> None:
    assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("requirement", ALL_RANGES, ids=str)
def test_every_range_of_what_users_install_has_two_ends(requirement: Requirement) -> None:
    tools = {Requirement(line).name for line in PROJECT["optional-dependencies"]["dev"]}
    operators = {clause.operator for clause in requirement.specifier}
    assert ">=" in operators
    assert "<" in operators or requirement.name in tools


def test_the_page_gets_what_the_base_the_page_and_torch_need() -> None:
    extras = PROJECT["optional-dependencies"]
    needed = ranges([*PROJECT["dependencies"], *extras["app"], *extras["torch"]])
    assert {canonicalize_name(requirement.name) for requirement in needed} == pins("requirements.txt").keys()


def test_the_base_is_torch_free() -> None:
    assert {Requirement(line).name for line in PROJECT["dependencies"]} == {
        "numpy",
        "onnxruntime",
        "tokenizers",
        "httpx2",
        "huggingface_hub",
    }


def test_ci_runs_what_the_readme_says() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [line for line in script.splitlines() if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["make test"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111, "not executable"


def planned(target: str) -> str:
    """The commands that make would run."""
    command = ["make", "-n", "VENV=.venv-none", target]  # as on a fresh machine
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("target", ["check", "test", "test-all"])
def test_make_lints_types_and_tests(target: str) -> None:
    commands = planned(target)
    for tool in ("ruff check", "ruff format --check", "mypy", "pytest"):
        assert tool in commands
    assert "sudo" not in commands, "make never asks for a password"
    assert ("chromium" in commands) == (target != "check")
    assert ("requirements-ray.txt" in commands) == (target == "test-all")


def test_make_check_leaves_out_what_takes_long_or_needs_a_browser() -> None:
    markers = re.findall(r'-m "(.*)"', planned("check"))
    assert markers == ["not slow and not alone and not browser and not long"]
    every = {
        marker for command in re.findall(r'-m "?([^"\n]*)"?$', planned("test"), re.MULTILINE) for marker in [command]
    }
    assert {"not slow and not alone", "alone and not slow"} <= every, "make test leaves out the slow ones alone"


def test_without_chromium_one_line_says_what_to_install(tmp_path: Path) -> None:
    """Somebody who is not root is told; nothing is installed behind their back."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in {
        "chromium": "exit 127",
        "id": "echo 1000",
        "apt-get": "touch installed",
        "python": "exit 1",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(programs / "python")
    (venv / ".dev").touch()
    command = ["make", f"VENV={venv}", "--old-file", f"{venv}/.dev", f"{venv}/.browser"]
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if not re.match(r"make(\[\d+\])?:", line)]
    assert len(said) == 1
    assert "install the package chromium" in said[0]
    assert not (ROOT / "installed").exists()
    assert not (venv / ".browser").exists()


def files_of(package: str) -> set[str]:
    folder = ROOT / package
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def test_the_wheel_holds_the_package_and_nothing_beside_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"tiny_transformer/{name}" for name in files_of("tiny_transformer")}
    expected |= {f"tiny_transformer/export/{name}" for name in files_of("export")}
    packed = {name for name in names if ".dist-info/" not in name}
    assert packed == expected
    assert "tiny_transformer/py.typed" in packed
    assert any(re.fullmatch(r"tiny_transformer/training/recipes/[\w-]+\.toml", name) for name in packed)
    assert {name.split("/")[0] for name in packed} == {"tiny_transformer"}, "a top-level `export` would be PyPI's"


def test_the_wheel_says_who_it_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata_name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(archive.read(metadata_name))
    assert (metadata["Name"], metadata["Version"]) == ("tiny-transformer", __version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra")) == {
        "torch",
        "train",
        "export",
        "app",
        "mcp",
        "parquet",
        "ray",
        "bench",
        "dev",
    }
    assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())


def test_citation_changelog_and_classifiers_follow_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (__version__, PROJECT["license"])
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{__version__}] - {citation['date-released']}" in changelog
    assert changelog.index("## [Unreleased]") < changelog.index(f"## [{__version__}]")


def test_ci_tries_every_python_and_system_that_the_package_names() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))["jobs"]
    tried = jobs["check"]["strategy"]["matrix"]
    named = [line.rpartition(" :: ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert tried["python"] == named
    assert {system.split("-")[0] for system in tried["os"]} == {"ubuntu", "macos"}
    commands = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    targets = {target for command in commands for target in re.findall(r"\bmake (\S+)", command)}
    assert {"check", "test"} <= targets
    for target in targets:
        planned(target)


WITHOUT_TORCH = """
import importlib.metadata, importlib.util, json, sys
import tiny_transformer, tiny_transformer.cli, tiny_transformer.bundle, tiny_transformer.tokenizer
import tiny_transformer.generation, tiny_transformer.parity, tiny_transformer.text_model
import tiny_transformer.backends.onnx_runtime
tiny_transformer.cli.build_parser()
print(json.dumps({
    "version": tiny_transformer.__version__,
    "installed": importlib.metadata.version("tiny-transformer"),
    "home": tiny_transformer.__file__,
    "torch": importlib.util.find_spec("torch") is not None,
    "gradio": importlib.util.find_spec("gradio") is not None,
    "export": importlib.util.find_spec("export") is not None,
    "inner": importlib.util.find_spec("tiny_transformer.export") is not None,
}))
"""


def outside(code: str, *arguments: str | Path, python: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run where the checkout cannot be imported by accident."""
    return subprocess.run(
        [str(python), "-c", code, *map(str, arguments)], capture_output=True, text=True, cwd=folder, check=False
    )


def test_the_wheel_works_where_torch_was_never_installed(torchfree_python: Path, tmp_path: Path) -> None:
    done = outside(WITHOUT_TORCH, python=torchfree_python, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert str(ROOT) not in found.pop("home"), "the checkout was imported, not the wheel"
    assert found == {
        "version": __version__,
        "installed": __version__,
        "torch": False,
        "gradio": False,
        "export": False,
        "inner": True,
    }


def test_the_installed_command_runs(torchfree_python: Path, tmp_path: Path, make_bundle: BundleFactory) -> None:
    program = torchfree_python.with_name("tiny-transformer")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (0, f"tiny-transformer {__version__}\n")
    folder = make_bundle().folder
    done = subprocess.run([program, "info", folder], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "unverified" in done.stdout
    done = subprocess.run(
        [program, "info", folder, "--shapes"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'tiny-transformer[torch]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [(("init", "m", "--preset", "tiny"), "torch"), (("train", "tiny", "--out", "m"), "train")],
)
def test_commands_say_what_is_missing_where_torch_is_not(
    torchfree_python: Path, tmp_path: Path, arguments: tuple[str, ...], extra: str
) -> None:
    program = torchfree_python.with_name("tiny-transformer")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"pip install 'tiny-transformer[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_checkout_runs_too() -> None:
    done = run_python("import tiny_transformer, export; print(tiny_transformer.__version__)")
    assert done.out == f"{__version__}\n", done.err
