"""Everything that a visitor of the page can get wrong, or meet: each provocation gives the sentences it leads to."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from httpx2 import ConnectError, Request, Response
from huggingface_hub import errors as hub_errors
from starlette.testclient import TestClient

from tests.support.hub_driver import stand_in_report
from tests.support.models import ROOT, tiny_config
from tiny_transformer import backends, hub
from tiny_transformer.backends.graph_file import MAX_FILE_BYTES, check_graph, read_graph
from tiny_transformer.backends.inside_graph import InsideGraph
from tiny_transformer.backends.onnx_runtime import open_ort, open_session
from tiny_transformer.backends.torchscript import write_archive
from tiny_transformer.bundle import (
    CONFIG,
    DECODER_INT8,
    DECODER_ONNX,
    EMBEDDING,
    ENCODER_ONNX,
    GENERATION,
    INSIDE_ONNX,
    PARITY,
    TOKENIZER,
    TORCHSCRIPT,
    WEIGHTS,
    WEIGHTS_INT8,
    Bundle,
    sha256,
)
from tiny_transformer.commands.init import random_bundle
from tiny_transformer.errors import Sentence, TinyTransformerError
from tiny_transformer.generation.options import GenerationOptions
from tiny_transformer.generation.segments import speech_notices
from tiny_transformer.parity import stored_report, write_report
from tiny_transformer.parity.self_test import expected_logits
from tiny_transformer.text_model import TextModel, load
from tiny_transformer.ui import openai_api, routes
from tiny_transformer.ui.inside_tab import NOT_KNOWN
from tiny_transformer.ui.inspection import inspect_answer, prompt_of
from tiny_transformer.ui.models import ModelStore
from tiny_transformer.ui.page_settings import Limits
from tiny_transformer.ui.service import PageService, check_history, check_text, dialogue, last_of
from tiny_transformer.weights import write_weights

SHIPPED = ROOT / "checkpoints"
Damage = Callable[[Path], object]


class Met:
    """The sentences met so far by their templates, those inside other sentences too."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sentences: dict[str, Sentence] = {}
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.chat = random_bundle(folder / "chat", tiny_config("decoder-only", max_length=32), "chat")
        self.translate = random_bundle(folder / "translate", tiny_config(), "translate")
        self.store = ModelStore([str(self.chat.folder)], "eager")
        self.service = PageService(self.store, Limits())
        self._n_copies = 0

    def add(self, sentence: object) -> None:
        """Remember a sentence and those inside it; whatever a visitor reads must know its template."""
        assert isinstance(sentence, str)
        if not isinstance(sentence, Sentence):
            self.sentences[f"no template: {sentence}"] = Sentence("{text}", text=sentence)
            return
        self.sentences[sentence.template] = sentence
        for value in sentence.values.values():
            inner = value.message if isinstance(value, TinyTransformerError) else value
            if isinstance(inner, Sentence):
                self.add(inner)

    def refused(self, *actions: Callable[[], object]) -> None:
        """Each action must end with one of our errors."""
        for action in actions:
            with pytest.raises(TinyTransformerError) as raised:
                action()
            self.add(raised.value.message)

    def said(self, sentences: Iterable[object], at_least: int = 1) -> None:
        """Notices and reasons."""
        found = [sentence for sentence in sentences if sentence is not None]
        assert len(found) >= at_least
        for sentence in found:
            self.add(sentence)

    def damaged(self, bundle: Bundle, damage: Damage) -> Path:
        """A copy of a folder, after some damage."""
        self._n_copies += 1
        copy = self.folder / f"damaged-{self._n_copies}" / "model"
        shutil.copytree(bundle.folder, copy)
        damage(copy)
        return copy

    def opened(self, bundle: Bundle, *damages: Damage) -> None:
        """The page is started with a folder that does not open."""
        for damage in damages:
            entry = ModelStore([str(self.damaged(bundle, damage))], "eager").entries["model"]
            assert entry.bundle is None
            self.add(entry.problem)

    def loaded(self, bundle: Bundle, backend: str, damage: Damage) -> None:
        """The folder opens, but a backend finds the fault."""
        store = ModelStore([str(self.damaged(bundle, damage))], backend)
        self.refused(lambda: store.load("model"))


