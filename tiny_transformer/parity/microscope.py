"""Where two backends part: the first part of the model whose result is another than its input explains.

Both backends run the same example and show the values inside (`backends/observed_values.py`). Each part is then
computed once more in float64, by `backends/paper.py`, from the very values that the backend itself handed to this
part. What is left between that and the backend's own result is the part's own error: errors of earlier parts are not
in it. So a fault is found in its own part even where 8-bit or bfloat16 numbers differ from the first part on.

Shapes: T positions of a row, D model width, V vocabulary.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tiny_transformer.backends.base import Backend, Batch, Observable
from tiny_transformer.backends.observed_values import AFTER, BEFORE, EMBEDDED, norm_names
from tiny_transformer.backends.paper import Paper
from tiny_transformer.bundle import Bundle
from tiny_transformer.config import ModelConfig
from tiny_transformer.errors import BackendError, InputError, Sentence
from tiny_transformer.parity.cases import TensorCase, tensor_cases
from tiny_transformer.parity.report import finite
from tiny_transformer.parity.verification import Progress


class _Precision(NamedTuple):
    """How large a part's own error may be."""

    limit: float  # as a share of the largest number that the part computes
    unit: float  # so much of every number of its result is lost with the last digits; in a sum these are large numbers


# `python -m export verify FOLDER --where` prints what is measured: with the shipped models at most 2e-6 in float32,
# 0.05 in 8 bits and 0.005 in bfloat16, whose numbers have 8 binary digits.
FLOAT32, ROUNDED = _Precision(1e-5, 2**-23), _Precision(0.15, 2**-8)


class Place(NamedTuple):
    """A part of the model: which stack, which layer, and what it is there."""

    stack: str  # encoder or decoder
    kind: str  # embedding, self-attention, cross-attention, feed-forward, norm or output
    layer: int | None = None  # counted from 1; None outside the layers
    beside: str = ""  # a norm's sub-layer; none for the norm at the end of a stack

    def name(self, config: ModelConfig) -> str:
        """In words, such as "decoder layer 2, cross-attention"."""
        if self.kind == "embedding":
            of = {"encoder": " of the source", "decoder": " of the target"} if config.is_encoder_decoder else {}
            return "embedding" + of.get(self.stack, "")
        if self.layer is None:
            return "output" if self.kind == "output" else f"{self.stack}, final norm"
        side = "before" if config.norm == "pre" else "after"
        what = f"norm {side} {self.beside}" if self.kind == "norm" else self.kind
        return f"{self.stack} layer {self.layer}, {what}"


@dataclass(frozen=True)
class Part:
    """One part of the model, and how far two backends are apart in it, over all real positions of an example."""

    place: Place
    name: str
    error: float  # the largest difference between the two results, with all that earlier parts brought along
    scale: float  # the largest number of the reference's result: error / scale grows from part to part
    # What this part alone adds, as a share of the largest number that it computes, and the most that it may be: of the
    # candidate, or of the reference where that one is at fault.
    own: float
    limit: float
    differs: bool  # whether it is more; the first such part is where the backends part


def first_part(parts: Sequence[Part]) -> Part | None:
    """The part in which two backends part; None where each does what it should."""
    return next((part for part in parts if part.differs), None)


def where(reference: Backend, candidate: Backend, example: TensorCase, *, rounded: bool | None = None) -> list[Part]:
    """Every part of the model in the order of computation, and how two backends compare in it.

    The example is a full case, or a cached one, whose last tokens come as steps on a cache. `rounded` says that the
    candidate has 8-bit or 16-bit numbers; left out, the table of backends says it. The weights are the reference's.
    Without torch where both backends are.
    """
    if reference.config != candidate.config:
        raise InputError("The two backends run different models; compare two of one folder.")
    paper = Paper(reference.config, _observable(reference).weights())
    return _compared(
        _observation(paper, reference, example),
        _observation(paper, candidate, example, rounded=rounded),
    )


