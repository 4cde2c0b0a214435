"""The graph `inside.onnx`, written operator by operator: the model as in the paper, every step of it an output.

Its inputs are the tokens, the positions whose next tokens are wanted, and a switch for each head and layer. The names
are those of `tiny_transformer.inner_values`. The graphs that serve a model have fused operators, which hide the steps;
this one is written only if it gives the same values as the PyTorch model.

Shapes: B batch, T target, S source, H heads, K head width, D model width.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from tiny_transformer import __version__
from tiny_transformer.backends.graph_file import FIRST_ROWS
from tiny_transformer.bundle import EMBEDDING
from tiny_transformer.config import ModelConfig
from tiny_transformer.inner_values import LENS, LENS_POSITIONS, LOGITS, stacks_of, switch_shapes, value_shapes
from tiny_transformer.position_tables import ADDED_TABLES, rotary_table

from .onnx_graph import COSINE, OPSET, PRODUCER, SINE, SINUSOIDAL, TensorSpec

IR_VERSION = 10
_TYPES = {torch.int64: TensorProto.INT64, torch.bool: TensorProto.BOOL, torch.float32: TensorProto.FLOAT}


def inside_specs(config: ModelConfig) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Inputs and outputs of the graph."""
    target = TensorSpec("decoder_input_ids", ("batch", "target"), torch.int64)
    source = [TensorSpec(name, ("batch", "source"), torch.int64) for name in ("input_ids", "attention_mask")]
    tokens = [target, *source] if config.is_encoder_decoder else [TensorSpec("input_ids", target.shape, torch.int64)]
    shown = TensorSpec(LENS_POSITIONS, ("shown",), torch.int64)
    switches = [TensorSpec(name, shape, torch.bool) for name, shape in switch_shapes(config).items()]
    return [*tokens, shown, *switches], [TensorSpec(name, shape) for name, shape in value_shapes(config).items()]


