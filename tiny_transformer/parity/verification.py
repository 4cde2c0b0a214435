"""Run the same cases through two backends and say where they differ."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tiny_transformer.backends.base import CLOSE, Backend, Tolerance, cores
from tiny_transformer.bundle import Bundle
from tiny_transformer.parity.cases import (
    InsideCase,
    TensorCase,
    full_of_cached,
    inside_cases,
    rows_alone,
    tensor_cases,
)
from tiny_transformer.parity.report import CaseResult, ParityReport, finite
from tiny_transformer.parity.self_test import expected_logits, versions
from tiny_transformer.parity.texts import Step, TextReference, text_steps, training_step

if TYPE_CHECKING:
    from tiny_transformer.backends.inside_graph import InsideGraph

Progress = Callable[[str, float], None]  # what is compared now, and the share of the work that is done

SMALL_TOKENS = 100  # of a batch, for a backend that is a slow reference
QUICK_TOKENS = 16  # of a batch of even rows, for a quick look
# Of 8-bit or 16-bit numbers: how far a row may stray when others stand beside it or it comes token by token, in units
# of what rounding itself does to the same rows. Measured in 8 bits: 1.6; with an attention's mask dropped, 17 to 45.
MOST_OF_ROUNDING = 4.0
ON_GPU = Tolerance(5e-4, 5e-4)  # float32 without TF32; a GPU sums in another order


@dataclass(frozen=True)
class Candidate:
    """A backend to compare: by tensors and text within a tolerance, or without one by its task.

    A backend without a tolerance has rounded numbers. How far rounding takes a row is measured on rows that are read
    alone; padding, a cache and a new order of rows may add little to that.
    """

    backend: Backend
    tolerance: Tolerance | None
    small: bool = False  # without long batches and most texts, for a backend that takes seconds where others take less

    def takes(self, case: TensorCase) -> bool:
        """Whether the case is one for this backend."""
        if self.tolerance is None:
            return case.kind != "attention" and (case.is_ragged or case.n_steps > 0)
        return not self.small or case.n_tokens <= SMALL_TOKENS


def verify(
    reference: Backend, candidate: Backend, cases: Sequence[TensorCase], tolerance: Tolerance = CLOSE
) -> ParityReport:
    """Compare two backends on tensors; the report is not yet bound to files."""
    results = [result for case in cases for result in _compare(case.run(reference), candidate, case, tolerance)]
    return ParityReport(
        reference=reference.name,
        candidates=(candidate.name,),
        versions=versions(),
        cases=tuple(results),
        files={},
    )


def verify_bundle(
    bundle: Bundle,
    backends: Sequence[str] | None = None,
    *,
    quick: bool = False,
    progress: Progress = lambda name, done: None,
) -> ParityReport:
    """Compare every backend of a folder with eager, on tensors and on text, for exactly these files.

    A `quick` look takes small cases of every kind and few texts, and leaves out the slow reference. It is no proof: its
    report vouches for no file.
    """
    from tiny_transformer.backends import BACKENDS, available, backend_spec, one_torch_thread, open_backend

    files = {} if quick else bundle.hashes()
    if backends is None:
        backends = [n for n, why in available(bundle).items() if why is None and not BACKENDS[n].on_request]
    specs = [backend_spec(name) for name in backends if name != "eager"]
    candidates = [
        Candidate(open_backend(bundle, spec.name, device="cpu"), spec.tolerance, spec.slow)
        for spec in specs
        if not (quick and spec.slow)
    ]
    reference = open_backend(bundle, "eager", device="cpu")
    ran_on = {**versions(), "threads": f"PyTorch 1, ONNX Runtime {cores()}, {cores()} cases at a time"}
    for candidate in candidates:
        ran_on |= getattr(candidate.backend, "versions", {})  # of what is no Python package
    report = ParityReport(reference="eager", candidates=(), versions=ran_on, cases=(), files=files)
    onnx: list[Any] = [candidate.backend for candidate in candidates if candidate.backend.name == "onnx"]
    inside = [step for backend in onnx for step in _inside_steps(backend.inside_graph, reference)]
    with one_torch_thread():
        report = _compared(report, bundle, reference, candidates, progress, inside, quick=quick, at_once=cores())
        if quick or report.failures:
            return report
        rounded = [candidate.backend for candidate in candidates if candidate.tolerance is None]
        return replace(report, expected=expected_logits(bundle.config, reference, rounded))


def verify_device(bundle: Bundle, device: str, *, progress: Progress = lambda name, done: None) -> ParityReport:
    """Compare eager on a GPU, in float32 and in bfloat16, with the ONNX graphs on the CPU."""
    from tiny_transformer.backends import device_name, open_backend, open_precise

    reference = open_backend(bundle, "onnx")
    ran_on = {**versions(), "device": device_name(device)}
    report = ParityReport(reference="onnx", candidates=(), versions=ran_on, cases=(), files=bundle.hashes())
    candidates = [
        Candidate(open_precise(bundle, device, "float32"), ON_GPU),
        Candidate(open_precise(bundle, device, "bfloat16"), None),
    ]
    return _compared(report, bundle, reference, candidates, progress)


def _compared(
    report: ParityReport,
    bundle: Bundle,
    reference: Backend,
    candidates: Sequence[Candidate],
    progress: Progress,
    inside: Sequence[Step] = (),
    *,
    quick: bool = False,
    at_once: int = 1,
) -> ParityReport:
    """The report with all candidates. What the reference says is computed once for all of them."""
    texts = TextReference(bundle, reference)
    cases = tensor_cases(bundle.config)
    if quick:
        cases = [case for case in cases if case.kind != "full" or case.is_ragged or case.n_tokens <= QUICK_TOKENS]
    steps = [*_tensor_steps(reference, candidates, cases), *inside]
    for candidate in candidates:
        allowed = None if candidate.tolerance is None else candidate.tolerance.absolute
        steps += text_steps(texts, candidate.backend, allowed, small=candidate.small, quick=quick)
    if steps and not quick:
        steps.append(training_step(texts))
    results = _run([*texts.steps()], steps, at_once, progress)
    order = [candidate.backend.name for candidate in candidates]
    # A stable sort: each candidate's cases keep their order, and the reference's own stands last.
    results.sort(key=lambda result: [*order, reference.name].index(result.candidate))
    return replace(report, candidates=tuple(order), cases=tuple(results))


def _run(first: Sequence[Step], then: Sequence[Step], at_once: int, progress: Progress) -> list[CaseResult]:
    """The results of both, in order; so many steps at a time, the longest first, since the last should be short."""
    done, total = 0.0, sum(step.work for step in (*first, *then))
    results: dict[tuple[int, int], list[CaseResult]] = {}

    def run(number: tuple[int, int], step: Step) -> None:
        nonlocal done
        progress(step.name, done / total)
        results[number] = step.run()
        done += step.work

    pool = ThreadPoolExecutor(at_once)
    try:
        for part, members in enumerate((first, then)):
            longest_first = sorted(enumerate(members), key=lambda entry: -entry[1].work)
            for future in [pool.submit(run, (part, i), step) for i, step in longest_first]:
                future.result()
    finally:
        pool.shutdown(cancel_futures=True)
    return [result for number in sorted(results) for result in results[number]]


def _tensor_steps(reference: Backend, candidates: Sequence[Candidate], cases: Sequence[TensorCase]) -> Iterator[Step]:
    """Case by case, so that one case's arrays are in memory at a time."""
    ragged = [case for case in cases if case.kind == "full" and case.is_ragged]
    bounds = {
        candidate.backend.name: candidate.tolerance or _of_rounding(reference, candidate.backend, ragged)
        for candidate in candidates
    }

    def compare(case: TensorCase, takers: Sequence[Backend]) -> list[CaseResult]:
        expected = case.run(reference)
        return [result for taker in takers for result in _compare(expected, taker, case, bounds[taker.name])]

    for case in cases:
        takers = [candidate.backend for candidate in candidates if candidate.takes(case)]
        if takers:
            work = case.n_tokens * (1 + len(takers))
            yield Step(f"logits, {case.name}", work, partial(compare, case, takers))


