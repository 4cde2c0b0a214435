"""The generation path behind the page: answers that stream, stop and tell; comparisons; and the look inside."""

import json
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.models import DEVICES, ROOT
from tests.support.ui_fixtures import make_model, models
from tests.support.ui_server import SlowBackend
from tiny_transformer.backends.base import Batch
from tiny_transformer.errors import InputError
from tiny_transformer.parity.microscope import Place
from tiny_transformer.text_model import TextModel, load
from tiny_transformer.ui.compare_tab import marked, run_cards, verdict
from tiny_transformer.ui.comparison import BackendRun, Comparison, Difference
from tiny_transformer.ui.inspection import (
    attention_maps,
    inspect_answer,
    kinds_of,
    n_layers,
    position_table,
    prompt_of,
    read_answer,
    visible_tokens,
)
from tiny_transformer.ui.models import Loaded, ModelStore
from tiny_transformer.ui.page_settings import Limits
from tiny_transformer.ui.service import PageService, dialogue, last_of
from tiny_transformer.ui.streaming import stream_answer

__all__ = ["models"]


def folders(models: dict[str, Path]) -> list[str]:
    return [str(folder) for folder in models.values()]


@pytest.fixture(scope="module")
def service(models: dict[str, Path]) -> PageService:
    return PageService(ModelStore(folders(models)), Limits(new_tokens=60, seconds=20))


def slow(service: PageService, name: str, seconds: float) -> TextModel:
    model = service.store.load(name, "onnx").model
    return TextModel(model.bundle, SlowBackend(model.backend, seconds))


def test_last_state_is_what_generate_gives_and_states_only_grow(service: PageService) -> None:
    model = slow(service, "chat", 0.01)
    states = list(stream_answer(model, dialogue([], "hello"), {"max_new_tokens": 30}, 60))
    assert (
        states[-1].text == service.store.load("chat", "onnx").model.reply(dialogue([], "hello"), max_new_tokens=30).text
    )
    assert len(states) > 4, "a stream, not a lump"
    assert all(later.text.startswith(earlier.text) for earlier, later in pairwise(states))
    assert states[-1].finish_reason == "length"
    assert [state.finish_reason for state in states[:-1]] == [None] * (len(states) - 1)
    assert states[-1].n_tokens == 30
    assert 0 < states[-1].first_seconds < states[-1].seconds  # type: ignore[operator]


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}])
def test_closing_an_answer_ends_its_work(service: PageService, options: dict[str, Any]) -> None:
    model = slow(service, "translate", 0.02)
    answers = stream_answer(model, "Guten Morgen", {"max_new_tokens": 90, **options}, 60)
    for _ in range(3):
        next(answers)
    answers.close()
    assert "beam search" not in [thread.name for thread in threading.enumerate()], "it ended with its answer"
    done = model.backend.steps  # type: ignore[attr-defined]
    time.sleep(0.2)
    assert done < 60
    assert model.backend.steps == done  # type: ignore[attr-defined]


# A program that ends while a beam search is running, and nobody has closed its answer.
LEAVES = """
import sys
from tests.support.ui_server import SlowBackend
from tiny_transformer.text_model import TextModel, load
from tiny_transformer.ui.streaming import stream_answer
model = load(sys.argv[1], "onnx")
slow = TextModel(model.bundle, SlowBackend(model.backend, 0.02))
answers = stream_answer(slow, "Guten Morgen", {"max_new_tokens": 90, "num_beams": 3}, 3600)
[next(answers) for _ in range(3)]
globals()["kept"] = answers
sys.stdout.write("leaving")
"""


def test_a_program_that_ends_ends_its_beam_search(models: dict[str, Path]) -> None:
    command = [sys.executable, "-c", LEAVES, str(models["translate"])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving", "")


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}])
def test_time_limit_ends_an_answer_and_says_so(service: PageService, options: dict[str, Any]) -> None:
    start = time.monotonic()
    last = last_of(
        stream_answer(slow(service, "chat", 0.05), dialogue([], "hi"), {"max_new_tokens": 80, **options}, 0.4)
    )
    assert last.finish_reason == "time"
    assert time.monotonic() - start < 2


