"""Counting parameters, and telling the optimiser which of them decay."""

from typing import Any

from torch import nn


def count_parameters(model: nn.Module, *, embeddings: bool = True) -> int:
    """Trainable numbers in the model; without `embeddings`, only those of the layers."""
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if embeddings or not name.startswith("embedding.")
    )


def optimizer_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay; vectors (biases, norms) don't: pulling them to zero regularises nothing."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
