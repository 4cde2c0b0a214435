"""Named model shapes, for `init`, recipes and benchmarks."""

from typing import Any

from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import ConfigError

PRESETS: dict[str, ModelConfig] = {
    # Learns to reverse a word in half a minute on one core.
    "tiny": ModelConfig(
        vocab_size=300, d_model=64, n_heads=4, n_encoder_layers=2, n_decoder_layers=2, d_ff=256, max_length=64
    ),
    "tiny-gpt": ModelConfig.gpt(vocab_size=300, d_model=64, n_heads=4, n_decoder_layers=2, d_ff=256, max_length=64),
    # Deep encoder, shallow decoder: the decoder runs once a token, the encoder once a sentence.
    "translate": ModelConfig(
        vocab_size=12_000, d_model=256, n_heads=4, n_encoder_layers=6, n_decoder_layers=3, d_ff=1_024
    ),
    "chat": ModelConfig.gpt(vocab_size=8_000, d_model=320, n_heads=5, n_decoder_layers=7, d_ff=1_280, max_length=512),
    # Transformer-Tiny of Wu et al. 2021 for Multi30k.
    "multi30k": ModelConfig(
        vocab_size=8_000, d_model=128, n_heads=4, n_encoder_layers=4, n_decoder_layers=4, d_ff=256, norm="post"
    ),
    # "Attention Is All You Need", table 3, base.
    "paper-base": ModelConfig(
        vocab_size=37_000,
        d_model=512,
        n_heads=8,
        n_encoder_layers=6,
        n_decoder_layers=6,
        d_ff=2_048,
        max_length=512,
        norm="post",
        bias=True,
    ),
}


def preset(name: str, **changes: Any) -> ModelConfig:
    """A named shape, with some values replaced."""
    if name not in PRESETS:
        raise ConfigError(f"There is no preset {name!r}; choose one of {', '.join(PRESETS)}.")
    return PRESETS[name].with_changes(**changes)
