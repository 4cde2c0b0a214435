"""Run the same cases through two backends and say where they differ."""

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tiny_transformer import __version__
from tiny_transformer.backends.base import CLOSE, Backend, Tolerance
from tiny_transformer.bundle import Bundle
from tiny_transformer.parity.cases import TensorCase, full_of_cached, rows_alone, tensor_cases
from tiny_transformer.parity.report import CaseResult, ParityReport, finite
from tiny_transformer.parity.texts import N_GREEDY, text_results

Progress = Callable[[str], None]


SMALL_TOKENS, SMALL_TEXTS = 64, 8  # tokens of a batch and generated texts, for a backend that is a slow reference
# Of 8-bit or 16-bit numbers: how far a row may stray when others stand beside it or it comes token by token, in units
# of what rounding itself does to the same rows. Measured in 8 bits: 0.6; with an attention's mask dropped, 17 to 45.
MOST_OF_ROUNDING = 4.0
ON_GPU = Tolerance(5e-4, 5e-4)  # float32 without TF32; a GPU sums in another order


def verify(
    reference: Backend, candidate: Backend, cases: Sequence[TensorCase], tolerance: Tolerance = CLOSE
) -> ParityReport:
    """Compare two backends on tensors; the report is not yet bound to files."""
    results = [result for case in cases for result in _compare(reference, candidate, case, tolerance)]
    return ParityReport(
        reference=reference.name,
        candidates=(candidate.name,),
        versions=versions(),
        cases=tuple(results),
        files={},
    )


def verify_bundle(
    bundle: Bundle, backends: Sequence[str] | None = None, *, progress: Progress = lambda _: None
) -> ParityReport:
    """Compare every backend of a folder with eager, on tensors and on text, for exactly these files."""
    from tiny_transformer.backends import BACKENDS, available, open_backend

    files = bundle.hashes()
    names = list(backends) if backends is not None else [n for n, why in available(bundle).items() if why is None]
    reference = open_backend(bundle, "eager", device="cpu")
    report = ParityReport(reference="eager", candidates=(), versions=versions(), cases=(), files=files)
    for name in [n for n in names if n != "eager"]:
        spec = BACKENDS[name]
        candidate = open_backend(bundle, name, device="cpu")
        report = _compared(report, bundle, reference, candidate, spec.tolerance, progress, small=spec.reference_only)
    return report


def verify_device(bundle: Bundle, device: str, *, progress: Progress = lambda _: None) -> ParityReport:
    """Compare eager on a GPU, in float32 and in bfloat16, with the ONNX graphs on the CPU."""
    from tiny_transformer.backends import device_name, open_backend, open_precise

    files = bundle.hashes()
    reference = open_backend(bundle, "onnx")
    found = {**versions(), "device": device_name(device)}
    report = ParityReport(reference="onnx", candidates=(), versions=found, cases=(), files=files)
    for precision, tolerance in (("float32", ON_GPU), ("bfloat16", None)):
        candidate = open_precise(bundle, device, precision)
        report = _compared(report, bundle, reference, candidate, tolerance, progress)
    return report


def _compared(
    report: ParityReport,
    bundle: Bundle,
    reference: Backend,
    candidate: Backend,
    tolerance: Tolerance | None,
    progress: Progress,
    *,
    small: bool = False,
) -> ParityReport:
    """The report with one more candidate: by tensors and text within a tolerance, or without one by its task.

    A backend without a tolerance has rounded numbers. How far rounding takes a row is measured on rows that are read
    alone; padding, a cache and a new order of rows may add little to that.

    A `small` comparison leaves out long batches and most texts: of a backend that takes seconds where others take
    milliseconds, it still runs every kind of case.
    """
    results: list[CaseResult] = []
    cases = tensor_cases(bundle.config)
    bounds = tolerance
    if bounds is None:
        cases = [case for case in cases if case.kind != "attention" and (case.is_ragged or case.n_steps)]
        bounds = _of_rounding(reference, candidate, cases)
    for case in cases:
        if small and case.n_tokens > SMALL_TOKENS:
            continue
        progress(f"{candidate.name}: {case.name}")
        results += _compare(reference, candidate, case, bounds)
    allowed = None if tolerance is None else tolerance.absolute
    n_texts = SMALL_TEXTS if small else N_GREEDY
    results += text_results(bundle, reference, candidate, allowed, n_texts=n_texts, progress=progress)
    return replace(report, candidates=(*report.candidates, candidate.name), cases=(*report.cases, *results))


def _of_rounding(reference: Backend, candidate: Backend, cases: Sequence[TensorCase]) -> Tolerance:
    """What padding may change, by what a candidate's rounding does to the same rows alone."""
    ragged = [case for case in cases if case.kind == "full"]
    own = max(
        float(np.abs(a - b).max())
        for case in ragged
        for a, b in zip(rows_alone(reference, case), rows_alone(candidate, case), strict=True)
    )
    return Tolerance(max(MOST_OF_ROUNDING * own, CLOSE.absolute), 0.0) if np.isfinite(own) else CLOSE


def versions() -> dict[str, str]:
    """What the comparison ran on."""
    from importlib import metadata

    found = {"tiny-transformer": __version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in ("numpy", "torch", "onnxruntime", "tokenizers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def _compare(reference: Backend, candidate: Backend, case: TensorCase, tolerance: Tolerance) -> Iterator[CaseResult]:
    """One case against the reference; a cached or ragged one also against the candidate's own plainer pass."""
    found = case.run(candidate)
    yield _result(candidate.name, case.kind, case.name, case.run(reference), found, tolerance)
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
