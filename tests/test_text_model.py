"""The object `load` returns: text in and out, the same in every way of asking, and every bad input a sentence."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_transformer as tt
from tests.support.generation_fixtures import TableBackend
from tests.support.models import BundleFactory, run_python
from tiny_transformer.bundle import GENERATION, PARITY, Bundle
from tiny_transformer.errors import BundleError, InputError, ParityError, TinyTransformerError
from tiny_transformer.text_model import TextModel
from tiny_transformer.tokenizer import Tokenizer

OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0, "seed": 4},
    {"temperature": 0.7, "seed": 2, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2},
    {"num_beams": 3},
    {"stop": ["a", "\u00e9", "!"], "temperature": 1.0, "seed": 5},
]
TEXTS = ["Guten Morgen!", "a", "今天天气真好。🎉", "\x00\x01", "  ", "naïve " * 40]


@pytest.fixture
def translator(make_bundle: BundleFactory) -> TextModel:
    return tt.load(make_bundle(max_length=32).folder, "eager", device="cpu")


@pytest.fixture
def talker(make_bundle: BundleFactory) -> TextModel:
    return tt.load(make_bundle("decoder-only", name="chat", max_length=48).folder, "eager", device="cpu")


@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS)
def test_the_stream_joined_is_the_text(translator: TextModel, talker: TextModel, options: dict[str, Any]) -> None:
    for model in (translator, talker):
        for text in TEXTS:
            whole = model.generate(text, **options)
            assert "".join(model.stream(text, **options)) == whole.text
            streamed = model.stream_tokens(text, **options).result()
            assert (streamed.ids, streamed.logprobs, streamed.text) == (whole.ids, whole.logprobs, whole.text)
            assert streamed.finish_reason == whole.finish_reason
            assert len(whole.ids) == len(whole.tokens) == len(whole.logprobs) == len(whole.alternatives)


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"stop": "e"}])
def test_a_batch_is_each_text_alone(translator: TextModel, talker: TextModel, options: dict[str, Any]) -> None:
    for model in (translator, talker):
        assert [r.ids for r in model.generate_batch(TEXTS, **options)] == [
            model.generate(text, **options).ids for text in TEXTS
        ]
    assert translator.generate_batch([]) == []


def test_batches_of_any_size_give_the_same(translator: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text {'x' * (i % 7)} {i}" for i in range(20)]
    options = {"temperature": 1.0, "seed": 1}
    expected = [r.ids for r in translator.generate_batch(texts, **options)]
    monkeypatch.setattr(translator.backend, "max_rows", 3)
    assert [r.ids for r in translator.generate_batch(texts, **options)] == expected
    tail = translator.generate_batch(texts[10:], numbers=list(range(10, 20)), **options)
    assert [r.ids for r in tail] == expected[10:]
    assert translator.generate(texts[0], **options).ids == expected[0]


def test_ids_in_ids_out(translator: TextModel, talker: TextModel) -> None:
    special = translator.bundle.generation
    found = translator.generate_ids([[5, 6, special.eos_id], [7]], max_new_tokens=6, min_new_tokens=6)
    assert [len(row.ids) for row in found] == [6, 6]
    text = translator.generate("abc", max_new_tokens=6)
    ids = [*translator.tokenizer.encode("abc"), special.eos_id]
    assert translator.generate_ids([ids], max_new_tokens=6)[0].ids == text.ids
    assert len(talker.generate_ids([[1, 5]], max_new_tokens=4, min_new_tokens=4)[0].ids) == 4


@pytest.mark.parametrize("rows", [["abc"], "abc", [[]], [[300]], [[-1]], [[1.5]], [[10**30]], [["x"]], [5], [[5] * 99]])
def test_wrong_ids_are_refused(translator: TextModel, rows: Any) -> None:
    with pytest.raises(InputError):
        translator.generate_ids(rows)


def test_a_chosen_start_is_continued(translator: TextModel, talker: TextModel) -> None:
    whole = translator.generate("abc", max_new_tokens=8, min_new_tokens=8)
    rest = translator.generate("abc", prefix=whole.ids[:3], max_new_tokens=5, min_new_tokens=5)
    assert rest.ids == whole.ids[3:]
    history = [{"role": "user", "content": "hi"}]
    reply = talker.reply(history, prefix="Well", max_new_tokens=4)  # type: ignore[arg-type]
    prompt = talker.tokenizer.encode_chat(history) + talker.tokenizer.encode("Well")  # type: ignore[arg-type]
    assert reply.ids == talker.generate_ids([prompt], max_new_tokens=4)[0].ids
    assert reply.n_source_tokens == len(prompt)


def test_reply_is_what_the_chat_format_says(talker: TextModel) -> None:
    history: Any = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "well"},
    ]
    found = talker.reply(history, max_new_tokens=5)
    assert found.ids == talker.generate_ids([talker.tokenizer.encode_chat(history)], max_new_tokens=5)[0].ids
    assert "".join(talker.stream_reply(history, max_new_tokens=5)) == found.text
    assert talker.reply(history[:1], max_new_tokens=5).ids == talker.generate("hi", max_new_tokens=5).ids
    assert talker.generate("hi", raw=True, max_new_tokens=5).n_source_tokens == 1 + len(talker.tokenizer.encode("hi"))


def test_a_translator_does_not_chat(translator: TextModel) -> None:
    for ask in (translator.reply, translator.stream_reply, translator.stream_reply_tokens):
        with pytest.raises(InputError, match="not for chat"):
            ask([{"role": "user", "content": "hi"}])


def test_long_input_is_cut_with_a_notice(
    translator: TextModel, talker: TextModel, caplog: pytest.LogCaptureFixture
) -> None:
    for model in (translator, talker):
        result = model.generate("x" * 100_000, max_new_tokens=2, split=False)
        assert "read only the" in result.notices[0]
        with caplog.at_level(logging.WARNING):
            list(model.stream("x" * 100_000, max_new_tokens=2, split=False))
        assert result.notices[0] in caplog.messages
        assert model.stream_tokens("x" * 100_000, max_new_tokens=2, split=False).notices == result.notices


@pytest.mark.parametrize("text", ["", "\ud800", None, 3, b"abc"])
def test_what_is_no_text_is_refused_before_anything_runs(translator: TextModel, talker: TextModel, text: Any) -> None:
    for model in (translator, talker):
        for ask in (model.generate, model.stream, model.stream_tokens):
            with pytest.raises(InputError):
                ask(text)
        with pytest.raises(InputError):
            model.generate_batch(["fine", text])
    with pytest.raises(InputError):
        translator.generate_batch("a text")


def test_defaults_come_from_the_folder(make_bundle: BundleFactory) -> None:
    bundle = make_bundle(max_length=32)
    path = bundle.folder / GENERATION
    values = json.loads(path.read_text()) | {"max_new_tokens": 3, "repetition_penalty": 1.7}
    path.write_text(json.dumps(values))
    model = tt.load(bundle.folder, "eager", device="cpu")
    assert len(model.generate("abc", min_new_tokens=3).ids) == 3
    assert model.generate("abc").ids == model.generate("abc", repetition_penalty=1.7, max_new_tokens=3).ids


def test_alternatives_can_be_chosen(translator: TextModel) -> None:
    found = translator.generate("abc", alternatives=3, max_new_tokens=4, min_new_tokens=4)
    assert all(len(there) == 3 and there[0][1] >= there[1][1] for there in found.alternatives)
    second = found.alternatives[1][1][0]
    other = translator.generate("abc", prefix=[found.ids[0], second], max_new_tokens=2, min_new_tokens=2)
    assert len(other.ids) == 2
    assert json.loads(json.dumps(found.to_dict()))["ids"] == found.ids


def test_attention_comes_with_its_tokens(translator: TextModel, talker: TextModel) -> None:
    found = translator.attention("abc", "de")
    assert found.source is not None
    assert found.weights.cross is not None
    assert found.source[-1] == "<eos>"
    assert found.target[0] == "<bos>"
    assert found.weights.cross.shape[-2:] == (len(found.target), len(found.source))
    own = talker.attention("abc")
    assert own.source is None
    assert own.target[0] == "<user>"
    assert own.weights.decoder.shape[-1] == len(own.target) <= 48


def test_a_folder_with_a_report_is_verified_or_refused(make_bundle: BundleFactory) -> None:
    bundle = make_bundle()
    model = tt.load(bundle.folder, "eager", device="cpu")
    assert not model.verified
    assert (model.backend_name, model.task, model.config) == ("eager", "translate", bundle.config)
    (bundle.folder / PARITY).write_text("{}")
    with pytest.raises(ParityError):
        tt.load(bundle.folder, "eager", device="cpu")


def test_a_wrong_folder_or_backend_is_one_sentence(make_bundle: BundleFactory) -> None:
    folder = make_bundle().folder
    with pytest.raises(BundleError, match="not a folder"):
        tt.load(folder / "nothing")
    with pytest.raises(TinyTransformerError, match="no backend"):
        tt.load(folder, "fast")
    with pytest.raises(TinyTransformerError, match="threads"):
        tt.load(folder, "eager", threads=0)


def test_the_package_is_light_and_knows_its_names() -> None:
    code = "import sys, tiny_transformer as tt; print('numpy' in sys.modules, hasattr(tt, 'x'), tt.load.__name__)"
    done = run_python(code)
    assert done.out.split() == ["False", "False", "load"], done.err
    assert all(getattr(tt, name) is not None for name in tt.__all__)
    done = run_python("import sys, tiny_transformer.text_model; print('numpy.random' in sys.modules)")
    assert done.out.split() == ["False"], "only those who draw tokens load what they draw with"


@pytest.mark.long
@settings(max_examples=150)
@given(st.text(max_size=60), st.booleans())
def test_any_text_gives_text_or_one_sentence(text: str, surrogate: bool) -> None:
    text = text + "\udfff" if surrogate else text
    backend = TableBackend([5, 6, 7], 300, max_length=16)
    generation = tt.GenerationConfig(max_source_tokens=16)
    model = TextModel(Bundle(Path(), backend.config, generation, Tokenizer.synthetic(300)), backend)
    if not text or surrogate:
        with pytest.raises(InputError):
            model.generate(text)
    else:
        result = model.generate(text, split=False)
        assert result.ids == [5, 6, 7]
        split = model.generate(text)
        assert split.ids == [5, 6, 7] * len(split.sentences)
        assert bool(result.notices) == (len(model.tokenizer.encode(text)) > 15)
