"""A page on ZeroGPU: each answer runs inside the function that a GPU is attached to, and nothing else does."""

import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.ui_fixtures import models
from tiny_transformer.bundle import CONFIG, Bundle
from tiny_transformer.errors import BundleError, TinyTransformerError
from tiny_transformer.text_model import load
from tiny_transformer.ui.models import SECONDS_TO_OPEN, ModelStore, ZeroGpuModelStore, open_store
from tiny_transformer.ui.page_settings import Settings

__all__ = ["models"]

ASKED: dict[str, Any] = {"options": {"max_new_tokens": 20}, "seconds": 30.0}


class FakeZeroGpu:
    """The decorator alone, in this process: values are pickled both ways, and it says whether a GPU is attached now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attached, self.closed = False, 0
        monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(GPU=self.gpu))
        monkeypatch.setenv("SPACES_ZERO_GPU", "true")
        monkeypatch.setattr("tiny_transformer.backends.has_nvidia_gpu", self._driver)
        monkeypatch.setattr("tiny_transformer.backends.cuda_graphs.torch_device", self._device)

    def gpu(self, *, duration: Callable[..., int]) -> Callable[..., Any]:
        """Attach one for as long as the generator lives."""

        def decorated(task: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
            def on_gpu(*arguments: Any) -> Iterator[Any]:
                assert duration(*arguments) == SECONDS_TO_OPEN + ASKED["seconds"]
                states = task(*pickle.loads(pickle.dumps(arguments)))
                self.attached = True
                try:
                    for state in states:
                        yield pickle.loads(pickle.dumps(state))
                except TinyTransformerError as error:  # as there: no more than the type comes out
                    raise RuntimeError(type(error).__name__) from None
                finally:
                    states.close()
                    self.attached = False
                    self.closed += 1

            return on_gpu

        return decorated

    def _driver(self) -> bool:
        assert self.attached, "the driver was touched where no GPU is attached"
        return True

    def _device(self, name: str | None) -> torch.device:
        assert name == ("cuda" if self.attached else "cpu")
        return torch.device("cpu")


@pytest.fixture
def zero_gpu(monkeypatch: pytest.MonkeyPatch) -> FakeZeroGpu:
    return FakeZeroGpu(monkeypatch)


def test_answers_of_eager_and_of_auto_get_a_gpu_and_others_are_not(
    zero_gpu: FakeZeroGpu, models: dict[str, Path]
) -> None:
    store = open_store(Settings(models=(str(models["translate"]),)))
    assert isinstance(store, ZeroGpuModelStore)
    expected = load(models["translate"], "onnx").generate("Guten Tag", max_new_tokens=20).text
    for backend, on_gpu in (("auto", True), ("eager", True), ("onnx", False), ("torchscript", False)):
        states = list(store.answers("translate", backend, "Guten Tag", **ASKED))
        assert states[-1].text == expected
        assert states[-1].backend == ("eager" if backend == "auto" else backend)
        assert zero_gpu.closed == on_gpu
        zero_gpu.closed = 0
    # What the other tabs ask for is there too, on the CPU.
    assert store.load("translate").model.backend_name == "eager"


def test_the_page_s_own_backend_decides_what_auto_means(zero_gpu: FakeZeroGpu, models: dict[str, Path]) -> None:
    store = open_store(Settings(models=(str(models["translate"]),), backend="onnx"))
    assert list(store.answers("translate", "auto", "Guten Tag", **ASKED))[-1].backend == "onnx"
    assert not zero_gpu.closed


def test_a_visitor_who_leaves_releases_the_gpu(zero_gpu: FakeZeroGpu, models: dict[str, Path]) -> None:
    store = open_store(Settings(models=(str(models["translate"]),)))
    answers = store.answers("translate", "auto", "Guten Tag", **ASKED)
    next(answers)
    assert zero_gpu.attached
    answers.close()
    assert zero_gpu.closed == 1
    assert not zero_gpu.attached


def test_a_failure_there_is_the_same_sentence_here(
    zero_gpu: FakeZeroGpu, models: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "translate"
    shutil.copytree(models["translate"], folder)
    store = open_store(Settings(models=(str(folder),)))
    (folder / CONFIG).unlink()
    with pytest.raises(BundleError) as said:
        list(store.answers("translate", "auto", "Guten Tag", **ASKED))
    with pytest.raises(BundleError) as expected:
        Bundle.open(folder)
    assert str(said.value) == str(expected.value)


def test_elsewhere_the_package_is_not_asked_for(monkeypatch: pytest.MonkeyPatch, models: dict[str, Path]) -> None:
    monkeypatch.setitem(sys.modules, "spaces", None)  # importing it would fail
    for value in ("", "0", "false"):
        monkeypatch.setenv("SPACES_ZERO_GPU", value)
        assert type(open_store(Settings(models=(str(models["chat"]),)))) is ModelStore


def test_nothing_is_loaded_before_somebody_asks(zero_gpu: FakeZeroGpu, models: dict[str, Path]) -> None:
    """A process that is forked while a thread loads a model inherits locks that nobody will ever open."""
    folders = (str(models["translate"]),)
    store = open_store(Settings(models=folders))
    store.warm_up()
    assert store.loaded("translate") == {}
    elsewhere = ModelStore(folders, "onnx")
    elsewhere.warm_up()
    assert list(elsewhere.loaded("translate")) == ["onnx"]
