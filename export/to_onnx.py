"""`onnx`: write the ONNX graphs of a model folder, over its own weights file.

The model's graphs: what goes in, what comes out, under the names the ecosystem knows.

Shapes: B batch, S source, T target or new tokens, C places of the past, L layers, H heads, K head width, V vocabulary.
"""

import argparse
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

from tiny_transformer.bundle import ATTENTION_ONNX, DECODER_ONNX, ENCODER_ONNX
from tiny_transformer.config import ModelConfig
from tiny_transformer.model import Memory, build_model
from tiny_transformer.model.attention import View
from tiny_transformer.model.transformer import no_memory

from .external import Port
from .fused import fuse

OPSET = 21
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
        self.model: Any = fuse(noise_model(config))

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
        logits, keys, values = self.model.decode(input_ids, position_ids, past[0::2], past[1::2], *source)
        return [logits.view(*input_ids.shape, logits.size(-1)), *_interleaved(keys, values)]


class AttentionGraph(nn.Module):
    """A whole target, and source → the attention weights that the fast graphs use, of every layer and head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        found: dict[str, list[Tensor]] = {"decoder": [], "encoder": [], "cross": []}
        self.model: Any = fuse(noise_model(config), lambda kind, weights: found[kind].append(weights))
        self.found: Callable[[], list[Tensor]] = lambda: [torch.stack(all_) for all_ in found.values() if all_]

    def forward(self, target: Tensor, source: Tensor | None = None, mask: Tensor | None = None) -> list[Tensor]:
        """B T, B S, B S → L B H T T, then L B H S S and L B H T S."""
        memory = no_memory(target)
        if source is not None and mask is not None:
            memory = _read(self.model, source, mask)
        positions = torch.arange(target.size(1)).expand(target.shape)  # B T
        x = self.model.embedding(target, positions)  # B·T D
        self.model.decoder(x, View(torch.empty(0), None, positions), [], [], memory)
        return self.found()


def _read(model: Any, ids: Tensor, mask: Tensor) -> Memory:
    """What `encode` does, over a flat stream and with a mask (B S) of numbers, as the fused parts want them."""
    mask = mask.to(torch.int32)
    x = model.embedding(ids, torch.arange(ids.size(1)))  # B·S D
    x = model.encoder(x, View(torch.empty(0), mask, None))
    memory: Memory = model.decoder.remember(x.view(ids.size(0), ids.size(1), x.size(1)), mask)
    return memory


def encoder_ports(config: ModelConfig) -> tuple[list[Port], list[Port]]:
    """Inputs and outputs of the encoder's graph."""
    inputs = [Port(name, ("batch", "source"), torch.int64) for name in ("input_ids", "attention_mask")]
    return inputs, _caches("present.{}.encoder.{}", config, "source")


def decoder_ports(config: ModelConfig) -> tuple[list[Port], list[Port]]:
    """Inputs and outputs of the decoder's graph."""
    part = ".decoder" if config.is_encoder_decoder else ""
    inputs = [Port(name, ("batch", "target"), torch.int64) for name in ("input_ids", "position_ids")]
    inputs += _caches("past_key_values.{}" + part + ".{}", config, "past")
    if config.is_encoder_decoder:
        inputs.append(Port("encoder_attention_mask", ("batch", "source"), torch.int64))
        inputs += _caches("past_key_values.{}.encoder.{}", config, "source")
    logits = Port("logits", ("batch", "target", config.vocab_size))
    return inputs, [logits, *_caches("present.{}" + part + ".{}", config, "total")]


def attention_ports(config: ModelConfig) -> tuple[list[Port], list[Port]]:
    """Inputs and outputs of the attention graph."""
    n, h = config.n_decoder_layers, config.n_heads
    decoder = Port("decoder_attentions", (n, "batch", h, "target", "target"))
    if not config.is_encoder_decoder:
        return [Port("input_ids", ("batch", "target"), torch.int64)], [decoder]
    inputs = [
        Port("decoder_input_ids", ("batch", "target"), torch.int64),
        Port("input_ids", ("batch", "source"), torch.int64),
        Port("attention_mask", ("batch", "source"), torch.int64),
    ]
    encoder = Port("encoder_attentions", (config.n_encoder_layers, "batch", h, "source", "source"))
    return inputs, [decoder, encoder, Port("cross_attentions", (n, "batch", h, "target", "source"))]


