"""The model against the paper in plain numpy, for every shape the config can describe."""

import numpy as np
import pytest
import torch

from tests.support.models import ROOT, BundleFactory, all_combinations, random_ids, tiny_config, tiny_model
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.eager import EagerBackend
from tiny_transformer.backends.numpy_reference import NumpyBackend, open_numpy
from tiny_transformer.backends.paper import Paper
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import ARCHITECTURES, NORMS, PRESETS, ModelConfig
from tiny_transformer.errors import BackendError, InputError
from tiny_transformer.model import build_model, load_model, weights_of
from tiny_transformer.text_model import TextModel

OPTIONS = [
    pytest.param(tiny_config(architecture, norm=norm, **change), id=f"{architecture}-{norm}-{key}={value}")
    for architecture in ARCHITECTURES
    for norm in NORMS
    for change in (
        {"residual": False},
        {"bias": False},
        {"activation": "relu"},
        {"activation": "gelu"},
        {"scale_embeddings": True},
        {"scale_embeddings": False},
    )
    for key, value in change.items()
]
OPTIONS += [
    pytest.param(tiny_config(output_vocab_size=40, tie_embeddings=tied), id=f"output_vocab_size-tied={tied}")
    for tied in (True, False)
]
TARGETS, SOURCES = [[5, 6, 7, 8, 9], [11], [12, 13, 14]], [[1, 2, 3, 4, 5, 6, 7], [8], [9, 10, 11, 12]]