def test_time_limit_ends_a_look_inside_too(service: PageService) -> None:
    hurried = PageService(service.store, Limits(seconds=0.2))
    model = service.store.load("translate", "onnx").model
    prompt = prompt_of(model, "Guten Tag")
    with pytest.raises(InputError, match=r"longer than 0\.2 s"):
        hurried.inspect(slow(service, "translate", 0.05), prompt)
    assert len(service.inspect(model, prompt).ids) == 48


def test_service_reads_the_dialogue_for_chat_and_the_last_text_for_translation(service: PageService) -> None:
    history: Any = [*dialogue([], "first"), {"role": "assistant", "content": "answer"}]
    turns = dialogue(history, "second")
    assert service.content("chat", turns) == turns
    assert service.content("translate", turns) == "second"
    with pytest.raises(InputError):
        service.content("chat", history)


def test_translation_says_which_language_it_took_the_text_for(service: PageService) -> None:
    for text, language in (("Der Hund", "de"), ("我明天要去北京", "zh")):
        answer = last_of(service.answers("translate", "onnx", dialogue([], text), {"max_new_tokens": 5}))
        assert answer.language == language
    assert last_of(service.answers("chat", "onnx", dialogue([], "hi"), {"max_new_tokens": 3})).language is None


def test_a_text_of_several_sentences_keeps_its_lines(service: PageService) -> None:
    text = "Der Hund schläft. Die Katze nicht.\n\nThe weather is nice today.\nGut."
    states = list(service.answers("translate", "onnx", dialogue([], text), {"max_new_tokens": 5}))
    last = states[-1]
    assert last.text == service.store.load("translate", "onnx").model.generate(text, max_new_tokens=5).text
    assert [bool(line) for line in last.text.split("\n")] == [True, False, True, True]
    assert "The weather is nice today." in last.text
    assert [state.finish_reason for state in states[:-1]] == [None] * (len(states) - 1)
    assert any("look like English: 1 of 4" in notice for notice in last.notices)


def test_english_comes_back_from_the_translator(service: PageService) -> None:
    answer = last_of(service.answers("translate", "onnx", dialogue([], "How are you today?"), {"num_beams": 2}))
    assert (answer.text, answer.finish_reason, answer.language) == ("How are you today?", "eos", None)
    assert answer.notices


def test_dropped_turns_come_with_a_notice(service: PageService) -> None:
    history: Any = [{"role": "user", "content": "x" * 30}, {"role": "assistant", "content": "y" * 30}] * 3
    answer = last_of(service.answers("chat", "onnx", dialogue(history, "now"), {"max_new_tokens": 5}))
    assert any("left out" in notice for notice in answer.notices)


def test_queue_limit_is_checked_before_anyone_waits(service: PageService) -> None:
    PageService(service.store, Limits(queue=3), waiting=lambda: 2).check_queue()
    with pytest.raises(InputError):
        PageService(service.store, Limits(queue=3), waiting=lambda: 3).check_queue()


@pytest.mark.parametrize("name", ["chat", "translate"])
def test_comparison_of_all_backends_is_equal(service: PageService, name: str) -> None:
    states = list(service.compare(name, "Guten Morgen"))
    last = states[-1]
    assert last.finished
    assert last.verdict == "equal"
    assert [run.backend for run in last.runs] == ["eager", "torchscript", "onnx"]
    assert len({run.text for run in last.runs}) == 1
    assert all(run.tokens_per_second > 0 for run in last.runs)
    assert {d.backend: d.tolerance for d in last.differences} == {"torchscript": 1e-4, "onnx": 1e-4}
    assert 0 < max(d.max_difference for d in last.differences) <= 1e-4, "two backends that never differ are one"
    assert "tt-good" in verdict(last, "en")
    assert "一致" in verdict(last, "zh")
    assert run_cards(last, "en").count("<section") == 3


