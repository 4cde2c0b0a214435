"""The whole model (paper, figure 1), as encoder-decoder and as decoder-only GPT.

Shapes: B batch, S source, T target, C capacity of the cache, D model width, H heads, K head width,
V vocabulary. Sequences are padded on the right; a causal query never sees what lies to its right,
so padding of the target needs no mask at real positions.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from tiny_transformer.model.attention import AttentionContext, LayerCache, LayerMemory, additive_mask
from tiny_transformer.model.embedding import Embedding
from tiny_transformer.model.initialization import initialize
from tiny_transformer.model.layers import DecoderLayer, EncoderLayer, GPTLayer
from tiny_transformer.model.positions import Rotation

if TYPE_CHECKING:
    from tiny_transformer.config import ModelConfig


class KVCache(NamedTuple):
    """Keys and values of every layer; new ones are written into it in place."""

    keys: list[Tensor]  # each B H C K
    values: list[Tensor]  # each B H C K


class Memory(NamedTuple):
    """What the decoder keeps of the source: keys and values for each of its layers, and the mask."""

    keys: list[Tensor]  # each B H S K
    values: list[Tensor]  # each B H S K
    mask: Tensor  # additive, B 1 1 S: hides the padding


class Encoder(nn.Module):
    """A stack of layers that read the source in both directions."""

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        self.layers = nn.ModuleList([EncoderLayer(config) for _ in range(config.n_encoder_layers)])
        self.norm = _final_norm(config)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """B S D → B S D."""
        for layer in self.layers:
            x = layer(x, context)
        return self.norm(x)


class Decoder(nn.Module):
    """A stack of layers that write the target from left to right."""

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        kind = DecoderLayer if config.is_encoder_decoder else GPTLayer
        self.layers = nn.ModuleList([kind(config) for _ in range(config.n_decoder_layers)])
        self.norm = _final_norm(config)

    def project_memory(self, encoded: Tensor, mask: Tensor) -> Memory:
        """Each layer's keys and values of the encoded source (B S D)."""
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for layer in self.layers:
            key, value = layer.cross_attention.project_memory(encoded)
            keys.append(key)
            values.append(value)
        return Memory(keys, values, mask)

    def forward(self, x: Tensor, context: AttentionContext, cache: KVCache | None, memory: Memory | None) -> Tensor:
        """B T D → B T D. Each layer gets the context with its own part of the cache and the memory."""
        for i, layer in enumerate(self.layers):
            layer_cache = None if cache is None else LayerCache(cache.keys[i], cache.values[i])
            layer_memory = None if memory is None else LayerMemory(memory.keys[i], memory.values[i], memory.mask)
            x = layer(x, AttentionContext(context.positions, context.rotation, context.mask, layer_cache, layer_memory))
        return self.norm(x)


class DecoderOnly(nn.Module):
    """GPT: one sequence, each position predicts the next."""

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        self.embedding = Embedding(config)
        self.rotation = Rotation(config)
        self.decoder = Decoder(config)
        self.max_length = config.max_length

    def forward(self, ids: Tensor) -> Tensor:
        """Logits B T V of a whole sequence B T at once: for training, and to check decoding with a cache."""
        return self.embedding.scores(self.hidden(ids))

    def hidden(self, ids: Tensor) -> Tensor:
        """The last layer's output B T D, before the vocabulary."""
        positions = check_length(ids, self.max_length)
        context = AttentionContext(positions, self.rotation(positions))
        return self.decoder(self.embedding(ids, positions), context, None, None)

    @torch.jit.export
    def decode(
        self, ids: Tensor, positions: Tensor, keys: list[Tensor], values: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Logits of new tokens B T at `positions` B T, and the cache (each B H C K), written in place."""
        x = self.embedding(ids, positions)  # B T D
        mask = additive_mask(visible_slots(positions, keys[0].size(2)), x.dtype)  # B 1 T C
        context = AttentionContext(positions, self.rotation(positions), mask)
        x = self.decoder(x, context, KVCache(keys, values), None)
        return self.embedding.scores(x), keys, values


class EncoderDecoder(nn.Module):
    """The paper's model: the encoder reads the source, the decoder writes the target."""

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        self.embedding = Embedding(config)  # one table for source, target and output (section 3.4)
        self.rotation = Rotation(config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.max_length = config.max_length

    def forward(self, source: Tensor, source_mask: Tensor, target: Tensor) -> Tensor:
        """Logits B T V for source B S (mask True at real tokens) and shifted target B T."""
        return self.embedding.scores(self.hidden(source, source_mask, target))

    def hidden(self, source: Tensor, source_mask: Tensor, target: Tensor) -> Tensor:
        """The decoder's last output B T D, before the vocabulary."""
        memory = self.encode(source, source_mask)
        positions = check_length(target, self.max_length)
        context = AttentionContext(positions, self.rotation(positions))
        return self.decoder(self.embedding(target, positions), context, None, memory)

    @torch.jit.export
    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        """Read the source B S once; everything the decoder needs of it comes back."""
        positions = check_length(source, self.max_length)
        x = self.embedding(source, positions)  # B S D
        mask = additive_mask(source_mask[:, None, None, :], x.dtype)  # B 1 1 S
        x = self.encoder(x, AttentionContext(positions, self.rotation(positions), mask))
        return self.decoder.project_memory(x, mask)

    @torch.jit.export
    def decode(
        self, ids: Tensor, positions: Tensor, keys: list[Tensor], values: list[Tensor], memory: Memory
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Logits of new tokens B T at `positions` B T, and the cache (each B H C K), written in place."""
        x = self.embedding(ids, positions)  # B T D
        mask = additive_mask(visible_slots(positions, keys[0].size(2)), x.dtype)  # B 1 T C
        context = AttentionContext(positions, self.rotation(positions), mask)
        x = self.decoder(x, context, KVCache(keys, values), memory)
        return self.embedding.scores(x), keys, values


Transformer = DecoderOnly | EncoderDecoder


def build_model(config: "ModelConfig", generator: torch.Generator | None = None) -> Transformer:
    """A freshly initialized model; the same generator state gives the same weights."""
    model = EncoderDecoder(config) if config.is_encoder_decoder else DecoderOnly(config)
    initialize(model, config, generator)
    return model


def check_length(ids: Tensor, max_length: int) -> Tensor:
    """The positions 0 … T-1 of a batch that starts from nothing; too long a batch is refused."""
    length = ids.size(1)
    if length > max_length:
        raise ValueError(f"A sequence of {length} tokens is longer than the model's max_length {max_length}.")
    return torch.arange(length, device=ids.device)  # T


def visible_slots(positions: Tensor, capacity: int) -> Tensor:
    """Which slots of the cache each query may see: its own and those before it."""
    slots = torch.arange(capacity, device=positions.device)  # C
    return slots <= positions[:, None, :, None]  # B 1 T C


def _final_norm(config: "ModelConfig") -> nn.Module:
    """Pre-norm leaves the stream unnormalized, so the stack ends with a norm of its own."""
    return nn.LayerNorm(config.d_model, bias=config.bias) if config.norm == "pre" else nn.Identity()
