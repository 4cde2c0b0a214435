"""ONNX Runtime on a folder's own graphs, with their inner values as outputs: what is shipped is what is looked at.

The graphs have no weights of their own, so a copy of one with more outputs is made in memory when it is opened.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.graph_file import read_graph
from tiny_transformer.backends.inner_values import Keep, find_values
from tiny_transformer.backends.onnx_runtime import OrtBackend, OrtState, open_session
from tiny_transformer.bundle import FILES, Bundle
from tiny_transformer.errors import BackendError


class ObservedOrtBackend(OrtBackend):
    """One user at a time: between a run and its inner values nothing else may run."""

    def __init__(self, bundle: Bundle, keep: Keep, *, threads: int | None = None, int8: bool = False) -> None:
        super().__init__(bundle, threads=threads, int8=int8)
        self._keep = keep
        self._found: dict[str, dict[str, str]] = {}  # graph → our name of an inner value → the graph's
        self._shape = (0, 0)  # B T of the run that comes

    def _open(self, path: Path, threads: int) -> Any:
        stack = next(file.graph for file in FILES if file.name == path.name)
        if stack == "attention":
            return super()._open(path, threads)
        try:
            found = find_values(read_graph(path).nodes, self.config, [stack])
        except ValueError:
            template = "{path} is not the graph that its name says; make it again with: python -m export all {parent}"
            raise BackendError(template, path=path, parent=path.parent) from None
        self._found[path.name] = found
        return open_session(path, threads, list(dict.fromkeys(found.values())))

    def _read(self, source: Batch | None) -> dict[str, np.ndarray]:
        if source is not None:
            self._shape = source.ids.shape
        return super()._read(source)

    def _decode(self, ids: list[list[int]], state: OrtState) -> np.ndarray:
        self._shape = len(ids), len(ids[0])
        return super()._decode(ids, state)

    def _run(self, graph: str, run: Callable[..., Any], *arguments: Any) -> Any:
        found = self._found.get(graph)
        if found is None:
            return super()._run(graph, run, *arguments)
        (binding,) = arguments
        names = list(dict.fromkeys(found.values()))
        for name in names:
            binding.bind_output(name)
        result = super()._run(graph, run, binding)
        inner = dict(zip(names, binding.get_outputs()[-len(names) :], strict=True))
        for ours, name in found.items():
            self._keep(ours, inner[name].numpy().reshape(*self._shape, self.config.d_model))
        return result
