"""Tokenized data: made once, found again by content, whole or not there at all."""

import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.training_fixtures import byte_tokenizer, learned_tokenizer, write_jsonl, write_pairs
from tiny_transformer.data import cache, encoding
from tiny_transformer.data.augment import Compose, SwapSides
from tiny_transformer.data.cache import Column, Part, tokenized
from tiny_transformer.data.encoding import encode_examples
from tiny_transformer.data.records import Dialogue, Text, turns
from tiny_transformer.data.source import Source
from tiny_transformer.tokenizer import Tokenizer

TEXTS = [("the cat sat", "on the mat"), ("a dog", "and the cat"), ("the mat and the dog", "sat")]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pairs(tmp_path: Path) -> Source:
    return Source(name="pairs", path=str(write_pairs(tmp_path / "a.tsv", TEXTS * 20)))


def rows(column: Column) -> list[list[int]]:
    return [column.ids[a:b].tolist() for a, b in zip(column.offsets[:-1], column.offsets[1:], strict=True)]


def no_reading(*_: object) -> Iterator:
    raise AssertionError("the cache was not used")


def test_rows_hold_what_the_model_reads(pairs: Source) -> None:
    tokenizer = byte_tokenizer()
    part = tokenized(pairs, "", tokenizer, 64)
    assert part.source is not None
    assert rows(part.source)[0] == [*tokenizer.encode("the cat sat"), tokenizer.eos_id]
    assert rows(part.target)[0] == [tokenizer.bos_id, *tokenizer.encode("on the mat"), tokenizer.eos_id]
    assert part.learned.tolist() == [len(row) - 1 for row in rows(part.target)]
    assert isinstance(part.target.ids.base, np.memmap)
    assert part.target.ids.dtype == np.uint16