def _inside_steps(graph: "InsideGraph", reference: Any) -> Iterator[Step]:
    """Every inner value of the graph `inside.onnx`, the whole model and parts of it off, against hooks on eager."""

    def compare(case: InsideCase) -> list[CaseResult]:
        given = case.target, case.source
        expected = reference.inside(*given, case.shown, case.switches)
        found = graph.run(*given, sorted(expected), shown=case.shown.tolist(), switches=case.switches)
        parts = [expected[name] for name in found], [*found.values()]
        return [_result("onnx", "inside", case.name, *parts, CLOSE)]

    for case in inside_cases(graph.config):
        yield Step(f"inner values, {case.name}", 4 * case.target.ids.size, partial(compare, case))


def _of_rounding(reference: Backend, candidate: Backend, cases: Sequence[TensorCase]) -> Tolerance:
    """What padding, a cache and a new order of rows may change: little beside what rounding does to rows alone."""
    errors = [
        float(np.abs(a - b).max())
        for case in cases
        for a, b in zip(rows_alone(reference, case), rows_alone(candidate, case), strict=True)
    ]
    own = max(errors, default=0.0)
    return Tolerance(max(MOST_OF_ROUNDING * own, CLOSE.absolute), 0.0) if np.isfinite(own) else CLOSE


