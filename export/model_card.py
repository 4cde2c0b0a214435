"""The model card: generated from config, training and parity; what people wrote by hand stays."""

import json
from collections.abc import Iterable, Sequence

from tiny_transformer import atomic
from tiny_transformer.bundle import CARD, EVALUATION, WEIGHTS, Bundle
from tiny_transformer.parity.report import ParityReport

from .card_examples import as_dialogue, examples, has_examples
from .card_metadata import METRICS, as_yaml, front_matter
from .card_usage import bare_onnx, example_text
from .training_facts import TrainingFacts, training_facts

START, END = "<!-- written by hand: start -->", "<!-- written by hand: end -->"
_INVITATION = "*Notes of the author go between these two lines; a push keeps them.*"
CURVE = "training.png"


def model_card(bundle: Bundle, report: ParityReport, repo_id: str, *, licence: str = "", by_hand: str = "") -> str:
    """The whole README.md of a model repo; equal facts give equal text."""
    facts = training_facts(bundle)
    name = repo_id.rsplit("/", 1)[-1]
    sections = [
        f"# {name}\n\n{_what(bundle)}",
        f"{START}\n{by_hand or _INVITATION}\n{END}",
        _examples(bundle),
        _usage(bundle, repo_id),
        _results(facts),
        _parity(report),
        _training(bundle, facts),
        _limits(bundle),
    ]
    metadata = as_yaml(front_matter(bundle, facts, name, licence))
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


def _results(facts: TrainingFacts) -> str:
    if not facts.figures:
        return ""
    rows = [
        (f.data, f.split, METRICS.get(f.metric, f.metric), f"{f.value:.2f}", f"{f.examples:,}", f"`{f.signature}`")
        for f in facts.figures
    ]
    table = _table(("data", "split", "metric", "value", "examples", "signature"), rows)
    return f"## Results\n\n{table}\n\nMeasured on these weights as they are stored, with {facts.decoding}."


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


def _training(bundle: Bundle, facts: TrainingFacts) -> str:
    if not (facts.recipe or facts.sources):
        return ""
    about = f"Recipe `{facts.recipe}`: {facts.run}." if facts.run else f"Recipe `{facts.recipe}`."
    if facts.started_from:
        about += f" {facts.started_from}"
    rows = [
        (f"[{s.name}]({s.url})" if s.url else s.name, f"`{s.path}`", s.licence or "not stated", s.attribution)
        for s in facts.sources
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
