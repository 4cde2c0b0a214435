"""The paper in numpy as a backend: slow, without torch; a witness that shares no code of the model with others."""

import copy
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from tiny_transformer.backends.base import (
    AttentionArrays,
    Batch,
    TextState,
    WholeTextBackend,
    check_inputs,
    check_threads,
)
from tiny_transformer.backends.observed_values import AFTER, BEFORE, EMBEDDED, Keep
from tiny_transformer.backends.paper import Maps, Paper
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import BackendError


class NumpyBackend(WholeTextBackend):
    """The paper behind the protocol, one row after the other."""

    name = "numpy"

    def __init__(self, config: ModelConfig, weights: Mapping[str, np.ndarray]) -> None:
        self.config = config
        self.paper = Paper(config, weights)

    def logits(self, target: Batch, source: Batch | None) -> np.ndarray:
        """Logits (B, T, V) of a whole target at once; values at padding mean nothing."""
        return np.stack([logits for logits, *_ in self._read(target, source)]).astype(np.float32)

    def attention(self, target: Batch, source: Batch | None) -> AttentionArrays:
        """Every attention weight of one pass over the whole target, with zeros at the source's padding."""
        n_target = target.ids.shape[1]
        _, encoder, decoder, cross = zip(*self._read(target, source), strict=True)
        if source is None:
            return AttentionArrays(None, _stacked(decoder, n_target, n_target), None)
        n_source = source.ids.shape[1]
        sizes = ((n_source, n_source), (n_target, n_target), (n_target, n_source))
        return AttentionArrays(
            *(_stacked(maps, *size) for maps, size in zip((encoder, decoder, cross), sizes, strict=True))
        )

    def weights(self) -> Mapping[str, np.ndarray]:
        """The parameters by name."""
        return self.paper.weights

    def observed(self, keep: Keep) -> "NumpyBackend":
        """The same, and every inner value goes to `keep`, one row after the other."""
        backend = copy.copy(self)
        backend.paper = observed_paper(self.paper, keep)
        return backend

    def _read(self, target: Batch, source: Batch | None) -> list[tuple[np.ndarray, Maps, Maps, Maps]]:
        """For each row its logits (T V) and the maps of encoder, decoder and cross-attention.

        The padding of a target is read, too: it stands on the right, where no real position looks.
        """
        check_inputs(self.config, target, source)
        found = []
        sources = [None] * len(target.ids) if source is None else source.rows
        for ids, read in zip(target.ids, sources, strict=True):
            encoder, decoder, cross = Maps(), Maps(), Maps()
            encoded = None if read is None else self.paper.encode(np.array(read), encoder)
            found.append((self.paper.decode(ids, encoded, decoder, cross), encoder, decoder, cross))
        return found

    def _read_source(self, ids: list[int]) -> np.ndarray:
        return self.paper.encode(np.array(ids), [])

    def _last_logits(self, state: TextState) -> np.ndarray:
        pairs = zip(state.texts, state.sources, strict=True)
        last = np.stack([self.paper.read(np.array(ids), encoded, [], [])[-1] for ids, encoded in pairs])  # B D
        return self.paper.scores(last).astype(np.float32)


def observed_paper(paper: Paper, keep: Keep) -> Paper:
    """A copy that hands what its embedding and its norms take and give to `keep`, as batches of one row."""
    copied = copy.copy(paper)

    def stack(name: str, *arguments: np.ndarray) -> np.ndarray:
        vars(copied)["embed"] = partial(embed, name)
        result: np.ndarray = getattr(type(paper), {"encoder": "encode", "decoder": "read"}[name])(copied, *arguments)
        return result

    def embed(name: str, ids: np.ndarray) -> np.ndarray:
        x = paper.embed(ids)
        keep(name + EMBEDDED, x[None])
        return x

    def layer_norm(name: str, x: np.ndarray) -> np.ndarray:
        y = paper.layer_norm(name, x)
        keep(name + BEFORE, x[None])
        keep(name + AFTER, y[None])
        return y

    vars(copied).update(encode=partial(stack, "encoder"), read=partial(stack, "decoder"), layer_norm=layer_norm)
    return copied


def _stacked(rows: Sequence[Maps], n_queries: int, n_keys: int) -> np.ndarray:
    """The maps (H T S) of every row and layer in one array (L B H T S)."""
    found = np.zeros((len(rows[0]), len(rows), len(rows[0][0]), n_queries, n_keys), dtype=np.float32)
    for b, maps in enumerate(rows):
        for layer, weights in enumerate(maps):
            found[layer, b, :, : weights.shape[1], : weights.shape[2]] = weights
    return found


def open_numpy(bundle: Bundle, device: str | None = None, threads: int | None = None) -> NumpyBackend:
    """The folder's weights; numpy computes on the CPU and chooses its own number of threads."""
    check_threads(threads)
    if device not in (None, "cpu"):
        raise BackendError("The device {device!r} is not supported; choose cpu.", device=device)
    return NumpyBackend(bundle.config, bundle.weights())
