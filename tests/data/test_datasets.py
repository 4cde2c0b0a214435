"""The data in the checkout: what the table and the checksums say is there, and nothing that is measured is learned."""

import hashlib
import re
from itertools import chain

import pytest

from tests.support.models import ROOT
from tiny_transformer.data.examples import plain_words
from tiny_transformer.data.files import exists, join, locate, open_text
from tiny_transformer.data.records import read_all
from tiny_transformer.training.recipe import load_recipe, recipe_names

FOLDER = ROOT / "datasets"
FILES = sorted(
    path.relative_to(FOLDER).as_posix()
    for path in FOLDER.rglob("*")
    if path.is_file() and path.suffix not in (".md", ".py") and path.name != "SHA256SUMS"
)
HELD_OUT = [name for name in FILES if re.search(r"\.(dev|test|public)\.tsv(\.xz)?$", name)]
COLUMNS = ["file", "what", "lines", "licence", "attribution", "source", "how it came to be"]


def table() -> dict[str, dict[str, str]]:
    """The rows of the README, by file."""
    rows = [line for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    head, *found = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)
    assert head == COLUMNS
    return {row[0].strip("`"): dict(zip(COLUMNS, row, strict=True)) for row in found}


def test_table_checksums_and_folder_agree() -> None:
    lines = (FOLDER / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    checksums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    assert sorted(table()) == sorted(checksums) == FILES
    assert checksums == {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in FILES}


def test_every_row_of_the_table_is_filled() -> None:
    assert [(name, column) for name, row in table().items() for column, cell in row.items() if not cell] == []
    known = re.findall(
        r"^\| ([^|]+?) \| (?:<|below)", (FOLDER / "LICENSES.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {row["licence"] for row in table().values()} <= set(known)


@pytest.mark.parametrize("name", FILES)
def test_every_file_unpacks_and_has_the_lines_that_the_table_says(name: str) -> None:
    ((file,),) = locate(str(FOLDER / name.removesuffix(".xz")))
    with open_text(file) as stream:
        content = stream.read()
    content.decode("utf-8")
    assert content.endswith(b"\n")
    assert content.count(b"\n") == int(table()[name]["lines"].replace(",", ""))


def test_the_recipes_of_the_models_that_ship_find_all_their_files() -> None:
    for name in ("translate", "chat"):
        for source in load_recipe(name).sources:
            assert exists(join(str(FOLDER), source.path)), f"{name}: {source.path}"


def sentences(path: str) -> set[str]:
    """Both sides of the pairs of a file, without regard to case and punctuation."""
    found = set(map(plain_words, chain.from_iterable(read_all(locate(path), "pairs", path))))
    return found - {""}


@pytest.mark.long
def test_no_sentence_that_is_held_out_is_trained_on() -> None:
    held_out = set().union(*(sentences(str(FOLDER / name)) for name in HELD_OUT))
    sources = [source for name in recipe_names() for source in load_recipe(name).sources]
    trained = {s.path for s in sources if s.split == "train" and s.is_pairs and s.path}
    trained = {path for path in trained if exists(join(str(FOLDER), path))}  # Multi30k lies elsewhere
    assert len(held_out) > 40_000
    assert trained >= {"tatoeba/de-en.train.tsv", "tatoeba/zh-en.train.tsv"}
    for path in sorted(trained):
        assert sorted(sentences(str(FOLDER / path)) & held_out)[:5] == [], path
