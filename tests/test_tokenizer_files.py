"""Training a tokenizer, its file, and everything that may be wrong with one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models import TEXTS, run_python
from tiny_transformer import tokenizer as module
from tiny_transformer.errors import TokenizerError
from tiny_transformer.tokenizer import SPECIAL_TOKENS, Tokenizer


def test_one_vocabulary_serves_all_languages(trained_tokenizer: Tokenizer) -> None:
    """Words of each language became tokens of their own: far fewer tokens than bytes."""
    for text in TEXTS:
        assert len(trained_tokenizer.encode(text)) < 0.6 * len(text.encode()), text
    assert trained_tokenizer.vocab_size == 380
    assert [trained_tokenizer.pad_id, trained_tokenizer.bos_id, trained_tokenizer.eos_id] == [0, 1, 2]


def test_files_and_iterators_teach_the_same(tmp_path: Path) -> None:
    lines = [f"{text} {i % 7}\n" for i in range(20) for text in TEXTS]
    (tmp_path / "one.txt").write_text("".join(lines[:30]), encoding="utf-8")
    (tmp_path / "two.txt").write_text("".join(lines[30:]), encoding="utf-8")
    from_files = Tokenizer.train_from_files([tmp_path / "one.txt", tmp_path / "two.txt"], 400, show_progress=False)
    assert from_files.to_json() == Tokenizer.train(iter(lines), 400, show_progress=False).to_json()


def test_training_is_the_same_in_another_process(trained_tokenizer: Tokenizer) -> None:
    """Rust's hash maps are seeded afresh in each process."""
    done = run_python(
        "import sys, json; from tiny_transformer.tokenizer import Tokenizer;"
        "print(Tokenizer.train(json.loads(sys.argv[1]) * 20, 380, show_progress=False).to_json())",
        json.dumps(TEXTS),
    )
    assert json.loads(done.out) == json.loads(trained_tokenizer.to_json())


def test_training_can_be_watched(capfd: pytest.CaptureFixture[str]) -> None:
    Tokenizer.train(TEXTS, 300, show_progress=True)
    assert capfd.readouterr().out == "", "progress belongs on stderr"
    Tokenizer.train(TEXTS, 300, show_progress=False)
    assert capfd.readouterr() == ("", "")


def test_training_survives_bad_text_and_too_little_of_it(tmp_path: Path) -> None:
    assert Tokenizer.train(["a\ud800b"], 300, show_progress=False).vocab_size <= 300
    assert Tokenizer.train([], 300, show_progress=False).vocab_size == 262
    (tmp_path / "latin.txt").write_bytes("Größe".encode("latin-1"))
    assert Tokenizer.train_from_files([tmp_path / "latin.txt"], 300, show_progress=False).vocab_size >= 262


def test_without_room_for_a_merge_no_text_is_read() -> None:
    def unread() -> Iterator[str]:
        raise AssertionError("a text was read")
        yield ""

    # Words of one letter have no pairs: here the texts are read, and there is nothing to merge.
    letters = Tokenizer.train(["a", "b"], 262 + 1, show_progress=False)
    assert Tokenizer.train(unread(), 262, show_progress=False).to_json() == letters.to_json()


@pytest.mark.parametrize("make", [lambda n: Tokenizer.train([], n, show_progress=False), Tokenizer.synthetic])
@pytest.mark.parametrize("vocab_size", [-1, 0, 261])
def test_a_vocabulary_needs_room_for_bytes_and_special_tokens(
    make: Callable[[int], Tokenizer], vocab_size: int
) -> None:
    with pytest.raises(TokenizerError, match=f"vocab_size is {vocab_size}; .*262"):
        make(vocab_size)


def test_a_synthetic_vocabulary_has_the_size_asked_for() -> None:
    for size in (262, 263, 5_000, 262 + 65_536):
        assert Tokenizer.synthetic(size).vocab_size == size
    with pytest.raises(TokenizerError, match=r"choose 262 to 65798"):
        Tokenizer.synthetic(262 + 65_537)
    assert Tokenizer.synthetic(300).to_json() == Tokenizer.synthetic(300).to_json()


def test_a_missing_training_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"gone\.txt cannot be read \(No such file or directory\); check the path"):
        Tokenizer.train_from_files([tmp_path / "gone.txt"], 300, show_progress=False)
    with pytest.raises(TokenizerError, match="Is a directory"):
        Tokenizer.train_from_files([tmp_path], 300, show_progress=False)


def test_the_file_is_the_tokenizer(tmp_path: Path, trained_tokenizer: Tokenizer) -> None:
    path = tmp_path / "tokenizer.json"
    trained_tokenizer.save(path)
    loaded = Tokenizer.load(path)
    assert loaded.to_json() == trained_tokenizer.to_json()
    assert loaded.encode("a<eos>b 早") == trained_tokenizer.encode("a<eos>b 早")
    plain = tokenizers.Tokenizer.from_file(str(path))
    assert plain.get_vocab_size() == 380
    assert plain.decode(trained_tokenizer.encode(TEXTS[2])) == TEXTS[2]
    assert "早" in TEXTS[2]
    assert [plain.token_to_id(token) for token in SPECIAL_TOKENS] == list(range(6))


def refusal(path: Path, content: bytes | str) -> str:
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.load(path)
    message = str(caught.value)
    assert str(path) in message
    assert message.endswith(".")
    assert len(message) < 700 + len(str(path))
    return message


