"""A model folder described for people: sizes, training, results, parity, files, and code that uses it."""

import html
import json
import math
import re
from pathlib import Path
from urllib.parse import quote

import gradio as gr

from tiny_transformer.backends import BACKENDS, available
from tiny_transformer.bundle import CARD, TORCHSCRIPT, Bundle
from tiny_transformer.errors import BundleError, ParityError, Sentence
from tiny_transformer.parity import ParityReport, stored_report
from tiny_transformer.training_record import TrainingRecord
from tiny_transformer.ui.handlers import QUIET, language_of, user_errors
from tiny_transformer.ui.header import Header
from tiny_transformer.ui.i18n import Language, say, translated
from tiny_transformer.ui.markup import line_chart, number, row, said, section, table
from tiny_transformer.ui.reading import chapter
from tiny_transformer.ui.service import PageService

FILES = "/files"  # where the server hands out a model's files


def about(name: str, bundle: Bundle, language: Language, address: str) -> str:
    """Everything but the card."""
    report, problem = _report(bundle)
    training = _training(bundle)
    parts = [
        _badge(bundle, report, problem, language),
        _sizes(bundle, language),
        _results(training, language),
        _curve(training, language),
        _parity(report, language),
        _files(name, bundle, report, language),
        _code(name, bundle, language, address),
    ]
    return "".join(parts)


def card(name: str, bundle: Bundle, language: Language) -> str:
    """The model card as Markdown, its pictures taken from the folder alone."""
    path = bundle.folder / CARD
    if not path.is_file():
        return say(language, "about_no_card")
    text = path.read_text(encoding="utf-8", errors="replace")
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    # A picture from elsewhere would be a request to another host.
    text = re.sub(r"!\[([^\]]*)\]\(\w+://[^)]*\)", r"\1", text)
    return re.sub(r"!\[([^\]]*)\]\(([\w.-]+)\)", rf"![\1]({FILES}/{quote(name)}/\2)", text)


def downloads(bundle: Bundle) -> list[str]:
    """The files a visitor may fetch; a TorchScript archive is made on request where PyTorch is installed."""
    names = bundle.files()
    if TORCHSCRIPT not in names and available(bundle)["torchscript"] is None:
        names.append(TORCHSCRIPT)
    return names


def _report(bundle: Bundle) -> tuple[ParityReport | None, Sentence | None]:
    try:
        return stored_report(bundle), None
    except (ParityError, BundleError) as error:
        return None, error.message


def _training(bundle: Bundle) -> TrainingRecord:
    """What is recorded of the training; a folder made elsewhere may hold anything here, which is then not shown."""
    try:
        return TrainingRecord.read(bundle.folder)
    except BundleError:
        return TrainingRecord()


def _badge(bundle: Bundle, report: ParityReport | None, problem: Sentence | None, language: Language) -> str:
    if problem is not None:
        color, title = "bad", "about_unverified"
        text = say(language, "about_damaged_text", problem=translated(problem, language))
    elif report is None:
        color, title = "fair", "about_unverified"
        text = say(language, "about_unverified_text", command=f"python -m export all {bundle.folder.name}")
    else:
        color, title = "good", "about_verified"
        known = (say(language, f"backend_{name}") if name in BACKENDS else name for name in report.candidates)
        names = ", ".join(known)
        text = say(language, "about_verified_text", cases=len(report.cases), backends=names)
    return f'<p class="tt-verdict tt-{color}"><b>{say(language, title)}</b> {html.escape(text)}</p>'


def _sizes(bundle: Bundle, language: Language) -> str:
    config = bundle.config
    parameters = config.n_parameters
    layers = (
        f"{config.n_encoder_layers} + {config.n_decoder_layers}"
        if config.n_encoder_layers
        else str(config.n_decoder_layers)
    )
    facts = {
        "parameters": f"{parameters / 1e6:.1f} M" if parameters >= 1e6 else f"{parameters:,}",
        "layers": layers,
        "width": str(config.d_model),
        "heads": str(config.n_heads),
        "vocabulary": f"{config.vocab_size:,}",
        **({"written": f"{config.output_vocab_size:,}"} if config.output_vocab_size else {}),
        "context": str(config.max_length),
        "architecture": config.architecture,
    }
    items = "".join(
        f"<div><dt>{html.escape(say(language, f'about_{key}'))}</dt><dd>{html.escape(value)}</dd></div>"
        for key, value in facts.items()
    )
    return section(say(language, "about_sizes"), f'<dl class="tt-facts">{items}</dl>')


def _results(training: TrainingRecord, language: Language) -> str:
    rows = [(f.data, f.metric, f"{f.value:.2f}") for f in training.figures if f.split == "test"]
    if not rows:
        return ""
    heads = [say(language, f"about_{key}") for key in ("test", "figure", "value")]
    return section(say(language, "about_results"), table(heads, map(row, rows)))


