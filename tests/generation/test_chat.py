"""Prompts: what is left out so that a dialogue or a text fits, and that it is said."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models import BundleFactory
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import GenerationConfig, ModelConfig
from tiny_transformer.errors import InputError
from tiny_transformer.generation.prompt import Prompt, fit_dialogue, prompt_for
from tiny_transformer.tokenizer import Message, Tokenizer

TOKENIZER = Tokenizer.synthetic(300)


def prompt_of(bundle: Bundle, content: Any, **options: Any) -> Prompt:
    return prompt_for(bundle.tokenizer, bundle.config, bundle.generation, content, **options)


def says(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def fit(messages: list[Message], max_length: int = 64, room: int = 16) -> tuple[list[int], list[str]]:
    return fit_dialogue(TOKENIZER, messages, max_length, room)


def test_a_dialogue_that_fits_is_kept_whole() -> None:
    messages = [says("system", "be kind"), says("user", "hi"), says("assistant", "hello"), says("user", "how?")]
    ids, notices = fit(messages)
    assert ids == TOKENIZER.encode_chat(messages)
    assert notices == []


def test_the_oldest_turns_go_first_and_the_system_message_stays() -> None:
    turns = [says(("user", "assistant")[i % 2], f"message {i:02}") for i in range(9)]
    for opening in ([], [says("system", "be kind")]):
        ids, notices = fit([*opening, *turns])
        kept = next(n for n in range(9, 0, -1) if len(TOKENIZER.encode_chat([*opening, *turns[-n:]])) <= 64 - 16)
        assert ids == TOKENIZER.encode_chat([*opening, *turns[-kept:]])
        assert notices == [f"The {9 - kept} oldest messages were left out: the model's context holds 64 tokens."]


def test_a_message_too_long_alone_loses_its_start() -> None:
    ids, notices = fit([says("user", "before"), says("assistant", "yes"), says("user", "x" * 99 + " the end")])
    assert len(ids) <= 64 - 16
    assert TOKENIZER.decode(ids).endswith(" the end")
    assert any("oldest messages" in notice for notice in notices)
    assert any("read only the last" in notice for notice in notices)


def test_a_system_message_without_end_is_left_out() -> None:
    ids, notices = fit([says("system", "s" * 200), says("user", "hi")])
    assert ids == TOKENIZER.encode_chat([says("user", "hi")])
    assert "system message" in notices[0]


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "at least one message"),
        ("hi", "list of"),
        (None, "list of"),
        ([says("assistant", "hi")], "last message is from the assistant"),
        ([says("user", "")], "empty"),
        ([says("robot", "hi")], "robot"),
        ([{"role": "user"}], "must be"),
        ([{"role": "user", "content": 3}], "must be text"),
        ([says("user", "\ud800")], "lone surrogate"),
    ],
)
def test_what_is_no_dialogue_is_refused(messages: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        fit(messages)


def test_a_context_without_room_is_refused() -> None:
    with pytest.raises(InputError, match="no room"):
        fit_dialogue(TOKENIZER, [says("user", "hi")], 64, 61)


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), st.text("ab é🎉", max_size=40)), max_size=8),
    st.integers(8, 80),
    st.integers(1, 200),
)
def test_any_dialogue_fits_and_leaves_room(turns: list[tuple[str, str]], max_length: int, wanted: int) -> None:
    messages = [*(says(role, content) for role, content in turns), says("user", "last")]
    config = ModelConfig.gpt(max_length=max_length)
    chat = GenerationConfig(task="chat", roles=TOKENIZER.roles, eos_id=TOKENIZER.eos_id)
    prompt = prompt_for(TOKENIZER, config, chat, messages, max_new_tokens=wanted)
    ids, notices = list(prompt.prefix), prompt.notices
    assert len(ids) + min(wanted, max_length // 2) <= max_length
    assert ids[-1] == TOKENIZER.roles["assistant"]
    assert (ids == TOKENIZER.encode_chat(messages)) == (not notices)


def test_prompts_by_task(make_bundle: BundleFactory) -> None:
    translate = make_bundle(max_length=32)
    prompt = prompt_of(translate, "abc", prefix="de")
    ids = translate.tokenizer.encode
    assert prompt.source == (*ids("abc"), translate.tokenizer.eos_id)
    assert prompt.prefix == (translate.tokenizer.bos_id, *ids("de"))
    chat = make_bundle("decoder-only", name="chat", max_length=64)
    prompt = prompt_of(chat, "abc", prefix=[9, 8])
    assert prompt.source is None
    assert prompt.prefix == (*chat.tokenizer.encode_chat([says("user", "abc")]), 9, 8)
    raw = prompt_of(chat, "abc", raw=True)
    assert raw.prefix == (chat.tokenizer.bos_id, *ids("abc"))
    assert raw == prompt_of(make_bundle("decoder-only", name="plain", task="complete"), "abc")


def test_a_long_source_is_cut_at_its_end_and_a_long_text_at_its_start(make_bundle: BundleFactory) -> None:
    text = "".join(chr(97 + i % 26) for i in range(100_000))
    translate = make_bundle(max_length=32)
    whole = translate.tokenizer.encode(text)
    prompt = prompt_of(translate, text)
    assert prompt.source == (*whole[:31], translate.tokenizer.eos_id)
    assert prompt.notices == (f"The text has {len(whole)} tokens; the model read only the first 31.",)
    complete = make_bundle("decoder-only", name="plain", task="complete", max_length=32)
    prompt = prompt_of(complete, text, max_new_tokens=10)
    assert prompt.prefix == (complete.tokenizer.bos_id, *whole[-21:])
    assert prompt.notices == (f"The text has {len(whole)} tokens; the model read only the last 21.",)
    fits = prompt_of(
        complete,
        complete.tokenizer.decode(whole[:31]),
        max_new_tokens=10,
    )
    assert len(fits.prefix) == 32  # kept whole, though it leaves no room but for one token
    assert fits.notices == ()


@pytest.mark.parametrize("prefix", [[300], [-1], [1.5], ["a"], 3, [True], "\ud800"])
def test_a_wrong_start_of_the_answer_is_refused(make_bundle: BundleFactory, prefix: Any) -> None:
    with pytest.raises(InputError):
        prompt_of(make_bundle(), "abc", prefix=prefix)


def test_a_start_that_fills_the_context_is_refused(make_bundle: BundleFactory) -> None:
    for i, (architecture, task) in enumerate(
        [("encoder-decoder", "translate"), ("decoder-only", "chat"), ("decoder-only", "complete")]
    ):
        bundle = make_bundle(architecture, name=str(i), task=task, max_length=16)
        with pytest.raises(InputError, match="shorten it"):
            prompt_of(bundle, "abc", prefix=[9] * 16)
