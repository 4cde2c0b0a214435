"""The graph `inside.onnx`, written operator by operator: the model as in the paper, every step of it an output.

Its inputs are the tokens, the positions whose next tokens are wanted, and a switch for each head and layer. The names
are those of `tiny_transformer.inner_values`. The graphs that serve a model have fused operators, which hide the steps;
this one is written only if it gives the same values as the PyTorch model.

Gemm takes the weights as they are stored, but rows only: so the stream is flat, one row per position, and only the
outputs have their batch again.

Shapes: B batch, T target, S source, H heads, K head width, D model width, L layers, N positions that are asked for.
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

    shape: str  # the numbers B T
    heads: str  # the numbers B T H K
    positions: str  # 0 … T-1
    visible: str  # bool: which key each query may see
    rotation: tuple[str, ...] = ()  # cosines and sines, T × K/2


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
        shapes = {}
        target = "decoder_input_ids" if config.is_encoder_decoder else "input_ids"
        if config.is_encoder_decoder:
            mask = self._op("Cast", "attention_mask", to=TensorProto.BOOL)
            sequence = self._sequence("input_ids", self._op("Unsqueeze", mask, self._ints(1, 2)))
            x = self._stack("encoder", "input_ids", sequence)
            memory = (self._final_norm("encoder", x), sequence)
            shapes["source"] = sequence.shape
        sequence = self._sequence(target, None)
        shapes["target"] = sequence.shape
        self._stack("decoder", target, sequence, memory)
        for name, parts in self.kept.items():
            match value_shapes(config)[name]:
                case _, _, str(length), int(width):  # rows
                    shape = self._op("Concat", self._ints(-1), shapes[length], self._ints(width), axis=0)
                    self._op("Reshape", self._op("Concat", *parts, axis=0), shape, result=name)
                case _:  # heads
                    layers = [self._op("Unsqueeze", part, self._ints(0)) for part in parts]
                    self._op("Concat", *layers, axis=0, result=name)
        self._lens("decoder_stream")

    def _lens(self, stream: str) -> None:
        """The scores of the last layer, B N V, and of all, L+1 B N V."""
        last = self._op("Gather", stream, self._int(self.config.n_decoder_layers), axis=0)  # B T D
        self._shown_scores(last, 1, LOGITS)
        earlier = self._op("Slice", stream, self._ints(0), self._ints(-1))  # L B T D
        scores = self._shown_scores(earlier, 2, self._name())
        self._op("Concat", scores, self._op("Unsqueeze", LOGITS, self._ints(0)), axis=0, result=LENS)

    def _shown_scores(self, x: str, axis: int, result: str) -> str:
        """The output layer's scores at the positions that are asked for."""
        x = self._op("Gather", x, LENS_POSITIONS, axis=axis)
        shape = self._op("Concat", self._op("Shape", x, end=-1), self._ints(self.config.n_outputs), axis=0)
        rows = self._op("Reshape", self._final_norm("decoder", x), self._ints(-1, self.config.d_model))
        return self._op("Reshape", self._scores(rows), shape, result=result)

    def _sequence(self, ids: str, visible: str | None) -> _Sequence:
        shape = self._op("Shape", ids)
        heads = self._op("Concat", shape, self._ints(self.config.n_heads, self.config.d_head), axis=0)
        length = self._op("Gather", shape, self._int(1))
        positions = self._op("Range", self._int(0), length, self._int(1))
        if visible is None:  # the past and oneself
            queries = self._op("Unsqueeze", positions, self._ints(1))
            visible = self._op("GreaterOrEqual", queries, positions)  # T T
        rotation: tuple[str, ...] = ()
        if self.config.positions == "rotary":
            tables = np.split(rotary_table(self.config.max_length, self.config.d_head), 2, axis=1)
            names = [self._table(f"rotation.{n}", t) for n, t in zip((COSINE, SINE), tables, strict=True)]
            rotation = tuple(self._op("Gather", name, positions) for name in names)
        return _Sequence(shape, heads, positions, visible, rotation)

    def _stack(self, stack: str, ids: str, sequence: _Sequence, memory: _Memory | None = None) -> str:
        x = self._embedding(ids, sequence.positions)  # B·T D
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
            table = ""
        if table:
            x = self._op("Add", x, self._op("Gather", table, positions))
        return self._op("Reshape", x, self._ints(-1, config.d_model))

    def _attention(self, kind: str, layer: str, i: int, sequence: _Sequence, memory: _Memory | None, x: str) -> str:
        """softmax(Q Kᵀ / √K) V, head by head; each step is kept."""
        width = self.config.d_model
        if memory is None:
            name = f"{layer}.self_attention"
            query, key, value = self._parts(self._linear(x, f"{name}.qkv", width, 3 * width), 3)
            keys = sequence
        else:
            name = f"{layer}.cross_attention"
            query = self._linear(x, f"{name}.query", width, width)
            key, value = self._parts(self._linear(memory[0], f"{name}.key_value", width, 2 * width), 2)
            keys = memory[1]
        query, key, value = self._split(query, sequence), self._split(key, keys), self._split(value, keys)
        if sequence.rotation and memory is None:
            query, key = self._turn(query, *sequence.rotation), self._turn(key, *sequence.rotation)
        products = self._op("MatMul", query, self._op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self._op("Div", products, self._float(math.sqrt(self.config.d_head)))  # B H T S
        weights = self._op("Softmax", self._op("Where", keys.visible, scores, self._float(-math.inf)), axis=-1)
        weights = self._op("Where", keys.visible, weights, self._float(0.0))  # also where a query may see no key
        on = self._op("Gather", f"{kind}_heads", self._int(i))  # H
        on = self._op("Unsqueeze", on, self._ints(1, 2))
        mixed = self._op("Where", on, self._op("MatMul", weights, value), self._float(0.0))  # B H T K
        merged = self._op("Reshape", self._op("Transpose", mixed, perm=[0, 2, 1, 3]), self._ints(-1, width))
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
        weight = self._weight(FIRST_ROWS if smaller else EMBEDDING, config.n_outputs, config.d_model)
        return self._op("Gemm", x, weight, transB=1)

    def _norm(self, x: str, name: str) -> str:
        parts = ("weight", "bias") if self.config.bias else ("weight",)
        return self._op("LayerNormalization", x, *(self._weight(f"{name}.{p}", self.config.d_model) for p in parts))

    def _linear(self, x: str, name: str, width: int, n_outputs: int, *, bias: bool = True) -> str:
        weights = [self._weight(f"{name}.weight", n_outputs, width)]
        if bias and self.config.bias:
            weights.append(self._weight(f"{name}.bias", n_outputs))
        return self._op("Gemm", x, *weights, transB=1)

    def _parts(self, x: str, n: int, axis: int = 1) -> list[str]:
        names = [self._name() for _ in range(n)]
        self.nodes.append(helper.make_node("Split", [x], names, axis=axis, num_outputs=n))
        return names

    def _split(self, x: str, sequence: _Sequence) -> str:
        """B·T D → B H T K."""
        return self._op("Transpose", self._op("Reshape", x, sequence.heads), perm=[0, 2, 1, 3])

    def _turn(self, x: str, cosine: str, sine: str) -> str:
        """Each pair (x[i], x[i + K/2]) by its position's angle."""
        first, second = self._parts(x, 2, axis=3)
        ahead = self._op("Sub", self._op("Mul", first, cosine), self._op("Mul", second, sine))
        aside = self._op("Add", self._op("Mul", first, sine), self._op("Mul", second, cosine))
        return self._op("Concat", ahead, aside, axis=3)

    def _op(self, operator: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        result = result or self._name()
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
