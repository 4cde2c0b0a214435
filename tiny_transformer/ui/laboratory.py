"""The numbers of the laboratory: one pass over a text and its answer, taken apart on ONNX Runtime.

Shapes: L layers, T target, S source, K head width, V tokens that can be written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np

from tiny_transformer.backends.base import Batch
from tiny_transformer.checks import check_choice, check_whole
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import InputError
from tiny_transformer.generation.prompt import Prompt
from tiny_transformer.generation.sampling import likeliest, log_normalizer
from tiny_transformer.inner_values import LENS, LOGITS, attentions_of, stacks_of, switches_without, value_shapes
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.ui.inspection import MAX_SHOWN, Choice, visible_tokens

if TYPE_CHECKING:
    from tiny_transformer.backends.inside_graph import InsideGraph

N_LENS = 5  # tokens of a row of the table layer by layer


@dataclass(frozen=True)
class Pass:
    """A text and its answer, read by the model at once."""

    graph: "InsideGraph"
    tokenizer: Tokenizer
    target: tuple[int, ...]  # prefix and answer
    source: tuple[int, ...] | None
    n_prefix: int

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""
        return self.graph.config

    @property
    def n_written(self) -> int:
        """Tokens of the answer."""
        return len(self.target) - self.n_prefix

    @cached_property
    def names(self) -> dict[str, tuple[str, ...]]:
        """The tokens of target and source, as a reader sees them."""
        return {
            "target": visible_tokens(self.tokenizer, self.target),
            "source": visible_tokens(self.tokenizer, self.source or ()),
        }

    def before(self, written: int) -> int:
        """The position of the target where the model stands when it writes a token of the answer."""
        return self.n_prefix - 1 + written

    def values(self, *names: str, shown: Iterable[int] = (0,)) -> list[np.ndarray]:
        """Some inner values of the one text, so without the axis of the batch."""
        found = self.graph.run(*self._batches, names, shown=shown)
        return [found[name].take(0, axis=value_shapes(self.config)[name].index("batch")) for name in names]

    @property
    def _batches(self) -> tuple[Batch, Batch | None]:
        return Batch.of([self.target[: self.config.max_length]]), None if self.source is None else Batch.of(
            [self.source]
        )


def pass_over(tokenizer: Tokenizer, graph: "InsideGraph", prompt: Prompt, ids: Sequence[int]) -> Pass:
    """The pass over a text and its answer."""
    return Pass(graph, tokenizer, (*prompt.prefix, *ids), prompt.source, len(prompt.prefix))


@dataclass(frozen=True)
class LensRow:
    """What the model would write if it stopped after a layer."""

    best: tuple[Choice, ...]
    rank: int  # of the token that was written, from 1
    probability: float


def lens(look: Pass, written: Sequence[int]) -> list[list[LensRow]]:
    """For the embedding and each layer: the best tokens at each of the positions of the answer."""
    (logits,) = look.values(LENS, shown=[look.before(w) for w in written])  # L+1 N V
    chosen = [look.target[look.n_prefix + w] for w in written]
    return [[_lens_row(look, row, token) for row, token in zip(rows, chosen, strict=True)] for rows in logits]


def _lens_row(look: Pass, logits: np.ndarray, chosen: int) -> LensRow:
    total = float(log_normalizer(logits[None])[0])
    best = [int(i) for i in likeliest(logits, N_LENS)]
    names = visible_tokens(look.tokenizer, best)
    odds = [float(np.exp(float(logits[i]) - total)) for i in (*best, chosen)]
    choices = tuple(Choice(i, name, p) for i, name, p in zip(best, names, odds[:-1], strict=True))
    return LensRow(choices, 1 + int((logits > logits[chosen]).sum()), odds[-1])


@dataclass(frozen=True)
class Steps:
    """One head at one query: every number between its input and what it passes on. Rows are the tokens looked at."""

    asking: str
    writing: str  # the token that is written next; nothing in the encoder
    names: tuple[str, ...]
    query: np.ndarray  # K
    keys: np.ndarray  # S K
    scores: np.ndarray  # S, q·k / √K
    visible: np.ndarray  # S
    weights: np.ndarray  # S
    values: np.ndarray  # S K
    result: np.ndarray  # K
    n_left_out: int = 0  # tokens that are not among the rows, since there are so many


def attention_steps(look: Pass, kind: str, layer: int, head: int, query: int) -> Steps:
    """The steps of attention for the token at `query`; of many tokens those that it looks at most."""
    parts = ("queries", "keys", "values", "scores", "attentions", "mixed")
    found = [array[layer, head] for array in look.values(*(f"{kind}_{part}" for part in parts))]
    queries, keys, values, scores, weights, mixed = found
    _, asking, looked_at = attentions_of(look.config)[kind]
    check_whole("query", query, 0, len(queries) - 1, InputError)
    n_keys = len(keys)
    visible = np.arange(n_keys) <= query if kind == "decoder" else np.ones(n_keys, dtype=np.bool_)
    rows = np.arange(n_keys)
    if n_keys > MAX_SHOWN:
        rows = np.sort(np.argsort(-weights[query], kind="stable")[:MAX_SHOWN])
    names = look.names[looked_at]
    return Steps(
        asking=look.names[asking][query],
        writing=look.names["target"][query + 1] if asking == "target" and query + 1 < len(look.target) else "",
        names=tuple(names[row] for row in rows),
        query=queries[query],
        keys=keys[rows],
        scores=scores[query, rows],
        visible=visible[rows],
        weights=weights[query, rows],
        values=values[rows],
        result=mixed[query],
        n_left_out=n_keys - len(rows),
    )


def query_of(look: Pass, kind: str, written: int) -> int:
    """The query that belongs to a token of the answer; in the encoder, the source token that it looks at most."""
    if kind != "encoder":
        return look.before(written)
    (cross,) = look.values("cross_attentions")  # L H T S
    return int(cross[-1].mean(axis=0)[look.before(written)].argmax())


@dataclass(frozen=True)
class Box:
    """A part of the model on its map."""

    name: str  # such as decoder.3.attention, layers counted from 0
    key: str  # of its sentences: embedding, attention, cross, feed_forward or output
    file: str  # of its code, below tiny_transformer/
    code: str  # the class
    weights: str  # the shapes of its parameters
    size: str  # what stands on the box: the shape that tells most
    shape: str  # of what it gives

    @property
    def layer(self) -> int | None:
        """Which layer it is in, from 0."""
        parts = self.name.split(".")
        return int(parts[1]) if len(parts) == 3 else None

    @property
    def stack(self) -> str:
        """Which stack it is in; embedding and output stand before and behind them."""
        return self.name.split(".")[0]


def boxes_of(config: ModelConfig) -> dict[str, Box]:
    """Every box of the map by its name, in the order of the data's way."""
    d, f, v = config.d_model, config.d_ff, config.vocab_size
    heads = f"{config.n_heads} × {config.d_head}"
    attention = ("model/attention.py", "SelfAttention", f"{d} → 3 × {d}, {d} → {d}", heads)
    cross = ("model/attention.py", "CrossAttention", f"{d} → {d}, {d} → 2 × {d}, {d} → {d}", heads)
    forward = ("model/layers.py", "FeedForward", f"{d} → {f:,} → {d}", f"{d} → {f:,} → {d}")
    table = f"{v:,} × {d}"
    tables = f"{table}, {config.max_length} × {d}" if config.positions == "learned" else table
    found = [Box("embedding", "embedding", "model/embedding.py", "Embedding", tables, table, str(d))]
    for stack, (n_layers, _) in reversed(stacks_of(config).items()):
        for i in range(n_layers):
            found.append(Box(f"{stack}.{i}.attention", "attention", *attention, str(d)))
            if stack == "decoder" and config.is_encoder_decoder:
                found.append(Box(f"{stack}.{i}.cross", "cross", *cross, str(d)))
            found.append(Box(f"{stack}.{i}.feed_forward", "feed_forward", *forward, str(d)))
    output = f"{d} → {config.n_outputs:,}"
    found.append(Box("output", "output", "model/transformer.py", "Decoder", output, output, f"{config.n_outputs:,}"))
    return {box.name: box for box in found}


