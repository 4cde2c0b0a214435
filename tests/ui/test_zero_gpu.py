"""A page on ZeroGPU: each answer runs inside the function that a GPU is lent to, and nothing else does."""

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
from tiny_transformer.ui.models import SECONDS_TO_OPEN, LendingShelf, Shelf, open_shelf
from tiny_transformer.ui.page_settings import Settings

__all__ = ["models"]

ASKED: dict[str, Any] = {"options": {"max_new_tokens": 20}, "seconds": 30.0}


class Lender:
    """The decorator alone, in this process: values are pickled both ways, and it says whether a GPU is lent now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lent_now, self.closed = False, 0
        monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(GPU=self.gpu))
        monkeypatch.setenv("SPACES_ZERO_GPU", "true")
        monkeypatch.setattr("tiny_transformer.backends.has_nvidia_gpu", self._driver)
        monkeypatch.setattr("tiny_transformer.backends.eager.torch_device", self._device)

    def gpu(self, *, duration: Callable[..., int]) -> Callable[..., Any]:
        """Lend for as long as the generator lives."""

        def decorated(task: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
            def lent(*arguments: Any) -> Iterator[Any]:
                assert duration(*arguments) == SECONDS_TO_OPEN + ASKED["seconds"]
                states = task(*pickle.loads(pickle.dumps(arguments)))
                self.lent_now = True
                try:
                    for state in states:
                        yield pickle.loads(pickle.dumps(state))
                except TinyTransformerError as error:  # as there: no more than the type comes out
                    raise RuntimeError(type(error).__name__) from None
                finally:
                    states.close()
                    self.lent_now = False
                    self.closed += 1

            return lent

        return decorated

    def _driver(self) -> bool:
        assert self.lent_now, "the driver was touched where no GPU is lent"
        return True

    def _device(self, name: str | None) -> torch.device:
        assert name == ("cuda" if self.lent_now else "cpu")
        return torch.device("cpu")


@pytest.fixture
def lender(monkeypatch: pytest.MonkeyPatch) -> Lender:
    return Lender(monkeypatch)


def test_answers_of_eager_and_of_auto_are_lent_a_gpu_and_others_are_not(
    lender: Lender, models: dict[str, Path]
) -> None:
    shelf = open_shelf(Settings(models=(str(models["translate"]),)))
    assert isinstance(shelf, LendingShelf)
    expected = load(models["translate"], "onnx").generate("Guten Tag", max_new_tokens=20).text
    for backend, lent in (("auto", True), ("eager", True), ("onnx", False), ("torchscript", False)):
        states = list(shelf.answers("translate", backend, "Guten Tag", **ASKED))
        assert states[-1].text == expected
        assert states[-1].backend == ("eager" if backend == "auto" else backend)
        assert lender.closed == lent
        lender.closed = 0
    # What the other tabs ask for is there too, on the CPU.
    assert shelf.load("translate").model.backend_name == "eager"


def test_the_page_s_own_backend_decides_what_auto_means(lender: Lender, models: dict[str, Path]) -> None:
    shelf = open_shelf(Settings(models=(str(models["translate"]),), backend="onnx"))
    assert list(shelf.answers("translate", "auto", "Guten Tag", **ASKED))[-1].backend == "onnx"
    assert not lender.closed


def test_who_leaves_gives_the_gpu_back(lender: Lender, models: dict[str, Path]) -> None:
    shelf = open_shelf(Settings(models=(str(models["translate"]),)))
    answers = shelf.answers("translate", "auto", "Guten Tag", **ASKED)
    next(answers)
    assert lender.lent_now
    answers.close()
    assert lender.closed == 1
    assert not lender.lent_now


def test_a_failure_there_is_the_same_sentence_here(lender: Lender, models: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "translate"
    shutil.copytree(models["translate"], folder)
    shelf = open_shelf(Settings(models=(str(folder),)))
    (folder / CONFIG).unlink()
    with pytest.raises(BundleError) as said:
        list(shelf.answers("translate", "auto", "Guten Tag", **ASKED))
    with pytest.raises(BundleError) as expected:
        Bundle.open(folder)
    assert str(said.value) == str(expected.value)


def test_elsewhere_the_package_is_not_asked_for(monkeypatch: pytest.MonkeyPatch, models: dict[str, Path]) -> None:
    monkeypatch.setitem(sys.modules, "spaces", None)  # importing it would fail
    for value in ("", "0", "false"):
        monkeypatch.setenv("SPACES_ZERO_GPU", value)
        assert type(open_shelf(Settings(models=(str(models["chat"]),)))) is Shelf
