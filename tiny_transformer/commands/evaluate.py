"""`evaluate`: measure a model folder on a file of examples."""

import argparse
import json
import sys
from pathlib import Path

EXAMPLE = "python -m tiny_transformer evaluate checkpoints/translate --data test.tsv --num-beams 5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, the examples, and the options of generation."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a model folder or a Hub repo id")
    parser.add_argument(
        "--data",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="pairs (TSV, JSONL, or two parallel files), intents or evaluation.jsonl (default: the folder's own)",
    )
    parser.add_argument("--backend", default="auto", help="auto, eager, torchscript, onnx or onnx-int8")
    parser.add_argument("--device", help="cpu or cuda")
    parser.add_argument("--threads", type=int, metavar="N", help="of the CPU")
    parser.add_argument("--num-beams", type=int, metavar="N", help="1 = greedy (default)")
    parser.add_argument("--length-penalty", type=float, metavar="P", help="default: generation.json's")
    parser.add_argument("--repetition-penalty", type=float, metavar="P", help="default: generation.json's")
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help="default: generation.json's")
    parser.add_argument("--tokenize", help="sacrebleu's tokenizer; none for text that is tokenised already")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(options: argparse.Namespace) -> None:
    """Load, answer every example, print the figures."""
    import tiny_transformer as tt
    from tiny_transformer.bundle import EVALUATION
    from tiny_transformer.evaluation import evaluate_model
    from tiny_transformer.training.questions import read_questions

    model = tt.load(options.bundle, backend=options.backend, device=options.device, threads=options.threads)
    questions = read_questions(options.data or [model.bundle.folder / EVALUATION])
    names = ("num_beams", "length_penalty", "repetition_penalty", "max_new_tokens")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    found = evaluate_model(model, questions, tokenize=options.tokenize, **given)
    if options.json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
        return
    print(f"{found.examples:,} examples", file=sys.stderr)
    for name, value in found.metrics.items():
        print(f"{name:<12} {value:6.2f}  {found.signatures.get(name, '')}".rstrip())
