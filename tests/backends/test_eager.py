"""The eager backend: its cache against the whole at once, for every kind of position and both architectures."""

import threading
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.generation_fixtures import BOS, EOS, PAD, generate, random_rows
from tests.support.models import ON_A_GPU, BundleFactory, tiny_config, tiny_model
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.cuda_graphs import CudaGraphBackend, eager_on, open_eager
from tiny_transformer.backends.eager import EagerBackend, set_threads, torch_device
from tiny_transformer.config import ARCHITECTURES, POSITIONS
from tiny_transformer.errors import BackendError, InputError

ATOL = 2e-5  # float32 sums in another order; a wrong place or mask is off by 1e-2 and more
# The form for a GPU runs on the CPU as well, its steps played instead of replayed.
WAYS = ["cpu", "captured on cpu", *ON_A_GPU]


def make(
    architecture: str = "encoder-decoder", dtype: torch.dtype | None = None, way: str = "cpu", **changes: Any
) -> EagerBackend:
    config = tiny_config(architecture, **changes)
    if way == "captured on cpu":
        return CudaGraphBackend(tiny_model(config), config, device="cpu", dtype=dtype)
    return eager_on(tiny_model(config), config, torch_device(way), dtype)


def rows_for(backend: EagerBackend, n_rows: int, seed: int = 0) -> tuple[Batch, Batch | None]:
    prefix = Batch.of([[BOS, *row] for row in random_rows(seed, n_rows, 300, 5)], PAD)
    if not backend.config.is_encoder_decoder:
        return prefix, None
    return prefix, Batch.of([[*row, EOS] for row in random_rows(seed + 1, n_rows, 300, 9)], PAD)


def expected_after(backend: EagerBackend, rows: list[list[int]], source: Batch | None) -> np.ndarray:
    """Logits after each row, every row read anew and alone."""
    found = []
    for i, row in enumerate(rows):
        read = None if source is None else Batch.of([source.rows[i]])
        found.append(backend.logits(Batch.of([row]), read)[0, -1])
    return np.stack(found)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_ragged_cached_steps_equal_the_whole_at_once(architecture: str, positions: str, way: str) -> None:
    backend = make(architecture, way=way, positions=positions)
    prefix, source = rows_for(backend, 4)
    rows = prefix.rows
    assert len(set(map(len, rows))) > 1
    logits, state = backend.start(prefix, source, 16)
    reference = make(architecture, positions=positions)
    for step in range(8):
        assert np.allclose(logits, expected_after(reference, rows, source), atol=ATOL)
        new = np.array([[(31 * step + 7 * i) % 290 + 5] for i in range(4)])
        rows = [[*row, int(token)] for row, (token,) in zip(rows, new, strict=True)]
        logits, state = backend.step(new, state)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("order", [[2, 0], [1, 1, 1, 0, 2], [0, 1, 2], [2, 1, 0], [1], [0, 3, 2]])
def test_reorder_repeats_drops_and_swaps_rows(architecture: str, order: list[int], way: str) -> None:
    backend = make(architecture, way=way)
    prefix, source = rows_for(backend, 4, seed=5)
    rows = prefix.rows
    _, state = backend.start(prefix, source, 16)
    logits, state = backend.step(np.array([[9], [8], [7], [6]]), state)
    state = backend.reorder(state, np.array(order))
    new = np.array([[20 + i] for i in range(len(order))])
    logits, state = backend.step(new, state)
    logits, state = backend.step(new, state)
    rows = [[*rows[i], 9 - i, 20 + place, 20 + place] for place, i in enumerate(order)]
    picked = None if source is None else Batch(source.ids[order], source.lengths[order])
    assert np.allclose(logits, expected_after(backend, rows, picked), atol=ATOL)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_joined_rows_go_on_as_if_alone(architecture: str, way: str) -> None:
    backend = make(architecture, way=way)
    (prefix, source), (more, more_source) = rows_for(backend, 2, seed=5), rows_for(backend, 3, seed=6)
    _, state = backend.start(prefix, source, 16)
    _, state = backend.step(np.array([[9], [8]]), state)
    logits, other = backend.start(more, more_source, 16)
    logits, state = backend.step(np.arange(5)[:, None] + 20, backend.join(state, other))
    rows = [[*row, 9 - i, 20 + i] for i, row in enumerate(prefix.rows)]
    rows += [[*row, 22 + i] for i, row in enumerate(more.rows)]
    sources = None if source is None else Batch.of(source.rows + more_source.rows)
    assert np.allclose(logits, expected_after(backend, rows, sources), atol=ATOL)


@pytest.mark.parametrize("way", WAYS)
def test_several_new_tokens_on_a_past_of_one_row(way: str) -> None:
    for architecture in ARCHITECTURES:
        backend = make(architecture, way=way)
        prefix, source = rows_for(backend, 1)
        _, state = backend.start(prefix, source, 16)
        logits, state = backend.step(np.array([[5, 6, 7]]), state)
        logits, state = backend.step(np.array([[8]]), state)
        rows = [[*prefix.rows[0], 5, 6, 7, 8]]
        assert np.allclose(logits, expected_after(backend, rows, source), atol=ATOL)


