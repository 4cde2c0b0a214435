"""Graphs and weights that do not belong together, or are damaged, are refused in one sentence and never run."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.support.export_fixtures import Exported, exported, save_random
from tests.support.hub_driver import stand_in_report
from tests.support.models import run_python
from tiny_transformer.backends import BACKENDS
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.graph_file import check_graph, read_graph
from tiny_transformer.backends.onnx_runtime import open_ort, open_session
from tiny_transformer.bundle import (
    CONFIG,
    DECODER_INT8,
    DECODER_ONNX,
    EMBEDDING,
    ENCODER_ONNX,
    INSIDE_ONNX,
    REQUIRED,
    WEIGHTS,
    WEIGHTS_INT8,
    Bundle,
)
from tiny_transformer.errors import BackendError, BundleError, TinyTransformerError
from tiny_transformer.parity import stored_report, write_report
from tiny_transformer.weights import read_weights, write_weights

__all__ = ["exported"]

GPT = "decoder-only-learned"


@pytest.fixture
def folder(exported: Exported, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(exported(GPT).folder, tmp_path / "model"))


def run(folder: Path, int8: bool = False) -> np.ndarray:
    return open_ort(Bundle.open(folder), threads=1, int8=int8).logits(Batch.of([[1, 2, 3]]), None)


def edit(path: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    model = onnx.load(path, load_external_data=False)
    change(model)
    path.write_bytes(model.SerializeToString())


def externals(model: onnx.ModelProto) -> list[TensorProto]:
    return [tensor for tensor in model.graph.initializer if tensor.external_data]


def set_external(tensor: TensorProto, key: str, value: str) -> None:
    for entry in tensor.external_data:
        if entry.key == key:
            entry.value = value


def test_an_untouched_copy_runs(folder: Path):
    assert np.isfinite(run(folder)).all()
    assert np.isfinite(run(folder, int8=True)).all()


@pytest.mark.parametrize(
    ("backend", "file"),
    [("onnx", WEIGHTS), ("onnx", DECODER_ONNX), ("onnx-int8", WEIGHTS_INT8), ("numpy", WEIGHTS)],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_bytes_replaced_between_the_check_and_the_first_use_never_run(
    folder: Path, backend: str, file: str, in_place: bool
):
    bundle = Bundle.open(folder)
    write_report(bundle, stand_in_report(bundle))
    report = stored_report(bundle)
    assert report is not None
    use: Callable[..., Any] = partial(BACKENDS[backend].open, bundle)
    if backend != "numpy":  # which reads the weights when it is opened
        use = partial(use(threads=1).logits, Batch.of([[1, 2, 3]]), None)
    changed = bytearray((folder / file).read_bytes())
    if file == DECODER_ONNX:
        changed += b"2\x01x"  # field 6, the documentation of the model: it still loads
    else:
        changed[-1] ^= 1  # of a weight: the file still loads
    target = folder / file if in_place else folder / "new"
    target.write_bytes(changed)
    target.replace(folder / file)
    with pytest.raises(BundleError, match=f"{file} was changed after it had been checked; load the model again"):
        use()


def test_equal_bytes_in_another_file_run(folder: Path):
    bundle = Bundle.open(folder)
    write_report(bundle, stand_in_report(bundle))
    assert stored_report(bundle) is not None
    opened = BACKENDS["onnx"].open(bundle, threads=1)
    for name in (WEIGHTS, DECODER_ONNX):
        shutil.copyfile(folder / name, folder / "new")
        (folder / "new").replace(folder / name)
    assert np.isfinite(opened.logits(Batch.of([[1, 2, 3]]), None)).all()


def test_graphs_under_the_names_of_others_are_refused(exported: Exported, tmp_path: Path):
    folder = Path(shutil.copytree(exported("encoder-decoder-sinusoidal").folder, tmp_path / "model"))
    names = (ENCODER_ONNX, DECODER_ONNX, INSIDE_ONNX)
    graphs = [(folder / name).read_bytes() for name in names]
    for name, graph in zip(names, (graphs[1], graphs[2], graphs[0]), strict=True):
        (folder / name).write_bytes(graph)
    backend = open_ort(Bundle.open(folder), threads=1)
    target, source = Batch.of([[1]]), Batch.of([[1, 2]])
    with pytest.raises(BackendError, match=f"{ENCODER_ONNX} is not the graph that its name says; make it again with"):
        backend.start(target, source, 4)
    with pytest.raises(BackendError, match=f"{INSIDE_ONNX} is not the graph"):
        backend.attention(target, source)
    (folder / ENCODER_ONNX).write_bytes(graphs[0])
    with pytest.raises(BackendError, match=f"{DECODER_ONNX} is not the graph"):
        open_ort(Bundle.open(folder), threads=1).start(target, source, 4)


def test_a_graph_that_asks_for_too_much_memory_is_refused(folder: Path):
    def expand(model: onnx.ModelProto) -> None:
        graph = model.graph
        size = helper.make_tensor("size", TensorProto.INT64, [2], [2**40, 2**20])  # no machine has that
        graph.initializer.append(size)
        graph.initializer.append(helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0]))
        first = graph.input[0].name
        (last,) = (node for node in graph.node if "logits" in node.output)
        last.output[list(last.output).index("logits")] = "logits before"
        graph.node.append(helper.make_node("Cast", [first], ["ids as floats"], to=TensorProto.FLOAT))
        graph.node.append(helper.make_node("ReduceSum", ["ids as floats"], ["of ids"], keepdims=0))
        graph.node.append(helper.make_node("Expand", ["of ids", "size"], ["huge"]))
        graph.node.append(helper.make_node("ReduceMax", ["huge"], ["of huge"], keepdims=0))
        graph.node.append(helper.make_node("Add", ["logits before", "of huge"], ["logits"]))

    edit(folder / DECODER_ONNX, expand)
    with pytest.raises(BackendError, match=rf"ONNX Runtime cannot run {folder / DECODER_ONNX} \(.*\); make it again"):
        run(folder)


def test_a_process_that_fails_waits_for_the_decoder_that_is_being_opened(exported: Exported):
    # At exit, a thread that is still inside ONNX Runtime ended most such processes by a signal.
    code = """
