"""The model card: metadata for the Hub, how to use the model, its results, its parity and its training."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tiny_transformer import atomic
from tiny_transformer.bundle import CARD, CURVE, EVALUATION, TRAINING, WEIGHTS, Bundle, graph_files
from tiny_transformer.errors import ExportError
from tiny_transformer.parity.report import ParityReport
from tiny_transformer.text_model import load
from tiny_transformer.tokenizer import Message
from tiny_transformer.training_record import TrainingRecord

LIBRARY = "tiny-transformer"
UNKNOWN_LICENCE = "unknown"
PIPELINE_TAGS = {"translate": "translation", "chat": "text-generation", "complete": "text-generation"}
METRICS = {"bleu": "BLEU", "chrf": "chrF", "accuracy": "Accuracy", "exact_match": "Exact match"}
# The Hub's own identifiers; its validator lets any word pass, and its pages then show none.
_LICENCES = """
    afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 c-uda cc cc0-1.0
    cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0
    cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 gfdl gpl gpl-2.0 gpl-3.0
    isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openrail openrail++
    osl-3.0 other pddl postgresql unknown unlicense wtfpl zlib
"""
LICENCES = frozenset(_LICENCES.split())


def front_matter(bundle: Bundle, record: TrainingRecord, name: str, licence: str = "") -> dict[str, Any]:
    """The metadata as plain values, checked."""
    generation = bundle.generation
    languages = [*generation.source_languages, generation.target_language] if generation.source_languages else []
    values: dict[str, Any] = {
        "language": _unique(languages or list(record.recipe.get("languages", ()))),
        "license": licence or record.licence or UNKNOWN_LICENCE,
        "library_name": LIBRARY,
        "pipeline_tag": PIPELINE_TAGS[generation.task],
        "tags": [LIBRARY, "transformer", bundle.config.architecture, "onnx", "pytorch"],
        "datasets": _unique([source.dataset for source in record.sources]),
        "model-index": _model_index(record, name, PIPELINE_TAGS[generation.task]),
    }
    values = {key: value for key, value in values.items() if value}
    check_metadata(values)
    return values


def as_yaml(values: dict[str, Any]) -> str:
    """The block between the two lines of dashes, with them."""
    import yaml  # type: ignore[import-untyped]

    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---\n"


def check_metadata(values: dict[str, Any]) -> None:
    """Refuse what the Hub would take and then not understand."""
    licence = values.get("license")
    if licence not in LICENCES:
        raise ExportError(
            "The licence {licence!r} is none the Hub knows; use one such as apache-2.0 or mit.", licence=licence
        )
    tag = values.get("pipeline_tag")
    if tag not in PIPELINE_TAGS.values():
        raise ExportError(
            "The pipeline tag {tag!r} is none of {set}.", tag=tag, set=", ".join(sorted(set(PIPELINE_TAGS.values())))
        )
    for language in values.get("language", []):
        if not re.fullmatch(r"[a-z]{2,3}", language):
            raise ExportError(
                "The language {language!r} is no ISO 639 code such as en or de; correct it.", language=language
            )
    for model in values.get("model-index", []):
        for result in model["results"]:
            for metric in result["metrics"]:
                if not math.isfinite(metric["value"]):
                    data = result["dataset"]["name"]
                    raise ExportError(
                        "{metric} on {data} is {metric_2}; a card needs a finite figure.",
                        metric=metric["name"],
                        data=data,
                        metric_2=metric["value"],
                    )


def _model_index(record: TrainingRecord, name: str, task: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for data in _unique([figure.data for figure in record.figures]):
        figures = [figure for figure in record.figures if figure.data == data and figure.metric in METRICS]
        if figures:
            results.append(
                {
                    "task": {"type": task},
                    "dataset": {"name": data, "type": "custom", "split": figures[0].split},
                    "metrics": [
                        {"type": figure.metric, "name": METRICS[figure.metric], "value": round(figure.value, 2)}
                        for figure in figures
                    ],
                }
            )
    return [{"name": name, "results": results}] if results else []


def _unique(values: list[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if value]


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


# None of them was taken from the data; short and everyday, as what the models learned from.
SENTENCES = {
    "de": (
        "Guten Morgen!",
        "Wie komme ich zum Bahnhof?",
        "Meine Schwester backt jeden Sonntag einen Apfelkuchen.",
        "Kannst du mir bitte den blauen Stift geben?",
        "Der Zug nach Hamburg hat heute eine Stunde Verspätung.",
        "Ich habe meinen Regenschirm im Büro vergessen.",
    ),
    "zh": (
        "今天天气真好。",
        "我喜欢你。",
        "这家饭馆的面条很好吃。",
        "請問洗手間在哪裡？",
        "他每天骑自行车去上班。",
        "我想买一张去上海的火车票。",
    ),
}
# What the user says, turn by turn; the model's own answers stand in between.
DIALOGUES = {
    "en": (
        ("Hello there, lovely to see you!", "And what do they call you?", "So I am talking to a robot?"),
        ("Did you have a good time today?", "Mine was long. I'm really worn out."),
        ("Cheer me up with a joke!", "Haha! Got one more?"),
        ("We adopted a puppy this morning!", "What name should we give him?"),
        ("Do you enjoy listening to music?", "Which film did you see last?"),
        ("Should I be afraid of robots?",),
        ("Thank you for the chat, see you tomorrow!",),
        ("Tell me a story about a mouse and a lion.",),
        ("Can you tell me a story about a lost kite?",),
    ),
}


@dataclass(frozen=True)
class Turn:
    """What was said, and what the model answered."""

    said: str
    answer: str


def has_examples(bundle: Bundle) -> bool:
    """Whether there is a trained model with graphs to ask, in a language there are prompts for."""
    return bundle.has(TRAINING, *graph_files(bundle.config).values()) and bool(_prompts(bundle))


def examples(bundle: Bundle) -> list[list[Turn]]:
    """Every dialogue (a translation is one of a single turn), answered greedily by ONNX Runtime."""
    model = load(bundle.folder, "onnx")
    if bundle.generation.task == "translate":
        texts = [said for (said,) in _prompts(bundle)]
        return [[Turn(said, found.text)] for said, found in zip(texts, model.generate_batch(texts), strict=True)]
    dialogues = []
    for sayings in _prompts(bundle):
        history: list[Message] = []
        for said in sayings:
            history.append(Message(role="user", content=said))
            history.append(Message(role="assistant", content=model.reply(history).text))
        answers = [message["content"] for message in history[1::2]]
        dialogues.append([Turn(said, answer) for said, answer in zip(sayings, answers, strict=True)])
    return dialogues


def as_dialogue(turns: list[Turn]) -> str:
    """One dialogue, line by line."""
    return "\n".join(f"you:   {turn.said}\nmodel: {turn.answer}" for turn in turns)


def _prompts(bundle: Bundle) -> list[tuple[str, ...]]:
    generation = bundle.generation
    if generation.task == "translate":
        return [(text,) for language in generation.source_languages for text in SENTENCES.get(language, ())]
    return list(DIALOGUES.get(generation.target_language, ())) if generation.task == "chat" else []


START, END = "<!-- written by hand: start -->", "<!-- written by hand: end -->"
_INVITATION = "*Notes of the author go between these two lines; a push keeps them.*"


def model_card(bundle: Bundle, report: ParityReport, repo_id: str, *, licence: str = "", by_hand: str = "") -> str:
    """The whole README.md of a model repo; equal record give equal text."""
    record = TrainingRecord.read(bundle.folder)
    name = repo_id.rsplit("/", 1)[-1]
    sections = [
        f"# {name}\n\n{_what(bundle)}",
        f"{START}\n{by_hand or _INVITATION}\n{END}",
        _examples(bundle),
        _usage(bundle, repo_id),
        _results(record),
        _parity(report),
        _training(bundle, record),
        _limits(bundle),
    ]
    metadata = as_yaml(front_matter(bundle, record, name, licence))
    return metadata + "\n" + "\n\n".join(section for section in sections if section) + "\n"


def refresh_card(bundle: Bundle, report: ParityReport, name: str, *, licence: str = "", published: str = "") -> str:
    """Write the folder's card anew; the author's section comes from the folder, or else from the published card."""
    path = bundle.folder / CARD
    local = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    by_hand = written_by_hand(local) or written_by_hand(published)
    card = model_card(bundle, report, name, licence=licence, by_hand=by_hand)
    atomic.write_file(path, card)
    return card


def written_by_hand(card: str) -> str:
    """The author's own section of a card; empty if there is none."""
    _, start, rest = card.partition(START)
    text, end, _ = rest.partition(END)
    return "" if not (start and end) or text.strip() == _INVITATION else text.strip()


