"""The inner values of a folder's own graphs, as further outputs of their sessions: what is shipped is looked at.

The graphs have no weights of their own, so a copy of one with more outputs is made in memory when it is opened.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tiny_transformer.backends.graph_file import read_graph
from tiny_transformer.backends.observed_values import Keep, Node, find_values
from tiny_transformer.backends.sessions import not_this_graph
from tiny_transformer.bundle import FILES
from tiny_transformer.config import ModelConfig

# A graph's nodes, the model's shape and the graph's stack → our name of an inner value → the graph's.
Find = Callable[[Sequence[Node], ModelConfig, Sequence[str]], dict[str, str]]


class GraphObserver:
    """Finds the inner values of graphs and hands them to `keep` after each run. One run at a time."""

    def __init__(self, config: ModelConfig, keep: Keep, find: Find = find_values) -> None:
        self._config, self._keep, self._find = config, keep, find
        self._found: dict[str, dict[str, str]] = {}  # graph → our name of an inner value → the graph's

    def outputs(self, path: Path) -> list[str]:
        """What a session of this graph must give besides the graph's own outputs."""
        stack = next(file.graph for file in FILES if file.name == path.name)
        try:
            found = self._find(read_graph(path).nodes, self._config, [stack])
        except ValueError:
            raise not_this_graph(path) from None
        self._found[path.name] = found
        return _unique(found)

    def run(self, graph: str, run: Callable[[Any], Any], binding: Any) -> Any:
        """Run a graph over a binding; its inner values go to `keep`."""
        found = self._found[graph]
        names = _unique(found)
        for name in names:
            binding.bind_output(name)
        result = run(binding)
        inner = dict(zip(names, binding.get_outputs()[-len(names) :], strict=True))  # they were bound last
        for ours, name in found.items():
            self._keep(ours, inner[name].numpy())
        return result


def _unique(found: dict[str, str]) -> list[str]:
    """The graph's names: one value may have two of ours."""
    return list(dict.fromkeys(found.values()))