def inside_graph(config: ModelConfig) -> onnx.ModelProto:
    """The graph, its parameters named as in the weights file and without values."""
    writer = _Writer(config)
    writer.write()
    inputs, outputs = inside_specs(config)
    read, given = (
        [helper.make_tensor_value_info(spec.name, _TYPES[spec.dtype], spec.shape) for spec in specs]
        for specs in (inputs, outputs)
    )
    graph = helper.make_graph(writer.nodes, "graph", read, given, [*writer.tensors.values()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    model.producer_name, model.producer_version = PRODUCER, __version__
    return model


@dataclass
class _Sequence:
    """What the attention of one stack needs besides its input."""

    length: str  # of the sequence, a scalar
    positions: str  # 0 … length-1
    visible: str  # bool: which key each query may see
    rotation: tuple[str, ...] = ()  # cosines and sines, length × K/2


_Memory = tuple[str, _Sequence]  # the encoded source


@dataclass
class _Writer:
    """Nodes in the order of their making; each method gives the name of its result."""

    config: ModelConfig
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: dict[str, TensorProto] = field(default_factory=dict)
    kept: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # name of an output → one per layer
    n_names: int = 0

    def write(self) -> None:
        """The whole model, then the outputs."""
        config = self.config
        memory = None
        target = "decoder_input_ids" if config.is_encoder_decoder else "input_ids"
        if config.is_encoder_decoder:
            mask = self._op("Cast", "attention_mask", to=TensorProto.BOOL)
            sequence = self._sequence("input_ids", self._op("Unsqueeze", mask, self._ints(1, 2)))
            x = self._stack("encoder", "input_ids", sequence)
            memory = (self._final_norm("encoder", x), sequence)
        sequence = self._sequence(target, None)
        self._stack("decoder", target, sequence, memory)
        for x in self.kept["decoder_stream"]:
            shown = self._op("Gather", x, LENS_POSITIONS, axis=1)  # B N D
            self.kept[LENS].append(self._scores(self._final_norm("decoder", shown)))
        self.nodes.append(helper.make_node("Identity", [self.kept[LENS][-1]], [LOGITS]))
        for name, parts in self.kept.items():
            layers = [self._op("Unsqueeze", part, self._ints(0)) for part in parts]
            self.nodes.append(helper.make_node("Concat", layers, [name], axis=0))

    def _sequence(self, ids: str, visible: str | None) -> _Sequence:
        length = self._op("Squeeze", self._op("Shape", ids, start=1, end=2))
        positions = self._op("Range", self._int(0), length, self._int(1))
        if visible is None:  # the past and oneself
            queries = self._op("Unsqueeze", positions, self._ints(1))
            visible = self._op("GreaterOrEqual", queries, positions)  # T T
        rotation: tuple[str, ...] = ()
        if self.config.positions == "rotary":
            tables = np.split(rotary_table(self.config.max_length, self.config.d_head), 2, axis=1)
            names = [self._table(f"rotation.{n}", t) for n, t in zip((COSINE, SINE), tables, strict=True)]
            rotation = tuple(self._op("Gather", name, positions) for name in names)
        return _Sequence(length, positions, visible, rotation)

    def _stack(self, stack: str, ids: str, sequence: _Sequence, memory: _Memory | None = None) -> str:
        x = self._embedding(ids, sequence.positions)  # B T D
        self.kept[f"{stack}_stream"].append(x)
        for i in range(stacks_of(self.config)[stack][0]):
            before, layer = x, f"{stack}.layers.{i}"
            attend = partial(self._attention, stack, layer, i, sequence, None)
            x = self._sublayer(x, f"{layer}.around_attention", attend)
            if memory is not None:
                attend = partial(self._attention, "cross", layer, i, sequence, memory)
                x = self._sublayer(x, f"{layer}.around_cross", attend)
            x = self._sublayer(x, f"{layer}.around_feed_forward", partial(self._feed_forward, stack, layer))
            on = self._op("Gather", f"{stack}_layers", self._int(i))
            x = self._op("Where", on, x, before)
            self.kept[f"{stack}_stream"].append(x)
        return x

    def _sublayer(self, x: str, around: str, part: Callable[[str], str]) -> str:
        """x + f(norm(x)), or norm(x + f(x))."""
        norm = f"{around}.norm"
        y = part(self._norm(x, norm) if self.config.norm == "pre" else x)
        y = self._op("Add", x, y) if self.config.residual else y
        return y if self.config.norm == "pre" else self._norm(y, norm)

    def _embedding(self, ids: str, positions: str) -> str:
        config = self.config
        x = self._op("Gather", self._weight(EMBEDDING, config.vocab_size, config.d_model), ids)
        if config.scale_embeddings:
            x = self._op("Mul", x, self._float(math.sqrt(config.d_model)))
        if config.positions == "learned":
            table = self._weight("embedding.positions", config.max_length, config.d_model)
        elif config.positions in ADDED_TABLES:
            table = self._table(
                f"embedding.{SINUSOIDAL}", ADDED_TABLES[config.positions](config.max_length, config.d_model)
            )
        else:
            return x
        return self._op("Add", x, self._op("Gather", table, positions))

    def _attention(self, kind: str, layer: str, i: int, sequence: _Sequence, memory: _Memory | None, x: str) -> str:
        """softmax(Q Kᵀ / √K) V, head by head; each step is kept."""
        config = self.config
        width = config.d_model
        if memory is None:
            name = f"{layer}.self_attention"
            query, key, value = self._parts(self._linear(x, f"{name}.qkv", width, 3 * width), 3)
            visible = sequence.visible
        else:
            name = f"{layer}.cross_attention"
            query = self._linear(x, f"{name}.query", width, width)
            key, value = self._parts(self._linear(memory[0], f"{name}.key_value", width, 2 * width), 2)
            visible = memory[1].visible
        query, key, value = (self._split(y) for y in (query, key, value))
        if sequence.rotation and memory is None:
            query, key = self._turn(query, *sequence.rotation), self._turn(key, *sequence.rotation)
        products = self._op("MatMul", query, self._op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self._op("Div", products, self._float(math.sqrt(config.d_head)))  # B H T S
        weights = self._op("Softmax", self._op("Where", visible, scores, self._float(-math.inf)), axis=-1)
        weights = self._op("Where", visible, weights, self._float(0.0))  # also where a query may see no key
        on = self._op("Gather", f"{kind}_heads", self._int(i))  # H
        on = self._op("Unsqueeze", on, self._ints(1, 2))
        mixed = self._op("Where", on, self._op("MatMul", weights, value), self._float(0.0))  # B H T K
        merged = self._op("Reshape", self._op("Transpose", mixed, perm=[0, 2, 1, 3]), self._ints(0, 0, width))
        output = self._linear(merged, f"{name}.output", width, width)
        steps = {"queries": query, "keys": key, "values": value, "scores": scores}
        for step, result in (steps | {"attentions": weights, "mixed": mixed, "output": output}).items():
            self.kept[f"{kind}_{step}"].append(result)
        return output

    def _feed_forward(self, stack: str, layer: str, x: str) -> str:
        config = self.config
        inner = self._linear(x, f"{layer}.feed_forward.inner", config.d_model, config.d_ff)
        inner = self._op("Gelu", inner, approximate="tanh") if config.activation == "gelu" else self._op("Relu", inner)
        output = self._linear(inner, f"{layer}.feed_forward.output", config.d_ff, config.d_model)
        self.kept[f"{stack}_inner"].append(inner)
        self.kept[f"{stack}_feed_forward"].append(output)
        return output

    def _final_norm(self, stack: str, x: str) -> str:
        return self._norm(x, f"{stack}.norm") if self.config.norm == "pre" else x

    def _scores(self, x: str) -> str:
        config = self.config
        if not config.tie_embeddings:
            return self._linear(x, "embedding.output", config.d_model, config.n_outputs, bias=False)
        smaller = config.n_outputs < config.vocab_size
        return self._rows(x, self._weight(FIRST_ROWS if smaller else EMBEDDING, config.n_outputs, config.d_model))

    def _norm(self, x: str, name: str) -> str:
        parts = ("weight", "bias") if self.config.bias else ("weight",)
        return self._op("LayerNormalization", x, *(self._weight(f"{name}.{p}", self.config.d_model) for p in parts))

    def _linear(self, x: str, name: str, width: int, n_outputs: int, *, bias: bool = True) -> str:
        weight = self._weight(f"{name}.weight", n_outputs, width)
        return self._rows(x, weight, *([self._weight(f"{name}.bias", n_outputs)] if bias and self.config.bias else []))

    def _rows(self, x: str, weight: str, *bias: str) -> str:
        """B T in → B T out. Gemm takes a weight as it is stored, out × in, but rows only."""
        width, n_outputs = (int(size) for size in reversed(self.tensors[weight].dims))
        y = self._op("Gemm", self._op("Reshape", x, self._ints(-1, width)), weight, *bias, transB=1)
        shape = self._op("Concat", self._op("Shape", x, end=2), self._ints(n_outputs), axis=0)
        return self._op("Reshape", y, shape)

    def _parts(self, x: str, n: int) -> list[str]:
        names = [self._name() for _ in range(n)]
        self.nodes.append(helper.make_node("Split", [x], names, axis=2, num_outputs=n))
        return names

    def _split(self, x: str) -> str:
        """B T D → B H T K."""
        heads = self._op("Reshape", x, self._ints(0, 0, self.config.n_heads, self.config.d_head))
        return self._op("Transpose", heads, perm=[0, 2, 1, 3])

    def _turn(self, x: str, cosine: str, sine: str) -> str:
        """Each pair (x[i], x[i + K/2]) by its position's angle."""
        first, second = self._name(), self._name()
        self.nodes.append(helper.make_node("Split", [x], [first, second], axis=3, num_outputs=2))
        ahead = self._op("Sub", self._op("Mul", first, cosine), self._op("Mul", second, sine))
        aside = self._op("Add", self._op("Mul", first, sine), self._op("Mul", second, cosine))
        return self._op("Concat", ahead, aside, axis=3)

    def _op(self, operator: str, *inputs: str, **attributes: Any) -> str:
        result = self._name()
        self.nodes.append(helper.make_node(operator, inputs, [result], **attributes))
        return result

    def _name(self) -> str:
        self.n_names += 1
        return f"value.{self.n_names}"

    def _weight(self, name: str, *shape: int) -> str:
        self.tensors.setdefault(name, TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape))
        return name

    def _table(self, name: str, table: np.ndarray) -> str:
        self.tensors.setdefault(name, numpy_helper.from_array(table.astype(np.float32), name))
        return name

    def _constant(self, value: np.ndarray) -> str:
        name = f"{value.dtype} {value.tolist()}"
        self.tensors.setdefault(name, numpy_helper.from_array(value, name))
        return name

    def _int(self, value: int) -> str:
        return self._constant(np.array(value, dtype=np.int64))

    def _ints(self, *values: int) -> str:
        return self._constant(np.array(values, dtype=np.int64))

    def _float(self, value: float) -> str:
        return self._constant(np.array(value, dtype=np.float32))
