"""Translate with onnxruntime, numpy and tokenizers alone: python embed_bare.py FOLDER TEXT."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import tokenizers

folder, text = Path(sys.argv[1]), sys.argv[2]
settings = json.loads((folder / "generation.json").read_text(encoding="utf-8"))
config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.encode_special_tokens = True  # the text "<eos>" is text
encoder = onnxruntime.InferenceSession(folder / "encoder_model.onnx")
decoder = onnxruntime.InferenceSession(folder / "decoder_model.onnx")

source = [*tokenizer.encode(text).ids[: settings["max_source_tokens"] - 1], settings["eos_id"]]
mask = np.ones((1, len(source)), dtype=np.int64)
names = [output.name.replace("present", "past_key_values") for output in encoder.get_outputs()]
found = encoder.run(None, {"input_ids": np.array([source]), "attention_mask": mask})
memory = dict(zip(names, found, strict=True))
empty = np.zeros((1, config["n_heads"], 0, config["d_model"] // config["n_heads"]), dtype=np.float32)
past = {value.name: empty for value in decoder.get_inputs() if ".decoder." in value.name}

ids = [settings["bos_id"]]
for position in range(min(settings["max_new_tokens"], config["max_length"])):
    token = {"input_ids": np.array([[ids[-1]]]), "position_ids": np.array([[position]])}
    logits, *present = decoder.run(None, {"encoder_attention_mask": mask, **memory, **past, **token})
    past = dict(zip(past, present, strict=True))  # present.N.decoder.key goes in again as past_key_values.N.decoder.key
    ids.append(int(logits[0, -1].argmax()))
    if ids[-1] == settings["eos_id"]:
        break
print(tokenizer.decode(ids))
