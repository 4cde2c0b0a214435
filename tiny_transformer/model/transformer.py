"""The whole machine (paper, figure 1), as encoder-decoder and as decoder-only GPT.

Shapes: B batch, S source, T target, C capacity of the cache, D model width, H heads, K head width,
V vocabulary. Sequences are padded on the right; a causal query never sees what lies to its right,
so padding of the target needs no mask at real positions.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from tiny_transformer.config import ModelConfig
from tiny_transformer.model.attention import View, causal_mask, hiding
from tiny_transformer.model.embedding import Embedding, Rotation
from tiny_transformer.model.initialization import initialize
from tiny_transformer.model.layers import DecoderLayer, EncoderLayer


class Memory(NamedTuple):
    """What the decoder keeps of the source: keys and values for each of its layers, and the mask."""

    keys: list[Tensor]  # each B H S K
    values: list[Tensor]  # each B H S K
    mask: Tensor  # B 1 1 S, hides the padding


class Encoder(nn.Module):
    """A stack of layers that read the source in both directions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList([EncoderLayer(config) for _ in range(config.n_encoder_layers)])
        self.norm = _final_norm(config)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """B S D → B S D."""
        for layer in self.layers:
            x = layer(x, view)
        return self.norm(x)


class Decoder(nn.Module):
    """A stack of layers that write the target from left to right."""

    cross: Final[bool]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList([DecoderLayer(config) for _ in range(config.n_decoder_layers)])
        self.norm = _final_norm(config)
        self.cross = config.is_encoder_decoder

    def remember(self, encoded: Tensor, mask: Tensor) -> Memory:
        """Each layer's keys and values of the encoded source (B S D)."""
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for layer in self.layers:
            key, value = layer.cross_attention.remember(encoded)
            keys.append(key)
            values.append(value)
        return Memory(keys, values, mask)

    def forward(
        self, x: Tensor, view: View, past_keys: list[Tensor], past_values: list[Tensor], memory: Memory
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """B T D → B T D, and every layer's keys and values. An empty past means no cache."""
        keys: list[Tensor] = []
        values: list[Tensor] = []
        cached = len(past_keys) > 0
        for i, layer in enumerate(self.layers):
            x, key, value = layer(
                x,
                view,
                past_keys[i] if cached else None,
                past_values[i] if cached else None,
                memory.keys[i] if self.cross else x,
                memory.values[i] if self.cross else x,
                memory.mask,
            )
            keys.append(key)
            values.append(value)
        return self.norm(x), keys, values


class DecoderOnly(nn.Module):
    """GPT: one sequence, each position predicts the next."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config)
        self.rotation = Rotation(config)
        self.decoder = Decoder(config)
        self.max_length = config.max_length

    def forward(self, ids: Tensor) -> Tensor:
        """Logits B T V of a whole sequence B T at once: for training, and as the judge of the cache."""
        return self.embedding.scores(self.hidden(ids))

    def hidden(self, ids: Tensor) -> Tensor:
        """The last layer's output B T D, before the vocabulary."""
        positions = check_length(ids, self.max_length)
        view = View(self.rotation(positions), None, None)
        x, _, _ = self.decoder(self.embedding(ids, positions), view, [], [], no_memory(ids))
        return x

    @torch.jit.export
    def decode(
        self, ids: Tensor, positions: Tensor, keys: list[Tensor], values: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Logits of new tokens B T at `positions` B T, over a cache (each B H C K) written in place."""
        x = self.embedding(ids, positions)  # B T D
        view = View(self.rotation(positions), hiding(visible_places(positions, keys[0].size(2)), x.dtype), positions)
        x, keys, values = self.decoder(x, view, keys, values, no_memory(ids))
        return self.embedding.scores(x), keys, values


class EncoderDecoder(nn.Module):
    """The paper's model: the encoder reads the source, the decoder writes the target."""

    def __init__(self, config: ModelConfig) -> None:
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
        view = View(self.rotation(positions), None, None)
        x, _, _ = self.decoder(self.embedding(target, positions), view, [], [], memory)
        return x

    def hidden_apart(self, source: Tensor, source_texts: Tensor, target: Tensor, target_texts: Tensor) -> Tensor:
        """The same where rows hold several texts, none of which sees another: B S and B T say which, 0 is padding."""
        places, target_places = places_in_texts(source_texts), places_in_texts(target_texts)
        x = self.embedding(source, places)  # B S D
        mask = hiding(same_text(source_texts, source_texts), x.dtype)  # B 1 S S
        encoded = self.encoder(x, View(self.rotation(places), mask, None))
        memory = self.decoder.remember(encoded, hiding(same_text(target_texts, source_texts), x.dtype))  # B 1 T S
        past = same_text(target_texts, target_texts) & causal_mask(target.size(1), target.device)  # B 1 T T
        view = View(self.rotation(target_places), hiding(past, x.dtype), None)
        x, _, _ = self.decoder(self.embedding(target, target_places), view, [], [], memory)
        return x

    @torch.jit.export
    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        """Read the source B S once; everything the decoder needs of it comes back."""
        positions = check_length(source, self.max_length)
        x = self.embedding(source, positions)  # B S D
        mask = hiding(source_mask[:, None, None, :], x.dtype)  # B 1 1 S
        return self.decoder.remember(self.encoder(x, View(self.rotation(positions), mask, None)), mask)

    @torch.jit.export
    def decode(
        self, ids: Tensor, positions: Tensor, keys: list[Tensor], values: list[Tensor], memory: Memory
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Logits of new tokens B T at `positions` B T, over a cache (each B H C K) written in place."""
        x = self.embedding(ids, positions)  # B T D
        view = View(self.rotation(positions), hiding(visible_places(positions, keys[0].size(2)), x.dtype), positions)
        x, keys, values = self.decoder(x, view, keys, values, memory)
        return self.embedding.scores(x), keys, values


Transformer = DecoderOnly | EncoderDecoder


def build_model(config: ModelConfig, generator: torch.Generator | None = None) -> Transformer:
    """A freshly initialised model; the same generator state gives the same weights."""
    model = EncoderDecoder(config) if config.is_encoder_decoder else DecoderOnly(config)
    initialize(model, config, generator)
    return model


def check_length(ids: Tensor, max_length: int) -> Tensor:
    """The positions 0 … T-1 of a batch that starts from nothing; too long a batch is refused."""
    length = ids.size(1)
    if length > max_length:
        raise ValueError(f"A sequence of {length} tokens is longer than the model's max_length {max_length}.")
    return torch.arange(length, device=ids.device)  # T


def visible_places(positions: Tensor, capacity: int) -> Tensor:
    """Which places of the cache each query may see: its own and those before it."""
    places = torch.arange(capacity, device=positions.device)  # C
    return places <= positions[:, None, :, None]  # B 1 T C


def places_in_texts(texts: Tensor) -> Tensor:
    """Where each position stands in its own text, from 0; a text's positions are neighbours. B T → B T."""
    place = torch.arange(texts.size(1), device=texts.device).expand_as(texts)
    begins = torch.ones_like(texts, dtype=torch.bool)
    begins[:, 1:] = texts[:, 1:] != texts[:, :-1]
    return place - torch.where(begins, place, 0).cummax(dim=1).values


def same_text(queries: Tensor, keys: Tensor) -> Tensor:
    """Which keys belong to a query's own text. Padding, whose text is 0, sees all: to see nothing would be NaN."""
    query = queries[:, None, :, None]
    return (query == keys[:, None, None, :]) | (query == 0)  # B 1 T S


def no_memory(ids: Tensor) -> Memory:
    """The memory of a model without an encoder."""
    return Memory([], [], ids)


def _final_norm(config: ModelConfig) -> nn.Module:
    """Pre-norm leaves the stream unnormalised, so the stack ends with a norm of its own."""
    return nn.LayerNorm(config.d_model, bias=config.bias) if config.norm == "pre" else nn.Identity()
