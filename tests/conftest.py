"""Fixtures that every test folder shares; plain helpers live in `tests/support`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # xdist already fills the cores

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.support.models import ROOT, TEXTS, BundleFactory, Finished, once_per_run, tiny_config
from tiny_transformer.bundle import Bundle
from tiny_transformer.commands.init import random_bundle
from tiny_transformer.tokenizer import Tokenizer

pytest_plugins = ("tests.support.export_fixtures", "tests.support.hub_fixtures", "tests.support.web_fixtures")

# The same examples in every run: a failure that comes and goes teaches nobody.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("repeatable")

# Fixtures that take seconds to set up or to use: an export of a small model takes ten, a test with a Hub starts
# processes and waits for retries. Who asks for one is long.
LONG_FIXTURES = {"drawn", "exported", "hub", "models", "torchfree_python", "wheel"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a browser or a long set-up; `make check` leaves it out."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if "browser" in fixtures:
            item.add_marker(pytest.mark.browser)
        if fixtures & LONG_FIXTURES:
            item.add_marker(pytest.mark.long)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Small models are fastest on one thread, and xdist already fills the cores."""
    torch.set_num_threads(1)


@pytest.fixture
def make_bundle(tmp_path: Path) -> BundleFactory:
    """`make_bundle(architecture, name="model", seed=0, half=False, **config changes)` → an opened model folder."""

    def make(
        architecture: str = "encoder-decoder",
        *,
        name: str = "model",
        task: str | None = None,
        seed: int = 0,
        half: bool = False,
        **changes: Any,
    ) -> Bundle:
        config = tiny_config(architecture, **changes)
        task = task or ("translate" if config.is_encoder_decoder else "chat")
        bundle: Bundle = random_bundle(tmp_path / name, config, task, seed=seed, half=half)
        return bundle

    return make


@pytest.fixture(scope="session")
def trained_tokenizer() -> Tokenizer:
    """A joint vocabulary of German, English and Chinese, learned from a handful of sentences."""
    return Tokenizer.train(TEXTS * 20, 380, show_progress=False)


@pytest.fixture
def run_cli(capfd: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """`run_cli("init", folder, "--preset", "tiny")`: the command line in this process."""
    from tiny_transformer.cli import main

    def run(*arguments: str | Path) -> Finished:
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:  # argparse's own way out
            code = int(stop.code or 0)
        out, err = capfd.readouterr()
        return Finished(code, out, err)

    return run


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built offline from a copy: the checkout stays clean."""
    with once_per_run(tmp_path_factory, "wheel") as folder:
        if not folder.exists():
            source = folder.parent / "wheel-source"
            source.mkdir()
            for name in ("tiny_transformer", "export"):
                shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
            for name in ("pyproject.toml", "README.md", "LICENSE"):
                shutil.copy(ROOT / name, source / name)
            _must_run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source)
        (found,) = folder.glob("*.whl")
        return found


@pytest.fixture(scope="session")
def torchfree_python(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The interpreter of an environment that holds the wheel and its base dependencies: no torch, no checkout."""
    with once_per_run(tmp_path_factory, "torchfree") as folder:
        python = folder / "bin" / "python"
        ready = folder / "ready"
        if not ready.exists():
            _must_run(sys.executable, "-m", "venv", "--without-pip", folder)
            # What is imported is compiled then; to compile all of it would take half of the time.
            install = ("install", "--quiet", "--disable-pip-version-check", "--no-compile", wheel)
            _must_run(sys.executable, "-m", "pip", "--python", python, *install)
            ready.touch()
        return python


def _must_run(*command: str | Path) -> None:
    """Run; a package that cannot be had is an error, never a skip."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}"
