"""Node with the modules of `web/`, and model folders as a web server has them."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import ROOT
from tiny_transformer.backends.javascript import RUNTIME
from tiny_transformer.bundle import PARITY, Bundle

WEB = ROOT / "web"


class JavaScriptError(Exception):
    """What a body threw."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error.get("stack") or error["message"])
        self.name, self.message, self.template = error["name"], error["message"], error.get("template")


class Node:
    """A Node process that runs function bodies: `use(module)` imports, `data` is what the test sent, `kept` stays."""

    def __init__(self) -> None:
        assert shutil.which("node"), "the tests of web/ need Node on the PATH; install the package nodejs"
        assert (WEB / RUNTIME).is_dir(), "run `npm ci --prefix web --ignore-scripts` first; make test does it"
        driver = ROOT / "tests" / "support" / "web_driver.mjs"
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
        self._process = subprocess.Popen(["node", str(driver)], cwd=ROOT, **pipes)

    def __call__(self, body: str, data: Any = None) -> Any:
        """What the body returns; what it throws is raised."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"body": body, "data": data}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "Node ended"
        answer = json.loads(line)
        if "error" in answer:
            raise JavaScriptError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    found = Node()
    yield found
    found.close()


def published(bundle: Bundle, folder: Path) -> Path:
    """A copy of a folder with a report that vouches for its files, as far as the web reads one."""
    shutil.copytree(bundle.folder, folder)
    report = {"verdict": "verified", "files": bundle.hashes()}
    (folder / PARITY).write_text(json.dumps(report), encoding="utf-8")
    return folder
