"""`distil`: let a larger translator write the targets a smaller one learns from.

It can also bring phrasings of small talk from another language.
"""

import argparse
import sys
from pathlib import Path

from tiny_transformer.commands.generate import add_backend_arguments, add_decoding_arguments, decoding_options

EXAMPLE = "python -m tiny_transformer distil teacher --data train.tsv --out distilled.tsv --exclude test.tsv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The teacher, its sources, what it must not say, and how it decodes."""
    parser.add_argument("bundle", metavar="TEACHER", help="the larger model's folder")
    parser.add_argument(
        "--data", nargs="+", required=True, metavar="PATH", help="pairs, or a .txt file of sources; with --for, intents"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="source TAB target, or intents; for train --also"
    )
    parser.add_argument(
        "--exclude",
        nargs="+",
        default=[],
        metavar="PATH",
        help="pairs of dev and test, none of whose sentences is written; with --for, more intents to evaluate by",
    )
    parser.add_argument(
        "--back-translate",
        action="store_true",
        help="translate the second side of the pairs and write TRANSLATION TAB original",
    )
    parser.add_argument(
        "--tag", default="", metavar="TEXT", help="put before every source, where the transform tag did so in training"
    )
    parser.add_argument(
        "--for",
        nargs=2,
        dest="recipe",
        metavar=("RECIPE", "DATA"),
        help="phrasings for the small talk of this recipe in its data folder, from --data in another language",
    )
    parser.add_argument("--n-best", type=int, metavar="N", help="with --num-beams: so many targets a source")
    parser.add_argument("--batch-rows", type=int, default=512, metavar="N", help="hypotheses worked on at once")
    parser.add_argument("--overwrite", action="store_true", help="replace the file")
    add_backend_arguments(parser)
    add_decoding_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Generate and write; started again after a kill, the same command goes on."""
    from tiny_transformer.generation import GenerationOptions
    from tiny_transformer.text_model import load
    from tiny_transformer.training.distillation import (
        Distillation,
        TranslatedParaphrases,
        back_translated,
        count_phrasings,
        distil,
        read_forbidden,
        read_sources,
        tab_separated,
    )
    from tiny_transformer.training.recipe import load_recipe

    teacher = load(options.bundle, options.backend, options.device, options.threads)
    decoding = GenerationOptions.from_keywords(
        {**decoding_options(options), "logprobs": False}, teacher.bundle.generation
    )
    if options.recipe is None:
        sources = read_sources(options.data, side=1 if options.back_translate else 0)
        forbidden = read_forbidden(options.exclude)
        work = Distillation(teacher, sources, decoding, forbidden, options.tag, options.batch_rows)
        lines = back_translated if options.back_translate else tab_separated
        written = distil(work, options.out, overwrite=options.overwrite, lines=lines)
        recipe, what = "RECIPE", f"{len(written):,} pairs"
    else:
        recipe, root = options.recipe
        paraphrases = TranslatedParaphrases.read(load_recipe(recipe), root, options.data, options.exclude)
        work = Distillation(teacher, paraphrases.sources, decoding, batch_rows=options.batch_rows)
        written = distil(work, options.out, overwrite=options.overwrite, lines=paraphrases.lines)
        what = f"{count_phrasings(written):,} phrasings of {len(written):,} intents"
    print(
        f"wrote {what} from {len(work.sources):,} sources to {options.out}; "
        f"train on them with: python -m tiny_transformer train {recipe} --also {options.out}",
        file=sys.stderr,
    )
