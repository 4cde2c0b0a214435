"""Configs: every bad value is one sentence with the thing, its place and the remedy; nothing else is ever raised."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models import ROOT, all_combinations, tiny_config
from tiny_transformer.config import PRESETS, GenerationConfig, ModelConfig, defaults_of, preset
from tiny_transformer.errors import ConfigError

CHAT = {"task": "chat", "roles": {"user": 3, "assistant": 4}}


def refusal(cls: type[ModelConfig] | type[GenerationConfig], values: Any, where: str = "here.json") -> str:
    with pytest.raises(ConfigError) as caught:
        cls.from_dict(values, where=where)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 600
    return message


BAD_MODELS = [
    ({"n_heads": 3}, "n_heads is 3, which does not divide d_model 16; choose a divisor"),
    ({"n_heads": 4}, "heads of width 4; make it a multiple of 8"),
    ({"d_model": 15, "n_heads": 1}, "d_model is 15.*make it even"),
    ({"d_model": 0}, "d_model is 0; choose a whole number from 1"),
    ({"d_model": -16}, "d_model is -16; choose"),
    ({"d_model": 10**9}, "d_model is 1000000000; choose .* to 65536"),
    ({"n_heads": 0}, "n_heads is 0; choose"),
    ({"d_ff": 0}, "d_ff is 0; choose"),
    ({"vocab_size": 0}, "vocab_size is 0; choose"),
    ({"vocab_size": 10**30}, "vocab_size is 10+; choose"),
    ({"output_vocab_size": 301}, "output_vocab_size is 301; choose a whole number from 0 to 300"),
    ({"output_vocab_size": -1}, "output_vocab_size is -1; choose"),
    ({"output_vocab_size": 1.0}, "output_vocab_size must be a whole number, not 1.0"),
    ({"output_vocab_size": None}, "output_vocab_size must be a whole number, not None"),
    (
        {"architecture": "decoder-only", "n_encoder_layers": 0, "output_vocab_size": 280},
        "output_vocab_size is 280, but a decoder-only model writes what it reads; set it to 0",
    ),
    ({"max_length": 0}, "max_length is 0; choose"),
    ({"max_length": 1_048_576, "d_model": 32}, "max_length 1048576 times d_model 32 is a table of positions with more"),
    ({"n_encoder_layers": 0}, "n_encoder_layers is 0; choose"),
    ({"n_decoder_layers": 0}, "n_decoder_layers is 0; choose"),
    ({"architecture": "decoder-only"}, "n_encoder_layers is 2, but a decoder-only model has no encoder; set it to 0"),
    ({"architecture": "encoder"}, "architecture is 'encoder'; choose one of encoder-decoder, decoder-only"),
    ({"norm": "Pre"}, "norm is 'Pre'; choose one of pre, post"),
    ({"activation": "silu"}, "activation is 'silu'; choose one of relu, gelu"),
    ({"positions": ""}, "positions is ''; choose one of sinusoidal, learned, rotary, none"),
    ({"dropout": 1}, "dropout is 1.0; choose a number from 0"),
    ({"dropout": -0.1}, "dropout is -0.1; choose"),
    ({"dropout": float("nan")}, "dropout is nan; choose"),
    ({"dropout": float("inf")}, "dropout is inf; choose"),
    ({"dropout": 10**400}, "dropout"),
    ({"dropout": "0.1"}, "dropout must be a number, not '0.1'; correct it"),
    ({"dropout": False}, "dropout must be a number, not False; correct it"),
    ({"d_model": "16"}, "d_model must be a whole number, not '16'; correct it"),
    ({"d_model": 16.0}, "d_model must be a whole number, not 16.0; correct it"),
    ({"d_model": True}, "d_model must be a whole number, not True; correct it"),
    ({"d_model": None}, "d_model must be a whole number, not None; correct it"),
    ({"bias": 1}, "bias must be true or false, not 1; correct it"),
    ({"norm": ["pre"]}, "norm must be text, not .*; correct it"),
    ({"norm": list(range(10_000))}, "norm must be text"),
    ({"norm": "x" * 10_000}, "norm is 'x"),
    ({"dmodel": 16, "nheads": 2}, "unknown keys 'dmodel', 'nheads'; remove them .*d_model"),
    ({"a\nb": 1}, "unknown keys"),
    ({f"key{i}": 1 for i in range(1_000)}, "unknown keys"),
]


@pytest.mark.parametrize(("change", "message"), BAD_MODELS, ids=lambda value: str(value)[:40])
def test_a_bad_model_value_names_key_place_and_remedy(change: dict[str, Any], message: str) -> None:
    found = refusal(ModelConfig, tiny_config().to_dict() | change)
    assert found.startswith("here.json")
    assert re.search(message, found), found


BAD_USES = [
    ({"task": "summarize"}, "task is 'summarize'; choose one of translate, chat, complete"),
    ({"task": "chat"}, "roles must name the tokens of user and assistant for a chat model; add them"),
    (CHAT | {"roles": {"user": 3}}, "roles must name"),
    (CHAT | {"roles": {"user": 3, "assistant": -1}}, r"roles.assistant is -1; choose"),
    (CHAT | {"roles": {"user": 3, "assistant": "4"}}, r"roles.assistant must be a whole number, not '4'"),
    ({"roles": [3]}, r"roles must be an object, not \[3\]"),
    ({"pad_id": -1}, "pad_id is -1; choose"),
    ({"eos_id": 2.0}, "eos_id must be a whole number"),
    ({"length_penalty": -1}, "length_penalty is -1.0; choose a number from 0 to 10"),
    ({"length_penalty": float("nan")}, "length_penalty is nan"),
    ({"repetition_penalty": 0}, "repetition_penalty is 0.0; choose a number above 0"),
    ({"source_languages": "de"}, "source_languages must be a list, not 'de'"),
    ({"source_languages": ["de", 1]}, "source_languages must be text, not 1"),
    ({"target_language": "\ud800"}, "target_language"),
    ({"max_new_tokens": 0}, "max_new_tokens is 0; choose"),
    ({"max_source_tokens": 10**9}, "max_source_tokens is 10+; choose"),
]


@pytest.mark.parametrize(("change", "message"), BAD_USES, ids=lambda value: str(value)[:40])
def test_a_bad_generation_value_names_key_place_and_remedy(change: dict[str, Any], message: str) -> None:
    found = refusal(GenerationConfig, GenerationConfig().to_dict() | change)
    assert found.startswith("here.json")
    assert re.search(message, found), found


@pytest.mark.parametrize("cls", [ModelConfig, GenerationConfig])
def test_every_key_is_needed(cls: type[ModelConfig] | type[GenerationConfig]) -> None:
    values = cls().to_dict()
    for name in values:
        left = {key: value for key, value in values.items() if key != name}
        assert f"here.json lacks the keys {name}; add them" in refusal(cls, left)


def test_from_dict_does_not_depend_on_the_order_of_keys() -> None:
    values = tiny_config().to_dict()
    assert ModelConfig.from_dict(dict(reversed(values.items()))) == tiny_config()


@pytest.mark.parametrize("config", [*all_combinations(), *PRESETS.values()], ids=lambda c: c.architecture)
def test_a_model_config_survives_its_file(config: ModelConfig, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(config.to_json(), encoding="utf-8")
    assert ModelConfig.load(path) == config
    names = [field.name for field in dataclasses.fields(ModelConfig)]
    if not config.output_vocab_size:
        names.remove("output_vocab_size")
    assert list(json.loads(config.to_json())) == names


def test_a_preset_of_fewer_tokens_than_it_writes_writes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "translate", preset("translate", output_vocab_size=5_120))
    assert preset("translate").n_outputs == 5_120
    assert preset("translate", vocab_size=5_121).n_outputs == 5_120
    assert preset("translate", vocab_size=300).n_outputs == 300
    with pytest.raises(ConfigError, match="output_vocab_size is 301"):
        preset("translate", vocab_size=300, output_vocab_size=301)


def test_a_config_without_an_output_vocabulary_is_as_it_was_before_there_was_one(tmp_path: Path) -> None:
    """Such folders have no such key, and their graphs and reports hold the hash of the whole text."""
    shipped = ROOT / "checkpoints" / "chat" / "config.json"
    config = ModelConfig.load(shipped)
    assert config.output_vocab_size == 0
    assert config.n_outputs == config.vocab_size == 8_000
    assert config.to_json() == shipped.read_text(encoding="utf-8")
    assert ModelConfig.from_dict(config.to_dict() | {"output_vocab_size": 0}) == config
    smaller = ModelConfig.load(ROOT / "checkpoints" / "translate" / "config.json")
    assert smaller.n_outputs == json.loads(smaller.to_json())["output_vocab_size"] == 5_120
    assert ModelConfig.from_dict(smaller.to_dict()) == smaller


def test_a_generation_config_survives_its_file(tmp_path: Path) -> None:
    config = GenerationConfig(
        task="chat",
        roles={"user": 3, "assistant": 4},
        source_languages=("de", "zh"),
        target_language="en",
        length_penalty=0.6,
    )
    path = tmp_path / "generation.json"
    path.write_text(config.to_json(), encoding="utf-8")
    assert GenerationConfig.load(path) == config


def test_configs_are_values() -> None:
    config = tiny_config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 32  # type: ignore[misc]
    assert config.with_changes(d_model=32) == tiny_config(d_model=32)
    with pytest.raises(ConfigError, match="does not divide"):
        config.with_changes(n_heads=3)
    assert config.d_head == 8
    assert defaults_of(ModelConfig) == dataclasses.asdict(ModelConfig())


def test_gpt_has_gpts_choices_and_the_paper_the_papers() -> None:
    gpt, paper = ModelConfig.gpt(), ModelConfig()
    assert (gpt.activation, gpt.positions, gpt.scale_embeddings, gpt.n_encoder_layers) == ("gelu", "learned", False, 0)
    assert (paper.activation, paper.positions, paper.scale_embeddings) == ("relu", "sinusoidal", True)
    assert not gpt.is_encoder_decoder
    assert paper.is_encoder_decoder


def test_presets_can_be_changed_and_an_unknown_one_is_named() -> None:
    assert preset("tiny", d_ff=99) == PRESETS["tiny"].with_changes(d_ff=99)
    with pytest.raises(ConfigError, match="no preset 'huge'; choose one of tiny, "):
        preset("huge")


DAMAGED_FILES = {
    "empty": b"",
    "truncated": tiny_config().to_json().encode()[:-20],
    "not UTF-8": b'{"d_model": "\xff"}',
    "not an object": b"[1, 2]",
    "a number": b"7",
    "NaN": b"NaN",
    "nested without end": b"[" * 200_000,
    "a number without end": b'{"d_model": ' + b"9" * 10_000 + b"}",
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("content", DAMAGED_FILES.values(), ids=DAMAGED_FILES)
@pytest.mark.parametrize("cls", [ModelConfig, GenerationConfig])
def test_a_damaged_file_is_named(cls: type[ModelConfig], content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.json") as caught:
        cls.load(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_or_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json does not exist; a model folder needs it"):
        ModelConfig.load(tmp_path / "config.json")
    with pytest.raises(ConfigError, match=f"{tmp_path.name} is not readable"):
        ModelConfig.load(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
LIKELY = JSON | st.integers(-2, 70_000) | st.sampled_from(["pre", "post", "rotary", "chat", 10**400, -(10**400), 16, 2])


def objects_like(cls: type[ModelConfig] | type[GenerationConfig]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with the right keys and some values replaced by anything JSON can say, now and then a key too many."""
    good = cls().to_dict()
    changes = st.dictionaries(st.sampled_from(list(good)), LIKELY, max_size=3)
    extra = st.dictionaries(st.text(max_size=5), JSON, max_size=1)
    return st.builds(lambda a, b: good | a | b, changes, extra)


@pytest.mark.long
@pytest.mark.parametrize("cls", [ModelConfig, GenerationConfig])
@given(data=st.data())
def test_whatever_a_file_says_it_loads_or_is_refused(
    cls: type[ModelConfig], tmp_path: Path, data: st.DataObject
) -> None:
    values = data.draw(JSON | objects_like(cls))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    try:
        config = cls.load(path)
    except ConfigError:
        return
    path.write_text(config.to_json(), encoding="utf-8")
    assert cls.load(path) == config


@given(values=objects_like(ModelConfig))
def test_whatever_a_dict_says_it_is_taken_or_refused(values: dict[str, Any]) -> None:
    try:
        ModelConfig.from_dict(values)
    except ConfigError:
        return
