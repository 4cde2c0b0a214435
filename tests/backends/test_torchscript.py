"""TorchScript: the same numbers to the last bit, from memory and from an archive."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.generation_fixtures import BOS, EOS, generate, random_rows
from tests.support.models import BundleFactory, tiny_config, tiny_model
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.cuda_graphs import open_eager
from tiny_transformer.backends.eager import EagerBackend
from tiny_transformer.backends.torchscript import (
    TorchScriptBackend,
    load_archive,
    open_torchscript,
    script,
    silenced,
)
from tiny_transformer.bundle import TORCHSCRIPT, Bundle
from tiny_transformer.config import ARCHITECTURES, POSITIONS
from tiny_transformer.errors import BundleError


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scripted_is_eager_to_the_last_bit(architecture: str, positions: str) -> None:
    config = tiny_config(architecture, positions=positions, norm="post" if positions == "none" else "pre")
    model = tiny_model(config)
    eager, scripted = EagerBackend(model, config), TorchScriptBackend(script(model), config)
    prefixes = [[BOS, *row] for row in random_rows(0, 3, 300, 6)]
    sources = [[*row, EOS] for row in random_rows(1, 3, 300, 8)] if config.is_encoder_decoder else None
    target, source = Batch.of(prefixes), None if sources is None else Batch.of(sources)
    for _ in range(3):  # the compiler optimizes after the first runs
        assert np.array_equal(eager.logits(target, source), scripted.logits(target, source))
    for options in ({"max_new_tokens": 8}, {"num_beams": 3}, {"temperature": 1.0, "seed": 1}):
        assert generate(eager, prefixes, sources, **options) == generate(scripted, prefixes, sources, **options)
    weights = eager.attention(target, source), scripted.attention(target, source)
    assert np.array_equal(weights[0].decoder, weights[1].decoder)


def test_a_model_of_the_same_structure_may_have_run_with_gradients_before() -> None:
    config = tiny_config("decoder-only", max_length=24)
    with silenced():
        learning = torch.jit.script(tiny_model(config))
    for _ in range(4):  # the compiler optimizes after the first runs
        learning(torch.tensor([[BOS, 4, 5]]))
    model, target = tiny_model(config, seed=2), Batch.of([[BOS, 4, 5]])
    found = TorchScriptBackend(script(model), config).logits(target, None)
    assert np.array_equal(found, EagerBackend(model, config).logits(target, None))


def with_archive(bundle: Bundle) -> Path:
    path = bundle.folder / TORCHSCRIPT
    with silenced():
        torch.jit.save(open_torchscript(bundle, "cpu").model, path)
    return path


def test_a_folder_is_scripted_in_memory_or_read_from_its_archive(make_bundle: BundleFactory) -> None:
    bundle = make_bundle()
    target, source = Batch.of([[BOS, 4]]), Batch.of([[5, EOS]])
    expected = open_eager(bundle, "cpu").logits(target, source)
    assert np.array_equal(open_torchscript(bundle, "cpu").logits(target, source), expected)
    with_archive(bundle)
    backend = open_torchscript(bundle, "cpu")
    assert backend.name == "torchscript"
    assert np.array_equal(backend.logits(target, source), expected)
    assert generate(backend, [[BOS]], [[5, EOS]], max_new_tokens=5)


def test_an_archive_of_other_weights_is_refused(make_bundle: BundleFactory) -> None:
    first, second = make_bundle(), make_bundle(name="other", seed=1)
    with_archive(second).rename(first.folder / TORCHSCRIPT)
    with pytest.raises(BundleError, match="other weights"):
        open_torchscript(first, "cpu")


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04" + b"\x00" * 100])
def test_a_broken_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / TORCHSCRIPT
    path.write_bytes(content)
    with pytest.raises(BundleError, match="not a TorchScript archive") as caught:
        load_archive(path)
    assert "\n" not in str(caught.value)