def where_bundle(
    bundle: Bundle,
    backends: Sequence[str] | None = None,
    *,
    device: str | None = None,
    progress: Progress = lambda name, done: None,
) -> "list[Located]":
    """Every backend of a folder that shows its values, and eager in bfloat16, beside eager on the CPU.

    With a device it is eager there, in float32 and in bfloat16, beside the ONNX graphs.
    """
    from tiny_transformer.backends import BACKENDS, available, one_torch_thread, open_backend, open_precise

    cases = [case for case in tensor_cases(bundle.config) if case.kind in ("full", "cached")]
    few = max(cases, key=lambda case: (case.n_steps, case.n_rows))  # with steps on a cache
    many = max(cases, key=lambda case: case.n_rows)  # for which ONNX Runtime has other 8-bit graphs
    wanted: list[tuple[str, TensorCase, bool, Callable[[], Backend]]] = []
    if device is None:
        here = [name for name, why in available(bundle).items() if why is None and not BACKENDS[name].on_request]
        names = backends or [name for name in here if name != "eager"]
        for name in names:
            rounded, opener = BACKENDS[name].tolerance is None, partial(open_backend, bundle, name, device="cpu")
            wanted.append((name, few, rounded, opener))
            if rounded:
                wanted.append((f"{name}, {many.n_rows} rows", many, rounded, opener))
    for dtype in ("float32", "bfloat16") if device else ("bfloat16",) if backends is None else ():
        opener = partial(open_precise, bundle, device or "cpu", dtype)
        wanted.append((f"{device or 'eager'} {dtype}", few, dtype == "bfloat16", opener))
    located = []
    with one_torch_thread(), _without_bfloat16_warnings():
        reference = open_backend(bundle, "eager" if device is None else "onnx", device="cpu")
        paper = Paper(bundle.config, bundle.weights())
        expected = {case.name: _observation(paper, reference, case) for case in (few, many)}
        for i, (label, case, rounded, opened) in enumerate(wanted):
            progress(label, i / len(wanted))
            candidate = opened()
            if isinstance(candidate, Observable):
                observed = _observation(paper, candidate, case, rounded=rounded)
                parts = _compared(expected[case.name], observed)
                located.append(Located(reference.name, label, case.name, tuple(parts)))
    return located


@contextmanager
def _without_bfloat16_warnings() -> Iterator[None]:
    """PyTorch warns where a processor has no bfloat16 and computes it in other ways; the numbers are the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "mkldnn_matmul failed", UserWarning)
        yield


@dataclass(frozen=True)
class Located:
    """A candidate beside the reference, part by part."""

    reference: str
    candidate: str
    example: str
    parts: tuple[Part, ...]

    @property
    def first(self) -> Part | None:
        """The part in which the two part."""
        return first_part(self.parts)

    @property
    def sentence(self) -> Sentence:
        """What was found."""
        if self.first is None:
            part = max(self.parts, key=lambda part: part.own / part.limit)
            template = (
                "{candidate} and {reference} agree in every part: the largest own error is {own:.1e} ({part}), and "
                "{limit:.1e} is allowed."
            )
        else:
            part = self.first
            template = (
                "The first part in which {candidate} and {reference} differ: {part}. Its own error is {own:.1e} of its "
                "largest number, and {limit:.1e} is allowed."
            )
        names = {"candidate": self.candidate, "reference": self.reference, "part": part.name}
        return Sentence(template, own=part.own, limit=part.limit, **names)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for programs; what is infinite becomes the largest float."""
        parts = []
        for part in self.parts:
            numbers = {key: finite(getattr(part, key)) for key in ("error", "scale", "own", "limit")}
            parts.append({"name": part.name, **part.place._asdict(), **numbers, "differs": part.differs})
        first = self.first
        names = {"reference": self.reference, "candidate": self.candidate, "example": self.example}
        return {**names, "first": None if first is None else first.name, "parts": parts}


class _Observation(NamedTuple):
    """What one backend did with an example, row by row and part by part."""

    config: ModelConfig
    precision: _Precision
    rows: "list[list[_Judged]]"


