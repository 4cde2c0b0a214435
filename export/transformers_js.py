"""A decoder-only model in the form that transformers.js opens: its names and files, our weights and our answers.

The library asks for a folder of its own: a config in the style of transformers, a chat template, and the graph as
`onnx/model.onnx` with its weights beside it. It makes the first, empty cache from the names of the graph's axes, and
the build of ONNX Runtime that it brings along computes nothing in float64. So the graph is the folder's own with other
names of axes and with the position tables as numbers. The weights are the folder's file, byte for byte, under another
name.

A translator does not fit: the library hands the encoder's last hidden state to a decoder with a branch for the first
step, while our encoder hands out the keys and values that every step needs.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tiny_transformer.bundle import DECODER_ONNX, TOKENIZER, WEIGHTS, Bundle
from tiny_transformer.model import load_model
from tiny_transformer.tokenizer import BOS, EOS, PAD, ROLES

from .onnx_graph import with_nodes
from .write_graph import close, samples_for, write_graph

GRAPH = "onnx/model.onnx"
GRAPH_WEIGHTS = f"{GRAPH}_data"
_AXES = {  # ours → theirs
    "batch": "batch_size",
    "target": "sequence_length",
    "past": "past_sequence_length",
    "total": "total_sequence_length",
}
_OPERATORS = {"Mul": np.multiply, "Add": np.add, "Sin": np.sin}  # those of a position table
_CHAT = (
    f"{{% set roles = {json.dumps(ROLES)} %}}"
    "{% for message in messages %}{{ roles[message['role']] + message['content'] + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ roles['assistant'] }}{% endif %}"
)


def write_for_transformers_js(bundle: Bundle, folder: Path) -> None:
    """Write the folder that the library opens; its graph is compared with PyTorch before it gets its name."""
    graph = fitted(onnx.load(bundle.folder / DECODER_ONNX, load_external_data=False))
    (folder / GRAPH).parent.mkdir(parents=True)
    shutil.copyfile(bundle.folder / WEIGHTS, folder / GRAPH_WEIGHTS)
    write_graph(folder / GRAPH, graph, samples_for("decoder", load_model(bundle), bundle.config), close)
    for name, value in (
        ("config.json", _config(bundle)),
        ("generation_config.json", _generation(bundle)),
        ("tokenizer_config.json", _tokenizer_config(bundle)),
        ("tokenizer.json", _tokenizer(bundle)),
    ):
        (folder / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def fitted(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with the library's axis names, its tables as float32 numbers, and its weights under another name."""
    for value in (*model.graph.input, *model.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = _AXES[size.dim_param]
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = Path(GRAPH_WEIGHTS).name
    return _with_tables(model)


def _with_tables(model: onnx.ModelProto) -> onnx.ModelProto:
    """Formulas in float64 computed here; layers that have the same table share it."""
    known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == TensorProto.DOUBLE}
    tables: dict[bytes, TensorProto] = {}
    same: dict[str, str] = {}
    nodes = []
    for node in model.graph.node:
        if node.input and all(name in known for name in node.input):
            values = [known[name] for name in node.input]
            if node.op_type in _OPERATORS:
                known[node.output[0]] = _OPERATORS[node.op_type](*values)
                continue
            assert node.op_type == "Cast", node.op_type
            table = values[0].astype(np.float32)
            same[node.output[0]] = tables.setdefault(
                table.tobytes(), numpy_helper.from_array(table, node.output[0])
            ).name
            continue
        node.input[:] = [same.get(name, name) for name in node.input]
        nodes.append(node)
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in known]
    return with_nodes(model, list(nodes), [*kept, *tables.values()])


def _config(bundle: Bundle) -> dict[str, Any]:
    """In the words of GPT-NeoX, a decoder-only model: the library takes sizes from it, and all else from the graph."""
    config = bundle.config
    return {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_decoder_layers,
        "num_attention_heads": config.n_heads,
        "max_position_embeddings": config.max_length,
        **_ends(bundle),
        "transformers.js_config": {"dtype": "fp32", "use_external_data_format": True},
    }


def _generation(bundle: Bundle) -> dict[str, Any]:
    """Plain greedy decoding. The library's repetition penalty would weaken the words of the question, too."""
    return {**_ends(bundle), "max_new_tokens": bundle.generation.max_new_tokens, "do_sample": False}


def _ends(bundle: Bundle) -> dict[str, int]:
    found = bundle.generation
    return {"bos_token_id": found.bos_id, "eos_token_id": found.eos_id, "pad_token_id": found.pad_id}


def _tokenizer(bundle: Bundle) -> dict[str, Any]:
    """The folder's tokenizer; where a text is gone on with, one that begins it as the model knows it."""
    found: dict[str, Any] = json.loads((bundle.folder / TOKENIZER).read_text(encoding="utf-8"))
    if bundle.generation.task != "chat":
        begin = {"SpecialToken": {"id": BOS, "type_id": 0}}
        first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
        found["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [begin, first],
            "pair": [begin, first, second],
            "special_tokens": {BOS: {"id": BOS, "ids": [bundle.generation.bos_id], "tokens": [BOS]}},
        }
    return found


def _tokenizer_config(bundle: Bundle) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": bundle.config.max_length,
        "clean_up_tokenization_spaces": False,
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        **({"chat_template": _CHAT} if bundle.generation.task == "chat" else {}),
    }
