"""The inner values of a folder's model on ONNX Runtime, without torch: the graph `inside.onnx`.

Names and shapes are those of `tiny_transformer.inner_values`.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnxruntime

from tiny_transformer.backends.base import Batch, check_inputs, cores
from tiny_transformer.backends.graph_file import check_graph
from tiny_transformer.backends.onnx_runtime import open_session, run_graph
from tiny_transformer.bundle import INSIDE_ONNX, WEIGHTS, Bundle
from tiny_transformer.errors import BackendError
from tiny_transformer.inner_values import LENS, LENS_POSITIONS, switches_without, value_shapes


class InsideGraph:
    """One pass over a text at a time, every step of it on request. Threads may share it."""

    def __init__(self, bundle: Bundle) -> None:
        if not bundle.has(INSIDE_ONNX):
            template = "This model folder has no {file} yet; add it with: python -m export onnx {folder}"
            raise BackendError(template, file=INSIDE_ONNX, folder=bundle.folder)
        if not bundle.has(WEIGHTS):
            raise BackendError("The model was pulled in 8 bits alone, which have no inner values; load it on onnx.")
        self.config = bundle.config
        self._bundle = bundle
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
        found: np.ndarray = self.run(target, source, [LENS], shown=shown, switches=switches)[LENS][-1]
        return found

    def _opened(self) -> Any:
        with self._opening:
            if self._session is None:
                path = self._bundle.folder / INSIDE_ONNX
                check_graph(path, self._bundle.folder / WEIGHTS, self.config)
                session = open_session(path, cores())
                self._bundle.confirm(INSIDE_ONNX, WEIGHTS)
                if {value.name for value in session.get_outputs()} != value_shapes(self.config).keys():
                    template = (
                        "{path} is not the graph that its name says; make it again with: python -m export all {parent}"
                    )
                    raise BackendError(template, path=path, parent=path.parent)
                self._session = session
            return self._session