def _observation(paper: Paper, backend: Backend, example: TensorCase, *, rounded: bool | None = None) -> _Observation:
    from tiny_transformer.backends import BACKENDS

    if rounded is None:
        rounded = backend.name in BACKENDS and BACKENDS[backend.name].tolerance is None
    rows = []
    for b, row in enumerate(_record(_observable(backend), example)):
        source = example.source
        source_ids = None if source is None else source.ids[b, : source.lengths[b]]
        rows.append(list(_judged(paper, row, example.target.ids[b, : example.target.lengths[b]], source_ids)))
    return _Observation(paper.config, ROUNDED if rounded else FLOAT32, rows)


def _observable(backend: Backend) -> Any:
    if not isinstance(backend, Observable):
        raise BackendError("The backend {name} does not show the values inside its model.", name=backend.name)
    return backend


def _compared(reference: _Observation, candidate: _Observation) -> list[Part]:
    """The parts, each with its largest numbers over all rows."""
    parts = []
    for i, (place, *_) in enumerate(reference.rows[0]):
        ours, theirs = ([row[i] for row in observation.rows] for observation in (reference, candidate))
        pairs = list(zip(ours, theirs, strict=True))
        # A backend that parts from the paper parts from the other one, too, whichever of the two is at fault.
        precisions = (candidate.precision, reference.precision)
        owns = [(_own(rows, p.unit), p.limit) for rows, p in zip((theirs, ours), precisions, strict=True)]
        own, limit = next((pair for pair in owns if pair[0] > pair[1]), owns[0])
        parts.append(
            Part(
                place=place,
                name=place.name(reference.config),
                error=max(_largest(a.found - b.found) for a, b in pairs),
                scale=max(_largest(a.found) for a in ours),
                own=own,
                limit=limit,
                differs=own > limit,
            )
        )
    return parts


def _own(rows: "Sequence[_Judged]", unit: float) -> float:
    """A part's own error, less what the last digits of its result hold, as a share of the largest that it computes."""
    errors = [np.abs(judged.found - judged.expected) - unit * np.abs(judged.expected) for judged in rows]
    error = max(_largest(np.maximum(found, 0.0)) for found in errors)
    size = max(_largest(judged.computed) for judged in rows)
    return error / size if np.isfinite(size) and size else error


def _largest(array: np.ndarray) -> float:
    """The largest absolute value; infinite where there is a NaN."""
    found = float(np.abs(array).max(initial=0.0))
    return np.inf if np.isnan(found) else found


@dataclass(frozen=True)
class _Row:
    """What one row of an example left inside a backend."""

    values: dict[str, np.ndarray]  # name of an inner value → T D
    output: np.ndarray  # logits, n V
    positions: np.ndarray  # n: which positions they belong to


def _record(backend: Any, example: TensorCase) -> list[_Row]:
    """Run the example and cut what comes of it into rows without padding."""
    if example.kind not in ("full", "cached"):
        raise InputError(
            "A case of the kind {kind} cannot be looked into; take a full or a cached one.", kind=example.kind
        )
    if backend.max_rows == 1 and (example.n_rows > 1 or example.n_steps):  # it has neither batches nor a cache
        return [_record_alone(backend, example, b) for b in range(example.n_rows)]
    calls: dict[str, list[np.ndarray]] = defaultdict(list)  # each B T D, for a prefix or for a step

    def keep(name: str, array: np.ndarray) -> None:
        calls[name].append(array.astype(np.float64).reshape(example.n_rows, -1, array.shape[-1]))

    results = example.run(backend.observed(keep))
    rows = []
    for b, length in enumerate(example.target.lengths.tolist()):
        values = {}
        for name, arrays in calls.items():
            if name.startswith("encoder") and example.source is not None:
                values[name] = arrays[0][b, : example.source.lengths[b]]
            else:
                prefix = arrays[0][b, : length - example.n_steps]
                values[name] = np.concatenate([prefix, *(array[b] for array in arrays[1:])])
        if example.kind == "full":
            end = example.target.lengths[: b + 1].sum()
            output = results[0][end - length : end]
        else:
            output = np.stack([result[b] for result in results])
        rows.append(_Row(values, output, np.arange(length - len(output), length)))
    return rows


