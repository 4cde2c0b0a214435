"""Which backend runs: by name, by what is installed, by what the folder holds."""

import logging

import pytest

from tests.support.models import BundleFactory, run_python
from tiny_transformer import backends
from tiny_transformer.backends import Choice, available, choose, files_read, open_backend
from tiny_transformer.bundle import DECODER_ONNX, ENCODER_ONNX, INSIDE_ONNX, REQUIRED, TORCHSCRIPT, Bundle
from tiny_transformer.errors import BackendError


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    monkeypatch.setattr(backends, "find_spec", lambda name: None if name in packages else object())


def with_graphs(bundle: Bundle) -> Bundle:
    for name in (ENCODER_ONNX, DECODER_ONNX):
        (bundle.folder / name).write_bytes(b"")
    return bundle


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "has_nvidia_gpu", lambda: False)


def test_every_reason_says_what_to_do(make_bundle: BundleFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make_bundle()
    found = available(bundle)
    assert found["eager"] is None
    assert found["torchscript"] is None
    assert found["onnx"] is not None
    assert f"python -m export all {bundle.folder}" in found["onnx"]
    assert found["onnx-int8"] is not None
    assert available()["onnx"] is None
    without(monkeypatch, "torch", "onnxruntime")
    found = available(bundle)
    assert found["eager"] is not None
    assert "pip install 'tiny-transformer[torch]'" in found["eager"]
    assert found["onnx"] is not None
    assert "pip install onnxruntime" in found["onnx"]


@pytest.mark.usefixtures("no_gpu")
def test_auto_is_onnx_where_there_are_graphs(make_bundle: BundleFactory) -> None:
    assert choose(with_graphs(make_bundle())) == Choice("onnx")
    gpt = make_bundle("decoder-only", name="gpt")
    (gpt.folder / DECODER_ONNX).write_bytes(b"")  # a GPT has no encoder to wait for
    assert choose(gpt) == Choice("onnx")


@pytest.mark.usefixtures("no_gpu")
def test_auto_without_graphs_is_eager_and_says_so(make_bundle: BundleFactory, caplog: pytest.LogCaptureFixture) -> None:
    bundle = make_bundle()
    choice = choose(bundle)
    assert choice.name == "eager"
    assert choice.notice is not None
    assert "python -m export all" in choice.notice
    with caplog.at_level(logging.WARNING):
        assert open_backend(bundle).name == "eager"
    assert choice.notice in caplog.messages


@pytest.mark.usefixtures("no_gpu")
def test_auto_with_nothing_that_runs_names_every_reason(
    make_bundle: BundleFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "torch")
    with pytest.raises(BackendError, match=r"onnx: .* eager: .*pip install"):
        choose(make_bundle())


def test_auto_is_eager_on_a_gpu(make_bundle: BundleFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    bundle = with_graphs(make_bundle())
    monkeypatch.setattr(backends, "has_nvidia_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose(bundle) == Choice("eager", "cuda")
    assert choose(bundle, device="cpu") == Choice("onnx", "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # a CPU build of torch beside a GPU
    assert choose(bundle) == Choice("onnx")
    without(monkeypatch, "torch")
    assert choose(bundle) == Choice("onnx")


@pytest.mark.usefixtures("no_gpu")
def test_a_named_backend_that_cannot_run_is_refused(make_bundle: BundleFactory) -> None:
    bundle = make_bundle()
    for name, device, sentence in [
        ("tensorrt", None, "no backend 'tensorrt'"),
        ("onnx", None, "export all"),
        ("onnx", "cuda", "runs on the CPU"),
        ("eager", "cuda", "NVIDIA GPU"),
    ]:
        with pytest.raises(BackendError, match=sentence):
            choose(bundle, name, device)


def test_the_files_a_report_must_vouch_for(make_bundle: BundleFactory) -> None:
    bundle = with_graphs(make_bundle())
    (bundle.folder / INSIDE_ONNX).write_bytes(b"")
    (bundle.folder / TORCHSCRIPT).write_bytes(b"")
    assert files_read(bundle, "eager") == list(REQUIRED)
    assert files_read(bundle, "torchscript") == [*REQUIRED, TORCHSCRIPT]
    assert set(files_read(bundle, "onnx")) == {*REQUIRED, ENCODER_ONNX, DECODER_ONNX, INSIDE_ONNX}


def test_choosing_imports_neither_torch_nor_onnxruntime(make_bundle: BundleFactory) -> None:
    code = (
        "import sys; from tiny_transformer.bundle import Bundle; from tiny_transformer import backends\n"
        "found = backends.has_nvidia_gpu(); backends.has_nvidia_gpu = lambda: False\n"
        "print(backends.choose(Bundle.open(sys.argv[1])).name, found in (True, False))\n"
        "print([name for name in ('torch', 'onnxruntime') if name in sys.modules])"
    )
    done = run_python(code, with_graphs(make_bundle()).folder)
    assert done.out.split() == ["onnx", "True", "[]"], done.err
