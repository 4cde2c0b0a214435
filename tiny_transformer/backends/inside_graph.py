"""The inner values of a folder's model on ONNX Runtime, without torch: the graph `inside.onnx`.

Names and shapes are those of `tiny_transformer.inner_values`.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnxruntime

from tiny_transformer.backends.base import AttentionArrays, Batch, TextState, WholeTextBackend, check_inputs, cores
from tiny_transformer.backends.graph_file import check_graph
from tiny_transformer.backends.sessions import not_this_graph, open_session, run_graph
from tiny_transformer.bundle import INSIDE_ONNX, WEIGHTS, Bundle
from tiny_transformer.errors import BackendError
from tiny_transformer.inner_values import LENS_POSITIONS, LOGITS, attentions_of, switches_without, value_shapes


class InsideGraph:
    """One pass over a text at a time, every step of it on request. Threads may share it."""

    def __init__(self, bundle: Bundle, threads: int | None = None) -> None:
        if not bundle.has(WEIGHTS):
            raise BackendError("The model was pulled in 8 bits alone, which show nothing inside; load it on onnx.")
        if not bundle.has(INSIDE_ONNX):
            template = "This model folder has no {file} yet; add it with: python -m export all {folder}"
            raise BackendError(template, file=INSIDE_ONNX, folder=bundle.folder)
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

    def attention(
        self, target: Batch, source: Batch | None, switches: Mapping[str, np.ndarray] | None = None
    ) -> AttentionArrays:
        """Every attention weight of one pass over the whole target."""
        kinds = attentions_of(self.config)
        found = self.run(target, source, [f"{kind}_attentions" for kind in kinds], switches=switches)
        maps = dict(zip(kinds, found.values(), strict=True))
        return AttentionArrays(maps.get("encoder"), maps["decoder"], maps.get("cross"))

    def _opened(self) -> Any:
        with self._opening:
            if self._session is None:
                path = self._bundle.folder / INSIDE_ONNX
                check_graph(path, self._bundle.folder / WEIGHTS, self.config)
                # A plan for its hundreds of small operators takes nearly as long as the rest; no run is faster by it.
                session = open_session(path, self._threads or cores(), plan_memory=False)
                self._bundle.confirm(INSIDE_ONNX, WEIGHTS)
                if {value.name for value in session.get_outputs()} != value_shapes(self.config).keys():
                    raise not_this_graph(path)
                self._session = session
            return self._session


class PartialBackend(WholeTextBackend):
    """The model without some of its heads and layers, behind the protocol of `backends/base.py`."""

    name = "onnx"

    def __init__(self, graph: InsideGraph, switches: Mapping[str, np.ndarray]) -> None:
        self.config = graph.config
        self._graph = graph
        self._switches = switches

    def logits(self, target: Batch, source: Batch | None) -> np.ndarray:
        """Logits (B, T, V) of a whole target at once; values at padding mean nothing."""
        return self._graph.logits(target, source, range(target.ids.shape[1]), self._switches)

    def attention(self, target: Batch, source: Batch | None) -> AttentionArrays:
        """Every attention weight of one pass over the whole target."""
        return self._graph.attention(target, source, self._switches)

    def _read_source(self, ids: list[int]) -> list[int]:
        return ids

    def _last_logits(self, state: TextState) -> np.ndarray:
        target = Batch.of(state.texts)
        source = Batch.of(state.sources) if self.config.is_encoder_decoder else None
        shown = np.unique(target.lengths - 1)
        logits = self._graph.logits(target, source, shown.tolist(), self._switches)  # B N V
        return logits[np.arange(len(target.ids)), np.searchsorted(shown, target.lengths - 1)]