def _record_alone(backend: Any, example: TensorCase, b: int) -> _Row:
    """One row of an example, read at once; logits where the example asks for them."""
    target, source = (
        None if batch is None else Batch(batch.ids[b : b + 1, : batch.lengths[b]], batch.lengths[b : b + 1])
        for batch in (example.target, example.source)
    )
    assert target is not None
    (row,) = _record(backend, replace(example, kind="full", target=target, source=source, n_steps=0))
    n = 1 + example.n_steps if example.kind == "cached" else len(row.output)
    return _Row(row.values, row.output[-n:], row.positions[-n:])


class _Judged(NamedTuple):
    """A part's result in one row, beside what the paper makes of the same input."""

    place: Place
    expected: np.ndarray  # T D, or T V
    found: np.ndarray
    computed: np.ndarray  # what the part computes; for a sub-layer without what it is added to


def _judged(paper: Paper, row: _Row, ids: np.ndarray, source_ids: np.ndarray | None) -> Iterator[_Judged]:
    """Every part of one row."""
    encoded = None
    if source_ids is not None:
        encoded = yield from _judged_stack(paper, row.values, "encoder", source_ids, None)
    hidden = yield from _judged_stack(paper, row.values, "decoder", ids, encoded)
    scores = paper.scores(hidden[row.positions])
    yield _Judged(Place("decoder", "output"), scores, row.output, scores)


_SUBLAYERS = {
    "around_attention": "self-attention",
    "around_cross": "cross-attention",
    "around_feed_forward": "feed-forward",
}


def _judged_stack(
    paper: Paper, values: dict[str, np.ndarray], stack: str, ids: np.ndarray, encoded: np.ndarray | None
) -> Generator[_Judged, None, np.ndarray]:
    """The parts of a stack, each computed from what the backend handed to it; returns the stack's own result (T D)."""
    pre_norm = paper.config.norm == "pre"
    x = values[stack + EMBEDDED]
    embedded = paper.embed(ids)
    yield _Judged(Place(stack, "embedding"), embedded, x, embedded)
    names = norm_names(paper.config, stack)
    for name, following in zip(names, [*names[1:], ""], strict=True):
        *_, layer, around, _ = ("", "", *name.split("."))
        before, after = values[name + BEFORE], values[name + AFTER]
        beside = _SUBLAYERS.get(around, "")
        place = Place(stack, "norm", int(layer) + 1 if beside else None, beside)
        norm = paper.layer_norm(name, x if pre_norm else before)
        judged_norm = _Judged(place, norm, after, norm)
        if pre_norm:
            yield judged_norm
        if beside:
            read = after if pre_norm else x
            computed = _sublayer(paper, f"{stack}.layers.{layer}", beside, encoded)(read)
            result = values[following + BEFORE] if pre_norm else before
            expected = (x if paper.config.residual else 0.0) + computed
            yield _Judged(place._replace(kind=beside, beside=""), expected, result, computed)
            x = result
        if not pre_norm:
            yield judged_norm
        if not pre_norm or not beside:
            x = after
    return x


def _sublayer(paper: Paper, layer: str, kind: str, encoded: np.ndarray | None) -> Callable[[np.ndarray], np.ndarray]:
    if kind == "feed-forward":
        return partial(paper.feed_forward, layer)
    if kind == "cross-attention":
        assert encoded is not None
        return partial(paper.cross_attention, layer, encoded, [])

    def attend(x: np.ndarray) -> np.ndarray:
        visible = np.ones((len(x), len(x)), dtype=bool)
        return paper.self_attention(layer, visible if layer.startswith("encoder") else np.tril(visible), [], x)

    return attend
