"""The parity report as a value: what was compared, how it came out, and for exactly which files."""

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from tiny_transformer import atomic
from tiny_transformer.bundle import PARITY, Bundle
from tiny_transformer.checks import shown
from tiny_transformer.errors import ParityError, Sentence

FORMAT = 1
_MAX_BYTES = 16 * 1024 * 1024
_MAX_ENTRIES, _MAX_TEXT = 10_000, 1_000  # a report of the shipped models has 150 cases, and texts of 200 characters
_MAX_ROWS, _MAX_TOKENS = 16, 64  # of a case that a self-test runs: whoever loads a model waits for it
_EXPECTED = "expected"


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One comparison. Differences are over real positions; padding means nothing."""

    candidate: str
    kind: str  # full, cached, chunk, reorder, attention, inside, greedy, beam, task
    name: str
    passed: bool
    max_absolute: float = 0.0
    max_relative: float = 0.0
    argmax_agreement: float = 1.0  # share of positions where both would choose the same token
    tolerance: float = 0.0
    detail: str = ""  # the first difference, or the task's two figures


@dataclass(frozen=True, kw_only=True)
class ExpectedLogits:
    """Some of the logits that the reference found in a small case: for a self-test on another kind of processor."""

    kind: str  # full or cached
    name: str
    target: tuple[tuple[int, ...], ...]  # rows of ids
    source: tuple[tuple[int, ...], ...]  # none for a decoder-only model
    n_steps: int
    columns: tuple[int, ...]  # the tokens whose logits are kept
    logits: tuple[tuple[float, ...], ...]  # a row for each position
    rounding: dict[str, float]  # backend with rounded weights → root mean square of its differences from these logits


@dataclass(frozen=True, kw_only=True)
class ParityReport:
    """All comparisons of one folder, bound to the SHA-256 of its files."""

    reference: str
    candidates: tuple[str, ...]
    versions: dict[str, str]
    cases: tuple[CaseResult, ...]
    files: dict[str, str]  # name → SHA-256, of every file but the report and the card
    expected: tuple[ExpectedLogits, ...] = ()  # none in reports from before there was a self-test

    @property
    def failures(self) -> tuple[CaseResult, ...]:
        """The cases that failed."""
        return tuple(case for case in self.cases if not case.passed)

    @property
    def verdict(self) -> str:
        """`verified` only if something was compared and everything agreed."""
        return "verified" if self.cases and not self.failures else "failed"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with verdict and digest."""
        values = {"format": FORMAT, "verdict": self.verdict, **asdict(self)}
        if not self.expected:
            del values[_EXPECTED]
        return {**values, "digest": _digest(values)}

    def to_json(self) -> str:
        """The text of `parity.json`; equal results give equal bytes."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: Path | str) -> "ParityReport":
        """Read a report strictly; an edited one is refused."""
        try:
            values = _typed(json.loads(text), dict, "the file")
            digest = values.pop("digest", None)
            intact = _digest(values) == digest
            report = _checked(values)
        except (ValueError, RecursionError) as error:
            reason = error.args[0] if isinstance(error, _DamagedError) else error
            template = "{where} is not a parity report ({reason}); make it again: python -m export all."
            raise ParityError(template, where=where, reason=reason) from None
        if not intact or values.get("verdict") != report.verdict:
            raise ParityError(
                "{where} was edited after it was written; make it again: python -m export all.", where=where
            )
        return report

    def raise_if_failed(self) -> None:
        """A failed verdict stops whoever asked."""
        if self.verdict != "verified":
            named = "; ".join(f"{case.candidate}: {case.name} ({case.detail})" for case in self.failures[:3])
            more = f" and {len(self.failures) - 3} more" if len(self.failures) > 3 else ""
            template = "Parity failed in {n} of {n_2} cases: {named}{more}."
            raise ParityError(template, n=len(self.failures), n_2=len(self.cases), named=named, more=more)


class _DamagedError(ValueError):
    """A value is not of the kind that a proof writes; its argument is the sentence."""


def _checked(values: dict[str, Any]) -> ParityReport:
    """The report that plain values describe: every type, every length and every number as a proof writes them.

    A report may come from a stranger, and what it says is shown on terminals and pages: no text has control characters.
    """
    if _typed(values.get("format"), int, "format") != FORMAT:
        raise _damaged("format", values["format"])
    return ParityReport(
        reference=_text(values.get("reference"), "reference"),
        candidates=tuple(_text(name, "candidates") for name in _typed(values.get("candidates"), list, "candidates")),
        versions=_texts(values.get("versions"), "versions"),
        cases=tuple(_case(case) for case in _typed(values.get("cases"), list, "cases")),
        files={name: _sha256(value) for name, value in _texts(values.get("files"), "files").items()},
        expected=tuple(_expected(case) for case in _typed(values.get(_EXPECTED, []), list, _EXPECTED, _MAX_ROWS)),
    )


def _case(values: Any) -> CaseResult:
    values, names = _fields_of(CaseResult, values, "cases")
    texts = ("candidate", "kind", "name", "detail")
    for name in names - {*texts, "passed"}:
        _number(values[name], f"cases.{name}")
    for name in texts:
        _text(values[name], f"cases.{name}")
    _typed(values["passed"], bool, "cases.passed")
    return CaseResult(**values)


def _expected(values: Any) -> ExpectedLogits:
    """A case of a self-test. Whether its ids and columns are of the model's vocabulary shows when it runs."""
    values, _ = _fields_of(ExpectedLogits, values, _EXPECTED)
    if values["kind"] not in ("full", "cached"):
        raise _damaged(f"{_EXPECTED}.kind", values["kind"])
    rounding = _typed(values["rounding"], dict, f"{_EXPECTED}.rounding", _MAX_ROWS)
    columns = _ids(values["columns"], f"{_EXPECTED}.columns")
    logits = _list(values["logits"], f"{_EXPECTED}.logits", _MAX_ROWS * _MAX_TOKENS, _logits)
    if not columns or {len(row) for row in logits} != {len(columns)}:
        raise _damaged(f"{_EXPECTED}.columns", values["columns"])
    return ExpectedLogits(
        kind=values["kind"],
        name=_text(values["name"], f"{_EXPECTED}.name"),
        target=_list(values["target"], f"{_EXPECTED}.target", _MAX_ROWS, _ids),
        source=_list(values["source"], f"{_EXPECTED}.source", _MAX_ROWS, _ids),
        n_steps=_id(values["n_steps"], f"{_EXPECTED}.n_steps"),
        columns=columns,
        logits=logits,
        rounding={_text(name, _EXPECTED): _number(value, f"{_EXPECTED}.{name}") for name, value in rounding.items()},
    )


