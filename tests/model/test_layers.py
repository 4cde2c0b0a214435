"""One layer at a time: the residual stream, norms, dropout, the feed-forward, the embedding's scale."""

import math

import pytest
import torch
from torch import Tensor, nn

from tests.support.models import random_ids, tiny_config, tiny_model
from tiny_transformer.config import ARCHITECTURES, ModelConfig
from tiny_transformer.model.attention import AttentionContext, LayerMemory
from tiny_transformer.model.embedding import Embedding
from tiny_transformer.model.layers import DecoderLayer, EncoderLayer, FeedForward, GPTLayer


def stream(rows: int = 2, length: int = 5) -> Tensor:
    return torch.randn(rows, length, 16, generator=torch.Generator().manual_seed(3)) * 4 + 1


def context_of(layer: nn.Module, length: int = 5) -> AttentionContext:
    """No rotary positions, no mask; a source for the layer that reads one."""
    memory = None
    if isinstance(layer, DecoderLayer):
        key = torch.randn(2, 2, 7, 8, generator=torch.Generator().manual_seed(4))
        memory = LayerMemory(key, key, torch.zeros(2, 1, 1, 7))
    return AttentionContext(torch.arange(length), torch.empty(0), memory=memory)


def run_layer(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x, context_of(layer))


def parts_of(layer: nn.Module) -> list[tuple[str, str]]:
    """Names of the sub-layers in their order, each with the name of what is around it."""
    cross = [("cross_attention", "around_cross")] if isinstance(layer, DecoderLayer) else []
    return [("self_attention", "around_attention"), *cross, ("feed_forward", "around_feed_forward")]


