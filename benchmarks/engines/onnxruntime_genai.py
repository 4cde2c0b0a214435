"""onnxruntime-genai, on the very graphs of this project: its own loop, cache handling and search around them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiny_transformer.bundle import DECODER_INT8, DECODER_ONNX, WEIGHTS, WEIGHTS_INT8, Bundle

RUNTIME = "onnxruntime_genai"
DESCRIPTION = "genai_config.json"
FILES = {"float32": (DECODER_ONNX, WEIGHTS), "int8": (DECODER_INT8, WEIGHTS_INT8)}


def convert(bundle: Bundle, folder: Path) -> None:
    """One folder a precision: the graph, its weights, and the description genai reads."""
    for precision, names in FILES.items():
        (folder / precision).mkdir(parents=True)
        for name in names:
            (folder / precision / name).write_bytes((bundle.folder / name).read_bytes())
        told = json.dumps(description(bundle, names[0]), indent=2)
        (folder / precision / DESCRIPTION).write_text(told, encoding="utf-8")


def open_model(folder: Path, precision: str, threads: int, device: str) -> "Generator":
    """The model; how many threads it may use stands in its description."""
    import onnxruntime_genai

    path = folder / precision / DESCRIPTION
    told = json.loads(path.read_text(encoding="utf-8"))
    told["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
    path.write_text(json.dumps(told, indent=2), encoding="utf-8")
    return Generator(onnxruntime_genai, str(folder / precision))


def description(bundle: Bundle, graph: str) -> dict[str, Any]:
    """Names, sizes and special tokens, as genai wants to be told."""
    config, special = bundle.config, bundle.generation
    decoder = {
        "session_options": {
            "inter_op_num_threads": 1,
            "session.intra_op.allow_spinning": "0",
            "provider_options": [],
        },
        "filename": graph,
        "head_size": config.d_head,
        "hidden_size": config.d_model,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_heads,
        "num_hidden_layers": config.n_decoder_layers,
        "inputs": {
            "input_ids": "input_ids",
            "position_ids": "position_ids",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    model = {
        "type": "llama",  # of its kinds, the plain decoder-only one
        "vocab_size": config.vocab_size,
        "context_length": config.max_length,
        "pad_token_id": special.pad_id,
        "bos_token_id": special.bos_id,
        "eos_token_id": special.eos_id,
        "decoder": decoder,
    }
    search = {"do_sample": False, "num_beams": 1, "past_present_share_buffer": True, "max_length": config.max_length}
    return {"model": model, "search": search}


class Generator:
    """Its token loop, as its own examples drive it."""

    def __init__(self, genai: Any, folder: str) -> None:
        self.genai = genai
        self.model = genai.Model(folder)

    def generate(self, rows: Sequence[Sequence[int]], n_new: int) -> list[list[int]]:
        """Greedy, a forced number of tokens."""
        n_read = len(rows[0])
        parameters = self.genai.GeneratorParams(self.model)
        length = n_read + n_new
        parameters.set_search_options(max_length=length, min_length=length, batch_size=len(rows))
        generator = self.genai.Generator(self.model, parameters)
        generator.append_tokens([list(row) for row in rows] if len(rows) > 1 else list(rows[0]))
        while not generator.is_done():
            generator.generate_next_token()
        return [[int(i) for i in generator.get_sequence(row)[n_read:]] for row in range(len(rows))]
