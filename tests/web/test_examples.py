"""The two programs of docs/embed.md in JavaScript: what the package says, in few lines."""

import subprocess
from pathlib import Path

import pytest

import tiny_transformer as tt
from tests.support.export_fixtures import Exported, exported
from tests.support.models import ROOT
from tests.support.web_fixtures import published

__all__ = ["exported"]

EXAMPLES = ROOT / "web" / "examples"
TEXT = "ß <eos> 早"


@pytest.mark.parametrize(("program", "most_lines"), [("embed.js", 15), ("embed_bare.js", 45)])
def test_the_examples_translate(exported: Exported, tmp_path: Path, program: str, most_lines: int) -> None:
    bundle = exported("encoder-decoder-rotary")  # its output vocabulary is smaller than its vocabulary
    folder = published(bundle, tmp_path / "model")
    command = ["node", str(EXAMPLES / program), str(folder), TEXT]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == tt.load(bundle.folder, "onnx").generate(TEXT).text + "\n"
    assert len((EXAMPLES / program).read_text().splitlines()) <= most_lines


def test_the_documentation_shows_the_program_that_is_run() -> None:
    assert (EXAMPLES / "embed.js").read_text() in (ROOT / "docs" / "embed.md").read_text(encoding="utf-8")
