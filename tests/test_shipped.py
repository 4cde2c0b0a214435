"""The models that ship: whole, verified, and as good as the README says."""

import json

import numpy as np
import pytest

import tiny_transformer as tt
from tests.support.models import ROOT
from tiny_transformer.accepted_answers import CaseReport, read_cases
from tiny_transformer.bundle import CARD, CASES, DECODER_INT8, DECODER_ONNX, EVALUATION, Bundle
from tiny_transformer.data.files import content_hash, join, locate, shipped_data
from tiny_transformer.parity import ParityReport, stored_report
from tiny_transformer.training.recipe import load_recipe, recipe_from_record
from tiny_transformer.training_record import TrainingRecord

MODELS = ("translate", "chat")
# The test sets that the README tells of; the cards have all of them.
TOLD = {"translate": ("de-en.public", "zh-en.public"), "chat": ("smalltalk", "smalltalk in mid-talk")}
README = (ROOT / "README.md").read_text(encoding="utf-8")


def folder_of(name: str):
    return ROOT / "checkpoints" / name


@pytest.mark.parametrize("name", MODELS)
def test_the_report_vouches_for_the_shipped_bytes(name: str):
    bundle = Bundle.open(folder_of(name))
    report = stored_report(bundle)
    assert report is not None
    assert report.verdict == "verified"
    assert set(report.candidates) == {"torchscript", "onnx", "onnx-int8", "numpy"}
    assert report.expected
    unlisted = {file for file in bundle.hashes() if file not in report.files}
    assert not unlisted
    assert bundle.has(DECODER_ONNX, DECODER_INT8, EVALUATION, CARD)


@pytest.mark.parametrize("name", MODELS)
def test_the_report_from_a_gpu_is_of_the_same_files(name: str):
    path = ROOT / "benchmarks" / "results" / f"parity-cuda-{name}.json"
    on_gpu = ParityReport.from_json(path.read_text(encoding="utf-8"), where=path.name)
    assert on_gpu.verdict == "verified"
    assert on_gpu.candidates == ("eager-cuda-float32", "eager-cuda-bfloat16")
    report = stored_report(Bundle.open(folder_of(name)))
    assert report is not None
    assert {file: report.files[file] for file in on_gpu.files} == on_gpu.files


@pytest.mark.parametrize("name", MODELS)
def test_the_readme_says_what_the_files_say(name: str):
    folder = folder_of(name)
    training = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    for source in TOLD[name]:
        metrics = training["results"]["test"][source]["metrics"]
        assert f"{metrics.get('bleu', metrics.get('accuracy')):.2f}" in README
    report = stored_report(Bundle.open(folder))
    assert report is not None
    for candidate, label in (("torchscript", "TorchScript"), ("onnx", "ONNX Runtime")):
        cases = [case for case in report.cases if case.candidate == candidate]
        worst = max(case.max_absolute for case in cases if case.kind not in ("consistency", "inside"))
        difference = f"{worst:.1e}" if worst else "0, to the last bit"
        assert f"| {name} on {label} | {len(cases)} | {difference} | equal, 248 texts |" in README
    (task,) = (case.detail for case in report.cases if case.kind == "task")
    assert task in README


@pytest.mark.parametrize("name", MODELS)
def test_the_model_was_trained_by_the_recipe_and_on_the_data_that_ship(name: str):
    record = TrainingRecord.read(folder_of(name))
    assert recipe_from_record(record.recipe).to_dict() == load_recipe(name).to_dict()
    for path, digest in record.data.items():
        assert content_hash(locate(join(shipped_data(), path))[0][0]) == digest


def test_the_kept_cases_are_what_the_page_says():
    report = CaseReport.read(folder_of("translate") / CASES)
    name, _, cases, share = report.rows[-1]
    assert (name, cases) == ("all", len(read_cases(ROOT / "datasets" / "cases" / "translate.jsonl")))
    assert f"{share:.2f} % are right" in (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("backend", ["eager", "onnx", "onnx-int8"])
def test_the_translator_reads_well(backend: str):
    model = tt.load(folder_of("translate"), backend=backend, device="cpu" if backend == "eager" else None)
    found = [result.text for result in model.generate_batch(["Wie komme ich zum Bahnhof?", "我喜欢你。"], num_beams=5)]
    assert found == ["How do I get to the station?", "I like you."]


def test_the_chat_model_greets_and_says_what_it_is():
    model = tt.load(folder_of("chat"), backend="onnx")
    assert model.reply([{"role": "user", "content": "hello"}]).text == "Hi!"
    assert "bot" in model.reply([{"role": "user", "content": "are you a robot?"}]).text


@pytest.mark.parametrize("text", ["Hello, how are you?", "ქართული ენა", "12345", "🎉🎉🎉"])
def test_other_languages_neither_crash_nor_loop(text: str):
    result = tt.load(folder_of("translate"), backend="onnx").generate(text)
    assert result.finish_reason == "eos"


@pytest.mark.parametrize("name", MODELS)
def test_attention_maps_come_without_torch(name: str):
    attention = tt.load(folder_of(name), backend="onnx").attention("Guten Morgen!")
    weights = attention.weights.cross if name == "translate" else attention.weights.decoder
    assert weights is not None
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
