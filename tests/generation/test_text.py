"""Tokens to text: stop strings, whole characters, and streams that join to the text."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.generation_fixtures import BOS, EOS, PAD, TableBackend
from tiny_transformer.errors import InputError
from tiny_transformer.generation import GenerationOptions, Request, generate_ids, stream_ids
from tiny_transformer.generation.prompt import Prompt
from tiny_transformer.generation.segments import SegmentedText
from tiny_transformer.generation.text import StopStrings, TextAssembler, TextStream, text_of
from tiny_transformer.tokenizer import Tokenizer

TOKENIZER = Tokenizer.synthetic(400)


def bytes_of(text: str) -> list[int]:
    """A text as one token a byte: the worst case for characters and stop strings."""
    single = {TOKENIZER.token_bytes(i): i for i in range(TOKENIZER.vocab_size)}
    return [single[bytes([byte])] for byte in text.encode("utf-8")]


def open_stream(ids: Sequence[int], **options: object) -> TextStream:
    backend = TableBackend(ids, TOKENIZER.vocab_size)
    chosen = GenerationOptions(max_new_tokens=500, **options)  # type: ignore[arg-type]
    stopped = StopStrings(chosen.stop, TOKENIZER)
    tokens = stream_ids(backend, Request([[BOS]], [[EOS]], chosen, EOS, PAD, stopped))
    return TextStream(((0, token) for token in tokens), TOKENIZER, chosen, SegmentedText.whole(Prompt((BOS,), (EOS,))))


@pytest.mark.parametrize("encode", [TOKENIZER.encode, bytes_of])
def test_text_is_cut_before_a_stop_string_however_tokens_fall(encode: object) -> None:
    ids = encode("Hallo Welt, 你好 ENDE und mehr")  # type: ignore[operator]
    for stop, expected in [
        ("ENDE", "Hallo Welt, 你好 "),
        ("好 E", "Hallo Welt, 你"),
        ("H", ""),
        ("Welten", "Hallo Welt, 你好 ENDE und mehr"),
        (["mehr", "lt, "], "Hallo We"),
    ]:
        stream = open_stream(ids, stop=stop)
        assert "".join(stream.pieces()) == expected
        result = open_stream(ids, stop=stop).result()
        assert result.text == expected
        assert result.finish_reason == ("eos" if expected.endswith("mehr") else "stop")


def test_generation_ends_with_the_stop_string() -> None:
    ids = bytes_of("one two three")
    result = open_stream(ids, stop="two").result()
    assert len(result.ids) == len("one two")


def test_a_beam_ends_with_the_stop_string_too() -> None:
    backend = TableBackend(bytes_of("one two three"), TOKENIZER.vocab_size)
    options = GenerationOptions(num_beams=3, stop=("two",))
    stopped = StopStrings(options.stop, TOKENIZER)
    found = generate_ids(backend, Request([[BOS]], [[EOS]], options, EOS, PAD, stopped))[0]
    assert found.finish_reason == "stop"
    assert text_of(TOKENIZER, found.ids, options.stop) == "one "


def test_a_piece_is_never_half_a_character() -> None:
    text = "aß你🎉👩‍👩‍👧 é"
    pieces = list(open_stream(bytes_of(text)).pieces())
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)
    assert len(pieces) == len(text)


def test_a_character_never_finished_shows_as_one_replacement() -> None:
    ids = bytes_of("x🎉")[:-1]
    stream = open_stream(ids)
    assert list(stream.pieces()) == ["x", "\ufffd"]


def test_nothing_that_becomes_a_stop_string_is_ever_shown() -> None:
    assembler = TextAssembler(TOKENIZER, ["abcd", "bcx"])
    shown = [assembler.push(i) for i in bytes_of("aabcbcx")]
    assert shown == ["", "a", "", "", "abc"[:3], "", ""]
    assert assembler.finish() == ""


def test_what_was_held_back_comes_at_the_end() -> None:
    assembler = TextAssembler(TOKENIZER, ["abcd"])
    assert [assembler.push(i) for i in bytes_of("xabc")] == ["x", "", "", ""]
    assert assembler.finish() == "abc"


def test_an_unfinished_stream_has_no_result() -> None:
    with open_stream(bytes_of("abc")) as stream:
        next(stream)
        stream.close()
    with pytest.raises(InputError, match="closed before its end"):
        stream.result()


any_ids = st.lists(st.integers(0, TOKENIZER.vocab_size - 1).filter(lambda i: i != EOS), max_size=30)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@pytest.mark.long
@settings(max_examples=300)
@given(any_ids, st.lists(st.text("ab \x00é🎉", min_size=1, max_size=3), max_size=3))
def test_any_tokens_and_stop_strings_stream_to_the_text(ids: list[int], stop: list[str]) -> None:
    stream = open_stream(ids, stop=stop)
    pieces = [event.text for event in stream]
    result = open_stream(ids, stop=stop).result()
    assert "".join(pieces) == result.text
    assert not any(text in result.text for text in stop)
    if result.finish_reason == "eos":
        assert result.text == TOKENIZER.decode(ids)
    for piece in pieces:
        piece.encode("utf-8")


@settings(max_examples=200)
@given(any_text, any_text, st.text("abé🎉", min_size=1, max_size=4))
def test_a_stop_string_cuts_where_python_would(before: str, after: str, stop: str) -> None:
    whole = before + stop + after
    assert open_stream(bytes_of(whole), stop=stop).result().text == whole[: whole.index(stop)]