def test_comparison_takes_several_sentences_and_english(service: PageService) -> None:
    *_, last = service.compare("translate", "Guten Morgen. Wie geht es dir?\nGut.")
    assert last.verdict == "equal"
    assert last.runs[0].text.count("\n") == 1
    *_, last = service.compare("translate", "The weather is nice today.")
    assert last.verdict == "equal", "here the backends count, not the translation"


class ScaledModelStore(ModelStore):
    """A store whose ONNX model is off by a little: what the comparison must catch."""

    def load(self, name: str, backend: str = "auto") -> Loaded:
        found = super().load(name, backend)
        if self.chosen(name, backend) != "onnx":
            return found
        wrong = Scaled(found.model.backend)
        return Loaded(TextModel(found.model.bundle, wrong), found.seconds, found.memory)


class Scaled:
    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def logits(self, target: Batch, source: Batch | None) -> np.ndarray:
        logits: np.ndarray = self._backend.logits(target, source) * 1.01
        return logits


def test_comparison_catches_a_backend_that_is_off_by_one_percent(models: dict[str, Path]) -> None:
    *_, last = PageService(ScaledModelStore(folders(models)), Limits(new_tokens=10)).compare("chat", "hello")
    assert last.verdict == "differ"
    assert [d.backend for d in last.differences if not d.passed] == ["onnx"]
    assert "tt-bad" in verdict(last, "en")
    assert "ONNX Runtime differs" in verdict(last, "en")


@pytest.mark.parametrize(
    ("place", "english", "chinese"),
    [
        (Place("decoder", "cross-attention", 2), "decoder layer 2, cross-attention.", "解码器第 2 层，交叉注意力。"),
        (Place("encoder", "embedding"), "encoder, embedding.", "编码器，嵌入。"),
        (Place("decoder", "output"), "differs: output.", "部分：输出。"),
    ],
)
def test_the_verdict_names_the_part_that_differs(place: Place, english: str, chinese: str) -> None:
    runs = tuple(BackendRun(backend=name, text="x", ids=(1,), state="done") for name in ("eager", "onnx"))
    found = Comparison(runs, "eager", (Difference("onnx", None, 0.5, 1e-4, passed=False, place=place),), finished=True)
    assert english in verdict(found, "en")
    assert chinese in verdict(found, "zh")


def test_a_fault_planted_in_a_backend_is_named_on_the_page(models: dict[str, Path]) -> None:
    store = ModelStore(folders(models))
    eager = store.load("translate", "eager")
    wrong = load(models["translate"], "eager")
    with torch.no_grad():
        wrong.backend.model.decoder.layers[1].feed_forward.output.weight.mul_(1.5)  # type: ignore[attr-defined]
    store._loaded["translate", "torchscript"] = replace(eager, model=wrong)
    *_, last = PageService(store, Limits(new_tokens=8)).compare("translate", "Guten Tag")
    assert last.verdict == "differ"
    assert last.differences[0].place == Place("decoder", "feed-forward", 2)


def test_comparison_looks_at_the_logits_of_every_sentence(models: dict[str, Path]) -> None:
    service = PageService(ScaledModelStore(folders(models)), Limits(new_tokens=10))
    *_, last = service.compare("translate", "Guten Morgen. Wie geht es dir?")
    assert last.verdict == "differ"


def test_comparison_of_one_backend_says_there_is_nothing_to_compare(models: dict[str, Path], monkeypatch: Any) -> None:
    store = ModelStore(folders(models))
    monkeypatch.setattr(store, "backends", lambda name: {"eager": "absent", "onnx": None})
    *_, last = PageService(store, Limits(new_tokens=5)).compare("chat", "hello")
    assert last.verdict == "alone"
    assert "nothing to compare" in verdict(last, "en")


def test_a_text_is_marked_from_the_word_where_it_parts_and_every_bar_is_full() -> None:
    ids = tuple(range(8))
    texts = {"eager": "The cat is here.", "onnx": "The cat is here.", "onnx-int8": "The cats <b>", "torchscript": "The"}
    runs = tuple(
        BackendRun(backend=name, text=text, ids=ids[: 8 - n], state="done", finish_reason="eos")
        for n, (name, text) in enumerate(texts.items())
    )
    shown = run_cards(Comparison(runs, "eager", finished=True), "en")
    assert shown.count("<mark>") == 1
    assert '<p>The <mark><span class="tt-unseen">differs from here on: </span>cats &lt;b&gt;</mark></p>' in shown
    assert shown.count("width:100%") == 4, "each is done, however short its text"
    assert "<mark>" not in run_cards(Comparison(runs, "eager"), "en"), "while they write, one is only behind"
    assert marked("The cat is here. And more", "The cat is here.", "en").endswith("</span> And more</mark>")