def provoke_all(folder: Path) -> dict[str, Sentence]:
    """Template → a sentence made from it, for everything below."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        met = Met(folder, monkeypatch)
        for provoke in (
            page_limits, wrong_requests, wrong_options, wrong_texts, left_out, other_languages, obstacles,
            another_processor, damaged_configs, damaged_weights, damaged_tokenizers, damaged_graphs, damaged_reports,
            hub_answers, hub_models,
        ):  # fmt: skip
            provoke(met)
    return met.sentences


def page_limits(met: Met) -> None:
    """What the page itself refuses."""
    limits, store = met.service.limits, met.store
    too_slow = PageService(store, Limits(seconds=1e-9))
    full = PageService(store, Limits(queue=1), waiting=lambda: 5)
    met.refused(
        *(lambda text=text: check_text(text, limits) for text in (None, "", "x" * 5_000, "\ud800")),
        lambda: check_history("text", limits),
        lambda: full.check_queue(),
        lambda: too_slow.inspect(store.load("chat").model, prompt_of(store.load("chat").model, dialogue([], "hi"))),
        lambda: store.entry("nowhere"),
        lambda: store.first("translate"),
        lambda: store.chosen("chat", 7),  # type: ignore[arg-type]
    )
    # What programs are told instead of Gradio's own words.
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(routes, "translated", lambda sentence, language: met.add(sentence))
        page = TestClient(routes.RequestLimits(_nothing, limit=40))
        assert page.post("/", content=b"x" * 50).status_code == 413
        assert page.post("/", content=b'{"_type": "gradio.FileData"}').status_code == 400
        request: Any = Request("GET", "http://page/nowhere")
        assert page.get("/", headers={"host": "<script>"}).status_code == 400
        monkeypatch.setattr(openai_api, "translated", lambda sentence, language: met.add(sentence))
        asyncio.run(routes.closed(request))
        asyncio.run(openai_api.nothing_here(request))
        routes.busy(full, request, ValueError())
        routes.senseless(request, ValueError())


async def _nothing(*_: object) -> None:
    raise AssertionError("a refused request came through")


def wrong_requests(met: Met) -> None:
    """Dialogues and backends that do not exist."""
    hi = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
    met.refused(
        *(
            lambda body=body: openai_api.asked(met.service, body)
            for body in (
                7,
                {},
                hi | {"messages": "hi"},
                hi | {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
                hi | {"surprise": 1},
                hi | {"n": 2},
                hi | {"stream": "yes"},
                hi | {"stop": [1]},
                hi | {"stop": ["x"] * 99},
                hi | {"stop": "\ud800"},
            )
        ),
        *(
            lambda turns=turns: met.service.content("chat", turns)
            for turns in ([{"role": "root", "content": "x"}], [{"role": "user", "content": 3}], [7], [])
        ),
        lambda: met.store.chosen("chat", "quantum"),
        lambda: met.store.chosen("chat", "onnx-int8"),
    )


def wrong_options(met: Met) -> None:
    """Options out of range, one at a time and together."""
    for controls in (
        {"max_new_tokens": 0},
        {"max_new_tokens": 10**6},
        {"max_new_tokens": "many"},
        {"temperature": -1},
        {"temperature": "hot"},
        {"temperature": 10**400},
        {"top_k": -1},
        {"top_k": 1.5},
        {"top_p": 0},
        {"top_p": 2},
        {"repetition_penalty": 0},
        {"num_beams": 0},
        {"num_beams": 9},
        {"seed": -1},
        {"seed": 2**70},
    ):
        met.refused(lambda asked=controls: last_of(met.service.answers("chat", "eager", dialogue([], "hi"), asked)))
    met.refused(lambda: GenerationOptions(num_beams=2, temperature=1.0))


def wrong_texts(met: Met) -> None:
    """Texts, dialogues and starts of an answer that the library refuses, should the page ever let them through."""
    chat, translate = (load(bundle.folder, "eager") for bundle in (met.chat, met.translate))
    met.refused(
        *(
            lambda turns=turns: chat.prompt(turns)
            for turns in (
                [],
                [{"role": "assistant", "content": "x"}],
                [{"role": "user", "content": ""}],
            )
        ),
        lambda: chat.prompt("\ud800"),
        lambda: chat.prompt("hi", prefix=[5] * 30),
        lambda: chat.prompt("hi", prefix=7),  # type: ignore[arg-type]
        lambda: chat.prompt("hi", prefix=["x"]),  # type: ignore[list-item]
        lambda: chat.prompt("hi", prefix=[10**6]),
        lambda: chat.tokenizer.token_bytes(10**6),
        lambda: translate.prompt(""),
        lambda: translate.prompt([]),
        lambda: translate.prompt("hi", prefix=[5] * 30),
        lambda: translate.reply(dialogue([], "hi")),
        lambda: translate.generate("Hallo. Wie geht's?", prefix="Hi"),
    )


def left_out(met: Met) -> None:
    """What a context cannot hold."""
    chat, translate = (load(bundle.folder, "eager") for bundle in (met.chat, met.translate))
    turns: Any = [{"role": "user", "content": "x" * 9}, {"role": "assistant", "content": "y" * 9}] * 3
    system: Any = {"role": "system", "content": "s" * 60}
    for model, content, options in (
        (chat, dialogue(turns, "z"), {}),
        (chat, dialogue(turns[:2], "z"), {}),
        (chat, [system, *dialogue([], "z")], {}),
        (chat, "word " * 40, {}),
        (chat, "word " * 40, {"raw": True}),
        (translate, "word " * 40, {}),
    ):
        met.said(model.prompt(content, max_new_tokens=8, **options).notices)
    met.said(translate.generate("word " * 40, max_new_tokens=1).notices)
    met.said([*inspect_answer(translate, prompt_of(translate, "Hallo. Wie geht's?")).notices, NOT_KNOWN])


def other_languages(met: Met) -> None:
    """Texts that are not in the language of the model."""
    bundle = met.translate
    generation = bundle.generation.with_changes(source_languages=("de", "zh"), target_language="en")
    translate = TextModel(replace(bundle, generation=generation), load(bundle.folder, "eager").backend)
    for text in ("How are you?", "How are you? Das ist gut.", "Je ne sais pas."):
        met.said(translate.stream_tokens(text).notices)
    speaks = met.chat.generation.with_changes(target_language="en")
    met.said(speech_notices("Das ist gut.", speaks))


def obstacles(met: Met) -> None:
    """Why a backend cannot run here."""
    met.said(backends.available(met.chat).values(), 2)
    met.said(backends.available(met.chat, "cuda").values(), 2)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(backends, "find_spec", lambda name: None)
        met.said(backends.available(met.chat).values(), 4)
        met.refused(lambda: ModelStore([str(met.chat.folder)]).chosen("chat"))


def another_processor(met: Met) -> None:
    """A self-test on a processor that computes something else than the one of the proof."""
    met.monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(met.folder / "cache"))
    bundle = Bundle.open(met.damaged(met.chat, lambda folder: None))
    expected = expected_logits(bundle.config, backends.open_backend(bundle, "eager", device="cpu"))
    wrong = [replace(case, logits=tuple(tuple(v + 1 for v in row) for row in case.logits)) for case in expected]
    write_report(bundle, replace(stand_in_report(bundle), versions={"machine": "abacus"}, expected=tuple(wrong)))
    met.said([load(bundle.folder, "eager", "cpu").warning])
    reason = Sentence("{text}", text="…")
    met.add(Sentence("Running on {other} instead of {name}: {reason}.", other="onnx", name="onnx-int8", reason=reason))
    del met.sentences["{text}"]


def in_json(file: str, **changes: Any) -> Damage:
    """Other values in one of the folder's JSON files."""

    def change(folder: Path) -> None:
        values = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(values | changes))

    return change


