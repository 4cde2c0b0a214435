"""The model against an independent forward pass in plain numpy, for every shape the config can describe."""

import numpy as np
import pytest
import torch

from tests.support.models import all_combinations, random_ids, tiny_config, tiny_model
from tests.support.numpy_transformer import forward
from tiny_transformer.config import ARCHITECTURES, NORMS, PRESETS, ModelConfig
from tiny_transformer.model import build_model

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


def both(config: ModelConfig, dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the model and of numpy, on a batch whose sources have unequal lengths."""
    model = tiny_model(config, dtype=dtype)
    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    target = random_ids(config, 3, 5)
    if not config.is_encoder_decoder:
        return model(target).detach().numpy(), forward(config, weights, target.numpy())
    source, lengths = random_ids(config, 3, 7, seed=1), [7, 1, 4]
    mask = torch.arange(7) < torch.tensor(lengths)[:, None]
    return (
        model(source, mask, target).detach().numpy(),
        forward(config, weights, target.numpy(), source.numpy(), lengths),
    )


@pytest.mark.parametrize("config", all_combinations() + OPTIONS)
def test_logits_equal_those_of_an_independent_forward_pass(config: ModelConfig) -> None:
    ours, numpys = both(config, torch.float64)
    np.testing.assert_allclose(ours, numpys, rtol=0, atol=1e-9)
    ours, numpys = both(config, torch.float32)
    np.testing.assert_allclose(ours, numpys, rtol=0, atol=1e-4)


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
