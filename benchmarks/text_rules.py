"""How often the rules for sentences and languages are right.

    python -m benchmarks.text_rules --data PAIRS.tsv ...

Sentences: the cases of `tests/support/sentence_cases.py`, cut by the product and by the libraries sentencex, pysbd and
syntok, where they are installed. Languages: each file holds lines of a source and its English translation; printed is
what each side is taken for.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.support.sentence_cases import CASES, CHINESE, ENGLISH
from tiny_transformer.generation.language import guess
from tiny_transformer.generation.sentences import split

MIN_WORDS = 4  # an English sentence of fewer may well be of several languages
Splitter = Callable[[str, str], list[str]]  # text, language → sentences


def product(text: str, language: str) -> list[str]:
    """Ours, for all languages alike."""
    return [text[span.start : span.end] for span in split(text)]


def sentencex(library: Any) -> Splitter:
    """Wikimedia's."""
    return lambda text, language: list(library.segment(language, text))


def pysbd(library: Any) -> Splitter:
    """The pragmatic segmenter's rules in Python."""
    return lambda text, language: library.Segmenter(language=language, clean=False).segment(text)


def syntok(library: Any) -> Splitter:
    """It finds the language itself."""
    return lambda text, language: [
        "".join(token.spacing + token.value for token in sentence)
        for paragraph in library.analyze(text)
        for sentence in paragraph
    ]


LIBRARIES = {"sentencex": (sentencex, "sentencex"), "pysbd": (pysbd, "pysbd"), "syntok": (syntok, "syntok.segmenter")}


def n_right(splitter: Splitter) -> int:
    """Cases that are cut as a reader would cut them."""
    languages = dict.fromkeys(CHINESE, "zh") | dict.fromkeys(ENGLISH, "en")
    return sum(
        [
            sentence.strip()
            for sentence in splitter(case.replace("¦", ""), languages.get(case, "de"))
            if sentence.strip()
        ]
        == [sentence.strip() for sentence in case.split("¦")]
        for case in CASES
    )


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description="How often the rules for sentences and languages are right.")
    parser.add_argument("--data", nargs="*", type=Path, default=[], metavar="PAIRS.tsv", help="source TAB English")
    options = parser.parse_args()
    print(f"{'ours':<16} {n_right(product):>4} of {len(CASES)} texts are cut as wished")
    for name, (build, module) in LIBRARIES.items():
        try:
            library = import_module(module)
        except ImportError:
            print(f"{name:<16} is not installed")
            continue
        print(f"{name + ' ' + version(name):<16} {n_right(build(library)):>4} of {len(CASES)}")
    for path in options.data:
        pairs = [line.split("\t")[:2] for line in path.read_text(encoding="utf-8").splitlines()]
        english = [target for _, target in pairs if len(target.split()) >= MIN_WORDS]
        for side, texts in (("sources", [source for source, _ in pairs]), (f"English, {MIN_WORDS} words up", english)):
            guessed = Counter(guess(text) or "unsure" for text in texts)
            shares = ", ".join(f"{language} {100 * n / len(texts):.3f} %" for language, n in guessed.most_common())
            print(f"{path.name} {side}: {len(texts):,} texts: {shares}")


if __name__ == "__main__":
    main()