def both(config: ModelConfig, dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the model and of the paper, on a batch whose sources have unequal lengths."""
    model = tiny_model(config, dtype=dtype)
    paper = Paper(config, {name: parameter.detach().numpy() for name, parameter in model.named_parameters()})
    target = random_ids(config, 3, 5)
    if not config.is_encoder_decoder:
        return model(target).detach().numpy(), np.stack([paper.decode(row, None, [], []) for row in target.numpy()])
    source, lengths = random_ids(config, 3, 7, seed=1), [7, 1, 4]
    mask = torch.arange(7) < torch.tensor(lengths)[:, None]
    encoded = [paper.encode(row[:n], []) for row, n in zip(source.numpy(), lengths, strict=True)]
    found = [paper.decode(row, memory, [], []) for row, memory in zip(target.numpy(), encoded, strict=True)]
    return model(source, mask, target).detach().numpy(), np.stack(found)


@pytest.mark.parametrize("config", all_combinations() + OPTIONS)
def test_logits_equal_those_of_an_independent_forward_pass(config: ModelConfig) -> None:
    ours, numpys = both(config, torch.float64)
    np.testing.assert_allclose(ours, numpys, rtol=0, atol=1e-9)
    ours, numpys = both(config, torch.float32)
    np.testing.assert_allclose(ours, numpys, rtol=0, atol=1e-4)


def backends_of(config: ModelConfig) -> tuple[EagerBackend, NumpyBackend]:
    model = tiny_model(config)
    return EagerBackend(model, config), NumpyBackend(config, weights_of(model))


@pytest.mark.parametrize("config", all_combinations() + OPTIONS)
def test_the_backend_gives_what_eager_gives(config: ModelConfig) -> None:
    """Whole targets, attention maps, and a run of start, step, reorder and join."""
    target = Batch.of(TARGETS)
    source = Batch.of(SOURCES) if config.is_encoder_decoder else None
    one_more = None if source is None else Batch.of([[3, 4]])
    real = target.mask
    runs = []
    for backend in backends_of(config):
        maps = backend.attention(target, source)
        found = [backend.logits(target, source)[real], maps.decoder.transpose(1, 3, 0, 2, 4)[real]]
        if source is not None:
            assert maps.encoder is not None
            assert maps.cross is not None
            found += [maps.encoder.transpose(1, 3, 0, 2, 4)[source.mask], maps.cross.transpose(1, 3, 0, 2, 4)[real]]
        logits, state = backend.start(target, source, 10)
        found.append(logits.copy())
        logits, state = backend.step(np.array([[20], [21], [22]]), state)
        found.append(logits.copy())
        state = backend.reorder(state, np.array([2, 0, 0]))
        logits, state = backend.step(np.array([[30], [31], [32]]), state)
        found.append(logits.copy())
        logits, other = backend.start(Batch.of([[40, 41]]), one_more, 10)
        logits, other = backend.step(np.array([[42, 43]]), other)
        found.append(logits.copy())
        logits, _ = backend.step(np.array([[50], [51], [52], [53]]), backend.join(state, other))
        runs.append([*found, logits.copy()])
    for eager, numpys in zip(*runs, strict=True):
        assert eager.dtype == numpys.dtype
        np.testing.assert_allclose(eager, numpys, rtol=0, atol=1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_eager_refuses_is_refused_in_the_same_words(architecture: str) -> None:
    config = tiny_config(architecture)
    source = Batch.of([[1, 2], [3]]) if config.is_encoder_decoder else None
    prefix = Batch.of([[1, 2, 3], [4]])
    sentences = []
    for backend in backends_of(config):
        calls = [
            lambda backend=backend: backend.start(prefix, source, 2),
            lambda backend=backend: backend.start(prefix, source, 17),
            lambda backend=backend: backend.start(prefix, None if source else prefix, 10),
            lambda backend=backend: backend.start(Batch.of([[300], [1]]), source, 10),
            lambda backend=backend: backend.step(np.array([[1]]), backend.start(prefix, source, 5)[1]),
            lambda backend=backend: backend.step(np.array([[1, 2], [3, 4]]), backend.start(prefix, source, 5)[1]),
            lambda backend=backend: backend.step(np.array([[1], [300]]), backend.start(prefix, source, 5)[1]),
            lambda backend=backend: backend.step(np.array([[1], [2]]), backend.start(prefix, source, 3)[1]),
        ]
        for call in calls:
            with pytest.raises(InputError) as refused:
                call()
            sentences.append(refused.value.message.template)
    assert sentences[: len(calls)] == sentences[len(calls) :]


def test_numpy_runs_on_the_cpu_alone(make_bundle: BundleFactory) -> None:
    bundle = make_bundle()
    with pytest.raises(BackendError, match="'cuda' is not supported; choose cpu"):
        open_numpy(bundle, device="cuda")
    with pytest.raises(InputError, match="threads"):
        open_numpy(bundle, threads=0)
    assert open_numpy(bundle, device="cpu", threads=2).config == bundle.config


@pytest.mark.long
@pytest.mark.parametrize("folder", ["translate", "chat"])
def test_a_shipped_model_writes_the_same_text_in_numpy(folder: str) -> None:
    """Greedy and with beams, through the generation that serves all backends."""
    bundle = Bundle.open(ROOT / "checkpoints" / folder)
    content = "Wir gehen heute in den Park." if folder == "translate" else "Hello, how are you?"
    eager, numpys = (
        TextModel(bundle, backend) for backend in (EagerBackend(load_model(bundle), bundle.config), open_numpy(bundle))
    )
    for options in ({}, {"num_beams": 2}):
        wanted = eager.generate(content, max_new_tokens=6, **options)
        assert wanted.text
        assert numpys.generate(content, max_new_tokens=6, **options).text == wanted.text


REAL_SIZES = [pytest.param(PRESETS[name], id=name) for name in ("translate", "chat", "multi30k")]


@pytest.mark.parametrize("config", all_combinations() + OPTIONS + REAL_SIZES)
def test_fresh_weights_are_well_conditioned(config: ModelConfig) -> None:
    """float32 rounds but must not amplify: its logits are those of float64 to 1e-5 (relative where above 1)."""
    model = build_model(config, torch.Generator().manual_seed(7)).eval()
    target, source = random_ids(config, 2, 16), random_ids(config, 2, 16, seed=1)
    batch = (source, torch.ones_like(source, dtype=torch.bool), target) if config.is_encoder_decoder else (target,)
    with torch.no_grad():
        single, double = model(*batch).double(), model.double()(*batch)
    assert float(((single - double).abs() / double.abs().clamp(min=1.0)).max()) < 1e-5
