"""A model that writes the first tokens of its vocabulary alone has the first scores of the whole model, everywhere."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from export.quantize import export_int8
from export.to_onnx import export_onnx
from tests.support.export_fixtures import save_random, small_config
from tests.support.generation_fixtures import BOS, EOS, generate
from tests.support.models import once_per_run
from tiny_transformer.backends import open_backend
from tiny_transformer.backends.base import Backend, Batch
from tiny_transformer.backends.graph_file import check_graph
from tiny_transformer.backends.onnx_runtime import read_per_step
from tiny_transformer.backends.torchscript import write_archive
from tiny_transformer.bundle import (
    CONFIG,
    DECODER_INT8,
    DECODER_INT8_BATCH,
    DECODER_ONNX,
    EMBEDDING,
    TORCHSCRIPT,
    WEIGHTS,
    WEIGHTS_INT8,
    Bundle,
)
from tiny_transformer.errors import BackendError, ConfigError, TokenizerError
from tiny_transformer.generation.sampling import log_normalizer
from tiny_transformer.text_model import TextModel
from tiny_transformer.weights import read_index

pytestmark = pytest.mark.slow  # two exports; those of `export_fixtures` have an output part too

WHOLE, N_OUTPUTS = 300, 270
# One block of 256: then the graphs for many rows use other kernels than those for a few.
SHAPE: dict[str, Any] = {"d_model": 256, "n_encoder_layers": 1, "n_decoder_layers": 1}
BACKENDS = ("eager", "torchscript", "numpy", "onnx", "onnx-int8")
# Ids that are read and never written are among them.
TARGETS, SOURCES = [[BOS, 299, 5, 280], [BOS], [BOS, 12]], [[270, 271, 299, EOS], [8, EOS], [9, 290, EOS]]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same weights twice: a model that writes all tokens, and one that writes the first of them."""
    found = {}
    for name, output_size in (("whole", 0), ("part", N_OUTPUTS)):
        with once_per_run(tmp_path_factory, f"output-{name}") as folder:
            if not folder.exists():
                staging = folder.with_name(f"{folder.name}.staging")
                save_random(staging, small_config("encoder-decoder", output_vocab_size=output_size, **SHAPE))
                export_onnx(staging)
                export_int8(staging)
                write_archive(Bundle.open(staging), staging / TORCHSCRIPT)
                staging.rename(folder)
        found[name] = folder
    return found


def both(folders: dict[str, Path], backend: str) -> tuple[Backend, Backend]:
    whole, part = (open_backend(Bundle.open(folders[name]), backend, device="cpu") for name in ("whole", "part"))
    assert (whole.config.n_outputs, part.config.n_outputs) == (WHOLE, N_OUTPUTS)
    return whole, part


