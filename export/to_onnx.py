"""`onnx`: write the ONNX graphs of a model folder, over its own weights file.

The model's graphs: what goes in, what comes out, under the names the ecosystem knows.

Shapes: B batch, S source, T target or new tokens, C cache slots, L layers, H heads, K head width, V tokens that can
be written.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from torch.export import Dim
from tqdm import tqdm

from tiny_transformer.backends.graph_file import addressable
from tiny_transformer.bundle import (
    ATTENTION_ONNX,
    DECODER_ONNX,
    ENCODER_ONNX,
    INSIDE_ONNX,
    WEIGHTS,
    Bundle,
    remove_derived,
)
from tiny_transformer.config import ModelConfig
from tiny_transformer.model import Memory, build_model, load_model
from tiny_transformer.model.attention import AttentionContext

from .fused import fuse
from .inside_onnx import inside_graph, inside_specs
from .onnx_graph import OPSET, TensorSpec, add_signature, clean_graph, with_external_weights
from .write_graph import close, samples_for, write_graph

_BATCH, _SOURCE, _TARGET, _PAST = 2, 3, 4, 5  # example sizes; 0 and 1 would be taken for constants


class EncoderGraph(nn.Module):
    """Source → the keys and values that each decoder layer's cross-attention needs of it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.model: Any = fuse(noise_model(config))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """B S, B S → for each layer B H S K, B H S K."""
        memory = _read(self.model, input_ids, attention_mask)
        # A query that sees nothing but padding must get zeros: the fused operator would average the values.
        real = attention_mask[:, None, :, None].to(torch.float32)  # B 1 S 1
        return _interleaved(memory.keys, [value * real for value in memory.values])


class DecoderGraph(nn.Module):
    """New tokens on a past → logits, and the past with the new keys and values in it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        present: list[Tensor] = []
        self.model: Any = fuse(noise_model(config), keep_cache=lambda *key_value: present.extend(key_value))
        self.present: Callable[[], list[Tensor]] = lambda: present

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        past: list[Tensor],
        encoder_attention_mask: Tensor | None = None,
        memory: list[Tensor] | None = None,
    ) -> list[Tensor]:
        """B T, B T, B H C K … → B T V, and B H C K … ."""
        source = []
        if memory is not None and encoder_attention_mask is not None:
            source = [Memory(memory[0::2], memory[1::2], encoder_attention_mask.to(torch.int32))]
        logits, _, _ = self.model.decode(input_ids, position_ids, past[0::2], past[1::2], *source)
        return [logits.view(*input_ids.shape, logits.size(-1)), *self.present()]


def _read(model: Any, ids: Tensor, mask: Tensor) -> Memory:
    """What `encode` does, over a flat stream and with a mask (B S) of numbers, as the fused parts want them."""
    mask = mask.to(torch.int32)
    positions = torch.arange(ids.size(1))
    x = model.embedding(ids, positions)  # B·S D
    x = model.encoder(x, AttentionContext(positions, torch.empty(0), mask))
    memory: Memory = model.decoder.project_memory(x.view(ids.size(0), ids.size(1), x.size(1)), mask)
    return memory


def encoder_specs(config: ModelConfig) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Inputs and outputs of the encoder's graph."""
    inputs = [TensorSpec(name, ("batch", "source"), torch.int64) for name in ("input_ids", "attention_mask")]
    return inputs, _caches("present.{}.encoder.{}", config, "source")


def decoder_specs(config: ModelConfig) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Inputs and outputs of the decoder's graph."""
    part = ".decoder" if config.is_encoder_decoder else ""
    inputs = [TensorSpec(name, ("batch", "target"), torch.int64) for name in ("input_ids", "position_ids")]
    inputs += _caches("past_key_values.{}" + part + ".{}", config, "past")
    if config.is_encoder_decoder:
        inputs.append(TensorSpec("encoder_attention_mask", ("batch", "source"), torch.int64))
        inputs += _caches("past_key_values.{}.encoder.{}", config, "source")
    logits = TensorSpec("logits", ("batch", "target", config.n_outputs))
    return inputs, [logits, *_caches("present.{}" + part + ".{}", config, "total")]


