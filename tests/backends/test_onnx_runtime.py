"""The ONNX Runtime backend against eager PyTorch, by the project's one judge, and what its users may rely on."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from export.to_onnx import export_onnx
from tests.support.export_fixtures import MODELS, Exported, eager_of, exported, save_random
from tests.support.models import all_combinations
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.onnx_runtime import OrtBackend, open_ort
from tiny_transformer.bundle import DECODER_ONNX, ENCODER_ONNX
from tiny_transformer.errors import InputError
from tiny_transformer.parity import verify
from tiny_transformer.parity.cases import tensor_cases

__all__ = ["exported"]

TRANSLATOR, GPT = "encoder-decoder-sinusoidal", "decoder-only-learned"


def rows(lengths: tuple[int, ...], seed: int = 0) -> Batch:
    generator = np.random.default_rng(seed)
    return Batch.of([generator.integers(6, 300, n).tolist() for n in lengths])


def source_of(backend: OrtBackend, lengths: tuple[int, ...]) -> Batch | None:
    return rows(lengths, seed=1) if backend.config.is_encoder_decoder else None


@pytest.mark.parametrize("name", MODELS)
def test_equals_eager(exported: Exported, name: str):
    bundle = exported(name)
    report = verify(eager_of(bundle), open_ort(bundle, threads=1), tensor_cases(bundle.config))
    assert report.verdict == "verified", report.failures
    assert {case.kind for case in report.cases} == {"full", "cached", "consistency", "chunk", "reorder", "attention"}


@pytest.mark.slow
@pytest.mark.parametrize("config", all_combinations())
def test_every_combination_equals_eager(tmp_path: Path, config):
    bundle = save_random(tmp_path / "model", config)
    export_onnx(bundle.folder)
    report = verify(eager_of(bundle), open_ort(bundle, threads=1), tensor_cases(config))
    assert report.verdict == "verified", report.failures


@pytest.mark.parametrize("int8", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize("name", [TRANSLATOR, GPT])
def test_a_row_does_not_depend_on_its_neighbors(exported: Exported, name: str, int8: bool):
    """Large neighbors would change a scale that the whole batch shares, and longer ones the padding."""
    backend = open_ort(exported(name), threads=1, int8=int8)
    lengths, sources = (3, 9, 1, 6), (7, 2, 12, 4)
    together, state = backend.start(rows(lengths), source_of(backend, sources), 16)
    ids = np.full((4, 1), 9)
    together_next, _ = backend.step(ids, state)
    for i in range(4):
        prefix = Batch.of([rows(lengths).ids[i, : lengths[i]].tolist()])
        source = source_of(backend, sources)
        own = None if source is None else Batch.of([source.ids[i, : sources[i]].tolist()])
        alone, state = backend.start(prefix, own, 16)
        alone_next, _ = backend.step(ids[:1], state)
        np.testing.assert_allclose(together[i], alone[0], atol=2e-5)
        np.testing.assert_allclose(together_next[i], alone_next[0], atol=2e-5)


@pytest.mark.parametrize("name", [TRANSLATOR, GPT])
@pytest.mark.parametrize("order", [[1, 0, 2], [0, 0, 2], [2, 2, 2], [2, 1], [2], [1, 1, 0, 2, 2], [0, 1, 2]])
def test_reordered_rows_equal_eager(exported: Exported, name: str, order: list[int]):
    """Rows that trade places, are repeated, left out or added; their sources go with them, unless rows are one's."""
    bundle = exported(name)
    found = []
    for backend in (eager_of(bundle), open_ort(bundle, threads=1)):
        _, state = backend.start(rows((3, 1, 5)), source_of(backend, (4, 9, 2)), 16)
        for again in (False, True):  # the second time rows of one source may trade places without their memory
            state = backend.reorder(state, np.arange(len(order))[::-1] if again else np.array(order))
            logits, state = backend.step(np.arange(len(order))[:, None] + 9, state)
            found.append(logits.copy())
    np.testing.assert_allclose(found[:2], found[2:], atol=2e-5)


@pytest.mark.parametrize("name", [TRANSLATOR, GPT])
@pytest.mark.parametrize("sources", [((4, 9, 2), (3, 5)), ((2, 1, 2), (12, 7))], ids=["wide first", "wide second"])
def test_joined_rows_equal_eager(exported: Exported, name: str, sources: tuple[tuple[int, ...], ...]):
    """Rows in the middle of their text are joined by new ones, whose sources may be longer or shorter."""
    bundle = exported(name)
    found = []
    for backend in (eager_of(bundle), open_ort(bundle, threads=1)):
        _, state = backend.start(rows((3, 1, 5)), source_of(backend, sources[0]), 16)
        _, state = backend.step(np.array([[7], [8], [9]]), state)
        _, other = backend.start(rows((2, 6), seed=3), source_of(backend, sources[1]), 16)
        state = backend.join(state, other)
        logits, state = backend.step(np.arange(5)[:, None] + 20, state)
        found.append(logits.copy())
        logits, state = backend.step(np.arange(3)[:, None] + 30, backend.reorder(state, np.array([4, 1, 3])))
        found.append(logits.copy())
        _, other = backend.start(rows((3,), seed=4), source_of(backend, (6,)), 16)
        state = backend.join(backend.reorder(state, np.array([2, 0])), other)  # as many rows as before, not the same
        logits, state = backend.step(np.arange(3)[:, None] + 40, state)
        found.append(logits)
    for eager, ort in zip(found[:3], found[3:], strict=True):
        np.testing.assert_allclose(eager, ort, atol=2e-5)