# What the first and the second model on PyTorch take, in a process that has not imported it yet.
FIRST_AND_SECOND = """
import sys
from tiny_transformer.ui.models import ModelStore
store = ModelStore(sys.argv[1:])
print(*[store.load(name, "eager").memory for name in ("chat", "translate")])
"""


@pytest.mark.long
def test_the_model_that_comes_first_does_not_pay_for_the_library(models: dict[str, Path]) -> None:
    command = [sys.executable, "-c", FIRST_AND_SECOND, *folders(models)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    first, second = map(int, done.stdout.split())
    assert first - second < 60e6, "importing PyTorch alone takes more than that"


def test_comparison_escapes_what_a_model_says(service: PageService) -> None:
    *_, last = service.compare("chat", "hello")
    hostile = replace(last, runs=tuple(replace(run, text="<script>alert(1)</script>") for run in last.runs))
    assert "<script" not in run_cards(hostile, "en")


@pytest.mark.parametrize("name", ["chat", "translate"])
def test_look_inside_gives_the_greedy_answer_with_its_probabilities(service: PageService, name: str) -> None:
    model = service.store.load(name, "onnx").model
    found = inspect_answer(model, prompt_of(model, service.asked(name, "Hallo Welt")))
    assert found.ids == model.generate("Hallo Welt", max_new_tokens=48).ids
    for token in found.written:
        probabilities = [choice.probability for choice in token.alternatives]
        assert probabilities == sorted(probabilities, reverse=True)
        assert token.alternatives[0].id == token.chosen.id, "greedy takes the likeliest"
        assert 0 < sum(probabilities) <= 1 + 1e-9


def test_look_inside_takes_the_first_sentence(service: PageService) -> None:
    model = service.store.load("translate", "onnx").model
    found = inspect_answer(model, prompt_of(model, "Hallo Welt. Wie geht es dir?"))
    assert found.ids == inspect_answer(model, prompt_of(model, "Hallo Welt.")).ids
    assert found.notices[0] == "This shows the first of 2 sentences."
    assert found.notices[1] == "This shows the first 48 tokens of the answer.", "it never ends by itself"
    assert inspect_answer(model, prompt_of(model, "Hallo Welt."), [model.bundle.generation.eos_id]).notices == ()
    maps = attention_maps(model, prompt_of(model, "Hallo Welt. Wie geht es dir?"), found.ids, "cross")
    assert maps.columns == attention_maps(model, prompt_of(model, "Hallo Welt."), found.ids, "cross").columns


@pytest.mark.parametrize("name", ["chat", "translate"])
def test_look_inside_is_the_same_on_every_backend(service: PageService, name: str) -> None:
    loaded = [service.store.load(name, b).model for b in ("eager", "onnx")]
    prompt = prompt_of(loaded[0], service.asked(name, "Guten Tag"))
    inspections = [inspect_answer(model, prompt) for model in loaded]
    assert inspections[0].ids == inspections[1].ids
    chosen = [[token.chosen.probability for token in found.written] for found in inspections]
    np.testing.assert_allclose(chosen[0], chosen[1], rtol=1e-3)
    for kind in kinds_of(service.store.load(name, "onnx").model):
        maps = [attention_maps(model, prompt, inspections[0].ids[:9], kind) for model in loaded]
        np.testing.assert_allclose(maps[0].weights, maps[1].weights, atol=1e-5)
        assert maps[0].weights.shape[-2:] == (len(maps[0].rows), len(maps[0].columns))
        np.testing.assert_allclose(maps[1].weights.sum(-1), 1.0, atol=1e-4)
        assert maps[0].weights.shape[0] == n_layers(service.store.load(name, "onnx").model, kind)


def test_look_inside_reads_what_translation_reads(models: dict[str, Path]) -> None:
    """Its spelling, the first sentence that is translated at all, and of a long sentence the first part."""
    model = load(models["translate"], "onnx")
    text = (
        "It is nice today and we want to go for a walk. DER HUND SCHLÄFT UND DIE KATZE IST MÜDE. Wir gehen"
        + " und gehen" * 30
    )
    prompt = prompt_of(model, text)
    read = model.stream_tokens(text).prompts
    assert len(read) > 2, "the last sentence comes in parts"
    assert (prompt.source, prompt.prefix) == (read[0].source, read[0].prefix)
    assert model.tokenizer.decode(prompt.source or ()) == "Der hund schläft und die katze ist müde."
    copied = "This is English and it is not translated. It is read as a whole."
    assert prompt_of(model, copied) == model.prompt(copied)


@pytest.mark.parametrize("name", ["chat", "translate"])
def test_a_drawn_answer_is_looked_into_token_by_token(service: PageService, name: str) -> None:
    """Teacher-forced: its own tokens, each with the probability that the model gave it when it was drawn."""
    model = service.store.load(name, "onnx").model
    controls = {"temperature": 1.0, "seed": 3, "max_new_tokens": 9}
    last = last_of(service.answers(name, "onnx", dialogue([], "Hallo Welt. Wie geht es dir?"), controls))
    assert last.max_new_tokens == 9
    content = service.asked(name, "Hallo Welt. Wie geht es dir?")
    assert last.first_ids == last.ids[:9] != tuple(model.generate(content, max_new_tokens=9).ids[:9])
    again = model.stream_tokens(content, temperature=1.0, seed=3, max_new_tokens=9, alternatives=3)
    drawn = [event.token for event in again][:9]
    found = read_answer(model, prompt_of(model, content, last.max_new_tokens), last.first_ids)
    assert found.ids == [token.id for token in drawn]
    for shown, token in zip(found.written, drawn, strict=True):
        assert shown.chosen.probability == pytest.approx(np.exp(token.logprob), rel=1e-3)
        assert shown.alternatives[0].id == token.alternatives[0][0]
    assert not [notice for notice in found.notices if "tokens" in notice], "nothing is left out, nothing is added"
    long = read_answer(model, prompt_of(model, content), [70] * 49)
    assert (len(long.ids), long.notices[-1]) == (48, "This shows the first 48 tokens of the answer.")


def test_a_long_conversation_is_read_as_far_as_the_answer_read_it(service: PageService) -> None:
    model = service.store.load("chat", "onnx").model
    turns = dialogue([*dialogue([], "a" * 30), {"role": "assistant", "content": "b" * 10}], "c" * 10)
    whole, cut = (prompt_of(model, turns, room) for room in (9, 48))
    assert len(cut.prefix) < len(whole.prefix) == len(model.prompt(turns, max_new_tokens=9).prefix)


def test_going_on_from_another_token_keeps_what_came_before(service: PageService) -> None:
    model = service.store.load("translate", "onnx").model
    first = inspect_answer(model, prompt_of(model, "Guten Tag"))
    other = first.written[4].alternatives[2].id
    second = inspect_answer(model, prompt_of(model, "Guten Tag"), [*first.ids[:4], other])
    assert second.ids[:5] == [*first.ids[:4], other]
    expected = model.generate("Guten Tag", prefix=second.ids[:5], max_new_tokens=43).ids
    assert second.ids[5:] == expected
    assert second.written[4].chosen.probability == pytest.approx(first.written[4].alternatives[2].probability, rel=1e-3)
    ended = inspect_answer(model, prompt_of(model, "Guten Tag"), [*first.ids[:3], model.bundle.generation.eos_id])
    assert len(ended.ids) == 4, "nothing comes after the end"


def test_tokens_are_shown_so_that_they_can_be_told_apart(service: PageService) -> None:
    tokenizer = service.store.bundle("chat").tokenizer
    shown = visible_tokens(tokenizer, [tokenizer.eos_id, *tokenizer.encode(" a\n\x01中")])
    assert shown == ("⟨end⟩", "␣", "a", "⏎", "01", "E4", "B8", "AD")


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "none"])
def test_positions_are_the_models_own(make_bundle: Any, positions: str) -> None:
    bundle = make_bundle("decoder-only", positions=positions)
    model = load(bundle.folder, "eager")
    table = position_table(model, 10)
    buffers = {name.split(".")[-1]: np.asarray(value) for name, value in model.backend.model.named_buffers()}  # type: ignore[attr-defined]
    if positions == "sinusoidal":
        np.testing.assert_allclose(table, buffers["positions"][:10], atol=1e-6)
    elif positions == "rotary":
        np.testing.assert_allclose(table, buffers["table"][:10, : bundle.config.d_head // 2], atol=1e-6)
    elif positions == "learned":
        stored = bundle.weights()["embedding.positions"][:10]
        np.testing.assert_allclose(table * np.abs(stored).max(), stored, rtol=1e-5)  # type: ignore[operator]
    else:
        assert table is None


def test_about_page_tells_verified_from_unverified_and_lists_files(
    service: PageService, models: dict[str, Path]
) -> None:
    from tiny_transformer.ui.about_tab import about, card

    page = about("chat", service.store.bundle("chat"), "en", "http://here")
    assert "Unverified" in page
    assert "/files/chat/model.safetensors" in page
    assert "http://here/gradio_api/call/chat" in page
    assert "未验证" in about("chat", service.store.bundle("chat"), "zh", "")
    assert "no model card" in card("chat", service.store.bundle("chat"), "en")


def test_about_page_shows_results_curve_report_and_card(make_bundle: Any) -> None:
    from tiny_transformer.parity import verify_bundle, write_report
    from tiny_transformer.ui.about_tab import about, card

    bundle = make_bundle()
    curve = [{"step": n, "loss": 5 / (n + 1)} for n in range(5)]
    results = {"test": {"de-en": {"examples": 2, "metrics": {"bleu": 41.37}}}}
    (bundle.folder / "training.json").write_text(json.dumps({"curve": curve, "results": results}))
    (bundle.folder / "README.md").write_text(
        "---\nlicense: x\n---\n# Card\n![curve](training.png) ![far](https://example.com/a.png)\n"
    )
    report = verify_bundle(bundle, ["torchscript"])
    write_report(bundle, report)
    page = about("m", bundle, "en", "")
    assert "Verified" in page
    assert "41.37" in page
    assert "<polyline" in page
    assert report.to_dict()["digest"] in page
    shown = card("m", bundle, "en")
    assert shown.startswith("# Card")
    assert "(/files/m/training.png)" in shown
    assert "example.com" not in shown
    (bundle.folder / "generation.json").write_text((bundle.folder / "generation.json").read_text() + " ")
    assert "does not hold" in about("m", bundle, "en", "")


def test_about_page_survives_a_strange_training_file(make_bundle: Any) -> None:
    from tiny_transformer.ui.about_tab import about

    bundle = make_bundle()
    for content in ("[]", "{", '{"curve": 3, "results": []}', '{"curve": [{"step": "x"}], "results": {"test": 1}}'):
        (bundle.folder / "training.json").write_text(content)
        assert "Nothing is recorded" in about("m", bundle, "en", "")


@pytest.mark.parametrize("device", DEVICES)
def test_generation_path_on_every_device(tmp_path: Path, device: str) -> None:
    folder = make_model(tmp_path / "chat", "chat").folder
    model = load(folder, "eager", device=device)
    expected = load(folder, "eager", device="cpu").reply(dialogue([], "hello"), max_new_tokens=20)
    with closing(stream_answer(model, dialogue([], "hello"), {"max_new_tokens": 20}, 60)) as answers:
        *_, last = answers
    assert last.text == expected.text
    found = inspect_answer(model, prompt_of(model, dialogue([], "hello")))
    assert found.ids[:20] == expected.ids
    assert attention_maps(model, prompt_of(model, dialogue([], "hello")), found.ids, "decoder").weights.shape[0] == 2
