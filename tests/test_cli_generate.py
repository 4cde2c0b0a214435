"""`generate` and `chat` on the command line: one line out for each line in, notes on stderr, exit codes."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny_transformer as tt
from tests.support.generation_fixtures import TableBackend
from tests.support.models import BundleFactory, Finished, run_python
from tiny_transformer.bundle import Bundle
from tiny_transformer.text_model import TextModel

EAGER = ("--backend", "eager", "--device", "cpu")


@pytest.fixture
def bundle(make_bundle: BundleFactory) -> Bundle:
    return make_bundle(max_length=32)


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Give bytes to the command's stdin."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def test_a_text_is_answered_as_in_python(run_cli: Callable[..., Finished], bundle: Bundle) -> None:
    options = ("--max-new-tokens", "6", "--temperature", "0.9", "--seed", "3", "--top-k", "50", "--stop", "zz")
    done = run_cli("generate", bundle.folder, "Guten Tag", *EAGER, *options)
    model = tt.load(bundle.folder, "eager", device="cpu")
    keywords: dict[str, Any] = {"max_new_tokens": 6, "temperature": 0.9, "seed": 3, "top_k": 50, "stop": ["zz"]}
    expected = model.generate("Guten Tag", **keywords)
    assert (done.code, done.out, done.err) == (0, expected.text + "\n", "")
    done = run_cli("generate", bundle.folder, "Guten Tag", *EAGER, *options, "--json", "--alternatives", "2")
    found = json.loads(done.out)
    assert found["ids"] == expected.ids
    assert found["finish_reason"] == expected.finish_reason
    assert [len(there) for there in found["alternatives"]] == [2] * len(expected.ids)


def test_a_text_is_translated_by_sentences_unless_told_otherwise(
    run_cli: Callable[..., Finished], bundle: Bundle, feed: Callable[[bytes], None]
) -> None:
    text, options = "Eins. Zwei!\nDrei?", ("--max-new-tokens", "4")
    model = tt.load(bundle.folder, "eager", device="cpu")
    split, whole = model.generate(text, max_new_tokens=4), model.generate(text, max_new_tokens=4, split=False)
    assert (len(split.ids), len(whole.ids)) == (12, 4)
    assert run_cli("generate", bundle.folder, text, *EAGER, *options).out == split.text + "\n"
    assert run_cli("generate", bundle.folder, text, *EAGER, *options, "--no-split").out == whole.text + "\n"
    found = json.loads(run_cli("generate", bundle.folder, text, *EAGER, *options, "--json").out)
    assert [sentence["source"] for sentence in found["sentences"]] == [[0, 5], [6, 11], [12, 17]]
    for flags, n in (((), 8), (("--no-split",), 4)):
        feed(b"Eins. Zwei!\nDrei?\n")
        first, second = map(
            json.loads, run_cli("generate", bundle.folder, "-", *EAGER, *options, "--json", *flags).out.splitlines()
        )
        assert (len(first["ids"]), len(second["ids"])) == (n, 4)


@pytest.mark.long
def test_each_line_gives_exactly_one_line(
    run_cli: Callable[..., Finished], bundle: Bundle, feed: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiny_transformer.commands.generate.CHUNK", 3)
    lines = [b"one", b"", b"\xff\xfe", b"\x00", b"a\rb", "你好\u2028🎉".encode(), b"x" * 5000, b"", b"last"]
    options = ("--max-new-tokens", "12", "--min-new-tokens", "12", "--temperature", "1", "--seed", "1")
    feed(b"\n".join(lines))
    done = run_cli("generate", bundle.folder, "-", *EAGER, *options)
    assert done.code == 0
    assert done.out.endswith("\n")
    found = done.out[:-1].split("\n")
    assert len(found) == len(lines) == len(done.out.splitlines())
    assert [i for i, line in enumerate(found) if not line] == [1, 7]
    assert done.err.count("note: line 7: ") == 1
    feed(b"\r\n".join(lines) + b"\r\n")
    assert run_cli("generate", bundle.folder, "-", *EAGER, *options).out == done.out
    feed(b"\n".join(lines))
    rows = run_cli("generate", bundle.folder, "-", *EAGER, *options, "--json").out.splitlines()
    assert [bool(json.loads(row)["text"]) for row in rows] == [bool(line) for line in lines]
    feed(b"")
    assert run_cli("generate", bundle.folder, "-", *EAGER).out == ""


def test_line_breaks_in_an_answer_do_not_break_its_line(
    run_cli: Callable[..., Finished], bundle: Bundle, feed: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = "a\nb\r\nc\u2028d\x85e\x0bf"
    backend = TableBackend(bundle.tokenizer.encode(answer), bundle.config.vocab_size)
    monkeypatch.setattr("tiny_transformer.text_model.load", lambda *_: TextModel(bundle, backend))
    feed(b"one\ntwo\n")
    done = run_cli("generate", bundle.folder, "-")
    assert done.out == "a b  c d e f\n" * 2
    assert run_cli("generate", bundle.folder, "one").out == answer + "\n"


def test_a_chat_model_answers_or_goes_on(run_cli: Callable[..., Finished], make_bundle: BundleFactory) -> None:
    folder = make_bundle("decoder-only", max_length=48).folder
    model = tt.load(folder, "eager", device="cpu")
    for flags, raw in (((), False), (("--raw",), True)):
        done = run_cli("generate", folder, "hello", *EAGER, "--max-new-tokens", "5", "--prefix", "We", *flags)
        assert done.out == model.generate("hello", raw=raw, prefix="We", max_new_tokens=5).text + "\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("hi", "--temperature", "-1"),
        ("hi", "--temperature", "nan"),
        ("hi", "--temperature", "inf"),
        ("hi", "--top-p", "0"),
        ("hi", "--num-beams", "0"),
        ("hi", "--top-k", "many"),
        ("hi", "--seed", "-1"),
        ("hi", "--stop", ""),
        ("hi", "--backend", "fast"),
        ("hi", "--threads", "0"),
        ("hi", "--device", "abacus"),
        ("",),
        ("\udcff",),
        (),
    ],
)
def test_bad_usage_is_one_sentence(
    run_cli: Callable[..., Finished], bundle: Bundle, arguments: tuple[str, ...]
) -> None:
    backend = () if {"--backend", "--device"} & set(arguments) else EAGER
    done = run_cli("generate", bundle.folder, *arguments, *backend)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1


def test_a_folder_that_is_none_is_one_sentence(run_cli: Callable[..., Finished], bundle: Bundle) -> None:
    done = run_cli("generate", bundle.folder / "nothing", "hi")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "not a folder" in done.err


@pytest.mark.long
def test_falling_to_eager_is_said(run_cli: Callable[..., Finished], bundle: Bundle) -> None:
    code = "import sys; from tiny_transformer.cli import main; sys.exit(main(sys.argv[1:]))"
    done = run_python(code, "generate", bundle.folder, "hi", "--max-new-tokens", "2", "--device", "cpu")
    assert done.code == 0
    assert done.err.count("\n") == 1
    assert "python -m export all" in done.err


def test_chat_through_a_pipe(
    run_cli: Callable[..., Finished], make_bundle: BundleFactory, feed: Callable[[bytes], None]
) -> None:
    folder = make_bundle("decoder-only", max_length=64).folder
    model = tt.load(folder, "eager", device="cpu")
    options = ("--max-new-tokens", "6", "--stop", "\n")
    first: Any = [{"role": "user", "content": "hi"}]
    keywords: dict[str, Any] = {"max_new_tokens": 6, "stop": ["\n"]}
    one = model.reply(first, **keywords).text
    history = [*first, {"role": "assistant", "content": one}, {"role": "user", "content": "and?"}]
    two = model.reply(history, **keywords).text
    feed(b"hi\n\nand?\n/reset\nhi\n/quit\nnever read\n")
    done = run_cli("chat", folder, *EAGER, *options)
    assert done.code == 0
    assert done.out == f"{one}\n{two}\n{one}\n"
    feed(b"hi")  # the end of the input ends the dialogue
    assert run_cli("chat", folder, *EAGER, *options).out == f"{one}\n"


def test_talks_of_a_file_are_replayed_as_a_transcript(
    run_cli: Callable[..., Finished], make_bundle: BundleFactory, tmp_path: Path
) -> None:
    folder = make_bundle("decoder-only", max_length=64).folder
    model = tt.load(folder, "eager", device="cpu")
    first: Any = [{"role": "user", "content": "hi"}]
    one = model.reply(first, max_new_tokens=4).text
    history = [*first, {"role": "assistant", "content": one}, {"role": "user", "content": "and?"}]
    two = model.reply(history, max_new_tokens=4).text
    talks = tmp_path / "talks.jsonl"
    talks.write_text('{"turns": ["hi", "and?"]}\n{"turns": ["hi"]}\n', encoding="utf-8")
    done = run_cli("chat", folder, *EAGER, "--max-new-tokens", "4", "--replay", str(talks))
    assert done.out == f"# 1\n> hi\n{one}\n> and?\n{two}\n\n# 2\n> hi\n{one}\n"
    talks.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n', encoding="utf-8")
    done = run_cli("chat", folder, *EAGER, "--replay", str(talks))
    assert done.code == 2
    assert "the user's turns alone" in done.err


def test_a_long_chat_goes_on_and_says_what_it_forgets(
    run_cli: Callable[..., Finished], make_bundle: BundleFactory, feed: Callable[[bytes], None]
) -> None:
    folder = make_bundle("decoder-only", max_length=32).folder
    feed(b"tell me more about it\n" * 5)
    done = run_cli("chat", folder, *EAGER, "--max-new-tokens", "6", "--system", "x")
    assert done.code == 0
    assert "left out" in done.err


def test_chat_needs_a_chat_model(run_cli: Callable[..., Finished], bundle: Bundle) -> None:
    done = run_cli("chat", bundle.folder, *EAGER)
    assert done.code == 2
    assert "not for chat" in done.err