@pytest.mark.parametrize("name", [TRANSLATOR, GPT])
def test_users_of_one_backend_do_not_disturb_each_other(exported: Exported, name: str):
    backend = open_ort(exported(name), threads=1)

    def decode(seed: int) -> np.ndarray:
        source = rows((5, 3), seed=seed) if backend.config.is_encoder_decoder else None
        logits, state = backend.start(rows((2, 4), seed=seed), source, 16)
        found = [logits]
        for i in range(8):
            logits, state = backend.step(logits.argmax(-1)[:, None], state)
            state = backend.reorder(state, np.array([1, 0] if i % 2 else [0, 0]))
            found.append(logits.copy())
        return np.stack(found)

    alone = [decode(seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(decode, range(6)))
    np.testing.assert_array_equal(alone, together)


def test_a_plain_loop_over_session_run_gives_the_same(exported: Exported):
    """No binding, no buffers: what is present becomes the past, from a past of length 0."""
    bundle = exported(TRANSLATOR)
    encoder, decoder = (onnxruntime.InferenceSession(bundle.folder / f) for f in (ENCODER_ONNX, DECODER_ONNX))
    backend = open_ort(bundle, threads=1)
    source, target = rows((5,), seed=1), rows((7,))
    feeds = {"input_ids": source.ids, "attention_mask": source.mask.astype(np.int64)}
    memory = zip([o.name for o in encoder.get_outputs()], encoder.run(None, feeds), strict=True)
    feeds = {name.replace("present", "past_key_values"): value for name, value in memory}
    feeds["encoder_attention_mask"] = source.mask.astype(np.int64)
    shape = (1, bundle.config.n_heads, 0, bundle.config.d_head)
    past = {i.name: np.zeros(shape, np.float32) for i in decoder.get_inputs() if ".decoder." in i.name}
    names = [o.name for o in decoder.get_outputs()]
    wanted = backend.logits(target, source)
    for t in range(7):
        ids = {"input_ids": target.ids[:, t : t + 1], "position_ids": np.array([[t]])}
        outputs = dict(zip(names, decoder.run(None, feeds | past | ids), strict=True))
        past = {name: outputs[name.replace("past_key_values", "present")] for name in past}
        assert next(iter(past.values())).shape[2] == t + 1
        np.testing.assert_allclose(outputs["logits"][:, 0], wanted[:, t], atol=2e-5)


def test_logits_of_earlier_steps_stay_as_they_were(exported: Exported):
    backend = open_ort(exported(GPT), threads=1)
    first, state = backend.start(rows((3, 2)), None, 16)
    kept = first.copy()
    for _ in range(3):
        _, state = backend.step(np.full((2, 1), 7), state)
    np.testing.assert_array_equal(first, kept)


def test_the_cache_is_written_in_place(exported: Exported):
    """Past and present are one buffer: stepping copies nothing and allocates nothing."""
    backend = open_ort(exported(GPT), threads=1)
    _, state = backend.start(rows((3, 2)), None, 16)
    before = {name: buffer.ctypes.data for name, buffer in state.caches.items()}
    binding = state.binding
    _, state = backend.step(np.full((2, 1), 7), state)
    _, state = backend.step(np.full((2, 1), 7), state)
    assert {name: buffer.ctypes.data for name, buffer in state.caches.items()} == before
    assert state.binding is binding
    for buffer in state.caches.values():
        assert buffer[0, :, :5].any(axis=(0, 2)).all()
        assert not buffer[0, :, 5:].any()
        assert buffer[1, :, :4].any(axis=(0, 2)).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda b, p: b.start(p, None, 2), "capacity is 2; choose from 3 to 16"),
        (lambda b, p: b.start(p, None, 17), "capacity is 17"),
        (lambda b, p: b.start(p, p, 8), "takes no source"),
        (lambda b, p: b.logits(Batch.of([[300]]), None), "the id 300"),
        (lambda b, p: b.step(np.array([[1]]), b.start(p, None, 8)[1]), "does not fit a state of 2 rows"),
        (lambda b, p: b.step(np.ones((2, 2), np.int64), b.start(p, None, 8)[1]), "does not fit"),
        (lambda b, p: b.step(np.array([[1], [-1]]), b.start(p, None, 8)[1]), "outside the vocabulary"),
        (lambda b, p: b.step(np.array([[1], [2]]), b.start(p, None, 3)[1]), "3 slots and 4 are needed"),
    ],
)
def test_wrong_calls_are_refused(exported: Exported, call, sentence: str):
    backend = open_ort(exported(GPT), threads=1)
    with pytest.raises(InputError, match=sentence):
        call(backend, rows((3, 2)))


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, 10_000])
def test_impossible_threads_are_refused(exported: Exported, threads):
    with pytest.raises(InputError, match="threads is"):
        open_ort(exported(GPT), threads=threads)