def test_the_second_start_reads_nothing(pairs: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tokenized(pairs, "", byte_tokenizer(), 64)
    monkeypatch.setattr(cache, "read_examples", no_reading)
    assert rows(tokenized(pairs, "", byte_tokenizer(), 64).target) == rows(first.target)
    # Neither the place of the file nor how often it is shown changes the ids.
    moved = write_pairs(tmp_path / "moved.tsv", TEXTS * 20)
    tokenized(replace(pairs, path=str(moved), repeat=3.0), "", byte_tokenizer(), 64)


@pytest.mark.parametrize("what", ["content", "tokenizer", "option", "length"])
def test_whatever_changes_the_ids_makes_a_new_cache(pairs: Source, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenized(pairs, "", byte_tokenizer(), 64)
    monkeypatch.setattr(cache, "read_examples", no_reading)
    tokenizer, length = byte_tokenizer(), 64
    if what == "content":
        write_pairs(Path(pairs.path), TEXTS)
    elif what == "tokenizer":
        tokenizer = learned_tokenizer()
    elif what == "option":
        pairs = replace(pairs, transforms=(SwapSides(),))
    else:
        length = 32
    with pytest.raises(AssertionError, match="not used"):
        tokenized(pairs, "", tokenizer, length)


def test_other_talk_among_the_questions_makes_a_new_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = write_jsonl(tmp_path / "i.jsonl", [{"questions": ["Hi", "Hey"], "answer": "Hello!"}])
    talk = write_jsonl(tmp_path / "d.jsonl", [{"turns": ["a", "b"]}])
    source = Source(name="i", path=str(questions), format="intents", transforms=(Compose(interleave_with=str(talk)),))
    tokenized(source, "", byte_tokenizer(), 64)
    monkeypatch.setattr(cache, "read_examples", no_reading)
    tokenized(source, "", byte_tokenizer(), 64)
    write_jsonl(talk, [{"turns": ["c", "d"]}])
    with pytest.raises(AssertionError, match="not used"):
        tokenized(source, "", byte_tokenizer(), 64)


def test_a_failure_leaves_no_half_written_cache(pairs: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Iterator:
        yield turns(("a", "b"))
        raise RuntimeError("disk on fire")

    monkeypatch.setattr(cache, "read_examples", broken)
    with pytest.raises(RuntimeError, match="on fire"):
        tokenized(pairs, "", byte_tokenizer(), 64)
    assert list((tmp_path / "cache" / "tokens").iterdir()) == []


def test_bpe_dropout_respells_training_alone_and_leaves_a_clean_variant(pairs: Source) -> None:
    tokenizer = learned_tokenizer()
    source = replace(pairs, bpe_dropout=0.5, variants=3, held_out={"dev": 0.5})
    clean = tokenized(replace(pairs, held_out={"dev": 0.5}), "", tokenizer, 64)
    parts = [tokenized(source, "", tokenizer, 64, variant=variant) for variant in range(4)]
    sources = [rows(part.source) for part in parts]
    assert sources[0] == rows(clean.source) == sources[3]
    assert len({str(found) for found in sources}) == 3
    for part, found in zip(parts, sources, strict=True):
        assert [tokenizer.decode(row) for row in found] == [tokenizer.decode(row) for row in sources[0]]
        assert rows(part.target) == rows(clean.target)  # what is to be written has one spelling
    dev = tokenized(source, "", tokenizer, 64, split="dev", variant=1)
    assert all(row == [*tokenizer.encode(tokenizer.decode(row)), tokenizer.eos_id] for row in rows(dev.source))


@pytest.mark.parametrize("loss_on", ["replies", "all"])
def test_bpe_dropout_leaves_alone_whatever_is_learned(loss_on: str) -> None:
    tokenizer = learned_tokenizer()
    dialogue = turns(("the cat sat on the mat", "a dog and the cat") * 3)
    source = Source(format="dialogues", loss_on=loss_on)
    ((clean,), (varied,)) = (
        list(encode_examples([dialogue], tokenizer, source, 500, dropout=dropout)) for dropout in (0.0, 0.9)
    )
    learned = [[token for token, learn in zip(row.target, row.learn, strict=True) if learn] for row in (clean, varied)]
    assert learned[0] == learned[1]
    assert (clean.target == varied.target) == (loss_on == "all")
    assert tokenizer.decode(clean.target) == tokenizer.decode(varied.target)


def encoded(example: Dialogue | Text, source: Source, max_length: int = 64, tokenizer: Tokenizer | None = None) -> list:
    return list(encode_examples([example], tokenizer or byte_tokenizer(), source, max_length))


def test_only_replies_are_learned_unless_all_is_asked_for() -> None:
    tokenizer = byte_tokenizer()
    dialogue = turns(("ab", "cd", "e", "f"))
    (row,) = encoded(dialogue, Source(format="dialogues"))
    learned = [token for token, learn in zip(row.target, row.learn, strict=True) if learn]
    assert learned == [*tokenizer.encode("cd"), tokenizer.eos_id, *tokenizer.encode("f"), tokenizer.eos_id]
    assert row.target == tokenizer.encode_chat(dialogue.messages)[:-1]
    (row,) = encoded(dialogue, Source(format="dialogues", loss_on="all"))
    assert row.learn == [False] + [True] * (len(row.target) - 1)


def test_a_long_dialogue_is_cut_between_exchanges_and_a_long_reply_keeps_its_question() -> None:
    tokenizer = byte_tokenizer()
    found = encoded(turns(["q" * 5, "a" * 5] * 4), Source(format="dialogues"), max_length=30)
    assert [len(row.target) for row in found] == [28, 28]
    assert all(row.target[0] == tokenizer.roles["user"] for row in found)
    (row,) = encoded(turns(["tell", "s" * 100]), Source(format="stories"), max_length=30)
    assert len(row.target) == 31
    assert row.target[:5] == [tokenizer.roles["user"], *tokenizer.encode("tell")]


def test_windows_of_a_long_text_predict_every_token_once() -> None:
    tokenizer = byte_tokenizer()
    text = "abcdefghij" * 5
    found = encoded(Text(text), Source(format="text"), max_length=16)
    assert all(len(row.target) <= 17 for row in found)
    predicted = [token for row in found for token, learn in zip(row.target, row.learn, strict=True) if learn]
    assert predicted == [*tokenizer.encode(text), tokenizer.eos_id]


def texts_in(ids: list[int], tokenizer: Tokenizer) -> list[str]:
    """What lies between the end tokens."""
    ends = [i for i, token in enumerate(ids) if token == tokenizer.eos_id]
    return [tokenizer.decode(ids[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def test_packed_pairs_fill_their_rows_and_none_is_lost(tmp_path: Path) -> None:
    lengths = np.random.default_rng(0).integers(1, 25, (400, 2))
    lengths[7] = (90, 3)
    texts = [("s" * int(a) + str(i), "t" * int(b) + str(i)) for i, (a, b) in enumerate(lengths)]
    source = Source(name="p", path=str(write_pairs(tmp_path / "p.tsv", texts)), packing=True)
    tokenizer = byte_tokenizer()
    part = tokenized(source, "", tokenizer, 100)
    assert part.source is not None
    found = []
    sides = list(zip(rows(part.source), rows(part.target), strict=True))
    for read, written in sides:
        pairs = list(zip(*(texts_in(side, tokenizer) for side in (read, written)), strict=True))
        found += pairs
        assert len(pairs) == 1 or max(len(read), len(written) - 1) <= 64
    assert sorted(found) == sorted(texts)
    filled = sum(max(len(read), len(written) - 1) for read, written in sides) / (64 * len(sides))
    assert filled > 0.93


def test_packing_fills_rows_with_whole_documents(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "d.jsonl", [{"turns": ["ab", "cd"]}] * 9)
    source = Source(name="d", path=str(path), format="dialogues", packing=True)
    part: Part = tokenized(source, "", byte_tokenizer(), 24)
    single = tokenized(replace(source, packing=False), "", byte_tokenizer(), 24)
    assert part.source is None
    assert len(single) == 9
    assert [len(row) for row in rows(part.target)] == [24, 24, 24]
    assert sum(part.learned) == sum(single.learned)
    assert rows(part.target)[0] == rows(single.target)[0] * 3


@pytest.mark.long
def test_memory_stays_flat_however_large_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_EXAMPLES_AT_ONCE", 64)
    monkeypatch.setattr(cache, "_FLUSH", 1024)
    peaks = []
    for count in (500, 8000):
        path = write_pairs(tmp_path / f"{count}.tsv", [(f"eine Zeile {i}", f"one line {i}") for i in range(count)])
        source = Source(name="p", path=str(path))
        tracemalloc.start()
        part = tokenized(source, "", byte_tokenizer(), 64)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(part) == count
        assert isinstance(part.target.ids.base, np.memmap)
    assert peaks[1] < 1.5 * peaks[0]  # sixteen times the lines


def test_long_texts_are_encoded_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [Text("x" * length) for length in (10, 30, 25, 5, 90, 40)]
    source = Source(name="t", path="t.txt", format="text")
    whole = list(encode_examples(examples, byte_tokenizer(), source, 64))
    sizes: list[int] = []
    encode_batch = Tokenizer.encode_batch

    def counted(self: Tokenizer, texts: Sequence[str], **options: bool) -> list[list[int]]:
        sizes.append(sum(map(len, texts)))
        return encode_batch(self, texts, **options)

    monkeypatch.setattr(encoding, "_CHARACTERS_AT_ONCE", 60)
    monkeypatch.setattr(Tokenizer, "encode_batch", counted)
    assert list(encode_examples(examples, byte_tokenizer(), source, 64)) == whole
    assert [size for size in sizes if size] == [40, 30, 90, 40]
