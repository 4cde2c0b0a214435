"""Text to ids and back: every Unicode string survives, none becomes a special token, no character is split."""

import functools
import json
import unicodedata
from collections import Counter

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models import TEXTS
from tiny_transformer.errors import InputError, TokenizerError
from tiny_transformer.tokenizer import ROLES, SPECIAL_TOKENS, Tokenizer

# Tokenizers are expensive to make and never change: one of each kind for the whole file.
TRAINED = Tokenizer.train(TEXTS * 20, 380, show_progress=False)
NUMBERS = ["It costs 1250 euros.", "In 1990 he was 25.", "25 25 1990"] * 20
DIGITS = Tokenizer.train(NUMBERS, 340, split_digits=True, show_progress=False)
TOKENIZERS = pytest.mark.parametrize(
    "tokenizer",
    [
        pytest.param(TRAINED, id="trained"),
        pytest.param(DIGITS, id="split digits"),
        pytest.param(Tokenizer.synthetic(262), id="bytes"),
        pytest.param(Tokenizer.synthetic(3_000), id="synthetic"),
        pytest.param(Tokenizer.train(list(SPECIAL_TOKENS) * 50, 320, show_progress=False), id="trained on <eos>"),
    ],
)
CHARACTERS = st.characters(exclude_categories=["Cs"])  # all of Unicode, control and unassigned included
LOOKALIKES = st.sampled_from([*SPECIAL_TOKENS, *(token[:-1] for token in SPECIAL_TOKENS), ">", "<", "user", " "])
ANY_TEXT = st.lists(st.text(CHARACTERS, max_size=8) | LOOKALIKES, max_size=6).map("".join)
TRICKY = [
    "",
    " ",
    "\n\r\n\t",
    "\x00\x01\x7f\x80\x9f",
    "\u200b\u200d\ufeff\u202e",
    "é e\u0301",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "\U0010ffff\uffff\ufffe",
    "\ufffd",
    "Ġ Ċ Ã",
    "a" * 5_000,
    "  leading, trailing  ",
    "早上好！",
    "<pad><bos><eos>",
    "\u2028\u2029\x85",
]


