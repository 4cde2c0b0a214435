"""The judge itself: it passes what is equal, and names every kind of fault it must catch."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.models import BundleFactory, tiny_config, tiny_model
from tiny_transformer import parity
from tiny_transformer.backends.base import CLOSE, EXACT
from tiny_transformer.backends.eager import EagerBackend
from tiny_transformer.bundle import EVALUATION, PARITY, TRAINING, WEIGHTS, Bundle
from tiny_transformer.errors import BundleError, DataError, ParityError
from tiny_transformer.generation import Generated, GeneratedToken, GenerationOptions
from tiny_transformer.generation.prompt import Prompt
from tiny_transformer.model import EncoderDecoder
from tiny_transformer.parity.cases import tensor_cases
from tiny_transformer.parity.report import _digest
from tiny_transformer.parity.self_test import instruction_sets
from tiny_transformer.parity.texts import TextReference, preference, text_steps
from tiny_transformer.parity.verification import verify
from tiny_transformer.text_model import TextModel
from tiny_transformer.weights import read_weights, write_weights

CONFIGS = [tiny_config(a, positions=p) for a in ("encoder-decoder", "decoder-only") for p in ("rotary", "sinusoidal")]


def backend_of(config, change: Callable[[torch.nn.Module], None] = lambda model: None) -> EagerBackend:
    model = tiny_model(config)
    with torch.no_grad():
        change(model)
    return EagerBackend(model, config)


def text_results(bundle: Bundle, reference: EagerBackend, candidate: EagerBackend, tolerance: float | None):
    shared = TextReference(bundle, reference)
    return [result for step in text_steps(shared, candidate, tolerance) for result in step.run()]


def failed_kinds(config, change) -> set[str]:
    report = verify(backend_of(config), backend_of(config, change), tensor_cases(config))
    assert report.verdict == "failed"
    with pytest.raises(ParityError, match=r"Parity failed in \d+ of \d+ cases"):
        report.raise_if_failed()
    return {case.kind for case in report.failures}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.architecture}-{c.positions}")
def test_a_backend_equals_itself_exactly(config):
    report = verify(backend_of(config), backend_of(config), tensor_cases(config), EXACT)
    assert report.verdict == "verified", report.failures
    kinds = {case.kind for case in report.cases}
    assert kinds == {"full", "cached", "consistency", "chunk", "reorder", "attention"}


@pytest.mark.long
@pytest.mark.parametrize(
    "config",
    [pytest.param(c, marks=pytest.mark.slow if i else []) for i, c in enumerate(CONFIGS)],
    ids=lambda c: f"{c.architecture}-{c.positions}",
)
def test_every_matrix_scaled_by_one_percent_is_caught(config):
    """Not one chosen matrix: any of them. (Vectors are checked by the oracle tests.)"""
    names = [name for name, p in tiny_model(config).named_parameters() if p.dim() == 2]
    cases = tensor_cases(config)
    reference = backend_of(config)
    for name in names:
        candidate = backend_of(config, lambda model, name=name: model.get_parameter(name).mul_(1.01))
        assert any(verify(reference, candidate, [case]).verdict == "failed" for case in cases), name


def test_a_dropped_padding_mask_is_caught_by_ragged_cases_alone():
    class Unmasked(EncoderDecoder):
        def encode(self, source, source_mask):
            return super().encode(source, torch.ones_like(source_mask))

    config = CONFIGS[0]

    def drop(model):
        model.__class__ = Unmasked

    assert failed_kinds(config, drop) == {"full", "cached", "reorder", "attention", "consistency"}
    even = [case for case in tensor_cases(config) if case.name.startswith("batch 1,")]
    assert verify(backend_of(config), backend_of(config, drop), even).verdict == "verified"


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.architecture}-{c.positions}")
def test_a_dropped_causal_mask_is_caught(config):
    def drop(model):
        for layer in model.decoder.layers:
            layer.self_attention.causal = False

    assert {"full", "consistency"} <= failed_kinds(config, drop)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.architecture}-{c.positions}")
def test_two_swapped_vocabulary_rows_are_caught(config):
    def swap(model):
        rows = model.embedding.tokens.weight
        rows[[7, 8]] = rows[[8, 7]].clone()

    assert "full" in failed_kinds(config, swap)


def test_nan_never_passes():
    config = CONFIGS[0]
    assert "full" in failed_kinds(config, lambda model: model.embedding.tokens.weight[0].fill_(float("nan")))


def test_greedy_ids_that_differ_beyond_a_tie_are_caught(make_bundle: BundleFactory):
    bundle = make_bundle(max_length=32)
    reference = EagerBackend(tiny_model(bundle.config), bundle.config)
    same = text_results(bundle, reference, reference, 1e-4)
    assert all(result.passed for result in same)
    other = EagerBackend(tiny_model(bundle.config, seed=1), bundle.config)
    results = text_results(bundle, reference, other, 1e-4)
    assert not any(result.passed for result in results)
    assert all("differs from token" in result.detail for result in results)


def test_a_tie_is_not_a_fault(make_bundle: BundleFactory):
    """Two tokens with the same embedding have the same logit: either may be chosen."""
    bundle = make_bundle("decoder-only", max_length=64)
    model = tiny_model(bundle.config)
    with torch.no_grad():
        model.embedding.tokens.weight[:] = model.embedding.tokens.weight[:1]
    reference = EagerBackend(model, bundle.config)
    tilted = copy.deepcopy(model)
    with torch.no_grad():
        tilted.embedding.tokens.weight[100:] += 1e-7
    candidate = EagerBackend(tilted, bundle.config)
    results = text_results(bundle, reference, candidate, 1e-4)
    greedy = [result for result in results if result.kind == "greedy"]
    assert all(result.passed for result in greedy)
    assert any("tied" in result.detail for result in greedy)


SEEN, OTHER, END = 7, 9, 2


class _FixedLogits(EagerBackend):
    """A decoder-only backend that always gives the same logits."""

    def __init__(self, bundle: Bundle, logits: dict[int, float]) -> None:
        super().__init__(tiny_model(bundle.config), bundle.config)
        self._row = np.full(bundle.config.vocab_size, -3.0, dtype=np.float32)
        for token, value in logits.items():
            self._row[token] = value

    def logits(self, target, source):
        return np.broadcast_to(self._row, (*target.ids.shape, self._row.size))


def _text(*ids: int) -> Generated:
    reason = "eos" if ids[-1] == END else "length"
    return Generated(tuple(GeneratedToken(token, 0.0) for token in ids), reason, 0.0)


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize(
    ("seen", "other", "gap"),
    [
        (1.1, 1.0, 0.0),  # the penalty of 1.1 makes them equal: a tie, although the raw logits differ
        (5.5, 5.5, 0.5),  # the penalty parts them: no tie, although the raw logits are equal
        (-2.0, -2.0, 0.2),
    ],
)
def test_a_tie_is_measured_on_the_scores_that_decoding_compared(
    make_bundle: BundleFactory, num_beams: int, seen: float, other: float, gap: float
):
    backend = _FixedLogits(make_bundle("decoder-only", max_length=64), {SEEN: seen, OTHER: other})
    options = GenerationOptions(repetition_penalty=1.1, num_beams=num_beams)
    found = preference(backend, Prompt((1, SEEN), None), options, END, _text(OTHER), _text(SEEN))
    assert found == pytest.approx(gap, abs=1e-6)


@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_text_that_ends_before_the_minimum_is_no_tie(make_bundle: BundleFactory, num_beams: int):
    backend = _FixedLogits(make_bundle("decoder-only", max_length=64), {OTHER: 1.0, END: 1.0})
    prompt = Prompt((1,), None)
    free = GenerationOptions(num_beams=num_beams)
    assert preference(backend, prompt, free, END, _text(OTHER), _text(END)) == pytest.approx(0.0, abs=1e-6)
    bound = GenerationOptions(num_beams=num_beams, min_new_tokens=1)
    assert preference(backend, prompt, bound, END, _text(OTHER), _text(END)) == np.inf


def test_a_beam_is_compared_by_the_length_penalty_it_ran_with(make_bundle: BundleFactory):
    backend = _FixedLogits(make_bundle("decoder-only", max_length=64), {OTHER: 1.0})
    one, two, prompt = _text(OTHER), _text(OTHER, OTHER), Prompt((1,), None)
    mean, total = (GenerationOptions(num_beams=4, length_penalty=penalty) for penalty in (1.0, 0.0))
    assert preference(backend, prompt, mean, END, one, two) == pytest.approx(0.0, abs=1e-9)
    assert preference(backend, prompt, total, END, one, two) > 0.1  # of two sums, the shorter text's is higher


def test_8_bit_is_judged_by_the_task_and_needs_one(make_bundle: BundleFactory):
    bundle = make_bundle("decoder-only", max_length=64)
    backend = EagerBackend(tiny_model(bundle.config), bundle.config)
    (result,) = text_results(bundle, backend, backend, None)
    assert not result.passed
    assert EVALUATION in result.detail

    reply = _reply(bundle, backend)
    line = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "answer": reply}) + "\n"
    (bundle.folder / EVALUATION).write_text(line, encoding="utf-8")
    (result,) = text_results(bundle, backend, backend, None)
    assert result.passed
    assert result.detail == "100.00 accuracy against 100.00"
    other = EagerBackend(tiny_model(bundle.config, seed=1), bundle.config)
    (result,) = text_results(bundle, backend, other, None)
    assert not result.passed
    assert result.detail == "0.00 accuracy against 100.00"


def test_8_bit_that_is_worse_one_text_at_a_time_is_caught(make_bundle: BundleFactory):
    """Other kernels may run for a batch than for a single text: both must do the task."""
    bundle = make_bundle("decoder-only", max_length=64)
    backend = EagerBackend(tiny_model(bundle.config), bundle.config)
    line = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "answer": _reply(bundle, backend)}) + "\n"
    (bundle.folder / EVALUATION).write_text(3 * line, encoding="utf-8")
    for wrong_alone in (True, False):
        candidate = _WrongFor(bundle, lambda n_rows, alone=wrong_alone: (n_rows == 1) == alone)
        (result,) = text_results(bundle, backend, candidate, None)
        assert not result.passed
        assert result.detail == "0.00 accuracy against 100.00"


class _WrongFor(EagerBackend):
    """Right, but for batches of a certain size: these are read as if by another model."""

    def __init__(self, bundle: Bundle, wrong: Callable[[int], bool]) -> None:
        super().__init__(tiny_model(bundle.config), bundle.config)
        self._other = EagerBackend(tiny_model(bundle.config, seed=1), bundle.config)
        self._wrong = wrong

    def start(self, prefix, source, capacity):
        if self._wrong(len(prefix.ids)):
            return self._other.start(prefix, source, capacity)
        return super().start(prefix, source, capacity)


def _reply(bundle: Bundle, backend: EagerBackend) -> str:
    return TextModel(bundle, backend).generate("Hi", max_new_tokens=64).text


def test_a_damaged_evaluation_file_is_refused_by_line(make_bundle: BundleFactory):
    from tiny_transformer.parity.texts import evaluation_examples

    bundle = make_bundle()
    (bundle.folder / EVALUATION).write_text('{"source": "a", "target": "b"}\n{"source": 1}\n', encoding="utf-8")
    with pytest.raises(DataError, match=f"{EVALUATION}:2"):
        evaluation_examples(bundle)


@pytest.fixture
def verified(make_bundle: BundleFactory) -> Bundle:
    """A folder with a report that vouches for it."""
    bundle = make_bundle()
    (bundle.folder / TRAINING).write_text("{}\n")
    backend = EagerBackend(tiny_model(bundle.config), bundle.config)
    report = verify(backend, backend, tensor_cases(bundle.config)[:3])
    parity.write_report(bundle, parity.ParityReport(**{**report.__dict__, "files": bundle.hashes()}))
    return bundle


def test_a_report_survives_the_trip_through_json(verified: Bundle):
    report = parity.stored_report(verified)
    assert report is not None
    assert report.verdict == "verified"
    assert set(report.files) == {"config.json", "generation.json", "tokenizer.json", WEIGHTS, TRAINING}
    text = (verified.folder / PARITY).read_text()
    assert report.to_json() == text
    assert "20" + "26" not in text  # no dates: equal results give equal bytes


def test_no_report_is_not_an_error(make_bundle: BundleFactory):
    assert parity.stored_report(make_bundle()) is None


@pytest.mark.parametrize("name", ["config.json", WEIGHTS, "tokenizer.json", TRAINING])
def test_any_file_swapped_after_verification_is_refused_by_name(verified: Bundle, name: str):
    path = verified.folder / name
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    # Of the files that the bundle has read already it says that they were changed since.
    with pytest.raises((ParityError, BundleError), match=name):
        parity.stored_report(verified)


def test_a_report_older_than_the_weights_is_refused(verified: Bundle):
    weights = {name: array * np.float32(1.0) for name, array in read_weights(verified.folder / WEIGHTS).items()}
    weights["embedding.tokens.weight"] = weights["embedding.tokens.weight"] * np.float32(1.01)
    write_weights(verified.folder / WEIGHTS, weights)
    with pytest.raises(ParityError, match=WEIGHTS):
        parity.stored_report(Bundle.open(verified.folder))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"passed": true', '"passed": false'),
        ('"max_absolute": 0.0', '"max_absolute": 1.0'),
        ('"verdict": "verified"', '"verdict": "failed"'),
        ('"format": 1', '"format": 2'),
        ('"reference": "eager"', '"reference": "other"'),
        ("{", "["),
    ],
)
def test_an_edited_report_is_refused(verified: Bundle, old: str, new: str):
    path = verified.folder / PARITY
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ParityError, match=PARITY):
        parity.stored_report(verified)


ESCAPE = "\x1b[2J\x1b]0;owned\x07"


@pytest.mark.parametrize(
    "edit",
    [
        lambda values: values["cases"][0].update(passed="yes"),
        lambda values: values["cases"][0].update(passed=1),
        lambda values: values["cases"][0].update(max_absolute="0"),
        lambda values: values["cases"][0].update(max_absolute=float("nan")),
        lambda values: values["cases"][0].update(max_relative=float("inf")),
        lambda values: values["cases"][0].update(max_relative=10**400),
        lambda values: values["cases"][0].update(tolerance=True),
        lambda values: values["cases"][0].update(tolerance=-1.0),
        lambda values: values["cases"][0].update(name=["full"]),
        lambda values: values["cases"][0].update(detail="x" * 100_000),
        lambda values: values["cases"][0].update(detail=ESCAPE),
        lambda values: values["cases"][0].update({ESCAPE: 1}),
        lambda values: values["cases"][0].pop("kind"),
        lambda values: values.update(cases={"0": values["cases"][0]}),
        lambda values: values.update(cases=["passed"]),
        lambda values: values.update(cases=values["cases"] * 10_000),
        lambda values: values.update(candidates="eager"),
        lambda values: values.update(candidates=[1]),
        lambda values: values.update(reference=None),
        lambda values: values.update(reference="right\u202eleft"),
        lambda values: values.update(format=True),
        lambda values: values.update(format=ESCAPE),
        lambda values: values["versions"].update(torch=2),
        lambda values: values["versions"].update({"torch": ESCAPE}),
        lambda values: values["files"].update({"config.json": "0" * 63}),
        lambda values: values["files"].update({ESCAPE: "0" * 64}),
        lambda values: values.pop("files"),
    ],
)
def test_a_report_of_odd_values_is_refused_even_if_its_digest_fits(verified: Bundle, edit):
    path = verified.folder / PARITY
    values = json.loads(path.read_text())
    edit(values)
    del values["digest"]
    values["digest"] = _digest(values)
    path.write_text(json.dumps(values))
    with pytest.raises(ParityError, match="is not a parity report") as caught:
        parity.stored_report(verified)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("text", ["", "[]", "null", '{"digest": []}', "[" * 100_000, '"' + ESCAPE])
def test_what_is_no_report_at_all_is_refused_in_one_sentence(verified: Bundle, text: str):
    (verified.folder / PARITY).write_text(text)
    with pytest.raises(ParityError, match="is not a parity report") as caught:
        parity.stored_report(verified)
    assert str(caught.value).isprintable()


def test_a_failed_report_is_never_written(make_bundle: BundleFactory):
    bundle = make_bundle()
    reference = EagerBackend(tiny_model(bundle.config), bundle.config)
    other = EagerBackend(tiny_model(bundle.config, seed=1), bundle.config)
    with pytest.raises(ParityError):
        parity.write_report(bundle, verify(reference, other, tensor_cases(bundle.config), CLOSE))
    assert not bundle.has(PARITY)


def test_an_empty_report_proves_nothing(make_bundle: BundleFactory):
    bundle = make_bundle()
    backend = EagerBackend(tiny_model(bundle.config), bundle.config)
    with pytest.raises(ParityError):
        parity.write_report(bundle, verify(backend, backend, []))


def test_the_reference_is_asked_once_for_all_candidates(make_bundle: BundleFactory, monkeypatch: pytest.MonkeyPatch):
    """Half of the time of a proof was the reference, computed again for every candidate."""
    bundle = make_bundle("decoder-only", max_length=16)
    asked = {"eager": 0, "torchscript": 0}
    original = EagerBackend.start

    def counted(backend, *arguments):
        asked[backend.name] = asked.get(backend.name, 0) + 1
        return original(backend, *arguments)

    monkeypatch.setattr(EagerBackend, "start", counted)
    report = parity.verify_bundle(bundle, ["torchscript", "numpy"])
    assert report.verdict == "verified"
    assert report.candidates == ("torchscript", "numpy")
    assert asked["eager"] == asked["torchscript"] + 1, "once more for what a self-test compares with"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "processor : 0\nflags\t\t: fpu sse4_1 avx2 fma avx512_vnni bogus\nbugs : avx\n",
            "sse4_1 avx2 fma avx512_vnni",
        ),
        ("processor : 0\nFeatures\t: fp asimd asimddp\n", "asimd asimddp"),
        ("nothing of the kind\n", ""),
    ],
)
def test_the_report_names_instruction_sets(tmp_path: Path, text: str, found: str):
    (tmp_path / "cpuinfo").write_text(text)
    assert instruction_sets(tmp_path / "cpuinfo") == found
    assert instruction_sets(tmp_path / "nowhere") == ""


def test_the_report_says_what_it_ran_on_and_an_older_one_need_not(make_bundle: BundleFactory):
    bundle = make_bundle("decoder-only", max_length=16)
    report = parity.verify_bundle(bundle, ["numpy"])
    assert {"instruction sets", "cores", "threads", "machine", "python", "torch", "onnxruntime"} <= set(report.versions)
    parity.write_report(bundle, report)
    assert parity.stored_report(bundle) == report
    older = {name: value for name, value in report.versions.items() if name not in ("instruction sets", "threads")}
    parity.write_report(bundle, replace(report, versions=older))
    assert parity.stored_report(bundle) is not None