def as_text(file: str, text: str) -> Damage:
    """A file that says something else."""
    return lambda folder: (folder / file).write_text(text)


def damaged_configs(met: Met) -> None:
    """Folders and configuration files."""
    missing = ModelStore([str(met.folder / "nowhere")], "eager").entries["nowhere"]
    met.add(missing.problem)
    met.opened(
        met.chat,
        lambda folder: (folder / CONFIG).unlink(),
        lambda folder: (folder / DECODER_ONNX).mkdir(),
        *(as_text(CONFIG, text) for text in ("{", "[]", "{}", '{"depth": 3}')),
        in_json(CONFIG, d_model="wide"),
        in_json(CONFIG, dropout="none"),
        in_json(CONFIG, bias=3),
        in_json(CONFIG, architecture=3),
        in_json(CONFIG, architecture="convolution"),
        in_json(CONFIG, d_model=0),
        in_json(CONFIG, max_length=2**20, d_model=32, positions="rotary"),
        in_json(CONFIG, dropout=1),
        in_json(CONFIG, n_encoder_layers=2),
        in_json(CONFIG, output_vocab_size=280),
        in_json(CONFIG, d_model=15, positions="sinusoidal"),
        in_json(CONFIG, n_heads=3),
        in_json(CONFIG, n_heads=4),
        in_json(GENERATION, roles=3),
        in_json(GENERATION, roles={}),
        in_json(GENERATION, source_languages="de"),
        in_json(GENERATION, repetition_penalty=0),
        in_json(GENERATION, length_penalty=11),
        in_json(GENERATION, max_source_tokens=33),
        in_json(GENERATION, pad_id=200),
    )
    # A file that goes while the page runs.
    met.refused(lambda: sha256(met.folder / "gone"))
    gone = Bundle.open(met.damaged(met.chat, lambda folder: None))
    (gone.folder / WEIGHTS).unlink()
    met.refused(gone.weights)