def _curve(training: TrainingRecord, language: Language) -> str:
    points = [(entry["step"], entry["loss"]) for entry in training.curve if math.isfinite(entry["loss"])]
    if len(points) < 2:
        return section(say(language, "about_training"), f"<p>{say(language, 'about_no_training')}</p>")
    title = say(language, "about_curve", steps=f"{points[-1][0]:,.0f}")
    return section(say(language, "about_training"), f'<p class="tt-intro">{title}</p>{line_chart(points, title)}')


def _parity(report: ParityReport | None, language: Language) -> str:
    if report is None:
        return ""
    heads = [say(language, key) for key in ("column_backend", "about_case", "about_difference", "about_tolerance")]
    rows = [
        (say(language, f"backend_{case.candidate}"), case.name, number(case.max_absolute), number(case.tolerance))
        for case in report.cases
    ]
    digest = report.to_dict()["digest"]
    title = said(language, "about_cases", n=len(rows))
    body = (
        f"<details><summary>{title}</summary>{table(heads, map(row, rows))}</details>"
        f'<p class="tt-hash">{say(language, "about_digest")}: <code>{html.escape(str(digest))}</code></p>'
    )
    return section(say(language, "about_parity"), body)


def _files(name: str, bundle: Bundle, report: ParityReport | None, language: Language) -> str:
    rows = []
    for file in downloads(bundle):
        path = bundle.folder / file
        size = _size(path) if path.is_file() else say(language, "about_on_demand")
        sha = report.files.get(file, "") if report else ""
        link = f'<a href="{FILES}/{quote(name)}/{quote(file)}" download>{html.escape(file)}</a>'
        code = f'<code title="{html.escape(sha)}">{html.escape(sha[:16])}</code>'
        rows.append(f"<tr><td>{link}</td><td>{html.escape(size)}</td><td>{code}</td></tr>")
    heads = [say(language, "about_file"), say(language, "about_size"), "SHA-256"]
    return section(say(language, "about_files"), table(heads, rows))


def _code(name: str, bundle: Bundle, language: Language, address: str) -> str:
    chat = bundle.generation.task == "chat"
    text = "Hello!" if chat else "Guten Morgen!"
    endpoint = "chat" if chat else "translate"
    where = f"checkpoints/{name}"
    python = f'import tiny_transformer as tt; print(tt.load("{where}").generate("{text}").text)'
    onnx = f'import tiny_transformer as tt; print(tt.load("{where}", backend="onnx").generate("{text}").text)'
    argument = json.dumps({"message" if chat else "text": text})
    post = f"curl -s {address}/gradio_api/call/v2/{endpoint} -H 'Content-Type: application/json' -d '{argument}'"
    http = f"""curl -sN {address}/gradio_api/call/{endpoint}/$({post} | cut -d'"' -f4)"""
    messages = json.dumps({"model": name, "messages": [{"role": "user", "content": text}]})
    openai = f"curl -s {address}/v1/chat/completions -H 'Content-Type: application/json' -d '{messages}'"
    mcp = f"{address}/gradio_api/mcp/"
    lines = (
        ("about_python", python),
        ("about_http", http),
        ("about_openai", openai),
        ("about_mcp", mcp),
        ("about_embed", onnx),
    )
    body = "".join(
        f'<h3>{said(language, key)}</h3><pre class="tt-code" tabindex="0"><code>{html.escape(code)}</code></pre>'
        for key, code in lines
    )
    return section(say(language, "about_code"), body)


def _size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} KB"


def build_about_tab(service: PageService, header: Header, tab: gr.Tab, i18n: gr.I18n) -> None:
    """Facts first, then the card, then the chapter that goes from the paper to the code."""

    def read(request: gr.Request) -> str:
        return chapter(language_of(request))

    facts = gr.HTML(elem_id="tt-about")
    with gr.Accordion(i18n("about_card"), open=False, elem_id="tt-card"):
        text = gr.Markdown(elem_id="tt-card-text")
    if chapter("en"):
        with gr.Accordion(i18n("about_chapter"), open=False, elem_id="tt-chapter") as opened:
            pages = gr.Markdown(elem_id="tt-chapter-text")
        opened.expand(user_errors(read), None, pages, **QUIET)

    def describe(name: str, request: gr.Request) -> tuple[str, str]:
        language = language_of(request)
        entry = service.store.entry(name)
        if entry.bundle is None:
            problem = translated(entry.problem or "", language)
            sentence = say(language, "model_problem", problem=problem)
            return f'<p class="tt-problem">{html.escape(sentence)}</p>', ""
        address = str(request.request.base_url).rstrip("/") if request.request else ""
        return about(name, entry.bundle, language, address), card(name, entry.bundle, language)

    gr.on(
        [tab.select, header.model.change],
        user_errors(describe),
        header.model,
        [facts, text],
        **QUIET,
    )
