"""The values inside a model that a backend can show: what the embedding gives, what every norm takes and gives.

A Transformer is a chain in which one sub-layer stands between two norms. So these values tell attention, feed-forward,
norm and embedding apart, and no operator that a runtime would fuse into a faster one is split for them.

In a graph the values are found by its structure, not by the names of its nodes: each norm depends on the one before
it, so the n-th norm of a graph is the n-th norm of the model, whatever weights it was given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tiny_transformer.config import ModelConfig

Keep = Callable[[str, np.ndarray], None]  # takes one inner value (B, T, D or B·T, D) under its name
EMBEDDED, BEFORE, AFTER = ".embedded", ".before", ".after"  # suffixes of a stack's name, and of a norm's

_NORMS = {"LayerNormalization", "aten::layer_norm"}
_LOOKUPS = {"Gather", "GatherBlockQuantized", "aten::embedding"}
# By these the scale and the position come to a token's vector.
_ELEMENTWISE = {"Mul", "Add", "aten::mul", "aten::add", "aten::dropout"}
_DESCRIBING = {"Shape", "aten::size", "prim::dtype"}  # what they give does not depend on the numbers
_IDS = "input_ids"


@dataclass(frozen=True)
class Node:
    """One operator of a graph, with the names of what it reads and gives."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def norm_names(config: ModelConfig, stack: str) -> list[str]:
    """The norms of a stack in the order in which they are computed, by the names of their weights."""
    cross = ["around_cross"] if stack == "decoder" and config.is_encoder_decoder else []
    around = ["around_attention", *cross, "around_feed_forward"]
    n_layers = config.n_encoder_layers if stack == "encoder" else config.n_decoder_layers
    names = [f"{stack}.layers.{i}.{name}.norm" for i in range(n_layers) for name in around]
    return [*names, f"{stack}.norm"] if config.norm == "pre" else names


def find_values(nodes: Sequence[Node], config: ModelConfig, stacks: Sequence[str]) -> dict[str, str]:
    """Our name → the graph's, for every inner value of these stacks; ValueError for a graph of another structure."""
    norms = [node for node in nodes if node.op in _NORMS]
    names = [name for stack in stacks for name in norm_names(config, stack)]
    lookups = [n for n in nodes if n.op in _LOOKUPS and (n.op.startswith("aten::") or _IDS in n.inputs)]
    if len(norms) != len(names) or len(lookups) != len(stacks):
        raise ValueError(f"{len(norms)} norms and {len(lookups)} embeddings, not {len(names)} and {len(stacks)}")
    found = {
        stack + EMBEDDED: _embedded(nodes, lookup.outputs[0]) for stack, lookup in zip(stacks, lookups, strict=True)
    }
    for name, node in zip(names, norms, strict=True):
        found |= {name + BEFORE: node.inputs[0], name + AFTER: node.outputs[0]}
    return found


def _embedded(nodes: Sequence[Node], value: str) -> str:
    """The value that a looked-up token has once its scale and its position are in it."""
    reached = {value}  # what depends on the token: a residual connection adds such a value, a position is none
    for node in nodes:
        if node.op not in _DESCRIBING and reached.intersection(node.inputs):
            reached.update(node.outputs)
    for node in nodes:
        if node.op in _ELEMENTWISE and value in node.inputs and not reached.intersection({*node.inputs} - {value}):
            value = node.outputs[0]
    return value
