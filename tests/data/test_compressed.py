"""Data compressed with xz is read as if it were not; what is damaged or made to fill the memory is refused."""

import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.training_fixtures import byte_tokenizer, write_jsonl, write_pairs
from tiny_transformer.data import batches, files
from tiny_transformer.data.cache import tokenized
from tiny_transformer.data.examples import read_examples, source_bytes
from tiny_transformer.data.files import DataFile, content_hash, exists, join, locate, open_text, shipped_data
from tiny_transformer.data.records import Pair, read_all
from tiny_transformer.data.source import Source
from tiny_transformer.errors import DataError
from tiny_transformer.evaluation import Question
from tiny_transformer.training.distillation import read_sources
from tiny_transformer.training.evaluation_data import read_questions
from tiny_transformer.training.recipe import load_recipe

PAIRS = [(f"Satz {i}", f"sentence {i}") for i in range(200)]


def compress(path: Path) -> Path:
    """Put the compressed file in the place of the plain one."""
    packed = path.with_name(path.name + ".xz")
    packed.write_bytes(lzma.compress(path.read_bytes()))
    path.unlink()
    return packed


def text_of(path: Path) -> bytes:
    with open_text(DataFile(str(path), path)) as stream:
        return stream.read()


def test_a_compressed_file_is_found_under_either_name(tmp_path: Path) -> None:
    plain = write_pairs(tmp_path / "a.tsv", PAIRS)
    wanted = list(read_examples(Source(name="a", path=str(plain)), "", "train"))
    packed = compress(plain)
    for path in (plain, packed):
        assert exists(str(path))
        assert list(read_examples(Source(name="a", path=str(path)), "", "train")) == wanted
        ((file,),) = locate(str(path))
        assert (file.name, file.path, file.suffix) == (str(path), packed, ".tsv")
    assert list(read_examples(Source(name="a", path="a.tsv"), str(tmp_path), "train")) == wanted
    assert not exists(str(tmp_path / "b.tsv"))


def test_much_text_counts_as_much_when_it_is_compressed() -> None:
    """Eight variants of the translator's pairs are tokenized on every core at once."""
    sources = [source for source in load_recipe("translate").sources if source.split == "train"]
    for source in sources:
        found = source_bytes(source, shipped_data())
        ((file,),) = locate(join(shipped_data(), source.path))
        assert len(text_of(file.path)) / 2 < found < 2 * len(text_of(file.path))
    total = sum(source.variants * source_bytes(source, shipped_data()) for source in sources)
    assert total > batches._MIN_PARALLEL_BYTES


def test_parallel_files_and_folders_may_be_compressed(tmp_path: Path) -> None:
    for name in ("x.de", "x.en"):
        (tmp_path / name).write_text("one\ntwo\n", encoding="utf-8")
    compress(tmp_path / "x.en")
    source = Source(name="x", path=str(tmp_path / "x.{de,en}"))
    assert list(read_examples(source, "", "train")) == [Pair("one", "one"), Pair("two", "two")]
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, count in (("a.tsv", 1), ("b.tsv", 2), ("both.tsv", 3)):
        write_pairs(folder / name, PAIRS[:count])
    compress(folder / "a.tsv")
    compress(folder / "both.tsv")
    write_pairs(folder / "both.tsv", PAIRS[:3])
    (folder / "other.xz").write_bytes(b"")
    names = [Path(file.name).name for (file,) in locate(str(folder))]
    assert names == ["a.tsv.xz", "b.tsv", "both.tsv"], "what is there in both forms is read once"


def test_the_hash_and_the_cache_are_those_of_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    plain = write_pairs(tmp_path / "a.tsv", PAIRS)
    source = Source(name="a", path=str(plain))
    first = tokenized(source, "", byte_tokenizer(), 64)
    hashed = content_hash(DataFile("a", plain))
    packed = compress(plain)
    assert content_hash(DataFile("a", packed)) == hashed
    monkeypatch.setattr("tiny_transformer.data.cache._write", lambda *_: pytest.fail("was tokenized again"))
    assert len(tokenized(source, "", byte_tokenizer(), 64)) == len(first)


def test_what_is_evaluated_distilled_or_added_may_be_compressed(tmp_path: Path) -> None:
    packed = compress(write_pairs(tmp_path / "a.tsv", PAIRS[:2]))
    wanted = [Question(*pair) for pair in PAIRS[:2]]
    lines = compress(write_jsonl(tmp_path / "e.jsonl", [{"source": a, "target": b} for a, b in PAIRS[:2]]))
    for path in (packed, tmp_path / "a.tsv", lines):
        assert read_questions([path]) == wanted
    text = tmp_path / "t.txt"
    text.write_text("Hallo.\nGuten Tag.\n", encoding="utf-8")
    assert read_sources([str(compress(text))]) == ("Hallo.", "Guten Tag.")
    assert load_recipe("translate", also=[str(packed)]).sources[-1].name == "a"


def test_joined_and_padded_streams_are_one_text(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.xz"
    path.write_bytes(lzma.compress(b"a\tb\n" * 50_000) + b"\0\0\0\0" + lzma.compress(b"c\td\n"))
    assert text_of(path) == b"a\tb\n" * 50_000 + b"c\td\n"


@pytest.mark.parametrize(
    "harm", [lambda b: b[:-20], lambda b: b[:40] + b"xxxx" + b[44:], lambda b: b"no", lambda b: b""]
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "a.tsv.xz"
    path.write_bytes(harm(lzma.compress("".join(f"{a}\t{b}\n" for a, b in PAIRS).encode())))
    with pytest.raises(DataError, match=r"a\.tsv\.xz cannot be decompressed \(.+\); copy or compress it again\."):
        list(read_examples(Source(name="a", path=str(path)), "", "train"))


def test_a_file_made_to_fill_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.txt.xz"
    path.write_bytes(lzma.compress((b"a" * ((1 << 18) - 1) + b"\n") * 64) * 64)  # 1 GiB of long lines
    assert path.stat().st_size < 1 << 18
    tracemalloc.start()
    with pytest.raises(DataError, match=r"bomb\.txt\.xz grows more than 300-fold when it is decompressed"):
        list(read_all(locate(str(path)), "text", "bomb"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 28  # a quarter of it


def test_a_dictionary_larger_than_that_of_xz_9_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tsv.xz"
    wide = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    path.write_bytes(lzma.compress(b"a\tb\n", filters=wide))
    assert text_of(path) == b"a\tb\n"
    monkeypatch.setattr(files, "_DICTIONARY_LIMIT", 1 << 19)
    with pytest.raises(DataError, match="emory usage limit"):
        text_of(path)
    path.write_bytes(lzma.compress(b"a\tb\n", preset=9))
    monkeypatch.undo()
    assert text_of(path) == b"a\tb\n", "what xz -9 makes is read"