import sys, time
from tiny_transformer.backends import onnx_runtime
from tiny_transformer.backends.base import Batch
from tiny_transformer.bundle import Bundle
from tiny_transformer.errors import BackendError

def slow(path, threads):
    if "encoder" in path.name:
        time.sleep(0.3)  # until the other thread is at work
        raise BackendError("no encoder")
    time.sleep(0.6)
    print("the decoder is open", flush=True)

onnx_runtime.open_session = slow
backend = onnx_runtime.open_ort(Bundle.open(sys.argv[1]))
backend.start(Batch.of([[1]]), Batch.of([[1, 2]]), 4)
"""
    done = run_python(code, exported("encoder-decoder-sinusoidal").folder)
    assert done.code == 1
    assert "no encoder" in done.err
    assert done.out == "the decoder is open\n"


@pytest.mark.parametrize("file", REQUIRED)
def test_bytes_replaced_between_reading_and_hashing_are_not_taken_for_verified(folder: Path, file: str):
    write_report(Bundle.open(folder), stand_in_report(Bundle.open(folder)))
    bundle = Bundle.open(folder)
    shutil.copyfile(folder / file, folder / "new")  # what was read may have been anything: these are only hashed
    (folder / "new").replace(folder / file)
    with pytest.raises(BundleError, match=f"{file} was changed"):
        stored_report(bundle)


@pytest.mark.parametrize("file", [DECODER_ONNX, DECODER_INT8])
def test_a_missing_graph_is_named_with_the_command(folder: Path, file: str):
    (folder / file).unlink()
    with pytest.raises(BackendError, match=rf"{file} does not exist; make it with: python -m export all {folder}$"):
        run(folder, int8=file == DECODER_INT8)


def test_missing_int8_weights_are_named(folder: Path):
    (folder / WEIGHTS_INT8).unlink()
    with pytest.raises(BackendError, match=f"{WEIGHTS_INT8} does not exist; make it with"):
        run(folder, int8=True)


def test_int8_weights_older_than_the_weights_are_refused(folder: Path):
    weights = {name: array.copy() for name, array in read_weights(folder / WEIGHTS).items()}
    weights[EMBEDDING][7] += 1
    write_weights(folder / WEIGHTS, weights)
    assert np.isfinite(run(folder)).all()  # the float graph reads the new values: its header is the same
    with pytest.raises(BackendError, match=f"{WEIGHTS_INT8} was made from another {WEIGHTS}"):
        run(folder, int8=True)


def test_weights_with_another_header_are_refused(folder: Path):
    """Same tensors, other offsets: a graph that read them would compute nonsense without a word."""
    write_weights(folder / WEIGHTS, read_weights(folder / WEIGHTS), {"note": "moves every offset"})
    with pytest.raises(BackendError, match=f"{DECODER_ONNX} was made for another {WEIGHTS}"):
        run(folder)


def test_weights_of_another_model_are_refused(folder: Path, tmp_path: Path):
    config = Bundle.open(folder).config
    other = save_random(tmp_path / "other", config.with_changes(d_ff=96))
    shutil.copy(other.folder / WEIGHTS, folder / WEIGHTS)
    with pytest.raises(BundleError, match=f"{WEIGHTS} .* the two files are of different models"):
        run(folder)


def test_a_graph_of_another_config_is_refused(folder: Path):
    config = Bundle.open(folder).config
    other = config.with_changes(activation="gelu" if config.activation == "relu" else "relu")
    (folder / CONFIG).write_text(other.to_json())
    with pytest.raises(BackendError, match=f"{DECODER_ONNX} was made for another config"):
        run(folder)


def test_truncated_weights_are_refused(folder: Path):
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:-1])
    with pytest.raises(BundleError, match=f"{WEIGHTS} is not a whole safetensors file"):
        run(folder)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "sub/../../secret", CONFIG, ""])
def test_external_data_elsewhere_is_refused(folder: Path, location: str):
    edit(folder / DECODER_ONNX, lambda model: set_external(externals(model)[0], "location", location))
    with pytest.raises(BackendError, match="takes weights from"):
        run(folder)


@pytest.mark.parametrize("key", ["offset", "length"])
@pytest.mark.parametrize("value", ["0", "-8", "999999999999", "1e3", ""])
def test_external_data_that_is_no_tensor_of_the_file_is_refused(folder: Path, key: str, value: str):
    edit(folder / DECODER_ONNX, lambda model: set_external(externals(model)[0], key, value))
    with pytest.raises(BackendError, match="takes weights from"):
        run(folder)


def hide_in_constant(model: onnx.ModelProto, tensor: TensorProto) -> None:
    model.graph.node.append(helper.make_node("Constant", [], ["hidden"], value=tensor))


def hide_in_branch(model: onnx.ModelProto, tensor: TensorProto) -> None:
    output = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, None)
    branch = helper.make_graph([], "branch", [], [output], [tensor])
    model.graph.node.append(helper.make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=branch))


def hide_in_function(model: onnx.ModelProto, tensor: TensorProto) -> None:
    node = helper.make_node("Constant", [], ["hidden"], value=tensor)
    model.functions.append(helper.make_function("ours", "f", [], ["hidden"], [node], [helper.make_opsetid("", 21)]))


def hide_in_sparse(model: onnx.ModelProto, tensor: TensorProto) -> None:
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=tensor, dims=[1]))


@pytest.mark.parametrize("hide", [hide_in_constant, hide_in_branch, hide_in_function, hide_in_sparse])
def test_external_data_is_found_wherever_it_hides(folder: Path, hide):
    def change(model: onnx.ModelProto) -> None:
        tensor = TensorProto()
        tensor.CopyFrom(externals(model)[0])
        tensor.name = "hidden"
        set_external(tensor, "location", "../secret")
        hide(model, tensor)

    edit(folder / DECODER_ONNX, change)
    with pytest.raises(BackendError, match=r"takes weights from '\.\./secret'"):
        run(folder)


def test_onnx_runtime_itself_keeps_to_the_folder(folder: Path):
    """The second fence, if ours had a hole."""
    secret = folder.parent / "secret"
    secret.write_bytes(bytes(10_000_000))
    edit(folder / DECODER_ONNX, lambda model: set_external(externals(model)[0], "location", "../secret"))
    with pytest.raises(BackendError, match="ONNX Runtime cannot load"):
        open_session(folder / DECODER_ONNX, 1)


def test_a_file_that_holds_weights_is_refused_by_its_size(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tiny_transformer.backends.graph_file.MAX_FILE_BYTES", 1_000)
    with pytest.raises(BackendError, match="larger than 1000 bytes, so it holds weights"):
        run(folder)


@pytest.mark.parametrize("content", [b"", b"\x00", b"not a graph", b"\xff" * 100, b"{}"])
def test_files_that_are_no_graphs_are_refused(folder: Path, content: bytes):
    (folder / DECODER_ONNX).write_bytes(content)
    with pytest.raises(BackendError, match=f"{DECODER_ONNX} is not a whole graph of ours"):
        run(folder)


def complaint(check: Callable[[], object]) -> str:
    """What a check says, as one line; nothing if it is content. Any other exception goes through."""
    try:
        check()
    except TinyTransformerError as error:
        text = str(error)
        assert text
        assert "\n" not in text
        return text
    return ""


@given(cut=st.floats(0, 1, exclude_max=True))
def test_a_truncated_graph_never_runs(exported: Exported, tmp_path_factory: pytest.TempPathFactory, cut: float):
    bundle = exported(GPT)
    whole = (bundle.folder / DECODER_ONNX).read_bytes()
    path = tmp_path_factory.getbasetemp() / "truncated.onnx"
    path.write_bytes(whole[: int(cut * len(whole))])
    checked = complaint(lambda: check_graph(path, bundle.folder / WEIGHTS, bundle.config))
    assert checked or complaint(lambda: open_session(path, 1))


@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_one_changed_byte_raises_a_sentence_or_passes(exported: Exported, tmp_path_factory, place: float, value: int):
    bundle = exported(GPT)
    content = bytearray((bundle.folder / DECODER_ONNX).read_bytes())
    content[int(place * len(content))] = value
    path = tmp_path_factory.getbasetemp() / "changed.onnx"
    path.write_bytes(content)
    complaint(lambda: check_graph(path, bundle.folder / WEIGHTS, bundle.config))


@given(content=st.binary(max_size=300))
def test_any_bytes_raise_a_sentence(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    path = tmp_path_factory.getbasetemp() / "any.onnx"
    path.write_bytes(content)
    assert complaint(lambda: read_graph(path))


def test_nesting_without_end_is_refused(tmp_path: Path):
    """A graph in an attribute of a node of a graph, ten thousand deep."""
    content = b""
    for _ in range(10_000):
        content = onnx_field(1, onnx_field(5, onnx_field(6, content)))
    (tmp_path / "deep.onnx").write_bytes(onnx_field(7, content))
    with pytest.raises(BackendError, match="not a whole graph of ours"):
        read_graph(tmp_path / "deep.onnx")


def onnx_field(number: int, content: bytes) -> bytes:
    length, digits = len(content), bytearray()
    while True:
        digits.append(length & 0x7F | (0x80 if length > 0x7F else 0))
        length >>= 7
        if not length:
            return bytes([number << 3 | 2]) + bytes(digits) + content
