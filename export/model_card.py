"""The model card: metadata, examples and figures for the text in card.md.j2."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from jinja2 import Template

from tiny_transformer import atomic
from tiny_transformer.accepted_answers import CaseReport
from tiny_transformer.bundle import CARD, CASES, CURVE, EVALUATION, TRAINING, Bundle, graph_files
from tiny_transformer.config import GenerationConfig
from tiny_transformer.errors import ExportError
from tiny_transformer.parity.report import ParityReport
from tiny_transformer.text_model import load
from tiny_transformer.tokenizer import Message
from tiny_transformer.training_record import TrainingRecord

from .published import beside_published

LIBRARY = "tiny-transformer"
UNKNOWN_LICENCE = "unknown"
PIPELINE_TAGS = {"translate": "translation", "chat": "text-generation", "complete": "text-generation"}
METRICS = {"bleu": "BLEU", "chrf": "chrF", "accuracy": "Accuracy", "stories": "Stories", "exact_match": "Exact match"}
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


class _Result(EvalResult):
    """One figure of the metadata; the library would join data sets that differ by their name alone."""

    @property
    def unique_identifier(self) -> tuple[Any, ...]:
        """What figures of one data set have in common."""
        return (*super().unique_identifier, self.dataset_name)


def card_metadata(bundle: Bundle, record: TrainingRecord, name: str, licence: str = "") -> ModelCardData:
    """The metadata between the card's two lines of dashes, checked."""
    generation = bundle.generation
    languages = [*generation.source_languages, generation.target_language] if generation.source_languages else []
    task = PIPELINE_TAGS[generation.task]
    results: list[EvalResult] = [
        _Result(
            task_type=task,
            dataset_type="custom",
            dataset_name=figure.data,
            dataset_split=figure.split,
            metric_type=figure.metric,
            metric_name=METRICS[figure.metric],
            metric_value=round(figure.value, 2),
        )
        for figure in record.figures
        if figure.metric in METRICS
    ]
    data = ModelCardData(
        language=_unique(languages or list(record.recipe.get("languages", ()))) or None,
        license=licence or record.licence or UNKNOWN_LICENCE,
        library_name=LIBRARY,
        pipeline_tag=task,
        tags=[LIBRARY, "transformer", bundle.config.architecture, "onnx", "pytorch"],
        datasets=_unique([source.dataset for source in record.sources]) or None,
        model_name=name if results else None,
        eval_results=results or None,
    )
    check_metadata(data.to_dict())  # type: ignore[no-untyped-call]
    return data


def check_metadata(values: dict[str, Any]) -> None:
    """Refuse what the Hub would take and then not understand."""
    licence = values.get("license")
    if licence not in LICENCES:
        raise ExportError(
            "The licence {licence!r} is none the Hub knows; use one such as apache-2.0 or mit.", licence=licence
        )
    tag = values.get("pipeline_tag")
    if tag not in PIPELINE_TAGS.values():
        known = ", ".join(sorted(set(PIPELINE_TAGS.values())))
        raise ExportError("The pipeline tag {tag!r} is none of {known}.", tag=tag, known=known)
    for language in values.get("language", []):
        if not re.fullmatch(r"[a-z]{2,3}", language):
            raise ExportError(
                "The language {language!r} is no ISO 639 code such as en or de; correct it.", language=language
            )
    for model in values.get("model-index", []):
        for result in model["results"]:
            for metric in result["metrics"]:
                if not math.isfinite(metric["value"]):
                    template = "{metric} on {data} is {value}; a card needs a finite figure."
                    data = result["dataset"]["name"]
                    raise ExportError(template, metric=metric["name"], data=data, value=metric["value"])


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


def model_card(
    bundle: Bundle, report: ParityReport, repo_id: str, *, licence: str = "", by_hand: str = "", page: str = ""
) -> str:
    """The whole README.md of a model repo; equal records give equal text."""
    record = TrainingRecord.read(bundle.folder)
    name = repo_id.rsplit("/", 1)[-1]
    comparison, comparison_note = beside_published(record, name, bundle.config.n_parameters)
    # Not `ModelCard.from_template`: it reads its own text again and then joins the figures of different data sets.
    template = Template(Path(__file__).with_name("card.md.j2").read_text(encoding="utf-8"), keep_trailing_newline=True)
    card: str = template.render(
        card_data=card_metadata(bundle, record, name, licence).to_yaml(),
        name=name,
        repo_id=repo_id,
        page=page,
        config=bundle.config,
        generation=bundle.generation,
        does=_does(bundle.generation),
        by_hand=f"{START}\n{by_hand or _INVITATION}\n{END}",
        examples=_examples(bundle),
        example=json.dumps(example_text(bundle), ensure_ascii=False),
        bare_onnx=bare_onnx(bundle, repo_id),
        record=record,
        results=_results(record),
        beside_published=_table(comparison[0], comparison[1:]) if comparison else "",
        beside_published_note=comparison_note,
        report=report,
        parity=_parity(report),
        sources=_sources(record),
        **_cases(bundle),
        has_evaluation=bundle.has(EVALUATION),
        has_curve=bundle.has(CURVE),
    )
    return card


