"""The loss: cross-entropy summed over predicted tokens, and on request the agreement of two passes.

Shapes: B batch, S source, T target, D model width, N predicted positions, V vocabulary.
"""

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental import _config as shape_config
from torch.nn import functional as F

from tiny_transformer.model import EncoderDecoder
from tiny_transformer.model.attention import AttentionContext, additive_mask, causal_mask
from tiny_transformer.model.layers import DecoderLayer, EncoderLayer
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.training.distributed import World
from tiny_transformer.training.feed import IGNORED
from tiny_transformer.training.recipe import Recipe


class Objective(nn.Module):
    """Model and loss together."""

    def __init__(self, model: Transformer, label_smoothing: float, autocast: bool, r_drop: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.autocast = autocast  # bf16 products; weights, sums and the loss itself stay float32
        self.r_drop = r_drop

    def forward(
        self,
        source: Tensor | None,
        source_mask: Tensor | None,
        target: Tensor,
        picked: Tensor,
        labels: Tensor,
        source_texts: Tensor | None = None,
        target_texts: Tensor | None = None,
    ) -> Tensor:
        """The sum over predicted tokens; dividing is the caller's, who knows the count of all devices."""
        read = (source, source_mask, target, source_texts, target_texts)
        if not self.r_drop:
            return self._loss(self._hidden(picked, *read), labels)
        # Every row twice in one batch: dropout makes them differ, and the loss pulls them together.
        picked = torch.cat((picked, picked + target.numel()))  # 2N
        twice = [None if tensor is None else tensor.repeat(2, 1) for tensor in read]
        return self._r_drop_loss(self._hidden(picked, *twice), labels)

    def compile_loss(self) -> None:
        """Fuse what happens over the vocabulary: the logits are the largest tensor of a step."""
        self._loss = torch.compile(self._loss, dynamic=True)  # type: ignore[method-assign]
        self._r_drop_loss = torch.compile(self._r_drop_loss, dynamic=True)  # type: ignore[method-assign]

    def _hidden(
        self,
        picked: Tensor,
        source: Tensor | None,
        source_mask: Tensor | None,
        target: Tensor | None,
        source_texts: Tensor | None,
        target_texts: Tensor | None,
    ) -> Tensor:
        assert target is not None
        with torch.autocast(target.device.type, torch.bfloat16, enabled=self.autocast):
            if not isinstance(self.model, EncoderDecoder):
                hidden = self.model.hidden(target)  # B T D
            elif source_texts is not None and target_texts is not None:
                assert source is not None
                hidden = hidden_of_packed(self.model, source, source_texts, target, target_texts)  # B T D
            else:
                assert source is not None
                assert source_mask is not None
                hidden = self.model.hidden(source, source_mask, target)  # B T D
        # Padding and whatever isn't learned never meet the vocabulary, the widest matrix of all.
        return hidden.flatten(0, 1).index_select(0, picked)  # N D

    def _loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return self._cross_entropy(self._logits(hidden), labels)

    def _r_drop_loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        logits = self._logits(hidden)  # 2N V
        loss = self._cross_entropy(logits, labels.repeat(2)) / 2
        return loss + self.r_drop / 2 * _divergence(logits, labels != IGNORED)

    def _logits(self, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, torch.bfloat16, enabled=self.autocast):
            logits: Tensor = self.model.embedding.scores(hidden)  # N V
        return logits.float()

    def _cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(
            logits, labels, ignore_index=IGNORED, label_smoothing=self.label_smoothing, reduction="sum"
        )


def build_objective(recipe: Recipe, model: Transformer, world: World) -> nn.Module:
    """Model and loss, in the precision, compiled and spread over devices as the recipe and the device ask."""
    settings, on_gpu = recipe.training, world.device.type == "cuda"
    autocast = settings.precision == "bf16" or (settings.precision == "auto" and on_gpu)
    objective = Objective(model.train(), settings.label_smoothing, autocast, settings.r_drop)
    if settings.compile == "on" or (settings.compile == "auto" and on_gpu):
        compile_parts(model, objective)
    if world.size > 1:
        return _on_many(objective, [world.device.index] if on_gpu else None)
    return objective


def _on_many(objective: nn.Module, device_ids: list[int] | None) -> nn.Module:
    parallel = nn.parallel.DistributedDataParallel
    # The buffers are tables of positions, which never change: none is sent. torch 2.13 gave the option a new name.
    names = ("forward_sync_buffers", "broadcast_buffers")
    nothing_sent: dict[str, Any] = {next(name for name in names if name in signature(parallel).parameters): False}
    return parallel(objective, device_ids=device_ids, **nothing_sent)


def compile_parts(model: Transformer, objective: Objective) -> None:
    """Compile one layer of each kind and the loss; all layers of a kind share the code.

    The whole model as one graph took two minutes to compile, which this does in a fraction.
    """
    # Rows, lengths and counts change from batch to batch: sizes are symbols, also when two of them happen
    # to be equal in the batch that is traced.
    shape_config.use_duck_shape = False
    for part in model.modules():
        if isinstance(part, EncoderLayer | DecoderLayer):
            part.compile(dynamic=True)
    objective.compile_loss()


def hidden_of_packed(
    model: EncoderDecoder, source: Tensor, source_texts: Tensor, target: Tensor, target_texts: Tensor
) -> Tensor:
    """The decoder's last output B T D for rows that hold several texts, none of which sees another.

    `source_texts` (B S) and `target_texts` (B T) number the texts of a row from 1; 0 is padding.
    """
    positions, target_positions = positions_in_texts(source_texts), positions_in_texts(target_texts)
    x = model.embedding(source, positions)  # B S D
    mask = additive_mask(same_text(source_texts, source_texts), x.dtype)  # B 1 S S
    encoded = model.encoder(x, AttentionContext(positions, model.rotation(positions), mask))  # B S D
    mask = additive_mask(same_text(target_texts, source_texts), x.dtype)  # B 1 T S
    memory = model.decoder.project_memory(encoded, mask)
    past = same_text(target_texts, target_texts) & causal_mask(target.size(1), target.device)  # B 1 T T
    mask = additive_mask(past, x.dtype)
    context = AttentionContext(target_positions, model.rotation(target_positions), mask)
    hidden: Tensor = model.decoder(model.embedding(target, target_positions), context, None, memory)
    return hidden


def positions_in_texts(texts: Tensor) -> Tensor:
    """Each token's position in its own text, from 0; the tokens of a text are neighbors. B T → B T."""
    column = torch.arange(texts.size(1), device=texts.device).expand_as(texts)
    begins = torch.ones_like(texts, dtype=torch.bool)
    begins[:, 1:] = texts[:, 1:] != texts[:, :-1]
    return column - torch.where(begins, column, 0).cummax(dim=1).values


def same_text(queries: Tensor, keys: Tensor) -> Tensor:
    """Which keys belong to a query's own text. Padding, whose text is 0, sees all: to see nothing would be NaN."""
    query = queries[:, None, :, None]
    return (query == keys[:, None, None, :]) | (query == 0)  # B 1 T S


def _divergence(logits: Tensor, real: Tensor) -> Tensor:
    """Mean of both Kullback-Leibler divergences between the halves of 2N V logits, summed over real positions."""
    first, second = logits.log_softmax(dim=-1).chunk(2)  # each N V
    # KL(p‖q) + KL(q‖p) = Σ (p - q)(log p - log q)
    both = ((first.exp() - second.exp()) * (first - second)).sum(dim=-1)  # N
    return (both * real).sum() / 2
