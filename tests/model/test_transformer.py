"""Properties of the whole model, for every architecture × norm × positions × tying."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.support.models import all_combinations, random_ids, tiny_config, tiny_model
from tiny_transformer.config import ARCHITECTURES, ModelConfig
from tiny_transformer.errors import BundleError
from tiny_transformer.model import build_model, load_weights, weights_of

# Row 1 is short: one batch holds a full row and a padded one.
SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([6, 3]), torch.tensor([7, 4])
CLOSE = {"rtol": 0.0, "atol": 1e-12}  # in float64: other kernels may sum in another order, nothing more


def batch_of(config: ModelConfig) -> tuple[Tensor, Tensor, Tensor]:
    source = random_ids(config, 2, 6)
    return source, torch.arange(6) < SOURCE_LENGTHS[:, None], random_ids(config, 2, 7, seed=1)


def logits_of(config: ModelConfig) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The model as a function of (source, source mask, target), whichever it is; a GPT ignores the source."""
    model = tiny_model(config, dtype=torch.float64)

    @torch.no_grad()
    def logits(source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        return model(source, mask, target) if config.is_encoder_decoder else model(target)

    return logits


@pytest.mark.parametrize("config", all_combinations())
def test_a_change_in_the_future_leaves_the_past_unchanged(config: ModelConfig) -> None:
    logits, (source, mask, target) = logits_of(config), batch_of(config)
    before = logits(source, mask, target)
    for edited in range(7):
        changed = target.clone()
        changed[:, edited] = (changed[:, edited] + 1) % config.vocab_size
        after = logits(source, mask, changed)
        torch.testing.assert_close(after[:, :edited], before[:, :edited], **CLOSE)
        assert (after[:, edited] - before[:, edited]).abs().max() > 1e-6, "the position does not see its own token"
        if edited < 6:
            assert (after[:, -1] - before[:, -1]).abs().max() > 1e-9, "the past is not seen"


@pytest.mark.parametrize("config", all_combinations())
def test_padding_and_other_rows_change_nothing_at_real_positions(config: ModelConfig) -> None:
    """Row 1 alone, cut to its own lengths, gives what it gave beside a longer row and padding."""
    logits, (source, mask, target) = logits_of(config), batch_of(config)
    together = logits(source, mask, target)
    n_source, n_target = int(SOURCE_LENGTHS[1]), int(TARGET_LENGTHS[1])
    alone = logits(source[1:, :n_source], mask[1:, :n_source], target[1:, :n_target])
    torch.testing.assert_close(together[1, :n_target], alone[0], **CLOSE)


@pytest.mark.parametrize("config", all_combinations())
def test_what_stands_in_padding_does_not_matter(config: ModelConfig) -> None:
    logits, (source, mask, target) = logits_of(config), batch_of(config)
    before = logits(source, mask, target)
    source[1, 3:] = (source[1, 3:] + 17) % config.vocab_size
    target[1, 4:] = (target[1, 4:] + 17) % config.vocab_size
    more = torch.cat([source, random_ids(config, 2, 5, seed=5)], dim=1)
    more_mask = torch.cat([mask, torch.zeros(2, 5, dtype=torch.bool)], dim=1)
    after = logits(more, more_mask, torch.cat([target, random_ids(config, 2, 4, seed=6)], dim=1))
    torch.testing.assert_close(after[0, :7], before[0], **CLOSE)
    torch.testing.assert_close(after[1, :4], before[1, :4], **CLOSE)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_source_of_nothing_but_padding_gives_finite_logits(norm: str) -> None:
    config = tiny_config(norm=norm)
    source, mask, target = batch_of(config)
    mask[1] = False
    model = tiny_model(config)
    logits = model(source, mask, target)
    assert logits.isfinite().all()
    logits.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_source_is_read(norm: str) -> None:
    config = tiny_config(norm=norm)
    logits, (source, mask, target) = logits_of(config), batch_of(config)
    changed = source.clone()
    changed[0, 2] = (changed[0, 2] + 1) % config.vocab_size
    difference = (logits(changed, mask, target) - logits(source, mask, target)).abs().amax(dim=(1, 2))
    assert difference[0] > 1e-6
    assert difference[1] < 1e-12


@pytest.mark.parametrize("config", all_combinations())
def test_logits_come_for_every_position_and_gradients_for_every_parameter(config: ModelConfig) -> None:
    model = build_model(config, torch.Generator().manual_seed(0))
    source, mask, target = batch_of(config)
    logits = model(source, mask, target) if config.is_encoder_decoder else model(target)
    assert logits.shape == (2, 7, config.vocab_size)
    logits.logsumexp(dim=-1).sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not without


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tying_shares_the_very_parameter(architecture: str) -> None:
    tied, untied = (tiny_model(tiny_config(architecture, tie_embeddings=tie)) for tie in (True, False))
    matrices = {name for name, p in tied.named_parameters() if p.shape == (300, 16)}
    assert matrices == {"embedding.tokens.weight"}
    assert {name for name, _ in untied.named_parameters()} - {name for name, _ in tied.named_parameters()} == {
        "embedding.output.weight"
    }
    # One step of training moves input and output together.
    x = torch.randn(1, 1, 16, generator=torch.Generator().manual_seed(0))
    before = tied.embedding.scores(x)
    with torch.no_grad():
        tied.embedding.tokens.weight[7] += 1.0
    change = tied.embedding.scores(x) - before
    assert change[0, 0, 7].item() == pytest.approx(x.sum().item(), rel=1e-4)
    assert not change[0, 0, :7].any()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_too_long_a_sequence_is_refused_with_both_numbers(architecture: str) -> None:
    config = tiny_config(architecture)
    model, fits, long = tiny_model(config), random_ids(config, 1, 16), random_ids(config, 1, 17)
    batches = [(long,)]
    if config.is_encoder_decoder:
        mask = torch.ones(1, 17, dtype=torch.bool)
        batches = [(long, mask, fits), (fits, mask[:, :16], long)]
        model(fits, mask[:, :16], fits)
    for batch in batches:
        with pytest.raises(ValueError, match=r"17 tokens.*max_length 16"):
            model(*batch)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_model_prints_nothing(architecture: str, capfd: pytest.CaptureFixture[str]) -> None:
    config = tiny_config(architecture)
    logits_of(config)(*batch_of(config))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_generator_decides_the_weights(architecture: str) -> None:
    config = tiny_config(architecture)
    first, same, other = (weights_of(build_model(config, torch.Generator().manual_seed(s))) for s in (5, 5, 6))
    assert all((first[name] == same[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)


@pytest.mark.parametrize("config", all_combinations())
def test_weights_survive_the_trip_to_arrays_and_back(config: ModelConfig) -> None:
    model, copy = tiny_model(config), tiny_model(config, seed=1)
    load_weights(copy, weights_of(model))
    batch = batch_of(config) if config.is_encoder_decoder else batch_of(config)[2:]
    assert torch.equal(model(*batch), copy(*batch))


def test_weights_of_another_model_are_refused_by_name() -> None:
    model = tiny_model(tiny_config())
    weights = weights_of(model)
    bias = "decoder.layers.1.cross_attention.query.bias"
    with pytest.raises(BundleError, match=rf"lacks {bias}"):
        load_weights(model, {name: array for name, array in weights.items() if name != bias})
    with pytest.raises(BundleError, match="unknown extra"):
        load_weights(model, weights | {"extra": weights[bias]})
    with pytest.raises(BundleError, match=rf"{bias} has shape \(8,\).*asks for \(16,\)"):
        load_weights(model, weights | {bias: weights[bias][:8]})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_fresh_model_knows_nothing(architecture: str) -> None:
    """Its loss on random tokens is about ln V: no token is favored before training.

    Untied: a tied output layer recognizes, and so favors, the token that just went in.
    """
    config = tiny_config(architecture, d_model=64, n_heads=4, d_ff=128, tie_embeddings=False)
    model = build_model(config, torch.Generator().manual_seed(0)).eval()
    source, target = random_ids(config, 64, 16), random_ids(config, 64, 16, seed=1)
    batch = (source, torch.ones_like(source, dtype=torch.bool), target) if config.is_encoder_decoder else (target,)
    labels = random_ids(config, 64, 16, seed=2)
    loss = torch.nn.functional.cross_entropy(model(*batch).flatten(0, 1), labels.flatten())
    assert abs(loss.item() - math.log(config.vocab_size)) < 0.8
