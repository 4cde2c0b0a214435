"""CTranslate2, its model written through its own specification from our weights."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from tiny_transformer.bundle import Bundle

RUNTIME = "ctranslate2"
BATCH_TOKENS = 1_024  # the fastest of 256 to 4,096 here


def convert(bundle: Bundle, folder: Path) -> None:
    """One folder a precision."""
    weights = {name: tensor.astype(np.float32) for name, tensor in bundle.weights().items()}
    for precision in ("float32", "int8"):
        spec = _specification(bundle, weights)
        spec.validate()
        spec.optimize(quantization=precision)
        (folder / precision).mkdir(parents=True)
        spec.save(str(folder / precision))


def open_model(folder: Path, precision: str, threads: int, device: str) -> "Translator | Generator":
    """A translator for an encoder-decoder model, a generator for a decoder-only one."""
    import ctranslate2

    # One vocabulary file for both sides, or two where fewer tokens are written than read.
    is_translator = any((folder / precision / f"{side}_vocabulary.json").is_file() for side in ("shared", "source"))
    kind = ctranslate2.Translator if is_translator else ctranslate2.Generator
    opened = Threads(partial(kind, str(folder / precision), device=device, compute_type=precision), threads)
    return Translator(opened) if is_translator else Generator(opened)


class Threads:
    """All threads on one batch, or a batch for each: for many texts the second was faster, by a third and more."""

    def __init__(self, open_one: Callable[..., Any], threads: int) -> None:
        self.together = open_one(intra_threads=threads, inter_threads=1)
        self._open, self.count = open_one, threads

    @cached_property
    def apart(self) -> Any:
        """Opened when it is first wanted."""
        return self._open(intra_threads=1, inter_threads=self.count)

    def for_rows(self, n_rows: int) -> tuple[Any, int]:
        """Whom to ask, and how many rows make a batch."""
        if self.count == 1 or n_rows < 8 * self.count:
            return self.together, n_rows
        return self.apart, -(-n_rows // self.count)


class Translator:
    """An encoder-decoder model."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads

    def generate(self, rows: Sequence[Sequence[int]], n_new: int) -> list[list[int]]:
        """Greedy, a forced number of tokens."""
        translator, size = self.threads.for_rows(len(rows))
        found = translator.translate_batch(
            _words(rows), beam_size=1, max_batch_size=size, min_decoding_length=n_new, max_decoding_length=n_new
        )
        return [[int(word) for word in result.hypotheses[0]] for result in found]

    def search(self, rows: Sequence[Sequence[int]], beams: int) -> list[list[int]]:
        """Each text to its own end, sorted and batched by its own rules."""
        found = self.threads.apart.translate_batch(
            _words(rows), beam_size=beams, max_batch_size=BATCH_TOKENS, batch_type="tokens", max_decoding_length=128
        )
        return [[int(word) for word in result.hypotheses[0]] for result in found]


class Generator:
    """A decoder-only model."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads

    def generate(self, rows: Sequence[Sequence[int]], n_new: int) -> list[list[int]]:
        """Greedy, a forced number of tokens."""
        generator, size = self.threads.for_rows(len(rows))
        found = generator.generate_batch(
            _words(rows),
            max_batch_size=size,
            sampling_topk=1,
            min_length=n_new,
            max_length=n_new,
            include_prompt_in_result=False,
        )
        return [result.sequences_ids[0] for result in found]


def _words(rows: Sequence[Sequence[int]]) -> list[list[str]]:
    """Its interface takes tokens as strings: ours are spelt as their numbers."""
    return [[str(i) for i in row] for row in rows]


def _specification(bundle: Bundle, weights: Mapping[str, np.ndarray]) -> Any:
    from ctranslate2.specs import common_spec, transformer_spec

    config, special = bundle.config, bundle.generation
    gelu = common_spec.Activation.GELUTanh
    activation = gelu if config.activation == "gelu" else common_spec.Activation.RELU
    words = [str(i) for i in range(config.vocab_size)]
    pre_norm = config.norm == "pre"
    if config.is_encoder_decoder:
        layers = (config.n_encoder_layers, config.n_decoder_layers)
        spec = transformer_spec.TransformerSpec.from_config(
            layers, config.n_heads, pre_norm=pre_norm, activation=activation
        )
        _stack(spec.encoder, "encoder", weights, config)
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words[: config.n_outputs])
        spec.config.decoder_start_token = str(special.bos_id)
    else:
        rotary = {"rotary_dim": 0, "rotary_interleave": False} if config.positions == "rotary" else {}
        spec = transformer_spec.TransformerDecoderModelSpec.from_config(
            config.n_decoder_layers, config.n_heads, pre_norm=pre_norm, activation=activation, **rotary
        )
        spec.register_vocabulary(words)
    spec.config.bos_token, spec.config.eos_token = str(special.bos_id), str(special.eos_id)
    spec.config.unk_token = str(special.pad_id)
    _stack(spec.decoder, "decoder", weights, config)
    spec.decoder.projection.weight = weights["embedding.tokens.weight"][: config.n_outputs]
    return spec


def _stack(spec: Any, part: str, weights: Mapping[str, np.ndarray], config: Any) -> None:
    """An encoder or a decoder."""
    from tiny_transformer.model.positions import sinusoidal_table

    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    table = weights["embedding.tokens.weight"]
    embeddings.weight = table[: config.n_outputs] if part == "decoder" else table  # what is written, or all
    spec.scale_embeddings = config.scale_embeddings
    if config.positions == "learned":
        spec.position_encodings.encodings = weights["embedding.positions"]
    elif config.positions == "sinusoidal":
        spec.position_encodings.encodings = sinusoidal_table(config.max_length, config.d_model).numpy()
    _norm(spec.layer_norm, f"{part}.norm", weights)
    for i, layer in enumerate(spec.layer):
        name = f"{part}.layers.{i}"
        _linear(layer.self_attention.linear[0], f"{name}.self_attention.qkv", weights)
        _linear(layer.self_attention.linear[1], f"{name}.self_attention.output", weights)
        _norm(layer.self_attention.layer_norm, f"{name}.around_attention.norm", weights)
        if f"{name}.cross_attention.query.weight" in weights:
            _linear(layer.attention.linear[0], f"{name}.cross_attention.query", weights)
            _linear(layer.attention.linear[1], f"{name}.cross_attention.key_value", weights)
            _linear(layer.attention.linear[2], f"{name}.cross_attention.output", weights)
            _norm(layer.attention.layer_norm, f"{name}.around_cross.norm", weights)
        _linear(layer.ffn.linear_0, f"{name}.feed_forward.inner", weights)
        _linear(layer.ffn.linear_1, f"{name}.feed_forward.output", weights)
        _norm(layer.ffn.layer_norm, f"{name}.around_feed_forward.norm", weights)


def _linear(spec: Any, name: str, weights: Mapping[str, np.ndarray]) -> None:
    spec.weight, spec.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]


def _norm(spec: Any, name: str, weights: Mapping[str, np.ndarray]) -> None:
    spec.gamma, spec.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]
