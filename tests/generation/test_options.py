"""Every option is checked where it comes in, in one sentence."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_transformer.config import GenerationConfig
from tiny_transformer.errors import InputError
from tiny_transformer.generation import GenerationOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("temperature", "warm"),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", -1),
        ("top_p", math.nan),
        ("top_k", -1),
        ("top_k", 2.5),
        ("num_beams", 0),
        ("num_beams", 100_000),
        ("num_beams", True),
        ("n_best", 2),
        ("max_new_tokens", 0),
        ("min_new_tokens", -1),
        ("min_new_tokens", 129),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf),
        ("length_penalty", -1.0),
        ("seed", -1),
        ("seed", 1.0),
        ("alternatives", -1),
        ("logprobs", 1),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", ["\ud800"]),
        ("stop", 3),
        ("stop", ["x"] * 65),
    ],
)
def test_a_wrong_option_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        GenerationOptions(**{name: value})
    sentence = str(caught.value)
    assert name.replace("_", " ") in sentence.replace("_", " ")
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_beams_do_not_draw() -> None:
    with pytest.raises(InputError, match="draws nothing"):
        GenerationOptions(num_beams=2, temperature=0.5)


def test_an_unknown_option_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="no option num_beans"):
        GenerationOptions.from_keywords({"num_beans": 4})


def test_what_is_not_given_comes_from_the_model() -> None:
    model = GenerationConfig(length_penalty=0.6, repetition_penalty=1.2, max_new_tokens=40)
    options = GenerationOptions.from_keywords({"repetition_penalty": 1.5, "top_k": None}, model)
    assert (options.length_penalty, options.repetition_penalty, options.max_new_tokens) == (0.6, 1.5, 40)
    assert GenerationOptions.from_keywords({"min_new_tokens": 64}, model).max_new_tokens == 64


def test_one_stop_string_is_a_list_of_one() -> None:
    assert GenerationOptions(stop="end").stop == ("end",)  # type: ignore[arg-type]


values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.text(max_size=3), max_size=3)
)


@pytest.mark.long
@settings(max_examples=800)
@given(st.dictionaries(st.sampled_from([*GenerationOptions.__annotations__, "other"]), values, max_size=4))
def test_any_values_give_options_or_one_sentence(keywords: dict[str, Any]) -> None:
    try:
        options = GenerationOptions.from_keywords(keywords, GenerationConfig())
    except InputError:
        return
    assert 0 <= options.min_new_tokens <= options.max_new_tokens
    assert math.isfinite(options.temperature)
    assert 0 < options.top_p <= 1
    assert 1 <= options.n_best <= options.num_beams
