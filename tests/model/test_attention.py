"""Attention against `torch.nn.MultiheadAttention` and against itself, step by step."""

import math

import pytest
import torch
from torch import Tensor, nn

from tests.support.models import all_combinations, random_ids, tiny_config, tiny_model
from tiny_transformer.config import ModelConfig
from tiny_transformer.model import EncoderDecoder, attention_maps
from tiny_transformer.model.attention import (
    AttentionContext,
    CrossAttention,
    LayerMemory,
    SelfAttention,
    additive_mask,
    causal_mask,
    fused_attention,
    plain_attention,
)

D, H = 24, 3
DTYPES = [pytest.param(torch.float64, 1e-9, id="float64"), pytest.param(torch.float32, 1e-5, id="float32")]


def randn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def oracle_of(qkv: Tensor, qkv_bias: Tensor | None, output: nn.Linear) -> nn.MultiheadAttention:
    """PyTorch's own multi-head attention with the same weights."""
    oracle = nn.MultiheadAttention(D, H, bias=qkv_bias is not None, batch_first=True, dtype=qkv.dtype)
    with torch.no_grad():
        oracle.in_proj_weight.copy_(qkv)
        oracle.out_proj.weight.copy_(output.weight)
        if qkv_bias is not None:
            oracle.in_proj_bias.copy_(qkv_bias)
            oracle.out_proj.bias.copy_(output.bias)
    return oracle


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_self_attention_is_torchs(dtype: torch.dtype, tolerance: float, bias: bool, causal: bool, padded: bool) -> None:
    torch.manual_seed(0)
    ours = SelfAttention(D, H, 0.0, bias, rotary=False, causal=causal).to(dtype).eval()
    oracle = oracle_of(ours.qkv.weight, ours.qkv.bias, ours.output)
    x = randn(3, 5, D, dtype=dtype)
    real = torch.arange(5) < torch.tensor([5, 2, 4])[:, None] if padded else torch.ones(3, 5, dtype=torch.bool)
    visible = real[:, None, None, :] & causal_mask(5, x.device) if causal else real[:, None, None, :]
    mask = None if causal and not padded else additive_mask(visible, x.dtype)
    context = AttentionContext(torch.arange(5), torch.empty(0), mask)
    expected, _ = oracle(
        x, x, x, key_padding_mask=~real, attn_mask=~causal_mask(5, x.device) if causal else None, need_weights=False
    )
    torch.testing.assert_close(ours(x, context), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 9), (9, 5), (1, 7), (4, 1)])