def box_of(config: ModelConfig, name: object) -> Box:
    """The box of a name that came from outside."""
    boxes = boxes_of(config)
    return boxes[check_choice("part", name, [*boxes], InputError)]


@dataclass(frozen=True)
class BoxValues:
    """What a box gives for every token: a row of numbers each."""

    names: tuple[str, ...]
    rows: np.ndarray  # T × numbers
    marked: int  # the row of the chosen token; the first row in the encoder
    active: float | None = None  # of the feed-forward's inner numbers at that token, the share above 0


def box_values(look: Pass, box: Box, written: int) -> BoxValues:
    """The box's own numbers in this pass."""
    position = look.before(written)
    active = None
    if box.key == "output":
        (logits,) = look.values(LOGITS, shown=[position])
        return BoxValues((look.names["target"][position],), logits, 0)
    if box.key == "embedding":
        name, layer, side = "decoder_stream", 0, "target"
    else:
        assert box.layer is not None, "every other box is in a layer"
        layer, side = box.layer, "source" if box.stack == "encoder" else "target"
        kind = "cross" if box.key == "cross" else box.stack
        name = f"{box.stack}_feed_forward" if box.key == "feed_forward" else f"{kind}_output"
    marked = position if side == "target" else query_of(look, "encoder", written)
    if box.key == "feed_forward":
        rows, inner = (array[layer] for array in look.values(name, f"{box.stack}_inner"))
        active = float((inner[marked] > 0).mean())
    else:
        (rows,) = (array[layer] for array in look.values(name))
    first = max(0, min(marked - MAX_SHOWN // 2, len(rows) - MAX_SHOWN))  # a window around the chosen token
    shown = slice(first, first + MAX_SHOWN)
    return BoxValues(look.names[side][shown], rows[shown], marked - first, active)


def code_of(box: Box) -> str:
    """The class behind a box, as it stands in its file: read, not imported, since that would need torch."""
    text = resources.files("tiny_transformer").joinpath(box.file).read_text("utf-8")
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"class {box.code}("))
    behind = (i for i in range(first + 1, len(lines)) if lines[i] and not lines[i][0].isspace())
    return "\n".join(lines[first : next(behind, len(lines))]).rstrip()


def parts_of(config: ModelConfig) -> list[str]:
    """Everything that can be switched off: heads as kind.layer.head, layers as stack.layer, counted from 0."""
    heads = [
        f"{kind}.{layer}.{head}"
        for kind, (n_layers, _, _) in attentions_of(config).items()
        for layer in range(n_layers)
        for head in range(config.n_heads)
    ]
    return heads + [
        f"{stack}.{layer}" for stack, (n_layers, _) in stacks_of(config).items() for layer in range(n_layers)
    ]


def switches_of(config: ModelConfig, off: object) -> dict[str, np.ndarray]:
    """The switches for a list of parts that came from outside."""
    parts = parts_of(config)
    if not isinstance(off, list) or len(off) > len(parts):
        off = [None]  # no list of parts: refused in the next line
    names = [check_choice("part", part, parts, InputError).split(".") for part in off]
    heads = [(name[0], int(name[1]), int(name[2])) for name in names if len(name) == 3]
    return switches_without(config, heads, [(name[0], int(name[1])) for name in names if len(name) == 2])
