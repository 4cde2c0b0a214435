"""Fixtures of the Hub's tests; conftest.py makes them known to every file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_commands import Client, with_graphs
from hub_server import HubServer

from tiny_transformer.bundle import Bundle


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
