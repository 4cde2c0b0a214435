"""Counting by the formula of the paper's table, and the optimizer's two groups."""

import pytest
import torch

from tests.support.models import all_combinations, count_parameters, tiny_config, tiny_model
from tiny_transformer.config import ARCHITECTURES, PRESETS, ModelConfig
from tiny_transformer.training.schedule import optimizer_groups


def by_hand(config: ModelConfig) -> tuple[int, int]:
    """Parameters of the layers, and of everything around them."""
    d, f, b = config.d_model, config.d_ff, int(config.bias)
    attention = 4 * (d * d + b * d)
    feed_forward = d * f + b * f + f * d + b * d
    norm = d + b * d
    final = norm if config.norm == "pre" else 0
    encoder = config.n_encoder_layers * (attention + feed_forward + 2 * norm)
    cross = attention + norm if config.is_encoder_decoder else 0
    decoder = config.n_decoder_layers * (attention + cross + feed_forward + 2 * norm)
    layers = encoder + decoder + final * (2 if config.is_encoder_decoder else 1)
    output = config.output_vocab_size or config.vocab_size
    embeddings = config.vocab_size * d + (0 if config.tie_embeddings else output * d)
    embeddings += config.max_length * d if config.positions == "learned" else 0
    return layers, embeddings


FURTHER = [tiny_config(a, bias=False) for a in ARCHITECTURES]
FURTHER += [tiny_config(output_vocab_size=280, tie_embeddings=tied) for tied in (True, False)]


@pytest.mark.parametrize("config", [*all_combinations(), *FURTHER], ids=lambda c: c.architecture)
def test_the_count_is_the_formulas(config: ModelConfig) -> None:
    layers, embeddings = by_hand(config)
    model = tiny_model(config)
    assert count_parameters(model) == layers + embeddings == config.n_parameters
    assert count_parameters(model, embeddings=False) == layers


def test_the_papers_base_model_has_the_papers_size() -> None:
    """Table 3 of the paper: 65 million parameters."""
    layers, embeddings = by_hand(PRESETS["paper-base"])
    assert round((layers + embeddings) / 1e6) in (63, 64, 65)


@pytest.mark.parametrize("config", all_combinations())
def test_matrices_decay_and_every_parameter_is_trained_once(config: ModelConfig) -> None:
    model = tiny_model(config)
    decaying, still = optimizer_groups(model, 0.1)
    assert decaying["weight_decay"] == 0.1
    assert still["weight_decay"] == 0.0
    assert all(parameter.dim() >= 2 for parameter in decaying["params"])
    assert all(parameter.dim() == 1 for parameter in still["params"])
    grouped = [id(parameter) for parameter in (*decaying["params"], *still["params"])]
    assert sorted(grouped) == sorted(id(parameter) for parameter in model.parameters())
    torch.optim.AdamW([decaying, still], lr=1e-3)  # would refuse a parameter that comes twice


def test_frozen_parameters_are_left_out() -> None:
    model = tiny_model(tiny_config())
    model.embedding.tokens.weight.requires_grad_(False)
    grouped = {id(p) for group in optimizer_groups(model, 0.1) for p in group["params"]}
    assert id(model.embedding.tokens.weight) not in grouped
    assert len(grouped) == len(list(model.parameters())) - 1