def test_cross_attention_is_torchs_whatever_the_two_lengths(
    dtype: torch.dtype, tolerance: float, bias: bool, n_queries: int, n_keys: int
) -> None:
    torch.manual_seed(0)
    ours = CrossAttention(D, H, 0.0, bias).to(dtype).eval()
    stacked = torch.cat([ours.query.weight, ours.key_value.weight])
    oracle = oracle_of(stacked, torch.cat([ours.query.bias, ours.key_value.bias]) if bias else None, ours.output)
    x, encoded = randn(2, n_queries, D, dtype=dtype), randn(2, n_keys, D, dtype=dtype, seed=1)
    real = torch.arange(n_keys) < torch.tensor([n_keys, max(1, n_keys // 2)])[:, None]
    memory = LayerMemory(*ours.project_memory(encoded), additive_mask(real[:, None, None, :], dtype))
    result = ours(x, memory)
    expected, _ = oracle(x, encoded, encoded, key_padding_mask=~real, need_weights=False)
    assert result.shape == (2, n_queries, D)
    torch.testing.assert_close(result, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("kind", ["none", "causal", "keys", "pairs"])
def test_fused_and_plain_attention_agree(dtype: torch.dtype, tolerance: float, kind: str) -> None:
    query, key, value = (randn(2, H, 6, 8, dtype=dtype, seed=seed) for seed in range(3))
    visible = {
        "keys": (torch.arange(6) < torch.tensor([6, 3])[:, None])[:, None, None, :],
        "pairs": randn(2, 1, 6, 6, seed=9) > -0.5,
    }.get(kind)
    mask = None if visible is None else additive_mask(visible, dtype)
    plain, weights = plain_attention(query, key, value, mask, kind == "causal")
    fused = fused_attention(query, key, value, mask, kind == "causal", 0.0)
    torch.testing.assert_close(fused, plain, rtol=0, atol=tolerance)
    torch.testing.assert_close(weights @ value, plain, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_a_query_that_may_see_nothing_gets_zeros(dtype: torch.dtype, tolerance: float) -> None:
    query, key, value = (randn(2, H, 4, 8, dtype=dtype, seed=seed) for seed in range(3))
    visible = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    visible[0, :, 1] = False
    visible[1] = False
    plain, weights = plain_attention(query, key, value, additive_mask(visible, dtype), False)
    fused = fused_attention(query, key, value, additive_mask(visible, dtype), False, 0.0)
    torch.testing.assert_close(fused, plain, rtol=0, atol=tolerance)
    for result in (plain, fused, weights):
        assert not result[0, :, 1].any()
        assert not result[1].any()
        assert result[0, :, 0].any()
        assert result.isfinite().all()


def test_scores_are_divided_by_the_root_of_the_head_width() -> None:
    query, key = randn(1, 1, 3, 8), randn(1, 1, 3, 8, seed=1)
    weights = plain_attention(query, key, key, None, False)[1]
    by_hand = (query[0, 0, 1] @ key[0, 0].T / math.sqrt(8)).softmax(dim=-1)
    torch.testing.assert_close(weights[0, 0, 1], by_hand)


@pytest.mark.parametrize("config", all_combinations())
def test_maps_of_every_layer_and_head_are_distributions_over_what_may_be_seen(config: ModelConfig) -> None:
    model = tiny_model(config)
    target, source = random_ids(config, 2, 6), random_ids(config, 2, 5, seed=1)
    source_mask = torch.arange(5) < torch.tensor([5, 2])[:, None]
    maps = attention_maps(model, target, source, source_mask)
    layers, heads = config.n_decoder_layers, config.n_heads
    assert maps.decoder.shape == (layers, 2, heads, 6, 6)
    assert not maps.decoder.triu(1).any(), "a position of the decoder looks into the future"
    for found in (found for found in maps if found is not None):
        torch.testing.assert_close(found.sum(dim=-1), torch.ones(found.shape[:-1]))
    if config.is_encoder_decoder:
        assert maps.encoder is not None
        assert maps.cross is not None
        assert maps.encoder.shape == (config.n_encoder_layers, 2, heads, 5, 5)
        assert maps.cross.shape == (layers, 2, heads, 6, 5)
        assert not maps.encoder[:, 1, :, :, 2:].any(), "padding of the source is looked at"
        assert not maps.cross[:, 1, :, :, 2:].any(), "padding of the source is looked at"
        assert maps.encoder[:, 0].triu(1).any(), "the encoder reads in both directions"
    else:
        assert maps.encoder is None
        assert maps.cross is None


def test_maps_are_the_weights_the_model_uses() -> None:
    """First decoder layer by hand: weights × values, projected, is what the ordinary path computed."""
    model = tiny_model(tiny_config(norm="post", residual=False))
    assert isinstance(model, EncoderDecoder)
    attention = model.decoder.layers[0].self_attention
    seen: dict[str, Tensor] = {}
    attention.register_forward_hook(lambda _, inputs, output: seen.update(x=inputs[0], out=output))
    source, target = random_ids(tiny_config(), 2, 5), random_ids(tiny_config(), 2, 6, seed=1)
    maps = attention_maps(model, target, source)
    value = attention.project(seen["x"], torch.empty(0))[2]
    mixed = (maps.decoder[0] @ value).transpose(1, 2).reshape(2, 6, -1)
    torch.testing.assert_close(attention.output(mixed), seen["out"])


def test_reading_the_maps_leaves_the_model_as_it_was() -> None:
    model = tiny_model(tiny_config("decoder-only"))
    target = random_ids(tiny_config("decoder-only"), 2, 6)
    before = model(target)
    attention_maps(model, target)
    assert torch.equal(model(target), before)
    assert not any(module._forward_hooks for module in model.modules())


def test_dropout_acts_on_attention_in_training_alone() -> None:
    attention = SelfAttention(D, H, 0.5, True, rotary=False, causal=True)
    attention.output_dropout.p = 0.0  # what is left acts on the weights
    x, context = randn(1, 6, D, dtype=torch.float32), AttentionContext(torch.arange(6), torch.empty(0))
    first, second = (attention.train()(x, context) for _ in range(2))
    assert not torch.equal(first, second)
    first, second = (attention.eval()(x, context) for _ in range(2))
    assert torch.equal(first, second)