@dataclass(frozen=True)
class Graph:
    """One graph of a model: its module, how the inputs nest in the module's call, and its ports."""

    part: str  # encoder, decoder or attention
    module: Callable[[ModelConfig], nn.Module]
    nested: tuple[Any, ...]
    inputs: list[Port]
    outputs: list[Port]


def graphs_of(config: ModelConfig) -> dict[str, Graph]:
    """File name → graph, for every graph that a model of this shape has."""
    found = {}
    if config.is_encoder_decoder:
        inputs, outputs = encoder_ports(config)
        found[ENCODER_ONNX] = Graph("encoder", EncoderGraph, tuple(inputs), inputs, outputs)
    inputs, outputs = decoder_ports(config)
    n = 2 + 2 * config.n_decoder_layers
    nested = (*inputs[:2], inputs[2:n], *inputs[n : n + 1], *([inputs[n + 1 :]] if config.is_encoder_decoder else []))
    found[DECODER_ONNX] = Graph("decoder", DecoderGraph, nested, inputs, outputs)
    inputs, outputs = attention_ports(config)
    found[ATTENTION_ONNX] = Graph("attention", AttentionGraph, tuple(inputs), inputs, outputs)
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


def trace(graph: Graph, config: ModelConfig) -> onnx.ModelProto:
    """The graph as PyTorch exports it, its parameters filled with noise."""
    sizes = {"batch": _BATCH, "source": _SOURCE, "target": _TARGET, "past": _PAST}
    longest = {"source": config.max_length, "target": config.max_length}
    dims = {name: Dim(name, max=longest.get(name)) for name in sizes}
    examples = _each(graph.nested, lambda port: torch.zeros([sizes.get(n, n) for n in port.shape], dtype=port.dtype))
    shapes = _each(graph.nested, lambda port: {axis: dims[n] for axis, n in enumerate(port.shape) if n in dims})
    with torch.no_grad(), _quiet():
        module = graph.module(config).eval()
        program = torch.export.export(module, examples, dynamic_shapes=shapes, strict=False)
        exported = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=OPSET,
            verbose=False,
            input_names=[port.name for port in graph.inputs],
            output_names=[port.name for port in graph.outputs],
        )
    assert exported is not None
    model: onnx.ModelProto = exported.model_proto
    return model


def _each(nested: Any, make: Any) -> Any:
    """The same nesting with every port replaced."""
    return make(nested) if isinstance(nested, Port) else type(nested)(_each(item, make) for item in nested)


def _caches(pattern: str, config: ModelConfig, length: str) -> list[Port]:
    shape = ("batch", config.n_heads, length, config.d_head)
    kinds = ("key", "value")
    return [Port(pattern.format(layer, kind), shape) for layer in range(config.n_decoder_layers) for kind in kinds]


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


EXAMPLE = "python -m export onnx checkpoints/translate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder."""
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="a model folder")


def run(options: argparse.Namespace) -> None:
    """Write encoder_model.onnx, decoder_model.onnx and attention.onnx."""
    export_onnx(options.bundle)


def export_onnx(folder: Path) -> list[str]:
    """Write every graph of the folder's model; their file names."""
    from tqdm import tqdm

    from tiny_transformer.bundle import WEIGHTS, Bundle
    from tiny_transformer.model import load_model

    from .external import point, sign, tidy
    from .write_graph import close, samples_for, write_graph

    bundle = Bundle.open(folder)
    model = load_model(bundle)
    graphs = graphs_of(bundle.config)
    bar = tqdm(graphs.items(), unit="graph", disable=None)
    for name, graph in bar:
        bar.set_description(name)
        traced = tidy(trace(graph, bundle.config), graph.inputs, graph.outputs)
        pointed = point(traced, bundle.index, WEIGHTS)
        sign(pointed, bundle.config, bundle.index)
        write_graph(folder / name, pointed, samples_for(graph.part, model, bundle.config), close)
    return list(graphs)