def _compare(
    expected: Sequence[np.ndarray], candidate: Backend, case: TensorCase, tolerance: Tolerance
) -> Iterator[CaseResult]:
    """One case against the reference; a cached or ragged one also against the candidate's own plainer pass."""
    found = case.run(candidate)
    yield _result(candidate.name, case.kind, case.name, expected, found, tolerance)
    own = tolerance if tolerance.absolute > CLOSE.absolute else CLOSE
    if case.kind == "cached":
        name = f"{case.name}, against the whole at once"
        yield _result(candidate.name, "consistency", name, full_of_cached(candidate, case), found, own)
    elif case.kind == "full" and case.is_ragged:
        name = f"{case.name}, against each row alone"
        yield _result(candidate.name, "consistency", name, rows_alone(candidate, case), found, own)


def _result(
    candidate: str,
    kind: str,
    name: str,
    expected: Sequence[np.ndarray],
    found: Sequence[np.ndarray],
    tolerance: Tolerance,
) -> CaseResult:
    """The comparison itself: differences, argmax agreement, the first position that is out of bounds."""
    shapes = [a.shape for a in expected], [a.shape for a in found]
    if shapes[0] != shapes[1]:
        detail = f"shapes {shapes[1]} where {shapes[0]} were expected"
        return CaseResult(candidate=candidate, kind=kind, name=name, passed=False, detail=detail)
    absolute = relative = 0.0
    agreed = total = 0
    detail = ""
    for part, (a, b) in enumerate(zip(expected, found, strict=True)):
        a, b = a.astype(np.float64), b.astype(np.float64)
        difference = np.abs(a - b)
        difference[~(np.isfinite(a) & np.isfinite(b))] = np.inf
        absolute = max(absolute, float(difference.max()))
        relative = max(relative, float((difference / (np.abs(a) + 1.0)).max()))
        agreed += int((a.argmax(-1) == b.argmax(-1)).sum())
        total += a[..., 0].size
        outside = difference > tolerance.absolute + tolerance.relative * np.abs(a)
        if outside.any() and not detail:
            index = tuple(int(i) for i in np.argwhere(outside)[0])
            detail = f"first at {index} of part {part}: {b[index]:.6g} where {a[index]:.6g} was expected"
    return CaseResult(
        candidate=candidate,
        kind=kind,
        name=name,
        passed=not detail,
        max_absolute=finite(absolute),
        max_relative=finite(relative),
        argmax_agreement=round(agreed / total, 6),
        tolerance=tolerance.absolute,
        detail=detail,
    )