def refresh_card(
    bundle: Bundle, report: ParityReport, name: str, *, licence: str = "", published: str = "", page: str = ""
) -> str:
    """Write the folder's card anew; the author's section comes from the folder, or else from the published card.

    `page` is the address where the model runs in the reader's browser, if there is one.
    """
    path = bundle.folder / CARD
    local = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    by_hand = written_by_hand(local) or written_by_hand(published)
    card = model_card(bundle, report, name, licence=licence, by_hand=by_hand, page=page)
    atomic.write_file(path, card)
    return card


def written_by_hand(card: str) -> str:
    """The author's own section of a card; empty if there is none."""
    _, start, rest = card.partition(START)
    text, end, _ = rest.partition(END)
    return "" if not (start and end) or text.strip() == _INVITATION else text.strip()


def _does(generation: GenerationConfig) -> str:
    if generation.task == "translate":
        target = f" into {generation.target_language}" if generation.target_language else ""
        return f"translates {' or '.join(generation.source_languages) or 'text'}{target}"
    return {"chat": "holds a conversation", "complete": "continues text"}[generation.task]


def _examples(bundle: Bundle) -> str:
    if not has_examples(bundle):
        return ""
    found = examples(bundle)
    if bundle.generation.task == "translate":
        return _table(("text", "translation"), [(turn.said, turn.answer) for (turn,) in found])
    blocks = [as_dialogue(turns).replace("```", "") for turns in found]  # a fence would end the block
    return "\n\n".join(f"```text\n{block}\n```" for block in blocks)


def _results(record: TrainingRecord) -> str:
    rows = [
        (f.data, f.split, METRICS.get(f.metric, f.metric), f"{f.value:.2f}", f"{f.examples:,}", f"`{f.signature}`")
        for f in record.figures
    ]
    return _table(("data", "split", "metric", "value", "examples", "signature"), rows)


def _cases(bundle: Bundle) -> dict[str, str]:
    """The share of right answers to what people type first, and what failed, where the folder has them."""
    if not bundle.has(CASES):
        return {"cases": "", "failed_cases": ""}
    report = CaseReport.read(bundle.folder / CASES)
    rows = [(group, str(count), f"{share:.2f} %") for group, _, count, share in report.rows]
    failures = [(f.group, f.source, f.answer, f.accepted) for f in report.failures]
    return {
        "cases": _table(("group", "cases", "right"), rows),
        "failed_cases": _table(("group", "text", "answer", "right would be"), failures),
    }


def _parity(report: ParityReport) -> str:
    rows = []
    for candidate in report.candidates:
        # A backend's own cached pass against its own whole one says nothing about the reference.
        cases = [case for case in report.cases if case.candidate == candidate and case.kind != "consistency"]
        task = next((case.detail for case in cases if case.kind == "task"), "")
        # Inner values are no logits, and some of them are large.
        differences = [case.max_absolute for case in cases if case.kind != "inside"]
        worst = "judged by its task" if task else f"{max(differences, default=0.0):.1e}"
        verdict = "equal" if all(case.passed for case in cases) else "differs"
        rows.append((candidate, str(len(cases)), worst, f"{verdict}{f' ({task})' if task else ''}"))
    return _table(("backend", "cases", "largest difference of a logit", "verdict"), rows)


def _sources(record: TrainingRecord) -> str:
    rows = [
        (f"[{s.name}]({s.url})" if s.url else s.name, f"`{s.path}`", s.licence or "not stated", s.attribution)
        for s in record.sources
    ]
    return _table(("data", "file", "licence", "attribution"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; nothing without rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """A text that stays in its cell."""
    return " ".join(text.replace("|", "\\|").split()).replace("``", "")