def silenced(layer: nn.Module) -> nn.Module:
    """The layer with every weight zero, the norms' gains included."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    return layer.eval()


LAYERS = [
    pytest.param(EncoderLayer, "encoder-decoder", id="encoder"),
    pytest.param(DecoderLayer, "encoder-decoder", id="decoder"),
    pytest.param(GPTLayer, "decoder-only", id="gpt"),
]


@pytest.mark.parametrize(("kind", "architecture"), LAYERS)
def test_a_pre_norm_layer_with_zero_weights_is_the_identity(kind: type[nn.Module], architecture: str) -> None:
    x = stream()
    assert torch.equal(run_layer(silenced(kind(tiny_config(architecture, norm="pre"))), x), x)


@pytest.mark.parametrize(("kind", "architecture"), LAYERS)
def test_without_residual_a_layer_with_zero_weights_forgets(kind: type[nn.Module], architecture: str) -> None:
    assert not run_layer(silenced(kind(tiny_config(architecture, norm="pre", residual=False))), stream()).any()


@pytest.mark.parametrize(("kind", "architecture"), LAYERS)
def test_a_post_norm_layer_ends_normalized(kind: type[nn.Module], architecture: str) -> None:
    torch.manual_seed(0)
    out = run_layer(kind(tiny_config(architecture, norm="post")).eval(), stream())
    torch.testing.assert_close(out.mean(dim=-1), torch.zeros(2, 5), rtol=0, atol=1e-5)
    torch.testing.assert_close(out.var(dim=-1, unbiased=False), torch.ones(2, 5), rtol=0, atol=1e-3)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("kind", "architecture"), LAYERS)
def test_a_layer_is_the_equation_of_its_norm(
    kind: type[nn.Module], architecture: str, norm: str, residual: bool
) -> None:
    """x + f(norm(x)) or norm(x + f(x)) for every sub-layer f; without residual connections, the x in front goes."""
    torch.manual_seed(0)
    layer = kind(tiny_config(architecture, norm=norm, residual=residual)).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += torch.randn(parameter.shape) * 0.2  # no norm is the identity
    context = context_of(layer)
    x = expected = stream()
    for name, around in parts_of(layer):
        f, layer_norm = getattr(layer, name), getattr(layer, around).norm
        rest = {"self_attention": (context,), "cross_attention": (context.memory,)}.get(name, ())
        if norm == "pre":
            fx = f(layer_norm(expected), *rest)
            expected = expected + fx if residual else fx
        else:
            fx = f(expected, *rest)
            expected = layer_norm(expected + fx if residual else fx)
    assert torch.equal(layer(x, context), expected)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_stack_ends_with_exactly_one_norm(architecture: str, norm: str) -> None:
    """Post-norm layers end normalized; a pre-norm stack needs one norm more."""
    model = tiny_model(tiny_config(architecture, norm=norm))
    stacks = [model.decoder] + ([model.encoder] if hasattr(model, "encoder") else [])
    for stack in stacks:
        assert isinstance(stack.norm, nn.LayerNorm if norm == "pre" else nn.Identity)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_is_the_same_function_at_every_position(activation: str) -> None:
    torch.manual_seed(0)
    layer, x = FeedForward(tiny_config(activation=activation)), stream()
    inner = x @ layer.inner.weight.T + layer.inner.bias
    if activation == "relu":
        bent = inner.clamp(min=0)
    else:
        bent = 0.5 * inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
    torch.testing.assert_close(layer(x), bent @ layer.output.weight.T + layer.output.bias)
    torch.testing.assert_close(layer(x)[:, 2], layer(x[:, 2:3])[:, 0])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_bias_means_every_bias_of_linear_layers_and_norms(architecture: str, bias: bool) -> None:
    names = [name for name, _ in tiny_model(tiny_config(architecture, bias=bias)).named_parameters()]
    n_norms = sum(name.endswith("norm.weight") for name in names)
    n_linear = sum(name.endswith("weight") and "norm" not in name and "embedding" not in name for name in names)
    assert sum(name.endswith("bias") for name in names) == (n_norms + n_linear if bias else 0)


def embedded(config: ModelConfig, ids: Tensor) -> Tensor:
    torch.manual_seed(0)
    return Embedding(config)(ids, torch.arange(ids.size(1)))


def test_embeddings_are_scaled_by_the_root_of_the_width() -> None:
    ids = random_ids(tiny_config(), 2, 5)
    scaled = embedded(tiny_config(positions="none", scale_embeddings=True), ids)
    plain = embedded(tiny_config(positions="none", scale_embeddings=False), ids)
    torch.testing.assert_close(scaled, plain * math.sqrt(16))


def test_the_position_is_added_after_the_scale() -> None:
    config = tiny_config(positions="sinusoidal")
    embedding = Embedding(config)
    ids = torch.full((1, 3), 7)
    x = embedding(ids, torch.arange(3))
    torch.testing.assert_close(x[0, 2] - x[0, 0], embedding.positions[2] - embedding.positions[0])


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_dropout_acts_once_on_the_embedding(rate: float) -> None:
    """Applied twice, (1 - rate)² of the values would survive instead of 1 - rate."""
    config = tiny_config(dropout=rate, positions="sinusoidal", max_length=512)
    embedding = Embedding(config).train()
    ids = random_ids(config, 16, 512)
    torch.manual_seed(0)
    x, clean = embedding(ids, torch.arange(512)), embedding.eval()(ids, torch.arange(512))
    kept = x != 0
    deviation = math.sqrt(rate * (1 - rate) / x.numel())
    assert abs(kept.double().mean().item() - (1 - rate)) < 5 * deviation
    torch.testing.assert_close(x[kept], clean[kept] / (1 - rate))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "architecture"), LAYERS)
def test_dropout_acts_once_on_the_result_of_each_part(kind: type[nn.Module], architecture: str) -> None:
    """Every sub-layer gives ones before its dropout; then a quarter is 0 and the rest 1 / 0.75."""
    layer = silenced(kind(tiny_config(architecture, dropout=0.25, norm="pre"))).train()
    x, context = stream(2, 4096), context_of(layer, 4096)
    inputs: list[Tensor] = []
    torch.manual_seed(0)
    for name, around in parts_of(layer):
        part, norm = getattr(layer, name), getattr(layer, around).norm
        nn.init.ones_(norm.weight)
        nn.init.ones_(part.output.bias)
        hook = part.register_forward_hook(lambda _, args, __: inputs.append(args[0]))
        added = layer(x, context) - x
        hook.remove()
        kept = added.abs() > 0.1
        assert abs(kept.double().mean().item() - 0.75) < 0.01, name
        torch.testing.assert_close(added[kept], torch.full_like(added[kept], 1 / 0.75), rtol=0, atol=1e-5)
        assert torch.equal(inputs.pop(), norm(x)), "dropout before the part as well"
        nn.init.zeros_(part.output.bias)