@dataclass(frozen=True)
class Graph:
    """One graph of a model: its module, how the inputs nest in the module's call, and its inputs and outputs."""

    part: str  # encoder, decoder or inside
    module: Callable[[ModelConfig], nn.Module] | None  # None: it is not traced but written operator by operator
    nested: tuple[Any, ...]
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]


def graphs_of(config: ModelConfig) -> dict[str, Graph]:
    """File name → graph, for every graph that a model of this shape has."""
    found = {}
    if config.is_encoder_decoder:
        inputs, outputs = encoder_specs(config)
        found[ENCODER_ONNX] = Graph("encoder", EncoderGraph, tuple(inputs), inputs, outputs)
    inputs, outputs = decoder_specs(config)
    n = 2 + 2 * config.n_decoder_layers
    nested = (*inputs[:2], inputs[2:n], *inputs[n : n + 1], *([inputs[n + 1 :]] if config.is_encoder_decoder else []))
    found[DECODER_ONNX] = Graph("decoder", DecoderGraph, nested, inputs, outputs)
    found[INSIDE_ONNX] = Graph("inside", None, (), *inside_specs(config))
    return found


def noise_model(config: ModelConfig) -> Any:
    """A model whose parameters are all different: a graph must not depend on their values.

    The exporter merges equal tensors, drops biases of zeros and folds norms of ones.
    """
    generator = torch.Generator().manual_seed(0)
    model = build_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model


def built(graph: Graph, config: ModelConfig) -> onnx.ModelProto:
    """The graph, its parameters still without the folder's weights."""
    if graph.module is None:
        return inside_graph(config)
    return clean_graph(trace(graph.module, graph, config), graph.inputs, graph.outputs)


def trace(make: Callable[[ModelConfig], nn.Module], graph: Graph, config: ModelConfig) -> onnx.ModelProto:
    """The graph as PyTorch exports it, its parameters filled with noise."""
    sizes = {"batch": _BATCH, "source": _SOURCE, "target": _TARGET, "past": _PAST}
    longest = {"source": config.max_length, "target": config.max_length}
    dims = {name: Dim(name, max=longest.get(name)) for name in sizes}
    examples = _each(graph.nested, lambda spec: torch.zeros([sizes.get(n, n) for n in spec.shape], dtype=spec.dtype))
    shapes = _each(graph.nested, lambda spec: {axis: dims[n] for axis, n in enumerate(spec.shape) if n in dims})
    with torch.no_grad(), _quiet():
        module = make(config).eval()
        program = torch.export.export(module, examples, dynamic_shapes=shapes, strict=False)
        exported = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=OPSET,
            verbose=False,
            input_names=[spec.name for spec in graph.inputs],
            output_names=[spec.name for spec in graph.outputs],
        )
    assert exported is not None
    model: onnx.ModelProto = exported.model_proto
    return model


def _each(nested: Any, make: Any) -> Any:
    """The same nesting with every tensor spec replaced."""
    return make(nested) if isinstance(nested, TensorSpec) else type(nested)(_each(item, make) for item in nested)


def _caches(pattern: str, config: ModelConfig, length: str) -> list[TensorSpec]:
    shape = ("batch", config.n_heads, length, config.d_head)
    kinds = ("key", "value")
    return [
        TensorSpec(pattern.format(layer, kind), shape) for layer in range(config.n_decoder_layers) for kind in kinds
    ]


def _interleaved(keys: list[Tensor], values: list[Tensor]) -> list[Tensor]:
    return [tensor for pair in zip(keys, values, strict=True) for tensor in pair]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's talk of what it does inside: traces, torchvision, and its own deprecations."""
    loggers = [logging.getLogger(name) for name in ("torch.__trace", "torch.onnx._internal.exporter._registration")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*", category=FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def export_onnx(folder: Path) -> list[str]:
    """Write every graph of the folder's model; their file names."""
    bundle = Bundle.open(folder)
    model = load_model(bundle)
    graphs = graphs_of(bundle.config)
    bar = tqdm(graphs.items(), unit="graph", disable=None)
    for name, graph in bar:
        bar.set_description(name)
        exported = with_external_weights(built(graph, bundle.config), addressable(bundle.index, bundle.config), WEIGHTS)
        add_signature(exported, bundle.config, bundle.index)
        write_graph(folder / name, exported, samples_for(graph.part, model, bundle.config), close)
    remove_derived(folder, [ATTENTION_ONNX])
    return list(graphs)
