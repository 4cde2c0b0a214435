"""The two programs of docs/embed.md run, say what the package says, and need no torch; its tables are the graphs'."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tiny_transformer as tt
from export.to_onnx import TensorSpec, graphs_of
from tests.support.export_fixtures import Exported, exported, small_config
from tests.support.models import ROOT, Finished
from tiny_transformer.bundle import DECODER_ONNX, INSIDE_ONNX
from tiny_transformer.config import ARCHITECTURES

__all__ = ["exported"]

TRANSLATOR = "encoder-decoder-rotary"
TEXT = "ß <eos> 早"
EXAMPLES = ROOT / "docs" / "examples"

# `sys.modules[name] = None` makes an import of the name fail, as if it were not installed.
_WITHOUT = """
import runpy, sys
program, blocked, sys.argv = sys.argv[1], sys.argv[2].split(","), sys.argv[1:2] + sys.argv[3:]
for name in blocked:
    sys.modules[name] = None
runpy.run_path(program, run_name="__main__")
"""


def run_without(blocked: str, program: Path, *arguments: str | Path) -> Finished:
    command = [sys.executable, "-c", _WITHOUT, str(program), blocked, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=300)
    return Finished(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("program", "blocked", "most_lines"),
    [
        ("embed_package.py", "torch,onnx,onnxscript,gradio,sacrebleu,tqdm", 15),
        ("embed_bare.py", "torch,onnx,onnxscript,gradio,sacrebleu,tqdm,safetensors,tiny_transformer,export", 40),
    ],
)
@pytest.mark.slow
def test_the_examples_translate(exported: Exported, program: str, blocked: str, most_lines: int):
    folder = exported(TRANSLATOR).folder
    wanted = tt.load(folder, backend="eager").generate(TEXT).text
    assert wanted.strip()
    done = run_without(blocked, EXAMPLES / program, folder, TEXT)
    assert (done.code, done.err) == (0, "")
    assert done.out == wanted + "\n"
    assert len((EXAMPLES / program).read_text().splitlines()) <= most_lines


def test_a_blocked_package_really_is_missing():
    program = ROOT / "tiny_transformer" / "backends" / "eager.py"
    assert "ModuleNotFoundError" in run_without("torch", program).err


Row = tuple[str, str, str, str]


def table_of(title: str) -> set[Row]:
    """The rows of one graph's table, N and kinds of key and value written out for two layers."""
    text = (ROOT / "docs" / "embed.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^### {re.escape(title)}\n(.*?)(?=^#)", text, re.MULTILINE | re.DOTALL)
    found = set()
    for side, names, shape, kind in re.findall(r"^\| (in|out) \| (.+?) \| (.+?) \| (\w+) \|$", section, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", names):
            numbers = range(2) if ".N." in name else range(1)
            found |= {(side, name.replace(".N.", f".{i}."), shape, kind) for i in numbers}
    return found


def row_of(side: str, spec: TensorSpec, letters: dict[str | int, str]) -> Row:
    shape = ", ".join(letters[size] for size in spec.shape)
    return side, spec.name, shape, str(spec.dtype).removeprefix("torch.")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_tables_are_the_graphs(architecture: str):
    config = small_config(architecture)
    words = {"batch": "B", "source": "S", "target": "T", "past": "C", "total": "max(C, longest row)", "shown": "N"}
    for file, graph in graphs_of(config).items():
        title = f"{file}, {config.architecture}" if file == DECODER_ONNX else file
        letters: dict[str | int, str] = {**words, config.n_heads: "H", config.d_head: "K", config.vocab_size: "V"}
        letters |= {config.n_decoder_layers + 1: "L+1", config.d_model: "D", config.d_ff: "F"}
        wanted = {row_of("in", p, letters) for p in graph.inputs} | {row_of("out", p, letters) for p in graph.outputs}
        found = table_of(title)
        if file == INSIDE_ONNX:  # one table for both architectures; layers and heads are both 2 here
            ids = "B, S" if config.is_encoder_decoder else "B, T"
            wanted = {(side, spec, re.sub(r"^H", "L", shape), kind) for side, spec, shape, kind in wanted}
            found = {(side, spec, re.sub(r"^B, S \(.*\)$", ids, shape), kind) for side, spec, shape, kind in found}
            assert wanted == found if config.is_encoder_decoder else wanted < found
        else:
            assert found == wanted, file