def _what(bundle: Bundle) -> str:
    config, generation = bundle.config, bundle.generation
    parameters = sum(entry.length // (2 if "16" in entry.dtype else 4) for entry in bundle.index.tensors.values())
    layers = f"{config.n_decoder_layers} layers"
    if config.is_encoder_decoder:
        layers = f"{config.n_encoder_layers} encoder and {config.n_decoder_layers} decoder layers"
    target = f" into {generation.target_language}" if generation.target_language else ""
    does = {
        "translate": f"translates {' or '.join(generation.source_languages) or 'text'}{target}",
        "chat": "holds a conversation",
        "complete": "continues text",
    }[generation.task]
    return (
        f"A small Transformer that {does}: {config.architecture}, {parameters / 1e6:.1f} million parameters, {layers} "
        f"of width {config.d_model} with {config.n_heads} heads, a vocabulary of {config.vocab_size:,} and a context "
        f"of {config.max_length} tokens. Made with Tiny Transformer: one set of weights (`{WEIGHTS}`) for PyTorch, "
        "TorchScript and ONNX Runtime, proven equal before it was published."
    )


def _usage(bundle: Bundle, repo_id: str) -> str:
    quoted = json.dumps(example_text(bundle), ensure_ascii=False)  # double quotes, as the formatter of this project
    ours = f'import tiny_transformer as tt\n\nmodel = tt.load("{repo_id}")\nprint(model.generate({quoted}).text)\n'
    return (
        "## How to use it\n\n"
        "With Tiny Transformer (`pip install tiny-transformer`), every file checked against the parity report:\n\n"
        f"```python\n{ours}```\n\n"
        "With ONNX Runtime alone (`pip install onnxruntime tokenizers huggingface_hub`):\n\n"
        f"```python\n{bare_onnx(bundle, repo_id)}```\n\n"
        "As a page in the browser, from a checkout of Tiny Transformer:\n\n"
        f"```bash\npython app.py --model {repo_id}\n```"
    )


def _examples(bundle: Bundle) -> str:
    if not has_examples(bundle):
        return ""
    found = examples(bundle)
    head = "## Examples\n\nWhat the model says to sentences made up for this card, greedily, good or bad:\n\n"
    if bundle.generation.task == "translate":
        return head + _table(("text", "translation"), [(turn.said, turn.answer) for (turn,) in found])
    blocks = [as_dialogue(turns).replace("```", "") for turns in found]  # a fence would end the block
    return head + "\n\n".join(f"```text\n{block}\n```" for block in blocks)


def _results(record: TrainingRecord) -> str:
    if not record.figures:
        return ""
    rows = [
        (f.data, f.split, METRICS.get(f.metric, f.metric), f"{f.value:.2f}", f"{f.examples:,}", f"`{f.signature}`")
        for f in record.figures
    ]
    table = _table(("data", "split", "metric", "value", "examples", "signature"), rows)
    return f"## Results\n\n{table}\n\nMeasured on these weights as they are stored, with {record.decoding}."


def _parity(report: ParityReport) -> str:
    rows = []
    for candidate in report.candidates:
        # A backend's own cached pass against its own whole one says nothing about the reference.
        cases = [case for case in report.cases if case.candidate == candidate and case.kind != "consistency"]
        task = next((case.detail for case in cases if case.kind == "task"), "")
        worst = "judged by its task" if task else f"{max((case.max_absolute for case in cases), default=0.0):.1e}"
        verdict = "equal" if all(case.passed for case in cases) else "differs"
        rows.append((candidate, str(len(cases)), worst, f"{verdict}{f' ({task})' if task else ''}"))
    table = _table(("backend", "cases", "largest difference of a logit", "verdict"), rows)
    reference = f"PyTorch ({report.reference}, {report.versions.get('torch', '?')})"
    return (
        f"## Parity\n\nEvery backend was compared with {reference} on logits and on generated text:\n\n{table}\n\n"
        "`parity.json` has every case and the SHA-256 of every file it vouches for."
    )


_UNKNOWN_DATA = "what that model learnt from is not known"


def _training(bundle: Bundle, record: TrainingRecord) -> str:
    if not (record.recipe_name or record.sources):
        return ""
    about = (
        f"Recipe `{record.recipe_name}`: {record.run_summary}."
        if record.run_summary
        else f"Recipe `{record.recipe_name}`."
    )
    if record.started_from:
        known = "the data of both is listed" if record.started_from.get("sources") else _UNKNOWN_DATA
        about += f" It went on from the weights of `{record.started_from.get('name', '?')}`; {known}."
    rows = [
        (f"[{s.name}]({s.url})" if s.url else s.name, f"`{s.path}`", s.licence or "not stated", s.attribution)
        for s in record.sources
    ]
    table = _table(("data", "file", "licence", "attribution"), rows) if rows else ""
    parts = ["## Training", about, table, "`training.json` has the whole recipe and the SHA-256 of every data file."]
    if bundle.has(EVALUATION):
        parts.append(f"`{EVALUATION}` is a fixed sample of the test data, under the same licences.")
    if bundle.has(CURVE):
        parts.append(f"![Loss over the training run]({CURVE})")
    return "\n\n".join(part for part in parts if part)


def _limits(bundle: Bundle) -> str:
    generation = bundle.generation
    specific = {
        "translate": "It was trained on short everyday sentences of the data above: names, numbers, long or technical "
        "texts and other languages come out badly, and nothing in the output says so.",
        "chat": "It has the knowledge of a very small model: what it says about the world is often wrong, and it is no "
        "source of advice.",
        "complete": "It continues text in the style of its data, true or not.",
    }[generation.task]
    return (
        f"## Limits\n\n{specific} It reads at most {generation.max_source_tokens} tokens and repeats the biases of its "
        "data. Do not let it decide anything that matters to a person."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """A text that stays in its cell."""
    return " ".join(text.replace("|", "\\|").split()).replace("``", "")
