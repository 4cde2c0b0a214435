"""A graph is written only if it gives the answers of eager PyTorch for a few inputs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor

from tiny_transformer.atomic import replacing_file
from tiny_transformer.backends.sessions import open_session
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import BackendError, ExportError, Sentence, first_line
from tiny_transformer.inner_values import LENS_POSITIONS, attentions_of, switches_without
from tiny_transformer.model import Memory
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.model.watching import inner_values

_ROWS, _SOURCE, _TARGET = 2, 6, 5  # the second row's source is padded


@dataclass(frozen=True)
class Sample:
    """Inputs of a graph, and its outputs as the eager model computes them, by name."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


@torch.inference_mode()
def samples_for(graph: str, model: Transformer, config: ModelConfig) -> list[Sample]:
    """Samples for a graph: "encoder", "decoder" or "inside"."""
    makers: dict[str, Callable[[Any, ModelConfig], list[Sample]]] = {
        "encoder": _encoder_samples,
        "decoder": _decoder_samples,
        "inside": _inside_samples,
    }
    return makers[graph](model, config)


def _encoder_samples(model: Any, config: ModelConfig) -> list[Sample]:
    source, mask = _source(config)
    memory = model.encode(source, mask)
    values = [value * mask[:, None, :, None] for value in memory.values]
    outputs = _caches("present.{}.encoder.{}", memory.keys, values)
    return [_sample({"input_ids": source, "attention_mask": mask}, outputs)]


def _decoder_samples(model: Any, config: ModelConfig) -> list[Sample]:
    """A prefill from nothing, and one more token on what it left, as far as the context allows."""
    target = _ids(config, min(_TARGET, config.max_length), seed=1)
    n_prefix = max(1, target.size(1) - 1)
    part = ".decoder" if config.is_encoder_decoder else ""
    past, present = f"past_key_values.{{}}{part}.{{}}", f"present.{{}}{part}.{{}}"
    shape = (_ROWS, config.n_heads, target.size(1), config.d_head)
    keys, values = ([torch.zeros(shape) for _ in range(config.n_decoder_layers)] for _ in range(2))
    source, mask = _source(config)
    memory = [model.encode(source, mask)] if config.is_encoder_decoder else []
    fixed = _memory_inputs(memory[0], mask) if memory else {}
    samples = []
    for first, last in ((0, n_prefix), (n_prefix, target.size(1))):
        if first == last:
            continue
        ids, positions = target[:, first:last], torch.arange(first, last).expand(_ROWS, -1)
        inputs = {"input_ids": ids, "position_ids": positions} | fixed | _caches(past, keys, values, first)
        inputs = {name: tensor.clone() for name, tensor in inputs.items()}  # decode writes the cache in place
        logits, keys, values = model.decode(ids, positions, keys, values, *memory)
        samples.append(_sample(inputs, {"logits": logits} | _caches(present, keys, values, last)))
    return samples


def _inside_samples(model: Any, config: ModelConfig) -> list[Sample]:
    """Everything on; then a head of each kind of attention and a layer of each stack off."""
    target = _ids(config, min(_TARGET, config.max_length), seed=1)
    source, mask = _source(config) if config.is_encoder_decoder else (None, None)
    shown = torch.arange(target.size(1)).flip(0)[:2]
    inputs = {"input_ids": target, LENS_POSITIONS: shown}
    if source is not None and mask is not None:
        inputs |= {"decoder_input_ids": target, "input_ids": source, "attention_mask": mask}
    samples = []
    for heads, layers in (((), ()), ([(kind, 0, 0) for kind in attentions_of(config)], []), ((), [("decoder", 0)])):
        switches = switches_without(config, heads, layers)
        sample = _sample(inputs, inner_values(model, target, shown, switches, source, mask))
        samples.append(Sample(sample.inputs | switches, sample.outputs))
    return samples


def _source(config: ModelConfig) -> tuple[Tensor, Tensor]:
    ids = _ids(config, min(_SOURCE, config.max_length), seed=2)
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, 1 + ids.size(1) // 2 :] = False
    return ids, mask


def _ids(config: ModelConfig, length: int, seed: int) -> Tensor:
    return torch.randint(config.vocab_size, (_ROWS, length), generator=torch.Generator().manual_seed(seed))


def _memory_inputs(memory: Memory, mask: Tensor) -> dict[str, Tensor]:
    caches = _caches("past_key_values.{}.encoder.{}", memory.keys, memory.values)
    return caches | {"encoder_attention_mask": mask}


def _caches(pattern: str, keys: list[Tensor], values: list[Tensor], length: int | None = None) -> dict[str, Tensor]:
    """Name → the first `length` cache slots of each layer's keys and values."""
    named = {}
    for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
        named[pattern.format(layer, "key")] = key[:, :, :length]
        named[pattern.format(layer, "value")] = value[:, :, :length]
    return named


def _sample(inputs: dict[str, Tensor], outputs: dict[str, Tensor]) -> Sample:
    return Sample(
        {name: (t.long() if t.dtype == torch.bool else t).numpy().copy() for name, t in inputs.items()},
        {name: t.numpy().copy() for name, t in outputs.items()},
    )


TOLERANCE = 1e-4  # absolute and relative; float32 graphs differ from eager by about 1e-5
INT8_SIMILARITY = 0.98  # cosine; the task decides about 8 bits, this only catches a broken graph

Compare = Callable[[np.ndarray, np.ndarray], Sentence | None]  # what is wrong with (found, wanted)


def write_graph(path: Path, model: onnx.ModelProto, samples: list[Sample], compare: Compare) -> None:
    """Write a graph under its name if, and only if, it gives the samples' answers."""
    with replacing_file(path) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))
        try:
            onnx.checker.check_model(temporary)
            session = open_session(temporary, threads=1)
        except (onnx.checker.ValidationError, BackendError) as error:
            raise ExportError("{path} was not written: {reason}.", path=path, reason=first_line(error)) from None
        for sample in samples:
            names = list(sample.outputs)
            for name, found in zip(names, session.run(names, sample.inputs), strict=True):
                fault = compare(found, sample.outputs[name])
                if fault is not None:
                    template = "{path} was not written: its {output} {fault} compared with eager PyTorch."
                    raise ExportError(template, path=path, output=name, fault=fault)


def close(found: np.ndarray, wanted: np.ndarray) -> Sentence | None:
    """Equal within the tolerance, everywhere."""
    if found.shape != wanted.shape:
        return _other_shape(found, wanted)
    if np.allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE):
        return None
    return Sentence("is off by {difference:.3g}", difference=np.abs(found - wanted).max())


def similar(found: np.ndarray, wanted: np.ndarray) -> Sentence | None:
    """Pointing in the same direction, as a whole."""
    if found.shape != wanted.shape:
        return _other_shape(found, wanted)
    norm = np.linalg.norm(found) * np.linalg.norm(wanted)
    cosine = float(np.vdot(found, wanted) / norm) if norm else float(np.array_equal(found, wanted))
    return None if cosine >= INT8_SIMILARITY else Sentence("has a cosine similarity of {cosine:.3f}", cosine=cosine)


def _other_shape(found: np.ndarray, wanted: np.ndarray) -> Sentence:
    return Sentence("has shape {found} instead of {wanted}", found=found.shape, wanted=wanted.shape)
