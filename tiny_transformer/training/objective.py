"""The loss: cross-entropy summed over predicted tokens, in one module so that it compiles as a whole.

Shapes: B batch, S source, T target, D model width, N predicted positions, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tiny_transformer.model import EncoderDecoder
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.training.feed import IGNORED


class Objective(nn.Module):
    """Model and loss together."""

    def __init__(self, model: Transformer, label_smoothing: float, autocast: bool) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.autocast = autocast  # bf16 products; weights, sums and the loss itself stay float32

    def forward(
        self, source: Tensor | None, source_mask: Tensor | None, target: Tensor, picked: Tensor, labels: Tensor
    ) -> Tensor:
        """The sum over predicted tokens; dividing is the caller's, who knows the count of all devices."""
        with torch.autocast(target.device.type, torch.bfloat16, enabled=self.autocast):
            if isinstance(self.model, EncoderDecoder):
                assert source is not None
                assert source_mask is not None
                hidden = self.model.hidden(source, source_mask, target)  # B T D
            else:
                hidden = self.model.hidden(target)  # B T D
            # Padding and whatever isn't learnt never meet the vocabulary, the widest matrix of all.
            logits = self.model.embedding.scores(hidden.flatten(0, 1)[picked])  # N V
        return F.cross_entropy(
            logits.float(), labels, ignore_index=IGNORED, label_smoothing=self.label_smoothing, reduction="sum"
        )
