"""The card's code: a model without our package, on ONNX Runtime alone."""

import json

from tiny_transformer.bundle import Bundle

_IMPORTS = """import numpy as np
import onnxruntime as ort
{fetching}from tokenizers import Tokenizer

{folder}
tokenizer = Tokenizer.from_file(f"{{folder}}/tokenizer.json")
"""

_FROM_HUB = """patterns = ["*_model.onnx", "model.safetensors", "tokenizer.json"]
folder = snapshot_download("{repo_id}", allow_patterns=patterns)"""

_LOOP = """past = {{}}
for slot in decoder.get_inputs():
    if slot.name.startswith("past_key_values") and ".encoder." not in slot.name:
        past[slot.name] = np.zeros((1, {n_heads}, 0, {d_head}), np.float32)
new, ids = prefix, []
while len(ids) < {max_new_tokens} and len(prefix) + len(ids) <= {max_length}:
    start = len(prefix) + len(ids) - len(new)
    feed = {{"input_ids": np.array([new]), "position_ids": np.arange(start, start + len(new))[None]}}
    logits, *present = decoder.run(None, feed | past | memory)
    past = dict(zip(past, present))
    {choice}
    if new == [{eos_id}]:
        break
    ids += new
print(tokenizer.decode(ids))
"""

_LIKELIEST = "new = [int(logits[0, -1].argmax())]"
_LIKELIEST_NEW = """scores, said = logits[0, -1], [*{begun}, *ids]
    scores[said] = np.where(scores[said] > 0, scores[said] / {penalty}, scores[said] * {penalty})  # say other things
    new = [int(scores.argmax())]"""

_ENCODER_DECODER = """encoder = ort.InferenceSession(f"{{folder}}/encoder_model.onnx")
decoder = ort.InferenceSession(f"{{folder}}/decoder_model.onnx")

source = np.array([[*tokenizer.encode({text}).ids, {eos_id}]])
mask = np.ones_like(source)
found = encoder.run(None, {{"input_ids": source, "attention_mask": mask}})
names = [slot.name.replace("present", "past_key_values") for slot in encoder.get_outputs()]
memory = {{"encoder_attention_mask": mask, **dict(zip(names, found))}}

prefix = [{bos_id}]
"""

_CHAT = """decoder = ort.InferenceSession(f"{{folder}}/decoder_model.onnx")

memory = {{}}
prefix = [{user}, *tokenizer.encode({text}).ids, {eos_id}, {assistant}]  # <user> text <eos> <assistant>
"""

_COMPLETE = """decoder = ort.InferenceSession(f"{{folder}}/decoder_model.onnx")

memory = {{}}
prefix = [{bos_id}, *tokenizer.encode({text}).ids]
"""

# What of the text is written before the first step: a repetition penalty counts it, and nothing before it.
_BEGUN = {"translate": "prefix", "chat": "prefix[-1:]", "complete": "prefix"}

_EXAMPLES = {"de": "Guten Morgen!", "zh": "今天天气真好。", "en": "Good morning!", "fr": "Bonjour !"}


def example_text(bundle: Bundle) -> str:
    """A first sentence to try, in a language the model reads."""
    generation = bundle.generation
    if generation.task != "translate":
        return "Hello! How are you?" if generation.task == "chat" else "Once upon a time"
    return next((_EXAMPLES[code] for code in generation.source_languages if code in _EXAMPLES), _EXAMPLES["en"])


def bare_onnx(bundle: Bundle, repo_id: str) -> str:
    """Greedy decoding in a few lines of numpy, complete and runnable."""
    config, generation = bundle.config, bundle.generation
    middle = {"translate": _ENCODER_DECODER, "chat": _CHAT, "complete": _COMPLETE}[generation.task]
    local = repo_id == str(bundle.folder)  # the card of a folder that is not on the Hub
    values = {
        "fetching": "" if local else "from huggingface_hub import snapshot_download\n",
        "folder": f'folder = "{repo_id}"' if local else _FROM_HUB.format(repo_id=repo_id),
        "text": json.dumps(example_text(bundle), ensure_ascii=False),
        "n_heads": config.n_heads,
        "d_head": config.d_head,
        "max_length": config.max_length,
        "max_new_tokens": generation.max_new_tokens,
        "bos_id": generation.bos_id,
        "eos_id": generation.eos_id,
        "user": generation.roles.get("user"),
        "assistant": generation.roles.get("assistant"),
    }
    penalty = generation.repetition_penalty
    again = _LIKELIEST_NEW.format(begun=_BEGUN[generation.task], penalty=penalty)
    values["choice"] = _LIKELIEST if penalty == 1.0 else again
    return (_IMPORTS + middle + _LOOP).format(**values)
