"""Small models exported once per run, in whichever xdist worker asks first: a set that holds every pair of options."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from export.quantize import export_int8
from export.to_onnx import export_onnx
from tests.support.models import once_per_run, tiny_config, tiny_model
from tiny_transformer.backends.eager import EagerBackend
from tiny_transformer.bundle import Bundle, save_bundle
from tiny_transformer.config import POSITIONS, GenerationConfig, ModelConfig
from tiny_transformer.model import load_model, weights_of
from tiny_transformer.tokenizer import Tokenizer

# Each option has two values. A bit for each kind of positions says which of its two models takes the first: any two
# options' bits agree somewhere and differ somewhere, so all four pairs of their values occur.
OPTIONS: dict[str, tuple[tuple[Any, Any], tuple[int, int, int, int]]] = {
    "architecture": (("encoder-decoder", "decoder-only"), (0, 0, 0, 0)),
    "norm": (("pre", "post"), (0, 0, 0, 1)),
    "tie_embeddings": ((True, False), (0, 0, 1, 0)),
    "bias": ((True, False), (0, 0, 1, 1)),
    "activation": (("relu", "gelu"), (0, 1, 0, 0)),
    "residual": ((True, False), (0, 1, 0, 1)),
    "scale_embeddings": ((True, False), (0, 1, 1, 0)),
    "half": ((True, False), (0, 1, 1, 1)),
}


def _models() -> dict[str, dict[str, Any]]:
    found = {}
    for i, positions in enumerate(POSITIONS):
        for second in (0, 1):
            options = {name: values[bits[i % len(bits)] ^ second] for name, (values, bits) in OPTIONS.items()}
            found[f"{options['architecture']}-{positions}"] = {"positions": positions, **options}
    return found


MODELS = _models()
# Three kinds of output layers that are smaller than the vocabulary: tied in float16, tied in float32, and untied.
for _positions in ("sinusoidal", "learned", "rotary"):
    MODELS[f"encoder-decoder-{_positions}"]["output_vocab_size"] = 284
ENCODER_DECODERS = [name for name in MODELS if name.startswith("encoder-decoder")]

Exported = Callable[[str], Bundle]


def small_config(architecture: str, **changes: Any) -> ModelConfig:
    """Widths that have whole blocks of 16, so that every matrix goes to 8 bits."""
    return tiny_config(architecture, **({"d_model": 32, "d_ff": 48} | changes))


def save_random(folder: Path, config: ModelConfig, *, half: bool = False, seed: int = 0) -> Bundle:
    """A model folder whose biases and norms are random too: what a graph forgets must show."""
    tokenizer = Tokenizer.synthetic(config.vocab_size)
    generation = GenerationConfig(
        task="translate" if config.is_encoder_decoder else "chat",
        roles={} if config.is_encoder_decoder else tokenizer.roles,
        max_source_tokens=config.max_length,
        max_new_tokens=config.max_length,
    )
    weights = weights_of(tiny_model(config, seed=seed))
    return save_bundle(folder, config, generation, tokenizer, weights, half=half)


def export_graphs(folder: Path) -> None:
    """`export_onnx`, with PyTorch's table of operators made once per process: it takes 0.9 s of each graph."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with patch.object(ONNXRegistry, "from_torchlib", staticmethod(_made_once())):
        export_onnx(folder)


@cache
def _made_once() -> Callable[..., Any]:
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    return cache(ONNXRegistry.from_torchlib)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """`exported(name)` → the folder of one of MODELS, with its float32 and int8 graphs. Not to be changed."""

    def find(name: str) -> Bundle:
        with once_per_run(tmp_path_factory, f"exported-{name}") as folder:
            if not folder.exists():
                options = dict(MODELS[name])
                half = options.pop("half")
                staging = folder.with_name(f"{folder.name}.staging")  # a failed export must not pass for a made one
                save_random(staging, small_config(**options), half=half)
                export_graphs(staging)
                export_int8(staging)
                staging.rename(folder)
        return Bundle.open(folder)

    return find


def eager_of(bundle: Bundle) -> EagerBackend:
    """The reference, from the weights as stored."""
    return EagerBackend(load_model(bundle), bundle.config)