def close(part: np.ndarray, whole: np.ndarray) -> None:
    """Kernels may add up the last few columns in another order than the others: 1e-5 apart in 8 bits."""
    assert part.shape == (*whole.shape[:-1], N_OUTPUTS)
    np.testing.assert_allclose(part, whole[..., :N_OUTPUTS], rtol=0, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_its_scores_are_the_first_of_the_whole_models(folders: dict[str, Path], backend: str) -> None:
    whole, part = both(folders, backend)
    target, source = Batch.of(TARGETS), Batch.of(SOURCES)
    close(part.logits(target, source)[target.mask], whole.logits(target, source)[target.mask])
    runs = []
    for model in (whole, part):
        logits, state = model.start(target, source, 12)
        found = [logits.copy()]
        for column in ([[299], [4], [275]], [[6], [7], [8]]):
            logits, state = model.step(np.array(column), state)
            found.append(logits.copy())
        state = model.reorder(state, np.array([2, 0, 1, 1]))
        logits, state = model.step(np.array([[9], [10], [11], [299]]), state)
        runs.append([*found, logits.copy()])
    for whole_logits, part_logits in zip(*runs, strict=True):
        close(part_logits, whole_logits)


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_rows_are_scored_alike(folders: dict[str, Path], backend: str) -> None:
    """Eight rows and more run on kernels of their own in 8 bits."""
    whole, part = both(folders, backend)
    rng = np.random.default_rng(0)
    target, source = (Batch.of(rng.integers(0, WHOLE, (9, n)).tolist()) for n in (3, 5))
    close(part.start(target, source, 8)[0], whole.start(target, source, 8)[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3, "n_best": 3, "repetition_penalty": 1.5},
        {"temperature": 1.0, "seed": 3, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.3},
        {"alternatives": 5, "repetition_penalty": 2.0, "min_new_tokens": 6},
    ],
    ids=str,
)
def test_every_way_of_decoding_writes_what_it_may(folders: dict[str, Path], backend: str, options: dict) -> None:
    _, part = both(folders, backend)
    options = {"max_new_tokens": 6, **options}
    eager = open_backend(Bundle.open(folders["part"]), "eager", device="cpu")
    found = generate(part, TARGETS, SOURCES, **options)
    for generated in found:
        for one in (generated, *generated.others):
            assert all(0 <= token.id < N_OUTPUTS for token in one.tokens)
            assert all(i < N_OUTPUTS for token in one.tokens for i, _ in token.alternatives)
    if backend not in ("eager", "onnx-int8"):
        assert [g.ids for g in found] == [g.ids for g in generate(eager, TARGETS, SOURCES, **options)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_probabilities_are_over_what_can_be_written(folders: dict[str, Path], backend: str) -> None:
    whole, part = both(folders, backend)
    prefix, source = Batch.of([[BOS]]), Batch.of([[7, EOS]])
    (generated,) = generate(part, [[BOS]], [[7, EOS]], max_new_tokens=1, alternatives=N_OUTPUTS)
    (token,) = generated.tokens
    assert np.exp([logprob for _, logprob in token.alternatives]).sum() == pytest.approx(1.0, abs=1e-4)
    scores = whole.start(prefix, source, 2)[0][:, :N_OUTPUTS]
    assert token.logprob == pytest.approx(float(scores.max() - log_normalizer(scores)[0]), abs=1e-4)


def test_the_graphs_point_at_the_first_rows_and_nothing_is_stored_twice(folders: dict[str, Path]) -> None:
    for file in (WEIGHTS, WEIGHTS_INT8):
        sizes = [(folders[name] / file).stat().st_size for name in ("whole", "part")]
        assert sizes[0] == sizes[1]
    table = read_index(folders["part"] / WEIGHTS).tensors[EMBEDDING]
    used = external(folders["part"] / DECODER_ONNX)
    row = table.length // WHOLE
    assert used["embedding.first_rows"] == (WEIGHTS, table.offset, N_OUTPUTS * row)
    assert used[EMBEDDING] == (WEIGHTS, table.offset, table.length)
    assert "embedding.first_rows" not in external(folders["whole"] / DECODER_ONNX)
    index = read_index(folders["part"] / WEIGHTS_INT8)
    for file, form in ((DECODER_INT8, ""), (DECODER_INT8_BATCH, ".rows")):
        used = external(folders["part"] / file)
        for kind, name in ((".quantized", f".quantized{form}"), (".scales", ".scales")):
            table = index.tensors[EMBEDDING + kind]
            length = table.length // WHOLE * N_OUTPUTS
            assert used["embedding.first_rows" + name] == (WEIGHTS_INT8, table.offset, length)


def external(path: Path) -> dict[str, tuple[str, int, int]]:
    """Initializer → file, offset and length of its bytes."""
    found = {}
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        where = {entry.key: entry.value for entry in tensor.external_data}
        if where:
            found[tensor.name] = (where["location"], int(where["offset"]), int(where["length"]))
    return found


@pytest.mark.parametrize("n_rows", [N_OUTPUTS - 1, N_OUTPUTS + 1, 1])
def test_a_graph_that_reads_other_rows_is_refused(folders: dict[str, Path], tmp_path: Path, n_rows: int) -> None:
    bundle = Bundle.open(folders["part"])
    path = tmp_path / DECODER_ONNX
    shutil.copyfile(bundle.folder / WEIGHTS, tmp_path / WEIGHTS)
    graph = onnx.load(bundle.folder / DECODER_ONNX, load_external_data=False)
    path.write_bytes(graph.SerializeToString())
    check_graph(path, tmp_path / WEIGHTS, bundle.config)
    (rows,) = [tensor for tensor in graph.graph.initializer if tensor.name == "embedding.first_rows"]
    (length,) = [entry for entry in rows.external_data if entry.key == "length"]
    length.value = str(int(length.value) // N_OUTPUTS * n_rows)
    path.write_bytes(graph.SerializeToString())
    with pytest.raises(BackendError, match=r"no tensor of .*model\.safetensors"):
        check_graph(path, tmp_path / WEIGHTS, bundle.config)


def test_a_graph_of_the_whole_model_does_not_pass_for_one_of_the_part(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["whole"], tmp_path / "model"))
    shutil.copyfile(folders["part"] / CONFIG, folder / CONFIG)
    with pytest.raises(BackendError, match=r"made for another config\.json"):
        open_backend(Bundle.open(folder), "onnx").start(Batch.of([[BOS]]), Batch.of([[5, EOS]]), 2)


@pytest.mark.parametrize(
    ("output_size", "error"), [(1, TokenizerError), (261, TokenizerError), (301, ConfigError), (-1, ConfigError)]
)
def test_a_folder_with_another_number_does_not_open(
    folders: dict[str, Path], tmp_path: Path, output_size: int, error: type[Exception]
) -> None:
    folder = Path(shutil.copytree(folders["part"], tmp_path / "model"))
    values = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    (folder / CONFIG).write_text(json.dumps(values | {"output_vocab_size": output_size}), encoding="utf-8")
    with pytest.raises(error, match="output_vocab_size"):
        Bundle.open(folder)


def test_a_step_reads_the_rows_that_are_scored_and_no_more(folders: dict[str, Path]) -> None:
    whole, part = (Bundle.open(folders[name]) for name in ("whole", "part"))
    per_row = 4 * part.config.d_model
    read = [read_per_step(bundle.index, bundle.config, int8=False) for bundle in (whole, part)]
    assert read[0] - read[1] == (WHOLE - N_OUTPUTS) * per_row


def test_a_given_start_is_spelt_with_what_can_be_written(folders: dict[str, Path]) -> None:
    """As text; ids are read as they are given."""
    bundle = Bundle.open(folders["part"])
    model = TextModel(bundle, open_backend(bundle, "eager", device="cpu"))
    tokenizer = bundle.tokenizer
    unwritten = next(i for i in range(N_OUTPUTS, WHOLE) if tokenizer.encode(tokenizer.decode([i])) == [i])
    pair = tokenizer.decode([unwritten])
    start = model.prompt("x", prefix=pair).prefix[1:]
    assert len(start) == 2
    assert max(start) < N_OUTPUTS
    assert model.prompt(pair).source == (unwritten, EOS)
    assert model.prompt("x", prefix=[unwritten]).prefix[1:] == (unwritten,)
    for prefix in (pair, [unwritten]):
        assert model.generate("x", prefix=prefix, max_new_tokens=3, repetition_penalty=2.0).ids
    maps = model.attention("x", pair)
    assert len(maps.target) == 3
