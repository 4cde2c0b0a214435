"""Small models, model folders made from them, and commands run in processes of their own."""

import fcntl
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tiny_transformer.bundle import Bundle
from tiny_transformer.config import ARCHITECTURES, NORMS, POSITIONS, ModelConfig
from tiny_transformer.model import DecoderOnly, EncoderDecoder, build_model

ROOT = Path(__file__).resolve().parents[2]
# What can run on a GPU is tested there too, wherever there is one.
ON_A_GPU = [pytest.param("cuda", marks=pytest.mark.gpu)] if torch.cuda.is_available() else []
DEVICES = ["cpu", *ON_A_GPU]
TEXTS = (
    "Guten Morgen! Wie geht es dir heute? Straße, Größe, Übermut.",
    "Good morning! How are you today? The quick brown fox.",
    "早上好！你今天怎么样？我们去公园散步吧。",
)
BundleFactory = Callable[..., Bundle]


def count_parameters(model: torch.nn.Module, *, embeddings: bool = True) -> int:
    """Trainable numbers in a model, counted one tensor after another; without `embeddings`, those of the layers."""
    return sum(p.numel() for name, p in model.named_parameters() if embeddings or not name.startswith("embedding."))


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


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str


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
    """A folder shared by all workers of this run; the block runs in one worker at a time."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    if "TEST_SHARED" in os.environ:  # `make test` runs pytest twice, and what the first run made serves the second
        shared = Path(os.environ["TEST_SHARED"])
        shared.mkdir(parents=True, exist_ok=True)
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
