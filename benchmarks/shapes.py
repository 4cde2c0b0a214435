"""The models and the work that everyone is timed on."""

from dataclasses import dataclass, replace

import numpy as np

from tiny_transformer.config import ModelConfig

FIRST_WORD = 6  # ids below are special tokens


@dataclass(frozen=True)
class Shape:
    """A model, and how much it reads and writes in one call."""

    name: str
    says: str
    config: ModelConfig
    n_read: int  # tokens of the source, or of the prompt
    n_new: int  # tokens written: always that many
    batches: tuple[int, ...]

    def rows(self, n_rows: int, seed: int) -> list[list[int]]:
        """Random sources or prompts of one length: nobody pads."""
        generator = np.random.default_rng(seed)
        ids: list[list[int]] = generator.integers(FIRST_WORD, self.config.vocab_size, (n_rows, self.n_read)).tolist()
        return ids


_S1 = ModelConfig(vocab_size=8_000, d_model=256, n_heads=4, n_encoder_layers=4, n_decoder_layers=4, d_ff=1_024)
# Learned positions and GELU: GPT-2's own architecture, so that every peer can hold the very same weights.
_G = ModelConfig.gpt(
    vocab_size=8_000, d_model=384, n_heads=6, n_decoder_layers=6, d_ff=1_536, max_length=1_024, positions="learned"
)

SHAPES = {
    shape.name: shape
    for shape in (
        Shape("S1", "encoder-decoder, width 256, 4 + 4 layers, feed-forward 1,024", _S1, 16, 64, (1, 32)),
        Shape("S2", "the same with width 128, feed-forward 256", replace(_S1, d_model=128, d_ff=256), 16, 64, (1, 32)),
        Shape("G", "decoder-only, width 384, 6 layers, feed-forward 1,536", _G, 32, 128, (1, 16)),
    )
}
