"""Pushes and pulls against a Hub on loopback, each in a process of its own.

The real client reads its endpoint, home and token when it is first imported: the process that is forked has imported
what the client needs, and not the client. Where parity is not the point, a stand-in takes its place, and the graphs
are a few bytes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hf_xet

from tests.support.hub_driver import stand_in_report
from tests.support.hub_server import Fault, HubServer
from tests.support.models import ROOT, Finished
from tests.support.warm_process import WarmPython
from tiny_transformer.bundle import DECODER_ONNX, ENCODER_ONNX, Bundle, sha256
from tiny_transformer.parity.report import write_report

WRITER, READER = "hf_writer", "hf_reader"
MODEL, SPACE = "ada/model", "ada/page"
XET = {"HF_HUB_DISABLE_XET": "0"}  # for the environment of a client
DRIVER = ROOT / "tests" / "support" / "hub_driver.py"
WARM = WarmPython(  # all but `export.push`, which knows the client
    *("export.commands", "tiny_transformer.cli", "tiny_transformer.hub", "tiny_transformer.parity.report"),
    *("tiny_transformer.text_model", "httpcore2", "httpx2", "jinja2", "tqdm.auto", "yaml"),
)


def with_graphs(bundle: Bundle) -> Bundle:
    """The folder with stand-ins for its graphs, and a report that names them."""
    (bundle.folder / ENCODER_ONNX).write_bytes(b"encoder" * 50)
    (bundle.folder / DECODER_ONNX).write_bytes(b"decoder" * 50)
    write_report(bundle, stand_in_report(bundle))
    return bundle


def downloaded(hub: HubServer) -> set[str]:
    """What was sent: the names of small files, and the addresses of large ones."""
    small = {seen.path.rsplit("/", 1)[-1] for seen in hub.requests("^GET /ada/model/resolve/")}
    return small | {seen.path for seen in hub.requests("^GET /objects/")}


def send_through_xet(hub: HubServer, bundle: Bundle, store: Path) -> list[str]:
    """Let a folder's large files, whose names come back, travel through a Xet store in a local folder."""
    store.mkdir()
    hub.xet_store = f"local://{store}"
    # The real Hub reads sizes and hashes out of the store; this one is told.
    large = [name for name in bundle.files() if name.endswith((".safetensors", ".onnx"))]
    for name in large:
        path = bundle.folder / name
        hub.objects[sha256(path)] = path.read_bytes()
        hub.xet_hashes[sha256(path)] = hf_xet.hash_files([str(path)])[0].hash
    return large


class Client:
    """Runs commands as a user of the Hub on loopback, with a home of its own."""

    def __init__(self, hub: HubServer, home: Path, checkout: Path) -> None:
        self.hub, self.home, self.checkout = hub, home, checkout
        self.temporary = home.parent / "temporary"
        self.temporary.mkdir()

    def push(self, folder: Path, *options: str, repo: str = MODEL, token: str | None = WRITER, **env: str) -> Finished:
        """`push FOLDER REPO OPTIONS`, with the stand-in for parity."""
        return self._driven(self.environment(token, **env), "push", folder, repo, *options)

    def pull(
        self, *, repo: str = MODEL, token: str | None = READER, env: dict[str, str] | None = None, **options: Any
    ) -> Finished:
        """`pull(REPO, **options)`; the folder on stdout."""
        return self._driven(self.environment(token, **(env or {})), "pull", repo, json.dumps(options))

    def killed(self, folder: Path, fault: Fault, *options: str) -> None:
        """A push that is killed with SIGKILL once it has reached a held request."""
        with open(os.devnull, "r+b") as nothing:
            streams = dict.fromkeys(("stdin", "stdout", "stderr"), nothing.fileno())
            arguments = ("push", str(folder), MODEL, *options)
            process = WARM.start(DRIVER, *arguments, env=self.environment(), cwd=ROOT, **streams)
        try:
            assert fault.reached.wait(60), "the push never came to the held request"
        finally:
            process.kill()
            process.wait()

    def environment(self, token: str | None = WRITER, **changes: str) -> dict[str, str]:
        """What the client reads at its first import."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "PYTEST"))}
        kept |= {"HF_ENDPOINT": self.hub.endpoint, "HF_HOME": str(self.home), "HF_HUB_DISABLE_XET": "1"}
        kept |= {"HF_HUB_DISABLE_TELEMETRY": "1", "TMPDIR": str(self.temporary), "CHECKOUT": str(self.checkout)}
        return kept | ({"HF_TOKEN": token} if token else {}) | changes

    def run(self, command: list[str], environment: dict[str, str]) -> Finished:
        """Run to the end."""
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def driver(self, *arguments: str | Path) -> list[str]:
        """The command line of a push or pull."""
        return [sys.executable, str(DRIVER), *map(str, arguments)]

    def _driven(self, environment: dict[str, str], *arguments: str | Path) -> Finished:
        return Finished(*WARM.run(DRIVER, *map(str, arguments), env=environment))