def test_a_longer_neighbor_changes_nothing() -> None:
    backend = make()
    prefix = Batch.of([[BOS, 5]])
    source = Batch.of([[9, 8, EOS]])
    alone = backend.logits(prefix, source)[0]
    beside = backend.logits(Batch.of([[BOS, 5], [BOS, *range(3, 17)][:15]]), Batch.of([[9, 8, EOS], [7] * 14]))
    assert np.allclose(beside[0, :2], alone, atol=ATOL)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_generation_is_argmax_of_the_uncached_model(architecture: str, way: str) -> None:
    backend = make(architecture, way=way)
    prefix, source = rows_for(backend, 3)
    sources = None if source is None else source.rows
    for i, found in enumerate(generate(backend, prefix.rows, sources, max_new_tokens=8)):
        row = prefix.rows[i]
        read = None if sources is None else Batch.of([sources[i]])
        for token in found.tokens:
            assert token.id == backend.logits(Batch.of([row]), read)[0, -1].argmax()
            row = [*row, token.id]


def test_attention_weights_are_of_every_layer_and_sum_to_one() -> None:
    backend = make(n_heads=2)
    maps = backend.attention(Batch.of([[BOS, 4, 5]] * 2), Batch.of([[6, 7, 8, EOS], [9, EOS]]))
    assert maps.encoder is not None
    assert maps.cross is not None
    assert maps.encoder.shape == (2, 2, 2, 4, 4)
    assert maps.decoder.shape == (2, 2, 2, 3, 3)
    assert maps.cross.shape == (2, 2, 2, 3, 4)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        assert np.allclose(weights.sum(-1), 1, atol=1e-5)
    assert np.all(maps.cross[:, 1, :, :, 2:] == 0)  # the padding of the second source
    gpt = make("decoder-only").attention(Batch.of([[1, 2, 3]]), None)
    assert gpt.encoder is None
    assert gpt.cross is None


@pytest.mark.parametrize("way", WAYS)
def test_threads_share_a_backend(way: str) -> None:
    backend = make("decoder-only", way=way, max_length=32)
    prompts = [[[BOS, 3 + i]] for i in range(4)]
    options: dict[str, Any] = {"max_new_tokens": 20, "min_new_tokens": 20}
    expected = [generate(backend, prompt, None, **options) for prompt in prompts]
    maps = backend.attention(Batch.of(prompts[0]), None).decoder
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(5):
            if generate(backend, prompts[i], None, **options) != expected[i]:
                wrong.append(i)
            if not np.array_equal(backend.attention(Batch.of(prompts[0]), None).decoder, maps):
                wrong.append(-1)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_model_is_not_changed_by_reading_its_attention() -> None:
    backend = make("decoder-only")
    backend.attention(Batch.of([[1, 2]]), None)
    assert all(not module._forward_hooks for module in backend.model.modules())
    twin = dict(backend._watched_model.named_parameters())
    assert all(twin[name] is parameter for name, parameter in backend.model.named_parameters())


@pytest.mark.parametrize("way", WAYS)
def test_bfloat16_is_close_and_comes_out_as_float32(way: str) -> None:
    exact, rough = make(), make(dtype=torch.bfloat16, way=way)
    prefix, source = rows_for(exact, 2)
    (expected, state), (logits, rough_state) = exact.start(prefix, source, 16), rough.start(prefix, source, 16)
    for _ in range(2):
        assert logits.dtype == np.float32
        assert 0 < np.abs(logits - expected).max() < 0.2
        (expected, state), (logits, rough_state) = (
            backend.step(np.array([[7], [8]]), old) for backend, old in ((exact, state), (rough, rough_state))
        )


@pytest.mark.parametrize("way", WAYS)
def test_what_does_not_fit_is_one_sentence(way: str) -> None:
    backend, gpt = make(way=way), make("decoder-only", way=way)
    one, source = Batch.of([[BOS]]), Batch.of([[5, EOS]])
    with pytest.raises(InputError, match="needs a source"):
        backend.start(one, None, 8)
    with pytest.raises(InputError, match="takes no source"):
        gpt.start(one, source, 8)
    with pytest.raises(InputError, match="capacity is 17"):
        gpt.start(one, None, 17)
    with pytest.raises(InputError, match="id 300"):
        gpt.start(Batch.of([[300]]), None, 8)
    with pytest.raises(InputError, match="1 sources for 2 targets"):
        backend.logits(Batch.of([[BOS], [BOS]]), source)
    _, state = gpt.start(one, None, 2)
    with pytest.raises(InputError, match="id -1"):
        gpt.step(np.array([[-1]]), state)
    with pytest.raises(InputError, match="does not fit a state of 1 rows"):
        gpt.step(np.array([[3], [4]]), state)
    with pytest.raises(InputError, match="2 slots and 3 are needed"):
        gpt.step(np.array([[3, 4]]), state)
    _, state = gpt.step(np.array([[3]]), state)
    with pytest.raises(InputError, match="2 slots and 3 are needed"):
        gpt.step(np.array([[4]]), state)


def test_devices_and_threads_are_checked(make_bundle: BundleFactory) -> None:
    for device, sentence in [("gpu9", "no device"), ("meta", "not supported"), ("cuda:99", "not there")]:
        with pytest.raises(BackendError, match=sentence):
            torch_device(device)
    for threads in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="threads"):
            set_threads(threads)  # type: ignore[arg-type]
    assert open_eager(make_bundle(), "cpu", threads=1).name == "eager"
