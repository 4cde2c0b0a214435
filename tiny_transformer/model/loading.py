"""From a model folder to a torch model, strictly, and from a torch model to plain arrays."""

from collections.abc import Mapping

import numpy as np
import torch

from tiny_transformer.bundle import WEIGHTS, Bundle
from tiny_transformer.errors import BundleError
from tiny_transformer.model.transformer import Transformer, build_model


def load_model(bundle: Bundle) -> Transformer:
    """The folder's model in float32 on the CPU, in evaluation mode."""
    model = build_model(bundle.config)
    load_weights(model, bundle.weights(), where=str(bundle.folder / WEIGHTS))
    return model.eval()


def load_weights(model: torch.nn.Module, weights: Mapping[str, np.ndarray], *, where: str = "the weights") -> None:
    """Copy arrays into the model; a missing, unknown or misshapen tensor is refused by name."""
    expected = dict(model.named_parameters())
    missing = sorted(expected.keys() - weights.keys())
    unknown = sorted(weights.keys() - expected.keys())
    if missing:
        template = "{path} lacks {names}; it belongs to a model of another shape."
        raise BundleError(template, path=where, names=", ".join(missing[:3]))
    if unknown:
        template = "{path} has the unknown {names}; it belongs to a model of another shape."
        raise BundleError(template, path=where, names=", ".join(unknown[:3]))
    with torch.no_grad():
        for name, parameter in expected.items():
            array = weights[name]
            if array.shape != tuple(parameter.shape):
                template = (
                    "{path}: {name} has shape {shape}, but the config asks for {wanted}; it belongs to a "
                    "model of another shape."
                )
                raise BundleError(template, path=where, name=name, shape=array.shape, wanted=tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(array.astype(np.float32)))


def weights_of(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Every parameter as a float32 array."""
    return {name: p.detach().float().cpu().numpy() for name, p in model.named_parameters()}