def in_weights(change: Callable[[dict[str, np.ndarray]], object]) -> Damage:
    """Other tensors in the weights file."""

    def rewrite(folder: Path) -> None:
        weights = {name: np.array(value) for name, value in Bundle.open(folder).weights().items()}
        change(weights)
        write_weights(folder / WEIGHTS, weights)

    return rewrite


def damaged_weights(met: Met) -> None:
    """Weights of another model, or of none."""
    norm = next(name for name in met.chat.weights() if "norm" in name and name.endswith("bias"))
    matrix = next(name for name, value in met.chat.weights().items() if value.ndim == 2 and "forward" in name)
    met.opened(
        met.chat,
        as_text(WEIGHTS, "short"),
        in_json(CONFIG, vocab_size=301),
        in_json(CONFIG, d_ff=32),
        in_weights(lambda weights: weights.update({"other": weights.pop(EMBEDDING)})),
        in_weights(lambda weights: weights.update({norm: weights[norm].astype(np.int64)})),
    )
    met.loaded(met.chat, "eager", in_weights(lambda weights: weights.update({"other": weights.pop(norm)})))
    met.loaded(met.chat, "eager", in_weights(lambda weights: weights.update({"other": np.zeros(0, dtype=np.float32)})))
    met.loaded(met.chat, "eager", in_weights(lambda weights: weights.update({matrix: weights[matrix].T.copy()})))
    broken = met.damaged(met.chat, in_weights(lambda weights: weights[norm].fill(np.nan)))
    service = PageService(ModelStore([str(broken)], "eager"), Limits())
    met.refused(lambda: last_of(service.answers("model", "eager", dialogue([], "hi"))))


