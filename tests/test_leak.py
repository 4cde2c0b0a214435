"""Nothing can be learned from fresh random tokens, unless the decoder sees what it must predict."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support.models import tiny_config
from tiny_transformer.model import DecoderOnly, EncoderDecoder, build_model

pytestmark = pytest.mark.long

VOCABULARY, LENGTH, ROWS, STEPS, UNSEEN = 16, 8, 32, 200, 20_000


def fresh_loss(model: DecoderOnly | EncoderDecoder, rows: int, generator: torch.Generator, fault: str) -> Tensor:
    """The loss on tokens nobody has seen, each as likely as any other."""
    labels = torch.randint(VOCABULARY, (rows, LENGTH), generator=generator)
    target = torch.cat([torch.zeros(rows, 1, dtype=torch.long), labels[:, :-1]], dim=1)  # shifted by one
    if fault == "unshifted target":
        target = labels
    if isinstance(model, DecoderOnly):
        logits = model(target)
    else:
        source = torch.randint(VOCABULARY, (rows, LENGTH), generator=generator)
        if fault == "encoder reads the target":  # the fault of the text this project grew from
            source = labels
        logits = model(source, torch.ones_like(source, dtype=torch.bool), target)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def gain_after_training(architecture: str, fault: str) -> float:
    """How far below ln V the loss on 20,000 unseen tokens falls."""
    config = tiny_config(
        architecture, vocab_size=VOCABULARY, d_model=32, n_heads=4, d_ff=64, n_decoder_layers=1, positions="learned"
    )
    generator = torch.Generator().manual_seed(0)
    model = build_model(config, generator)
    if fault == "no causal mask":
        for layer in model.decoder.layers:
            layer.self_attention.causal = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        fresh_loss(model, ROWS, generator, fault).backward()
        optimizer.step()
    with torch.no_grad():
        return math.log(VOCABULARY) - fresh_loss(model.eval(), UNSEEN // LENGTH, generator, fault).item()


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_the_model_learns_nothing_from_noise(architecture: str) -> None:
    assert gain_after_training(architecture, fault="") < 0.02


@pytest.mark.parametrize(
    ("architecture", "fault"),
    [
        ("encoder-decoder", "no causal mask"),
        ("encoder-decoder", "encoder reads the target"),
        ("decoder-only", "no causal mask"),
        ("decoder-only", "unshifted target"),
    ],
)
def test_a_broken_copy_gives_itself_away(architecture: str, fault: str) -> None:
    assert gain_after_training(architecture, fault) > 0.2
