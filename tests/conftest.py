"""What every test file may use: small models, model folders made from them, and a Python without torch.

Plain functions are imported (`from conftest import tiny_config`); what owns files is a fixture.
"""

import fcntl
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # xdist already fills the cores

import pytest
import torch
from hypothesis import HealthCheck, settings

from tiny_transformer.bundle import Bundle
from tiny_transformer.commands.init import random_bundle
from tiny_transformer.config import ARCHITECTURES, NORMS, POSITIONS, ModelConfig
from tiny_transformer.model import DecoderOnly, EncoderDecoder, build_model
from tiny_transformer.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
# What can run on a GPU is tested there too, wherever there is one.
ON_A_GPU = [pytest.param("cuda", marks=pytest.mark.gpu)] if torch.cuda.is_available() else []
DEVICES = ["cpu", *ON_A_GPU]

pytest_plugins = ("export_fixtures", "hub_fixtures")  # fixtures that several areas share

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


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Small models are fastest on one thread, and xdist already fills the cores."""
    torch.set_num_threads(1)


def tiny_config(architecture: str = "encoder-decoder", **changes: Any) -> ModelConfig:
    """A shape that runs in a millisecond yet has two of everything; no dropout."""
    values: dict[str, Any] = {
        "vocab_size": 300,  # room for the 256 bytes and the special tokens
        "d_model": 16,
        "n_heads": 2,
        "n_encoder_layers": 2,
        "n_decoder_layers": 2,
        "d_ff": 24,
        "max_length": 16,
        "dropout": 0.0,
    }
    if architecture == "decoder-only":
        return ModelConfig.gpt(**(values | {"n_encoder_layers": 0} | changes))
    return ModelConfig(architecture=architecture, **(values | changes))


def all_combinations() -> list[Any]:
    """A small config for every architecture × norm × positions × tying, each with its name as test id."""
    return [
        pytest.param(
            tiny_config(architecture, norm=norm, positions=positions, tie_embeddings=tied),
            id=f"{architecture}-{norm}-{positions}-{'tied' if tied else 'untied'}",
        )
        for architecture, norm, positions, tied in itertools.product(ARCHITECTURES, NORMS, POSITIONS, (True, False))
    ]


def tiny_model(
    config: ModelConfig, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> DecoderOnly | EncoderDecoder:
    """A random model in evaluation mode whose biases and norms are not the zeros and ones of a fresh one.

    A test on fresh weights cannot see a bias that is forgotten or a norm that is skipped.
    """
    generator = torch.Generator().manual_seed(seed)
    model = build_model(config, generator)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += torch.randn(parameter.shape, generator=generator) * 0.2
    return model.to(dtype).eval()


def random_ids(config: ModelConfig, rows: int, length: int, *, seed: int = 0) -> torch.Tensor:
    """Uniform ids (rows, length)."""
    return torch.randint(config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(seed))


BundleFactory = Callable[..., Bundle]


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


TEXTS = (
    "Guten Morgen! Wie geht es dir heute? Straße, Größe, Übermut.",
    "Good morning! How are you today? The quick brown fox.",
    "早上好！你今天怎么样？我们去公园散步吧。",
)


@pytest.fixture(scope="session")
def trained_tokenizer() -> Tokenizer:
    """A joint vocabulary of German, English and Chinese, learned from a handful of sentences."""
    return Tokenizer.train(TEXTS * 20, 380, show_progress=False)


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str


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


def run_python(code: str, *arguments: str | Path, python: Path | str = sys.executable) -> Finished:
    """Run a few lines in a fresh interpreter that finds the checkout, but nothing of this process."""
    done = subprocess.run(
        [str(python), "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=300,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


@contextmanager
def once_per_run(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder shared by all xdist workers of this run; the block runs in one worker at a time."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


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
            install = ("install", "--quiet", "--disable-pip-version-check", "--no-compile", wheel)
            _must_run(sys.executable, "-m", "pip", "--python", python, *install)
            ready.touch()
        return python


def _must_run(*command: str | Path) -> None:
    """Run; a package that cannot be had is an error, never a skip."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}"
