"""The inner values of a folder's model on ONNX Runtime, without torch: the graph `inside.onnx`.

Names and shapes are those of `tiny_transformer.inner_values`.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from tiny_transformer.backends.base import (
    AttentionArrays,
    Batch,
    check_capacity,
    check_inputs,
    check_slots,
    check_step,
    cores,
)
from tiny_transformer.backends.graph_file import check_graph
from tiny_transformer.backends.onnx_runtime import open_session, run_graph
from tiny_transformer.bundle import INSIDE_ONNX, WEIGHTS, Bundle
from tiny_transformer.errors import BackendError
from tiny_transformer.inner_values import LENS_POSITIONS, LOGITS, attentions_of, switches_without, value_shapes


class InsideGraph:
    """One pass over a text at a time, every step of it on request. Threads may share it."""

    def __init__(self, bundle: Bundle, threads: int | None = None) -> None:
        if not bundle.has(INSIDE_ONNX):
            template = "This model folder has no {file} yet; add it with: python -m export all {folder}"
            raise BackendError(template, file=INSIDE_ONNX, folder=bundle.folder)
        if not bundle.has(WEIGHTS):
            raise BackendError("The model was pulled in 8 bits alone, which have no inner values; load it on onnx.")
        self.config = bundle.config
        self._bundle = bundle
        self._threads = threads
        self._opening = threading.Lock()
        self._session: Any = None

    def run(
        self,
        target: Batch,
        source: Batch | None,
        names: Iterable[str],
        *,
        shown: Iterable[int] = (0,),
        switches: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """The named values of one pass; logits at the positions `shown`. Only what they need is computed."""
        check_inputs(self.config, target, source)
        feeds = {"input_ids": target.ids, LENS_POSITIONS: np.array([*shown], dtype=np.int64)}
        if source is not None:
            mask = source.mask.astype(np.int64)
            feeds |= {"decoder_input_ids": target.ids, "input_ids": source.ids, "attention_mask": mask}
        feeds |= switches_without(self.config) if switches is None else switches
        names = [*names]
        options = onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True
        session = self._opened()
        path = self._bundle.folder / INSIDE_ONNX
        return dict(zip(names, run_graph(path, session.run, names, feeds, options), strict=True))

    def logits(
        self, target: Batch, source: Batch | None, shown: Iterable[int], switches: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """The model's logits (B, N, V) at some positions, with parts of it switched off."""
        return self.run(target, source, [LOGITS], shown=shown, switches=switches)[LOGITS]

    def _opened(self) -> Any:
        with self._opening:
            if self._session is None:
                path = self._bundle.folder / INSIDE_ONNX
                check_graph(path, self._bundle.folder / WEIGHTS, self.config)
                session = open_session(path, self._threads or cores())
                self._bundle.confirm(INSIDE_ONNX, WEIGHTS)
                if {value.name for value in session.get_outputs()} != value_shapes(self.config).keys():
                    template = (
                        "{path} is not the graph that its name says; make it again with: python -m export all {parent}"
                    )
                    raise BackendError(template, path=path, parent=path.parent)
                self._session = session
            return self._session


@dataclass(frozen=True)
class PartialState:
    """The texts so far and their sources. There is no cache: every step reads them again from their start."""

    texts: list[list[int]]
    sources: list[list[int]] | None
    capacity: int  # the most tokens that a text may have


class PartialBackend:
    """The model without some of its heads and layers, behind the protocol of `backends/base.py`."""

    name = "onnx"
    max_rows = 1

    def __init__(self, graph: InsideGraph, switches: Mapping[str, np.ndarray]) -> None:
        self.config = graph.config
        self._graph = graph
        self._switches = switches

    def start(self, prefix: Batch, source: Batch | None, capacity: int) -> tuple[np.ndarray, PartialState]:
        """Read source and prefix; logits (B, V) after each row's last prefix token."""
        check_inputs(self.config, prefix, source)
        check_capacity(self.config, prefix, capacity)
        state = PartialState(_rows(prefix), None if source is None else _rows(source), capacity)
        return self._last_logits(state), state

    def step(self, ids: np.ndarray, state: PartialState) -> tuple[np.ndarray, PartialState]:
        """Add tokens (B, T) to every row; logits (B, V) after the last. T > 1 for a single row only."""
        check_step(self.config, ids, len(state.texts))
        texts = [[*text, *new] for text, new in zip(state.texts, ids.tolist(), strict=True)]
        check_slots(state.capacity, max(map(len, texts)))
        state = PartialState(texts, state.sources, state.capacity)
        return self._last_logits(state), state

    def reorder(self, state: PartialState, rows: np.ndarray) -> PartialState:
        """The state whose row i was row rows[i]; rows may be repeated or left out."""
        sources = None if state.sources is None else [state.sources[row] for row in rows]
        return PartialState([state.texts[row] for row in rows], sources, state.capacity)

    def join(self, state: PartialState, other: PartialState) -> PartialState:
        """The rows of both, `other`'s behind; both were started with the same capacity."""
        sources = None if state.sources is None or other.sources is None else state.sources + other.sources
        return PartialState(state.texts + other.texts, sources, state.capacity)

    def side_by_side(self, n_rows: int) -> list["PartialBackend"]:
        """This one alone."""
        return [self]

    def logits(self, target: Batch, source: Batch | None) -> np.ndarray:
        """Logits (B, T, V) of a whole target at once; values at padding mean nothing."""
        return self._graph.logits(target, source, range(target.ids.shape[1]), self._switches)

    def attention(self, target: Batch, source: Batch | None) -> AttentionArrays:
        """Every attention weight of one pass over the whole target."""
        kinds = attentions_of(self.config)
        names = [f"{kind}_attentions" for kind in kinds]
        found = self._graph.run(target, source, names, switches=self._switches)
        encoder, cross = (found.get(f"{kind}_attentions") for kind in ("encoder", "cross"))
        return AttentionArrays(encoder, found["decoder_attentions"], cross)

    def _last_logits(self, state: PartialState) -> np.ndarray:
        target = Batch.of(state.texts)
        source = None if state.sources is None else Batch.of(state.sources)
        shown = np.unique(target.lengths - 1)
        logits = self._graph.logits(target, source, shown.tolist(), self._switches)  # B N V
        return logits[np.arange(len(target.ids)), np.searchsorted(shown, target.lengths - 1)]


def _rows(batch: Batch) -> list[list[int]]:
    return [ids[:length].tolist() for ids, length in zip(batch.ids, batch.lengths, strict=True)]
