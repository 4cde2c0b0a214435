"""The parts of the page that know nothing of a page: languages, limits, sentences, transcripts, settings."""

import re
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models import ROOT
from tiny_transformer.config import GenerationConfig
from tiny_transformer.errors import BackendError, ConfigError, InputError
from tiny_transformer.ui.chat_tab import (
    answer_line,
    from_model,
    from_visitor,
    literal,
    message_text,
    original,
    turns,
    up_to_last_question,
)
from tiny_transformer.ui.i18n import (
    STRINGS,
    dictionary,
    explained,
    han_share,
    page_language,
    say,
    source_language,
    translated,
)
from tiny_transformer.ui.page_settings import DEFAULT_MODELS, Limits, parse_settings
from tiny_transformer.ui.service import MAX_TURNS, check_history, check_text, checked_options
from tiny_transformer.ui.streaming import Answer

LIMITS = Limits(characters=50, new_tokens=20)
HAN = re.compile(r"[\u4e00-\u9fff]")
CODE = "\n".join(path.read_text() for path in (ROOT / "tiny_transformer" / "ui").glob("*.py") if path.stem != "strings")


@pytest.mark.parametrize(
    ("header", "language"),
    [
        (None, "en"),
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-US,en;q=0.9,zh;q=0.5", "en"),
        ("de-DE,zh;q=0.4,en;q=0.7", "en"),
        ("fr", "en"),
        ("zh-TW", "zh"),
        ("en;q=nonsense,zh", "zh"),
        (",;q=,,,", "en"),
    ],
)
def test_page_speaks_the_browsers_language(header: str | None, language: str) -> None:
    assert page_language(header) == language


def test_source_language_goes_by_the_share_of_han_characters() -> None:
    both = ("de", "zh")
    assert source_language("我明天要去 Berlin 看朋友。", both) == "zh"
    assert source_language("Ich lerne 中文 seit drei Jahren.", both) == "de"
    assert source_language("12:30!", both) == "de"
    assert source_language("我", ("de",)) is None, "another language is not named"
    assert source_language("The weather is nice today.", both) is None
    assert source_language("anything", ("zh",)) == "zh"
    assert source_language("anything", ()) is None
    assert han_share("ひらがな") == 0.0, "kana are not Han"


@pytest.mark.parametrize("key", STRINGS)
def test_every_sentence_exists_in_both_languages_with_the_same_values(key: str) -> None:
    english, chinese = STRINGS[key]
    fields = [{name for _, name, _, _ in string.Formatter().parse(text) if name} for text in (english, chinese)]
    assert fields[0] == fields[1]
    assert english
    assert chinese
    assert not HAN.search(english)
    # Names and signs stay as they are; a sentence does not.
    words = re.findall(r"[A-Za-z]{2,}", re.sub(r"\{\w+\}|<[^>]+>", "", english))
    assert HAN.search(chinese) or len(words) <= 2, "a Chinese sentence without a Chinese character"