def damaged_tokenizers(met: Met) -> None:
    """Tokenizers that would change a text, or have no token where the model has one."""

    def edited(change: Callable[[dict[str, Any]], object]) -> Damage:
        def rewrite(folder: Path) -> None:
            values = json.loads((folder / TOKENIZER).read_text())
            change(values)
            (folder / TOKENIZER).write_text(json.dumps(values))

        return rewrite

    def without_end(values: dict[str, Any]) -> None:
        values["added_tokens"] = [token for token in values["added_tokens"] if token["content"] != "<eos>"]
        values["model"]["vocab"]["X" * 9] = values["model"]["vocab"].pop("<eos>")

    def with_token(token: str, token_id: int | None = None) -> Damage:
        def add(values: dict[str, Any]) -> None:
            vocabulary = values["model"]["vocab"]
            vocabulary[token] = len(vocabulary) if token_id is None else token_id

        return edited(add)

    met.opened(met.translate, in_json(CONFIG, output_vocab_size=261))
    met.opened(
        met.chat,
        as_text(TOKENIZER, "{}"),
        lambda folder: os.truncate(folder / TOKENIZER, 2**40),
        edited(without_end),
        edited(lambda values: values.update(normalizer={"type": "Lowercase"})),
        edited(lambda values: values.update(pre_tokenizer={"type": "Whitespace"})),
        with_token("Guten", 5_000),
        with_token("早"),
        with_token("Guten"),
    )


def damaged_graphs(met: Met) -> None:
    """ONNX graphs and TorchScript archives, those that ship among them, in the wrong folder."""
    graph, weights = SHIPPED / "chat" / DECODER_ONNX, SHIPPED / "chat" / WEIGHTS
    config = Bundle.open(SHIPPED / "chat").config
    elsewhere = met.folder / "elsewhere.onnx"
    elsewhere.write_bytes(graph.read_bytes().replace(WEIGHTS.encode(), WEIGHTS[::-1].encode()))
    huge = met.folder / "huge.onnx"
    huge.touch()
    os.truncate(huge, MAX_FILE_BYTES + 1)
    met.refused(
        lambda: read_graph(met.folder / "nowhere.onnx"),
        lambda: read_graph(weights),
        lambda: read_graph(huge),
        lambda: check_graph(graph, weights, met.chat.config),
        lambda: check_graph(graph, met.chat.folder / WEIGHTS, config),
        lambda: check_graph(elsewhere, weights, config),
        lambda: open_session(weights, 1),
    )
    met.loaded(met.chat, "torchscript", as_text(TORCHSCRIPT, "no archive"))
    other = random_bundle(met.folder / "other", met.chat.config, "chat", seed=1)
    met.loaded(met.chat, "torchscript", lambda folder: write_archive(other, folder / TORCHSCRIPT))

    def of_other_weights(folder: Path) -> None:
        (folder / DECODER_INT8).touch()
        write_weights(folder / WEIGHTS_INT8, {"weight": np.zeros(8, dtype=np.float32)}, {})

    met.loaded(met.chat, "onnx-int8", of_other_weights)

    met.refused(lambda: InsideGraph(met.chat))
    eight = met.damaged(met.chat, lambda folder: (folder / INSIDE_ONNX).touch())
    bundle = Bundle.open(eight)
    (eight / WEIGHTS).unlink()
    met.refused(lambda: InsideGraph(bundle))

    shipped = open_ort(Bundle.open(SHIPPED / "chat"))
    session = open_session(graph, 1)
    met.refused(
        lambda: shipped._check_names(SHIPPED / "chat" / ENCODER_ONNX, session),
        lambda: shipped._run(DECODER_ONNX, session.run, ["logits"], {}),
    )


