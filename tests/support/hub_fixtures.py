"""Fixtures of the Hub's tests; conftest.py makes them known to every file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.hub_commands import MODEL, Client, stand_in_report, with_graphs
from tests.support.hub_server import HubServer, Repo
from tiny_transformer.bundle import (
    CARD,
    DECODER_INT8,
    DECODER_INT8_BATCH,
    ENCODER_INT8,
    ENCODER_INT8_BATCH,
    EVALUATION,
    INSIDE_ONNX,
    TORCHSCRIPT,
    WEIGHTS,
    WEIGHTS_INT8,
    WEIGHTS_SHA256,
    Bundle,
    sha256,
)
from tiny_transformer.parity.report import write_report
from tiny_transformer.weights import write_weights


@pytest.fixture
def hub() -> Iterator[HubServer]:
    """A running Hub without repos."""
    with HubServer().running() as server:
        yield server


@pytest.fixture
def model(make_bundle: Callable[..., Bundle]) -> Bundle:
    """A folder that is ready to be pushed, in a blink."""
    return with_graphs(make_bundle())


@pytest.fixture
def repo(hub: HubServer, model: Bundle) -> Repo:
    """A published model with everything a repo can hold."""
    for name in (
        INSIDE_ONNX,
        ENCODER_INT8,
        DECODER_INT8,
        ENCODER_INT8_BATCH,
        DECODER_INT8_BATCH,
        TORCHSCRIPT,
        EVALUATION,
    ):
        (model.folder / name).write_bytes(f"stands for {name}".encode())
    origin = {WEIGHTS_SHA256: sha256(model.folder / WEIGHTS)}
    write_weights(model.folder / WEIGHTS_INT8, {"weight": np.zeros(8, dtype=np.float32)}, origin)
    write_report(model, stand_in_report(model))
    (model.folder / CARD).write_text("---\n---\n# A card\n")
    return hub.create(MODEL, files={name: (model.folder / name).read_bytes() for name in model.files()})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of a checkout that a Space is made of, with a page of two lines."""
    root = tmp_path / "checkout"
    (root / "tiny_transformer").mkdir(parents=True)
    (root / "tiny_transformer" / "__init__.py").write_text('__version__ = "0"\n')
    (root / "app.py").write_text("import os\nprint(os.environ['TINY_TRANSFORMER_MODEL'])\n")
    (root / "requirements.txt").write_text("# pinned\ngradio==6.31.0\nnumpy==2.4.6\ntorch==2.13.0\n")
    return root


@pytest.fixture
def client(hub: HubServer, tmp_path: Path, checkout: Path) -> Client:
    """A user with an empty cache."""
    return Client(hub, tmp_path / "home", checkout)
