"""What the tests of the page share: model folders with graphs, and a page that another process serves."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from gradio_client import Client

from tests.support.models import ROOT, once_per_run
from tests.support.warm_process import WarmPython
from tiny_transformer.bundle import Bundle, save_bundle
from tiny_transformer.commands.init import random_bundle
from tiny_transformer.config import ModelConfig

# Letters only: a random model's answers can then be read, and compared, anywhere.
SMALL: dict[str, Any] = {"vocab_size": 262, "d_model": 32, "n_heads": 2, "d_ff": 64, "max_length": 96}
SERVER = ROOT / "tests" / "support" / "ui_server.py"
WARM = WarmPython(
    *("tiny_transformer.ui.page", "tiny_transformer.ui.routes", "tokenizers"),
    GRADIO_ANALYTICS_ENABLED="False",
)


def small_config(task: str) -> ModelConfig:
    """A shape that answers in a few milliseconds."""
    if task == "chat":
        return ModelConfig.gpt(n_decoder_layers=2, **SMALL)
    return ModelConfig(n_encoder_layers=2, n_decoder_layers=2, **SMALL)


def make_model(folder: Path, task: str) -> Bundle:
    """A random model that writes letters and never ends by itself: its answers are long and readable."""
    bundle = random_bundle(folder, small_config(task), task, seed=3)
    weights = {name: np.array(value) for name, value in bundle.weights().items()}
    readable = [i for i in range(bundle.config.vocab_size) if bundle.tokenizer.token_bytes(i).isalpha()]
    others = np.setdiff1d(np.arange(bundle.config.vocab_size), readable)
    # The output layer is the embedding: a token whose vector points away from all is never chosen.
    weights["embedding.tokens.weight"][others] *= 0.02
    generation = bundle.generation
    if task == "translate":
        generation = generation.with_changes(source_languages=("de", "zh"), target_language="en")
    return save_bundle(folder, bundle.config, generation, bundle.tokenizer, weights, overwrite=True)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A chat and a translation model with their ONNX graphs, made once for all workers."""
    from tests.support.export_fixtures import export_graphs

    with once_per_run(tmp_path_factory, "page-models") as folder:
        if not folder.exists():
            staging = folder.with_name(f"{folder.name}.staging")  # a failed export must not pass for a made one
            for task in ("chat", "translate"):
                make_model(staging / task, task)
                export_graphs(staging / task)
            staging.rename(folder)
    return {task: folder / task for task in ("chat", "translate")}


@dataclass(frozen=True)
class Served:
    """A page that is being served by another process."""

    url: str
    pid: int
    steps: Path

    @property
    def n_steps(self) -> int:
        """How many steps its models have made, where it was started with a delay."""
        return self.steps.stat().st_size if self.steps.exists() else 0

    @property
    def health(self) -> dict[str, Any]:
        """What the page says of itself."""
        found: dict[str, Any] = httpx.get(f"{self.url}/health", timeout=20).json()
        return found


@contextmanager
def served(models: Iterable[Path | str], folder: Path, *options: str, delay: float = 0.0) -> Iterator[Served]:
    """Serve a page around some models, and stop it afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    steps = folder / "steps"
    named = [part for model in models for part in ("--model", str(model))]
    if delay:
        options += ("--delay", str(delay), "--steps", str(steps))
    (their_input, our_input), (our_output, their_output) = os.pipe(), os.pipe()
    with (folder / "log").open("w") as log, open(our_input, "wb") as switch, open(our_output, encoding="utf-8") as said:
        streams = {"stdin": their_input, "stdout": their_output, "stderr": log.fileno()}
        process = WARM.start(SERVER, *named, *options, env=dict(os.environ), cwd=folder, **streams)
        os.close(their_input)
        os.close(their_output)
        try:
            url = said.readline().strip()
            assert url, (folder / "log").read_text()
            yield Served(url.rstrip("/"), process.pid, steps)
        finally:
            switch.close()  # it serves until its input ends
            code = process.wait(30)
    log_text = (folder / "log").read_text()
    assert code == 0, log_text
    assert "A handler failed" not in log_text, log_text


@pytest.fixture(scope="module")
def page(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A page for programs, as fast as it can."""
    limits = ("--max-new-tokens", "60", "--max-characters", "500")
    with served(models.values(), tmp_path_factory.mktemp("page"), *limits) as found:
        yield found


@pytest.fixture(scope="module")
def client(page: Served) -> Client:
    """Gradio's own client of that page."""
    return Client(page.url, verbose=False)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether something becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