def damaged_reports(met: Met) -> None:
    """Parity reports that vouch for nothing, or for something else."""
    verified = Bundle.open(met.damaged(met.chat, lambda folder: None))
    write_report(verified, stand_in_report(verified))
    text = (verified.folder / PARITY).read_text()
    for damage in (
        lambda folder: os.truncate(folder / PARITY, 2**40),
        as_text(PARITY, "{}"),
        as_text(PARITY, text.replace("stand-in", "sit-in")),
        as_text(PARITY, failed_report(verified)),
        lambda folder: (folder / GENERATION).write_text((folder / GENERATION).read_text() + " "),
    ):
        damaged = Bundle.open(met.damaged(verified, damage))
        met.refused(lambda bundle=damaged: stored_report(bundle))
    met.refused(lambda: stored_report(verified, ["unknown.onnx"]))
    assert stored_report(verified)
    (verified.folder / WEIGHTS).write_bytes((verified.folder / WEIGHTS).read_bytes()[::-1])
    met.refused(lambda: verified.confirm(WEIGHTS))


def failed_report(bundle: Bundle) -> str:
    """The text of a report whose comparisons failed."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("STAND_IN_FAILS", "1")
        return stand_in_report(bundle).to_json()


def hub_answers(met: Met) -> None:
    """A model of the Hub that cannot be had."""
    met.monkeypatch.setattr(hub, "PATIENCE", 0.0)

    def answered(
        status: int, kind: type[hub_errors.HfHubHTTPError] = hub_errors.HfHubHTTPError, **headers: str
    ) -> Exception:
        request = Request("GET", "https://hub/api")
        return kind("no", response=Response(status, headers=headers, request=request))

    offline = hub_errors.LocalEntryNotFoundError("not here")
    for error in (
        *(answered(status) for status in (400, 401, 403, 404, 429, 500)),
        answered(429, **{"Retry-After": "9"}),
        answered(403, hub_errors.GatedRepoError),
        answered(404, hub_errors.RevisionNotFoundError),
        answered(404, hub_errors.RepositoryNotFoundError),
        hub_errors.OfflineModeIsEnabled("offline"),
        offline,
        ConnectError("refused"),
        json.JSONDecodeError("no JSON", "<html>", 0),
    ):

        def fails(*_: object, error: Exception = error, **__: object) -> str:
            raise error

        met.monkeypatch.setattr(huggingface_hub, "hf_hub_download", fails)
        for name in ("ada/model", "ada/model@v1"):
            met.add(ModelStore([name], "eager").entries["model"].problem)


def hub_models(met: Met) -> None:
    """A model of the Hub whose files are not what they should be."""
    repo = Bundle.open(met.damaged(met.chat, lambda folder: None))
    cache = met.folder / "cache"
    met.monkeypatch.setattr(huggingface_hub, "cached_assets_path", lambda *_, **__: cache)

    def download(_: str, file: str, **__: object) -> str:
        if not (repo.folder / file).is_file():
            response = Response(404, request=Request("GET", "https://hub/api"))
            raise hub_errors.RemoteEntryNotFoundError("no", response=response)
        return str(repo.folder / file)

    met.monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)

    def pulled() -> None:
        met.add(ModelStore(["ada/model"], "eager").entries["model"].problem)

    pulled()  # without a report
    report = stand_in_report(repo)
    for damage in (as_text(PARITY, "{}"), as_text(PARITY, report.to_json().replace("stand-in", "sit-in"))):
        damage(repo.folder)
        pulled()
    (repo.folder / GENERATION).write_text((repo.folder / GENERATION).read_text() + " ")
    (repo.folder / PARITY).write_text(report.to_json())
    pulled()
    with suppress(FileNotFoundError):
        (repo.folder / TOKENIZER).unlink()
    (repo.folder / PARITY).write_text(report.to_json())
    pulled()