@TOKENIZERS
@pytest.mark.parametrize("text", TRICKY, ids=ascii)
def test_tricky_texts_survive(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_digits_are_tokens_of_their_own() -> None:
    tokens = [DIGITS.decode([i]) for i in DIGITS.encode("1250 euros in 1990")]
    assert [token for token in tokens if any(map(str.isdigit, token))] == list("12501990")
    together = Tokenizer.train(NUMBERS, 340, show_progress=False)
    assert len(together.encode("1990")) < 4, "without it, digits that often stand together are one token"
    assert Tokenizer.from_json(DIGITS.to_json()).encode("1990") == DIGITS.encode("1990")


@TOKENIZERS
@given(text=ANY_TEXT)
def test_every_text_survives_and_none_becomes_special(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.special_ids.isdisjoint(ids)
    assert tokenizer.encode_batch([text, "", text]) == [ids, [], ids]


GERMAN, ENGLISH, CHINESE = TEXTS
ORDERED = TRAINED.with_output_first([ENGLISH] * 3, 300)


def merges(tokenizer: Tokenizer) -> list[list[str]]:
    found: list[list[str]] = json.loads(tokenizer.to_json())["model"]["merges"]
    return found


def test_what_is_written_comes_first_and_no_text_is_cut_otherwise() -> None:
    assert ORDERED.output_size == 300
    assert ORDERED.vocab_size == TRAINED.vocab_size == 380
    assert merges(ORDERED) == merges(TRAINED)
    for text in TEXTS:
        before, after = TRAINED.encode(text), ORDERED.encode(text)
        assert [TRAINED.token_bytes(i) for i in before] == [ORDERED.token_bytes(i) for i in after]
    fixed = range(len(SPECIAL_TOKENS) + 256)
    assert [ORDERED.token_bytes(i) for i in fixed] == [TRAINED.token_bytes(i) for i in fixed]
    # All that English needs is in the output, and the merged tokens of either part stand in the order of their merges.
    assert max(ORDERED.encode(ENGLISH)) < 300
    assert max(ORDERED.encode(GERMAN)) >= 300
    rank = {bytes(token): i for i, token in enumerate(TRAINED.token_bytes(i) for i in range(380))}
    ranks = [rank[ORDERED.token_bytes(i)] for i in range(fixed.stop, 380)]
    n_written = 300 - fixed.stop
    assert ranks[:n_written] == sorted(ranks[:n_written])
    assert ranks[n_written:] == sorted(ranks[n_written:])


def test_the_most_frequent_tokens_of_the_targets_are_the_output() -> None:
    smaller = TRAINED.with_output_first([ENGLISH, ENGLISH, GERMAN], 270)
    counts = Counter(i for text in (ENGLISH, ENGLISH, GERMAN) for i in TRAINED.encode(text))
    learned = sorted(range(262, 380), key=lambda i: (-counts[i], i))
    written = {smaller.token_bytes(i) for i in range(262, 270)}
    assert written == {TRAINED.token_bytes(i) for i in learned[:8]}


@pytest.mark.parametrize("output_size", [262, 270, 300, 379, 380, 10_000])
@pytest.mark.parametrize("text", [*TEXTS, *TRICKY], ids=ascii)
def test_a_target_is_spelt_with_what_can_be_written(text: str, output_size: int) -> None:
    tokenizer = TRAINED.with_output_first([ENGLISH], output_size)
    assert tokenizer.output_size == min(output_size, 380)
    ids = tokenizer.encode(text, target=True)
    assert tokenizer.decode(ids) == text
    assert max(ids, default=0) < output_size
    assert tokenizer.encode_batch([text, ""], target=True) == [ids, []]
    if max(tokenizer.encode(text), default=0) < output_size:
        assert ids == tokenizer.encode(text)


@given(text=ANY_TEXT)
def test_every_target_survives(text: str) -> None:
    ids = ORDERED.encode(text, target=True)
    assert ORDERED.decode(ids) == text
    assert all(i < 300 for i in ids)
    assert ORDERED.special_ids.isdisjoint(ids)


def test_a_token_is_taken_apart_along_its_merges() -> None:
    """Into the parts of its own merge, and no smaller ones than needed."""
    nearly = TRAINED.with_output_first([], 379)
    vocabulary = json.loads(nearly.to_json())["model"]["vocab"]
    last = nearly.decode([379])
    assert nearly.encode(last) == [379]
    assert nearly.encode(last, target=True) == [vocabulary[part] for part in merges(nearly)[-1]]


def test_an_order_that_cannot_write_every_text_is_refused() -> None:
    text = TRAINED.to_json()
    for output_size in (1, 6, 261):
        with pytest.raises(TokenizerError, match="cannot write every text"):
            Tokenizer.from_json(text, output_size=output_size)
        with pytest.raises(TokenizerError, match="cannot write every text"):
            TRAINED.with_output_first([ENGLISH], output_size)
    assert Tokenizer.from_json(text, output_size=262).output_size == 262


def test_a_token_without_a_merge_is_spelt_by_its_bytes() -> None:
    """No trainer of ours makes one, but another program's file may have a whole word in its vocabulary."""
    values = json.loads(TRAINED.to_json())
    values["model"]["vocab"]["zebra"] = 380
    values["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_json(json.dumps(values), output_size=300)
    assert tokenizer.encode("zebra") == [380]
    ids = tokenizer.encode("zebra", target=True)
    assert tokenizer.decode(ids) == "zebra"
    assert max(ids) < 300


def test_every_single_character_survives() -> None:
    """Every character that Unicode has assigned in its first two planes, ten to a word."""
    for start in range(0, 0x20000, 0x1000):
        text = "".join(chr(code) + " " * (code % 10 == 0) for code in range(start, start + 0x1000))
        text = "".join(c for c in text if unicodedata.category(c) not in ("Cs", "Cn"))
        assert TRAINED.decode(TRAINED.encode(text)) == text


@TOKENIZERS
@given(before=st.text(CHARACTERS, max_size=5), surrogate=st.characters(categories=["Cs"]), after=st.text(max_size=5))
def test_a_lone_surrogate_is_refused_by_place(tokenizer: Tokenizer, before: str, surrogate: str, after: str) -> None:
    expected = rf"lone surrogate \(U\+{ord(surrogate):04X}\) at character {len(before)}; remove it"
    with pytest.raises(InputError, match=expected):
        tokenizer.encode(before + surrogate + after)
    with pytest.raises(InputError, match=expected):
        tokenizer.encode_batch(["fine", before + surrogate + after])
    with pytest.raises(InputError, match=expected):
        tokenizer.encode_turn({"role": "user", "content": before + surrogate + after})


@pytest.mark.parametrize("text", [None, 7, b"bytes", ["a"]])
def test_what_is_no_text_is_refused(text: object) -> None:
    with pytest.raises(InputError, match="Expected text, not"):
        TRAINED.encode(text)  # type: ignore[arg-type]


@TOKENIZERS
@given(text=ANY_TEXT)
def test_text_arrives_in_whole_characters(tokenizer: Tokenizer, text: str) -> None:
    decoder = tokenizer.incremental_decoder()
    so_far = ""
    for token in tokenizer.encode(text):
        piece = decoder.push(token)
        assert "\ufffd" not in piece or "\ufffd" in text
        so_far += piece
        assert text.startswith(so_far), "a piece was shown that is not the text"
    assert decoder.finish() == ""
    assert so_far == text


@TOKENIZERS
@given(data=st.data())
def test_any_ids_arrive_as_they_would_be_decoded(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """A model may say anything: broken UTF-8, special tokens amid a character. Pieces join to `decode`."""
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    decoder = tokenizer.incremental_decoder()
    assert "".join(decoder.push(token) for token in ids) + decoder.finish() == tokenizer.decode(ids)


def test_an_unfinished_character_waits_and_ends_as_a_replacement() -> None:
    ids = Tokenizer.synthetic(262).encode("😀")
    decoder = Tokenizer.synthetic(262).incremental_decoder()
    assert [decoder.push(token) for token in ids[:3]] == ["", "", ""]
    assert decoder.finish() == "\ufffd"


@functools.cache
def plain_client(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(tokenizer.to_json())


@TOKENIZERS
@given(data=st.data())
def test_any_tokenizers_client_reads_the_file_alike(tokenizer: Tokenizer, data: st.DataObject) -> None:
    client = plain_client(tokenizer)
    text = data.draw(st.text(CHARACTERS, max_size=20))
    if not any(token in text for token in SPECIAL_TOKENS):
        assert client.encode(text, add_special_tokens=False).ids == tokenizer.encode(text)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20))
    assert client.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids)


@pytest.mark.parametrize("token_id", [-1, 380, 10**20])
def test_an_id_outside_the_vocabulary_is_refused(token_id: int) -> None:
    message = f"token id {token_id} is outside the vocabulary of 380; check the ids"
    with pytest.raises(InputError, match=message):
        TRAINED.decode([5, token_id])
    with pytest.raises(InputError, match=message):
        TRAINED.incremental_decoder().push(token_id)


def test_special_tokens_decode_to_nothing() -> None:
    assert TRAINED.decode([TRAINED.bos_id, *TRAINED.encode("a"), *TRAINED.roles.values(), TRAINED.eos_id]) == "a"
    assert TRAINED.token_bytes(TRAINED.eos_id) == b""
    assert len(TRAINED.special_ids) == len(SPECIAL_TOKENS)


def test_a_dialogue_is_role_text_end_for_each_turn_and_then_the_assistants_turn() -> None:
    messages = [
        {"role": "system", "content": "Sei nett."},
        {"role": "user", "content": "Hallo!\n"},
        {"role": "assistant", "content": ""},
    ]
    expected: list[int] = []
    for message in messages:
        expected += [TRAINED.roles[message["role"]], *TRAINED.encode(message["content"]), TRAINED.eos_id]
    assert TRAINED.encode_chat(messages) == [*expected, TRAINED.roles["assistant"]]
    assert TRAINED.encode_chat([]) == [TRAINED.roles["assistant"]]


@given(contents=st.lists(st.tuples(st.sampled_from(sorted(ROLES)), ANY_TEXT), max_size=4))
def test_no_content_can_end_a_turn_or_open_another(contents: list[tuple[str, str]]) -> None:
    """The special ids of a dialogue tell its turns exactly, whatever is said in them."""
    ids = TRAINED.encode_chat([{"role": role, "content": text} for role, text in contents])
    special = [token for token in ids if token in TRAINED.special_ids]
    expected = [token for role, _ in contents for token in (TRAINED.roles[role], TRAINED.eos_id)]
    assert special == [*expected, TRAINED.roles["assistant"]]


MALFORMED = [
    ({"role": "robot", "content": "x"}, "role 'robot' is unknown; choose one of user, assistant, system"),
    ({"role": "<user>", "content": "x"}, "role '<user>' is unknown"),
    ({"role": "user\n", "content": "x"}, "is unknown"),
    ({"role": "User", "content": "x"}, "role 'User' is unknown"),
    ({"role": "\ud800", "content": "x"}, "is unknown"),
    ({"role": None, "content": "x"}, "role None is unknown"),
    ({"role": [], "content": "x"}, r"role \[\] is unknown"),
    ({"role": {}, "content": "x"}, r"role \{\} is unknown"),
    ({"role": "user", "content": None}, "content of a message must be text, not NoneType; correct the history"),
    ({"role": "user", "content": ["x"]}, "must be text, not list"),
    ({"role": "user", "content": b"x"}, "must be text, not bytes"),
    ({"role": "user"}, "A message must be"),
    ({"content": "x"}, "A message must be"),
    ({}, "A message must be"),
    ("user: x", "A message must be"),
    (None, "A message must be"),
    (["user", "x"], "A message must be"),
]


@pytest.mark.parametrize(("message", "complaint"), MALFORMED, ids=lambda value: ascii(value)[:40])
def test_a_malformed_message_is_refused(message: object, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        TRAINED.encode_chat([{"role": "user", "content": "fine"}, message])  # type: ignore[list-item]
