"""`evaluate`: measure a model folder on a file of examples."""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiny_transformer.accepted_answers import CaseReport

EXAMPLE = "python -m tiny_transformer evaluate checkpoints/translate --data test.tsv --num-beams 5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, the examples, and the options of generation."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a model folder or a Hub repo id")
    parser.add_argument(
        "--data",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="pairs (TSV, JSONL, or two parallel files), intents or evaluation.jsonl (default: the folder's own); "
        "or the data folder the model was trained from: its test sets, as in the card",
    )
    parser.add_argument(
        "--sources",
        nargs="*",
        metavar="NAME",
        help="the test sets that the model's recipe has under these names, as in the card (no name: all of them); "
        "from --data, or from the checkout's folder datasets",
    )
    parser.add_argument(
        "--cases",
        nargs="?",
        const="",
        metavar="FILE",
        help="cases with every answer that counts as right, instead of --data: the share of right answers of each "
        "group (default: the checkout's datasets/cases of the model's task)",
    )
    parser.add_argument("--failures", action="store_true", help="with --cases: list what the model gets wrong")
    parser.add_argument("--save", action="store_true", help="with --cases: keep figures and failures for the card")
    parser.add_argument("--recipe", metavar="NAME", help="the test sets of this recipe instead of the model's own")
    parser.add_argument("--backend", default="auto", help="auto, eager, torchscript, onnx or onnx-int8")
    parser.add_argument("--device", help="cpu or cuda")
    parser.add_argument("--threads", type=int, metavar="N", help="of the CPU")
    parser.add_argument("--num-beams", type=int, metavar="N", help="1 = greedy (default)")
    parser.add_argument("--length-penalty", type=float, metavar="P", help="default: generation.json's")
    parser.add_argument("--repetition-penalty", type=float, metavar="P", help="default: generation.json's")
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help="default: generation.json's")
    parser.add_argument(
        "--paragraphs",
        type=int,
        metavar="N",
        help="join every N examples to one text, and compare its translation with that of the examples one by one",
    )
    parser.add_argument("--tokenize", help="sacrebleu's tokenizer; none for text that is tokenized already")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(options: argparse.Namespace) -> None:
    """Load, answer every example, print the figures."""
    from tqdm import tqdm

    import tiny_transformer as tt
    from tiny_transformer import atomic
    from tiny_transformer.accepted_answers import evaluate_cases, read_cases
    from tiny_transformer.bundle import CASES, EVALUATION
    from tiny_transformer.checks import check_whole
    from tiny_transformer.data.files import join, shipped_data
    from tiny_transformer.errors import InputError
    from tiny_transformer.evaluation import Evaluation, evaluate_model, evaluate_paragraphs
    from tiny_transformer.training.evaluation_data import QuestionSet, card_questions, read_questions

    model = tt.load(options.bundle, backend=options.backend, device=options.device, threads=options.threads)
    names = ("num_beams", "length_penalty", "repetition_penalty", "max_new_tokens")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.cases is not None:
        file = Path(options.cases or join(shipped_data(), f"cases/{model.task}.jsonl"))
        if not options.cases and not file.is_file():
            template = "This checkout holds no cases for the task {task}; name a file with --cases FILE."
            raise InputError(template, task=model.task)
        report = evaluate_cases(model, read_cases(file), **given)
        _print_cases(report, options)
        if options.save:
            atomic.write_file(model.bundle.folder / CASES, report.to_json())
        return
    tokenize = options.tokenize
    if options.recipe or options.sources is not None or (options.data and options.data[0].is_dir()):
        root = str(options.data[0]) if options.data else ""
        recipe, groups = card_questions(model.bundle.folder, root, options.sources or (), options.recipe or "")
        given = {"num_beams": recipe.evaluation.num_beams} | given
        tokenize = tokenize or recipe.evaluation.tokenize
    else:
        files = options.data or [model.bundle.folder / EVALUATION]
        groups = [QuestionSet("", tuple(read_questions(files)))]
    measure: Callable[..., Evaluation] = evaluate_model
    if options.paragraphs is not None:
        check_whole("--paragraphs", options.paragraphs, 2, 1_000, InputError)
        measure = partial(evaluate_paragraphs, size=options.paragraphs)
    found = {}
    with tqdm(total=sum(len(group.questions) for group in groups), unit="text", disable=None) as bar:
        for group in groups:
            bar.set_description_str(group.name)
            found[group.name] = measure(model, group.questions, tokenize=tokenize, progress=bar.update, **given)
    if options.json:
        values = {name: evaluation.to_dict() for name, evaluation in found.items()}
        print(json.dumps(values.get("", values), ensure_ascii=False))
        return
    width = max(16, *map(len, found))
    for name, evaluation in found.items():
        print(f"{name + ': ' if name else ''}{evaluation.examples:,} examples", file=sys.stderr)
        for metric, value in evaluation.metrics.items():
            line = f"{metric:<12} {value:6.2f}  {evaluation.signatures.get(metric, '')}".rstrip()
            print(f"{name:<{width}} {line}" if name else line)


def _print_cases(report: "CaseReport", options: argparse.Namespace) -> None:
    if options.json:
        print(report.to_json(), end="")
        return
    for group, right, count, share in report.rows:
        print(f"{group:<16} {share:6.2f}  {right} of {count}")
    for failure in report.failures if options.failures else ():
        print(f"{failure.group:<16} {failure.source}")
        print(f"{'':<16}   gave   {failure.answer}\n{'':<16}   wanted {failure.accepted}")
