"""Hugging Face optimum: the transformers model exported by it, run by ONNX Runtime under `generate`.

It keeps to an old huggingface_hub, so it needs an environment of its own (`--python optimum=…`); there it
exports the model itself when it is first opened.
"""

from pathlib import Path
from typing import Any

from . import transformers
from .transformers import POSITIONS, Generate

RUNTIME = "onnxruntime"
EXPORTED = "exported"


convert = transformers.convert  # M2M100's own positions stay: other words, but the same work


def open_model(folder: Path, precision: str, threads: int, device: str) -> Generate:
    """The exported model, exported now if it was not."""
    import onnxruntime
    from optimum.onnxruntime import ORTModelForCausalLM, ORTModelForSeq2SeqLM

    translates = (folder / POSITIONS).is_file()
    kind: Any = ORTModelForSeq2SeqLM if translates else ORTModelForCausalLM
    if not (folder / EXPORTED).is_dir():
        kind.from_pretrained(folder, export=True).save_pretrained(folder / EXPORTED)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return Generate(kind.from_pretrained(folder / EXPORTED, session_options=options), device, encodes=translates)
