"""Starting weights: their statistics, by name."""

import math

import pytest
import torch
from torch import Tensor

from tests.support.models import tiny_config
from tiny_transformer.config import ARCHITECTURES, ModelConfig
from tiny_transformer.model import build_model

WIDE = {"d_model": 128, "n_heads": 4, "d_ff": 256}  # enough numbers in each matrix to measure a deviation


def parameters_of(config: ModelConfig) -> dict[str, Tensor]:
    return dict(build_model(config, torch.Generator().manual_seed(0)).named_parameters())


def assert_std(parameter: Tensor, expected: float) -> None:
    """Within five standard errors of a normal distribution with mean 0."""
    n = parameter.numel()
    assert abs(parameter.std().item() / expected - 1) < 5 / math.sqrt(2 * n)
    assert abs(parameter.mean().item()) < 5 * expected / math.sqrt(n)


@pytest.mark.parametrize(("architecture", "layers", "writes"), [("encoder-decoder", 3, 3), ("decoder-only", 3, 2)])
def test_writes_into_the_residual_stream_shrink_with_their_number(architecture: str, layers: int, writes: int) -> None:
    """1/√n of the others, n = layers × parts a layer: two in an encoder or GPT layer, three in a decoder's."""
    parameters = parameters_of(tiny_config(architecture, n_decoder_layers=layers, **WIDE))
    d, f = 128, 256
    shrink = 1 / math.sqrt(writes * layers)
    for i in range(layers):
        layer = f"decoder.layers.{i}"
        assert_std(parameters[f"{layer}.self_attention.output.weight"], shrink * math.sqrt(2 / (d + d)))
        assert_std(parameters[f"{layer}.feed_forward.output.weight"], shrink * math.sqrt(2 / (d + f)))
        assert_std(parameters[f"{layer}.self_attention.qkv.weight"], math.sqrt(2 / (d + d)))
        assert_std(parameters[f"{layer}.feed_forward.inner.weight"], math.sqrt(2 / (d + f)))
        if architecture == "encoder-decoder":
            assert_std(parameters[f"{layer}.cross_attention.output.weight"], shrink * math.sqrt(2 / (d + d)))
            assert_std(parameters[f"{layer}.cross_attention.key_value.weight"], math.sqrt(2 / (d + d)))
            assert_std(parameters[f"{layer}.cross_attention.query.weight"], math.sqrt(2 / (d + d)))


def test_the_encoder_counts_its_own_writes() -> None:
    parameters = parameters_of(tiny_config(n_encoder_layers=4, n_decoder_layers=1, **WIDE))
    assert_std(parameters["encoder.layers.3.feed_forward.output.weight"], math.sqrt(1 / 8) * math.sqrt(2 / 384))
    assert_std(parameters["decoder.layers.0.feed_forward.output.weight"], math.sqrt(1 / 3) * math.sqrt(2 / 384))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_norms_start_as_the_identity_and_biases_at_zero(architecture: str) -> None:
    for name, parameter in parameters_of(tiny_config(architecture)).items():
        if parameter.dim() == 1:
            start = 0.0 if name.endswith("bias") else 1.0
            assert (parameter == start).all(), name
        else:
            assert parameter.std() > 0, name


def test_scaled_embeddings_enter_the_stream_with_unit_variance() -> None:
    model = build_model(tiny_config(positions="none", **WIDE), torch.Generator().manual_seed(0))
    x = model.embedding(torch.arange(300)[None], torch.arange(300))
    assert abs(x.std().item() - 1) < 0.02
    assert_std(parameters_of(tiny_config(scale_embeddings=False, **WIDE))["embedding.tokens.weight"], 0.02)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_stream_does_not_grow_with_depth(architecture: str, norm: str) -> None:
    """The variance that all layers together add is that of a few parts, whether there are 2 layers or 24."""
    spread = {}
    for depth in (2, 24):
        changes = {"n_encoder_layers": depth} if architecture == "encoder-decoder" else {}
        config = tiny_config(architecture, norm=norm, n_decoder_layers=depth, scale_embeddings=True, **changes, **WIDE)
        model = build_model(config, torch.Generator().manual_seed(0)).eval()
        ids = torch.arange(16)[None]
        batch = (ids, torch.ones_like(ids, dtype=torch.bool), ids) if config.is_encoder_decoder else (ids,)
        seen: list[Tensor] = []
        model.decoder.layers[-1].register_forward_hook(lambda _, __, output, seen=seen: seen.append(output))
        with torch.no_grad():
            model(*batch)
        spread[depth] = seen[0].std().item()
    assert spread[24] < 1.5 * spread[2]