def _list(values: Any, where: str, limit: int, read: Callable[[Any, str], Any]) -> tuple[Any, ...]:
    return tuple(read(value, where) for value in _typed(values, list, where, limit))


def _ids(values: Any, where: str) -> tuple[int, ...]:
    return _list(values, where, _MAX_TOKENS, _id)


def _id(value: Any, where: str) -> int:
    if not 0 <= _typed(value, int, where) < 1 << 31:
        raise _damaged(where, value)
    return int(value)


def _logits(values: Any, where: str) -> tuple[float, ...]:
    return _list(values, where, _MAX_TOKENS, partial(_number, low=-sys.float_info.max))


def _fields_of(kind: type, values: Any, where: str) -> tuple[dict[str, Any], set[str]]:
    """A value with exactly the fields of a dataclass, and their names."""
    values = _typed(values, dict, where)
    names = {f.name for f in fields(kind)}
    if set(values) != names:
        raise _damaged(where, sorted(set(values) ^ names))
    return values, names


def _texts(values: Any, where: str) -> dict[str, str]:
    return {_text(k, where): _text(v, where) for k, v in _typed(values, dict, where).items()}


def _text(value: Any, where: str) -> str:
    """A short text of printable characters."""
    if not isinstance(value, str) or len(value) > _MAX_TEXT or not value.isprintable():
        raise _damaged(where, value)
    return value


def _number(value: Any, where: str, low: float = 0.0) -> float:
    """A finite number from `low` on; the largest float is what a proof writes for infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= sys.float_info.max:
        raise _damaged(where, value)
    return float(value)


def _sha256(value: str) -> str:
    if len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise _damaged("files", value)
    return value


def _typed(value: Any, kind: type, where: str, limit: int = _MAX_ENTRIES) -> Any:
    """A value of exactly a kind (True is no whole number) that holds no more than a proof writes."""
    if type(value) is not kind or (isinstance(value, list | dict) and len(value) > limit):
        raise _damaged(where, value)
    return value


def _damaged(where: str, value: Any) -> _DamagedError:
    return _DamagedError(Sentence("{where} is {value}", where=where, value=shown(value)))


def stored_report(bundle: Bundle, names: Iterable[str] | None = None) -> ParityReport | None:
    """The folder's report, checked against the files that are there (or those named); None without one.

    A report that failed, was edited, or vouches for other bytes is refused by name.
    """
    path = bundle.folder / PARITY
    if not path.is_file():
        return None
    if path.stat().st_size > _MAX_BYTES:
        raise ParityError("{path} is larger than {n} bytes; it is no report of ours.", path=path, n=_MAX_BYTES)
    report = ParityReport.from_json(path.read_text(encoding="utf-8", errors="replace"), where=path)
    report.raise_if_failed()
    for name in names if names is not None else [name for name in report.files if bundle.has(name)]:
        if name not in report.files:
            template = "{path} does not cover {name}; make the report again: python -m export all {folder}."
            raise ParityError(template, path=path, name=name, folder=bundle.folder)
        if bundle.sha256(name) != report.files[name]:
            template = (
                "{path} is not the file that {parity} vouches for; restore it, or make the report again: "
                "python -m export all {folder}."
            )
            raise ParityError(template, path=bundle.folder / name, parity=PARITY, folder=bundle.folder)
        bundle.confirm(name)
    return report


def write_report(bundle: Bundle, report: ParityReport) -> None:
    """Write `parity.json`; never a failed report, nor one that vouches for no file, as of a quick look."""
    report.raise_if_failed()
    if not report.files:
        raise ParityError("The report vouches for no file, so it proves nothing; compare the whole folder.")
    atomic.write_file(bundle.folder / PARITY, report.to_json())


def finite(value: float) -> float:
    """A difference as JSON can hold it: NaN and infinity become the largest float."""
    return float(f"{value:.3g}") if math.isfinite(value) else 1.7e308


def _digest(values: dict[str, Any]) -> str:
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
