"""`python -m export`: every command on a small folder, and failures that are one sentence."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from export.commands import COMMANDS, build_parser, main, verified
from tests.support.export_fixtures import Exported, eager_of, exported, save_random, small_config
from tests.support.models import ROOT, Finished
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.torchscript import open_torchscript
from tiny_transformer.bundle import (
    ATTENTION_ONNX,
    DECODER_INT8,
    DECODER_ONNX,
    EVALUATION,
    INSIDE_ONNX,
    PARITY,
    TORCHSCRIPT,
    WEIGHTS_INT8,
    Bundle,
)
from tiny_transformer.errors import ParityError
from tiny_transformer.parity import stored_report, write_report

__all__ = ["exported"]

GPT = "decoder-only-learned"


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    def call(*arguments: str | Path) -> Finished:
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:  # argparse's own way out
            code = int(stop.code or 0)
        return Finished(code, *capfd.readouterr())

    return call


@pytest.fixture
def folder(exported: Exported, tmp_path: Path) -> Path:
    """A copy with graphs that a test may change."""
    return Path(shutil.copytree(exported(GPT).folder, tmp_path / "model"))


@pytest.mark.long
def test_all_writes_every_graph_and_the_report(tmp_path: Path, run):
    bundle = save_random(tmp_path / "model", small_config("decoder-only", n_decoder_layers=1, max_length=32))
    example = {"messages": [{"role": "user", "content": "hi"}], "answer": "hello"}
    (bundle.folder / EVALUATION).write_text(json.dumps(example) + "\n")
    (bundle.folder / ATTENTION_ONNX).write_bytes(b"of an earlier export")
    done = run("all", bundle.folder)
    assert done.code == 0, done.err
    assert done.out == ""
    assert bundle.has(TORCHSCRIPT, DECODER_ONNX, INSIDE_ONNX, DECODER_INT8, WEIGHTS_INT8, PARITY)
    assert not bundle.has(ATTENTION_ONNX)
    report = stored_report(Bundle.open(bundle.folder))
    assert report is not None
    assert set(report.candidates) == {"torchscript", "onnx", "onnx-int8", "numpy"}
    assert not [name for name in os.listdir(bundle.folder) if name.endswith(".tmp")]


@pytest.mark.slow
def test_all_leaves_out_what_nothing_can_judge(folder: Path, run):
    """Without examples of the task no report could vouch for 8-bit graphs: old ones go, and it is said."""
    assert Bundle.open(folder).has(DECODER_INT8)
    done = run("all", folder)
    assert done.code == 0, done.err
    assert EVALUATION in done.err
    bundle = Bundle.open(folder)
    assert not bundle.has(DECODER_INT8)
    assert not bundle.has(WEIGHTS_INT8)
    report = stored_report(bundle)
    assert report is not None
    assert set(report.candidates) == {"torchscript", "onnx", "numpy"}


def test_verify_on_a_device_compares_it_with_the_graphs(folder: Path, run):
    """On the CPU, where every machine can: float32 by tensors, bfloat16 by a task that is not there."""
    done = run("verify", folder, "--device", "cpu")
    assert done.code == 1
    assert "eager-cpu-bfloat16: task" in done.err
    assert "eager-cpu-float32" not in done.err


def test_torchscript_writes_an_archive_without_a_path(folder: Path, run):
    assert run("torchscript", folder).code == 0
    bundle = Bundle.open(folder)
    target = Batch.of([[7, 8, 9], [10, 11]])
    found = open_torchscript(bundle, device="cpu").logits(target, None)
    np.testing.assert_array_equal(found, eager_of(bundle).logits(target, None))
    with zipfile.ZipFile(folder / TORCHSCRIPT) as archive:
        names = archive.namelist()
        assert {name.split("/")[0] for name in names} == {"archive"}
        for name in names:
            assert str(ROOT).encode() not in archive.read(name), name


def test_int8_needs_no_torch_export_where_the_graphs_are_there(folder: Path, run):
    before = (folder / DECODER_INT8).read_bytes()
    for file in (DECODER_INT8, WEIGHTS_INT8):
        (folder / file).unlink()
    assert run("int8", folder).code == 0
    assert (folder / DECODER_INT8).read_bytes() == before


@pytest.mark.parametrize("command", ["torchscript", "onnx", "int8", "all", "verify"])
def test_a_folder_that_is_none_is_one_sentence(tmp_path: Path, run, command: str):
    done = run(command, tmp_path / "nothing")
    assert done.code == 2
    assert done.out == ""
    assert re.fullmatch(r"error: .*nothing is not a folder; name a model folder .*\n", done.err)


@pytest.mark.parametrize("arguments", [(), ("onnx",), ("fly", "x"), ("onnx", "a", "b"), ("verify", "--yaml", "x")])
def test_wrong_usage_is_one_sentence(run, arguments: tuple[str, ...]):
    done = run(*arguments)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_it_does_and_gives_an_example(run, command: str):
    done = run(command, "--help")
    assert done.code == 0
    assert f"python -m export {command}" in done.out.split("example:")[1]


def test_the_parser_loads_nothing_heavy():
    code = "import sys; from export.commands import build_parser; build_parser(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not {"torch", "onnx", "onnxruntime", "tqdm", "huggingface_hub"} & set(done.stdout.split())


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "export", "--help"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert set(COMMANDS) == set(re.findall(r"^    (\w+)\b", done.stdout, re.MULTILINE)), done.stdout
    assert build_parser().prog == "python -m export"


def test_a_quick_look_is_no_proof_and_writes_nothing(folder: Path, run):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = run("verify", folder, "--quick")
    assert done.code == 0, done.err
    assert "no proof" in done.out
    assert "verified" not in done.out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    kinds = {tuple(line.split()[:2]) for line in done.out.splitlines()}
    assert {("onnx", "cached"), ("onnx", "attention"), ("onnx", "greedy"), ("onnx-int8", "full")} <= kinds
    report = verified(Bundle.open(folder), quick=True)
    with pytest.raises(ParityError, match="vouches for no file"):
        write_report(Bundle.open(folder), report)
    assert run("verify", folder, "--quick", "--json").code == 2
    assert run("verify", folder, "--quick", "--device", "cuda").code == 2


@pytest.mark.long
def test_a_quick_look_at_a_shipped_model_finds_no_fault(run):
    done = run("verify", ROOT / "checkpoints" / "translate", "--quick")
    assert done.code == 0, done.out


def test_a_quick_look_finds_a_graph_of_other_numbers(folder: Path, run):
    model = onnx.load(folder / DECODER_ONNX, load_external_data=False)
    attributes = [a for node in model.graph.node for a in node.attribute if a.name == "epsilon"]
    assert attributes
    for epsilon in attributes:
        epsilon.f = 0.5
    onnx.save(model, folder / DECODER_ONNX)
    done = run("verify", folder, "--quick")
    assert done.code == 1
    assert "Parity failed" in done.err
    assert "no proof" not in done.out
