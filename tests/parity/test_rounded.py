"""8-bit graphs are judged in batches of rows of different length, too: a mask that is gone is found."""

import shutil
from pathlib import Path

import onnx
import pytest

from tests.support.models import ROOT
from tiny_transformer.bundle import (
    DECODER_INT8,
    DECODER_INT8_BATCH,
    ENCODER_INT8,
    ENCODER_INT8_BATCH,
    EVALUATION,
    PARITY,
    TRAINING,
    Bundle,
)
from tiny_transformer.parity import verify_bundle

FEW, MANY = "ragged padding", "ragged padding, many rows"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The shipped translator with three examples: its graphs are then judged by little but their logits."""
    copy = tmp_path / "model"
    shutil.copytree(ROOT / "checkpoints" / "translate", copy, ignore=shutil.ignore_patterns(PARITY, TRAINING))
    lines = (copy / EVALUATION).read_text(encoding="utf-8").splitlines(keepends=True)
    (copy / EVALUATION).write_text("".join(lines[:3]), encoding="utf-8")
    return copy


@pytest.mark.long
def test_the_shipped_8_bit_graphs_keep_rows_apart(folder: Path):
    report = verify_bundle(Bundle.open(folder), ["onnx-int8"])
    assert not [case for case in report.failures if case.kind != "task"]
    named = {case.name for case in report.cases}
    assert {FEW, MANY, f"{FEW}, against each row alone", f"{MANY}, against each row alone"} <= named


@pytest.mark.long
@pytest.mark.parametrize(
    ("graph", "case", "other"),
    [
        (DECODER_INT8, FEW, MANY),
        (DECODER_INT8_BATCH, MANY, FEW),
        (ENCODER_INT8, FEW, MANY),
        (ENCODER_INT8_BATCH, MANY, FEW),
    ],
)
def test_a_mask_dropped_from_one_8_bit_graph_is_caught(folder: Path, graph: str, case: str, other: str):
    _drop_masks(folder / graph)
    failed = {result.name for result in verify_bundle(Bundle.open(folder), ["onnx-int8"]).failures}
    assert {case, f"{case}, against each row alone"} <= failed
    assert not {other, f"{other}, against each row alone"} & failed


def _drop_masks(path: Path) -> None:
    """Every attention over the source looks at its padding, too; hashes and weights still fit."""
    model = onnx.load(path, load_external_data=False)
    masked = [n for n in model.graph.node if n.op_type == "MultiHeadAttention" and len(n.input) > 4 and n.input[4]]
    assert masked
    for node in masked:
        node.input[4] = ""
    onnx.save(model, path)