def test_chinese_dictionary_is_what_the_browser_gets() -> None:
    assert dictionary("zh")["send"] == "发送"
    assert dictionary("en")["send"] == "Send"
    assert set(dictionary("zh")) == set(STRINGS)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "not NoneType"),
        (3, "not int"),
        ("", "no text yet"),
        (" \n\t ", "no text yet"),
        ("x" * 51, "has 51 characters; at most 50"),
        ("a\ud800b", "half of a character"),
    ],
)
def test_texts_are_refused_with_a_sentence(text: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as refused:
        check_text(text, LIMITS)
    assert HAN.search(explained(refused.value, "zh"))


def test_ordinary_and_odd_texts_pass() -> None:
    for text in ("Hallo", "a\x00b", "<script>alert(1)</script>", "😀" * 25, "x" * 50):
        assert check_text(text, LIMITS) == text


@pytest.mark.parametrize(
    "history", ["text", 5, [3], [{"role": "user"}], [{"role": "root", "content": "x"}], [{}] * (MAX_TURNS + 1)]
)
def test_malformed_histories_are_refused(history: object) -> None:
    with pytest.raises(InputError):
        check_history(history, LIMITS)


def test_history_keeps_turns_and_drops_empty_ones() -> None:
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": " "}]
    assert check_history(history, LIMITS) == [{"role": "user", "content": "a"}]
    assert check_history(None, LIMITS) == []


@pytest.mark.parametrize(
    "controls",
    [
        {"temperature": "hot"},
        {"temperature": float("nan")},
        {"temperature": True},
        {"temperature": 10**400},
        {"top_k": 1.5},
        {"seed": [1]},
        {"seed": "seven"},
        {"seed": "9" * 5000},
        {"num_beams": 9},
        {"max_new_tokens": 21},
    ],
)
def test_controls_out_of_range_are_refused(controls: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        checked_options(controls, GenerationConfig(), LIMITS)
    assert HAN.search(explained(refused.value, "zh"))


def test_controls_become_options_within_the_limit() -> None:
    def options(**controls: Any) -> dict[str, Any]:
        return checked_options(controls, GenerationConfig(max_new_tokens=128), LIMITS)

    assert options(temperature=0.5, top_p="", seed=None) == {"temperature": 0.5, "max_new_tokens": LIMITS.new_tokens}
    assert options(num_beams=4, temperature=0.9)["temperature"] == 0.0
    assert options(top_k=7.0)["top_k"] == 7
    assert options(seed=2**63 + 1)["seed"] == 2**63 + 1, "no digit of a seed is lost"
    assert options(seed=f" {2**63 + 1} ")["seed"] == 2**63 + 1, "nor of one that was typed"
    assert "seed" not in options(seed=" "), "an empty box means no seed"
    with pytest.raises(InputError, match="max_new_tokens is 0"):
        options(max_new_tokens=0)  # it is not the default that was asked for


@pytest.mark.parametrize("key", STRINGS)
def test_every_sentence_is_used(key: str) -> None:
    """By its name, or by the beginning or end of it where the rest is a value."""
    quoted = re.escape(key)
    starts = "|".join(re.escape(key[:n]) + r"\{" for n in range(4, len(key)))
    ends = "|".join(r"\}" + re.escape(key[n:]) + "['\"]" for n in range(1, len(key) - 3))
    assert re.search(rf"['\"]{quoted}['\"]|['\"](?:{starts})|{ends}|\"{quoted.split('_')[-1]}\"", CODE)


@given(st.text())
def test_literal_text_comes_back_and_holds_no_markup(text: str) -> None:
    shown = literal(text)
    assert original(shown) == text.replace("\x00", "\ufffd")
    assert not re.search(r"<[a-zA-Z/!?]|&[a-zA-Z#]", shown)


def test_transcript_gives_the_dialogue_back_without_lines() -> None:
    shown = [from_visitor("a < b & c"), from_model("<b>yes</b>", '<span class="tt-line">PyTorch</span>')]
    assert turns(shown) == [
        {"role": "user", "content": "a < b & c"},
        {"role": "assistant", "content": "<b>yes</b>"},
    ]
    assert up_to_last_question(shown) == shown[:1]
    assert message_text(shown[0]) == "a < b & c"


@pytest.mark.parametrize(
    "shown", [None, "text", 5, [None], [{"role": "system", "content": "x"}], [{"role": "user", "content": [{}]}]]
)
def test_transcript_ignores_what_is_no_message(shown: object) -> None:
    assert turns(shown) == []


def test_line_under_an_answer_says_backend_tokens_speed_and_first_token() -> None:
    answer = Answer(
        backend="onnx",
        text="text",
        ids=tuple(range(11)),
        seconds=1.1,
        first_seconds=0.1,
        finish_reason="length",
        notices=("The <b> notice.",),
        language="de",
        target_language="en",
    )
    line = answer_line(answer, "en", seconds=60)
    shown, details = line.split("</summary>")
    for part in ("11 tokens in 1.1 s", "German → English", "stopped: the longest answer"):
        assert part in shown
    for part in ("ONNX Runtime", "10 tokens/s", "first word after 100 ms"):
        assert part in details
        assert part not in shown, "for those who open it"
    assert "&lt;b&gt;" in line
    assert "词元" in answer_line(answer, "zh", seconds=60)


def test_settings_come_from_options_then_environment_then_defaults() -> None:
    assert parse_settings([], {}).models == DEFAULT_MODELS
    environment = {"TINY_TRANSFORMER_PORT": "8080", "TINY_TRANSFORMER_MODEL": "a, b", "TINY_TRANSFORMER_MAX_QUEUE": "7"}
    settings = parse_settings(["--max-seconds", "2.5"], environment)
    assert (settings.port, settings.models, settings.limits.queue) == (8080, ("a", "b"), 7)
    assert settings.limits.seconds == 2.5
    assert parse_settings(["--port", "9", "--model", "c"], environment).port == 9
    assert parse_settings(["--model", "c"], environment).models == ("c",)
    assert parse_settings([], {"SPACE_ID": "someone/space"}).host == "0.0.0.0"


@pytest.mark.parametrize("arguments", [["--port", "x"], ["--port", "70000"], ["--max-queue", "0"], ["--nonsense"]])
def test_wrong_settings_end_with_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_settings(arguments, {})
    assert stop.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_wrong_limit_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="max_seconds"):
        parse_settings(["--max-seconds", "-1"], {})


def test_missing_and_damaged_folders_stay_in_the_store_with_their_reason(make_bundle: Any, tmp_path: Path) -> None:
    from tiny_transformer.ui.models import ModelStore

    good = make_bundle("decoder-only", name="chat")
    damaged = make_bundle(name="translate")
    (damaged.folder / "config.json").write_text("{")
    store = ModelStore([str(tmp_path / "nowhere"), str(damaged.folder), str(good.folder)], "eager")
    assert store.default == "chat"
    assert "is not a folder" in (store.entries["nowhere"].problem or "")
    assert "config.json" in (store.entries["translate"].problem or "")
    assert HAN.search(translated(store.entries["nowhere"].problem or "", "zh"))
    with pytest.raises(InputError, match=r"config\.json"):
        store.load("translate")
    with pytest.raises(InputError, match="no model"):
        store.bundle("unknown")
    with pytest.raises(BackendError, match="no backend"):
        store.load("chat", "quantum")
    assert store.load("chat") is store.load("chat", "eager"), "loaded once, however it is called"


def test_two_folders_of_one_name_are_told_apart(make_bundle: Any) -> None:
    from tiny_transformer.ui.models import ModelStore

    first = make_bundle("decoder-only", name="a/chat")
    second = make_bundle("decoder-only", name="b/chat")
    store = ModelStore([str(first.folder), str(second.folder)], "eager")
    assert list(store.entries) == ["chat", "chat-2"]
    assert say("en", "task_chat") == "Chat"
