"""Words and their translations, found in the sentence pairs: writes synthetic/dictionary.tsv.

A word and an English word belong together where most sentences with the one have the other, and the other way round.
Chinese is written without spaces: there every run of two to four characters may be a word.

    python datasets/dictionary.py
"""

import json
import lzma
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tiny_transformer.data.examples import plain_words

HERE = Path(__file__).parent
FEWEST = 4  # sentences with the word
FORWARD, BACKWARD = 0.6, 0.25  # least share of its sentences that have the other word
WHOLE = 0.7  # share of a run's sentences in which a longer run around it stands: then the longer one is the word
PARTICLES = set(
    "的了是我你您他她它们們在不没沒有到很要会會着著过過吗嗎这這那个個一两兩太被把就都也和跟从從能请請说說吃得地最还還"
)


def pairs(name: str) -> Iterator[tuple[str, str]]:
    """The sentence pairs of a file."""
    with lzma.open(HERE / "tatoeba" / name, "rt", encoding="utf-8") as lines:
        for line in lines:
            source, target = line.rstrip("\n").split("\t")[:2]
            yield source, target


def words_of(sentence: str) -> set[str]:
    """The words of a German or English sentence; the first one only in small letters, if it is not a name."""
    words = re.findall(r"[^\W\d_]+(?:['’-][^\W\d_]+)*", sentence)
    return set(words[1:]) | {words[0].lower()} if words else set()


def runs_of(sentence: str) -> set[str]:
    """Every run of two to four Chinese characters without a particle."""
    found = set()
    for stretch in re.findall(r"[\u4e00-\u9fff]+", sentence):
        found |= {stretch[i : i + n] for n in (2, 3, 4) for i in range(len(stretch) - n + 1)}
    return {run for run in found if not PARTICLES & set(run)}


def found_in(name: str) -> Iterator[tuple[str, str]]:
    """Words of a file of pairs with their translations, the surest first."""
    split = runs_of if name.startswith("zh") else words_of
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    both: dict[str, Counter[str]] = defaultdict(Counter)
    for source, target in set(pairs(name)):
        left, right = split(source), words_of(target)
        sources.update(left)
        targets.update(right)
        for word in left:
            both[word].update(right)
    inner = {
        part
        for word, n in sources.items()
        if split is runs_of and n >= FEWEST
        for part in (word[1:], word[:-1])
        if n >= WHOLE * sources[part]
    }
    surest = []
    for word, n in sources.items():
        if n < FEWEST or word in inner:
            continue
        other, together = max(both[word].items(), key=lambda item: (item[1] ** 2 / targets[item[0]], item[0]))
        if together >= FORWARD * n and together >= BACKWARD * targets[other]:
            surest.append((together / n * together / targets[other], word, other))
    chosen: dict[str, str] = {}
    for _, word, other in sorted(surest, key=lambda item: (-item[0], item[1])):
        # Of Chinese runs that share a character and mean the same, the surest one is the word.
        if split is runs_of and any(chosen[w] == other and set(w) & set(word) for w in chosen):
            continue
        chosen[word] = other
    yield from chosen.items()


def never_trained_on() -> set[str]:
    """What is held out, and the cases."""
    held_out = {
        plain_words(text)
        for file in HERE.glob("tatoeba/*.tsv.xz")
        if "train" not in file.name
        for pair in pairs(file.name)
        for text in pair
    }
    cases = (HERE / "cases" / "translate.jsonl").read_text(encoding="utf-8").splitlines()
    return held_out | {plain_words(json.loads(line)["source"]) for line in cases}


def write(lines: Iterable[tuple[str, str]]) -> None:
    """The file, one pair a line."""
    text = "".join(f"{word}\t{other}\n" for word, other in lines)
    (HERE / "synthetic" / "dictionary.tsv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    kept_out = never_trained_on()
    write(
        (word, other)
        for name in ("de-en.train.tsv.xz", "zh-en.train.tsv.xz")
        for word, other in found_in(name)
        if not {plain_words(word), plain_words(other)} & kept_out
    )