def edited(tokenizer: Tokenizer, change: Callable[[dict[str, Any]], object]) -> str:
    values = json.loads(tokenizer.to_json())
    change(values)
    return json.dumps(values)


def without_special(values: dict[str, Any]) -> None:
    values["added_tokens"] = [token for token in values["added_tokens"] if token["content"] != "<eos>"]
    values["model"]["vocab"]["X" * 9] = values["model"]["vocab"].pop("<eos>")


def no_longer_special(values: dict[str, Any]) -> None:
    for token in values["added_tokens"]:
        token["special"] = False


def with_a_gap(values: dict[str, Any]) -> None:
    values["model"]["vocab"]["Guten"] = 5_000


def twice_the_same_id(values: dict[str, Any]) -> None:
    values["model"]["vocab"]["!"] = values["model"]["vocab"]["#"]


def lower_case(values: dict[str, Any]) -> None:
    values["normalizer"] = {"type": "Lowercase"}


def without_spaces_at_the_end(values: dict[str, Any]) -> None:
    values["normalizer"] = {"type": "Strip", "strip_left": False, "strip_right": True}


def space_in_front(values: dict[str, Any]) -> None:
    values["pre_tokenizer"]["add_prefix_space"] = True


def not_byte_level(values: dict[str, Any]) -> None:
    values["added_tokens"].append({**values["added_tokens"][0], "id": 380, "content": "早"})


def missing_bytes(values: dict[str, Any]) -> None:
    values["model"]["vocab"]["zzzz"] = values["model"]["vocab"].pop("~")


def costly_pattern(values: dict[str, Any]) -> None:
    pattern = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}
    values["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [pattern, values["pre_tokenizer"]]}


CHANGES = {
    costly_pattern: "cuts texts in another way than this project's; train it with this project",
    (lambda values: values.update(pre_tokenizer=None)): "cuts texts in another way",
    without_special: "lacks the special tokens <eos>; train it with this project",
    no_longer_special: "does not give every text back unchanged",
    with_a_gap: "no token with the id",
    twice_the_same_id: "no token with the id",
    lower_case: "does not give every text back unchanged",
    (lambda values: values.update(normalizer={"type": "Prepend", "prepend": ""})): "does not give every text",
    without_spaces_at_the_end: "does not give every text back unchanged",
    space_in_front: "does not give every text back unchanged",
    not_byte_level: "is not byte-level",
    missing_bytes: "does not give every text back unchanged",
    (lambda values: values.pop("model")): "is not a tokenizer file",
    (lambda values: values.update(model=7)): "is not a tokenizer file",
    (lambda values: values["model"].update(vocab=[1])): "is not a tokenizer file",
    (lambda values: values["model"].update(merges="x")): "is not a tokenizer file",
    (lambda values: values["model"].update(type="Magic")): "is not a tokenizer file",
    (lambda values: values.update(added_tokens=None)): "",
    (lambda values: values.update(version="99")): "is not a tokenizer file",
}


@pytest.mark.parametrize(("change", "message"), CHANGES.items())
def test_a_tampered_file_is_refused(
    tmp_path: Path, trained_tokenizer: Tokenizer, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    assert message in refusal(tmp_path / "tokenizer.json", edited(trained_tokenizer, change))


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b"7", b'"x"', b"[" * 100_000])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "is not a tokenizer file" in refusal(tmp_path / "tokenizer.json", content)


def test_a_truncated_file_is_refused(tmp_path: Path, trained_tokenizer: Tokenizer) -> None:
    whole = trained_tokenizer.to_json().rstrip()
    for length in range(0, len(whole), 97):
        refusal(tmp_path / "tokenizer.json", whole[:length])


def test_a_missing_or_huge_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TokenizerError, match="gone does not exist; a model folder needs it"):
        Tokenizer.load(tmp_path / "gone")
    with pytest.raises(TokenizerError, match="is not a tokenizer file"):
        Tokenizer.load(tmp_path)
    monkeypatch.setattr(module, "_MAX_FILE_BYTES", 10)
    assert "is larger than 10 bytes; it is not a tokenizer of ours" in refusal(tmp_path / "x.json", " " * 11)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**6) | st.text(max_size=4) | st.just(2**64),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=3,
)
PLACES = st.sampled_from(
    [
        ("model",),
        ("added_tokens",),
        ("added_tokens", 0),
        ("added_tokens", 2, "id"),
        ("added_tokens", 2, "content"),
        ("pre_tokenizer",),
        ("decoder",),
        ("normalizer",),
        ("post_processor",),
        ("truncation",),
        ("padding",),
        ("model", "vocab"),
        ("model", "merges"),
        ("model", "merges", 0),
        ("model", "merges", 3, 1),
        ("model", "dropout"),
        ("model", "vocab", "Ġ"),
        ("model", "unk_token"),
    ]
)


@given(place=PLACES, value=ANYTHING)
def test_whatever_a_file_says_it_works_or_is_refused(
    tmp_path: Path, trained_tokenizer: Tokenizer, place: tuple[str | int, ...], value: Any
) -> None:
    values = json.loads(trained_tokenizer.to_json())
    inner: Any = values
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(values))
    try:
        loaded = Tokenizer.load(path)
    except TokenizerError:
        return
    assert loaded.decode(loaded.encode("Größe <eos> 早\n")) == "Größe <eos> 早\n"
    assert loaded.special_ids.isdisjoint(loaded.encode("<eos><user>"))
