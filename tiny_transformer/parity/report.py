"""The parity report as a value: what was compared, how it came out, and for exactly which files."""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tiny_transformer import atomic
from tiny_transformer.bundle import PARITY, Bundle
from tiny_transformer.errors import ParityError

FORMAT = 1
_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One comparison. Differences are over real positions; padding means nothing."""

    candidate: str
    kind: str  # full, cached, chunk, reorder, attention, greedy, beam, task
    name: str
    passed: bool
    max_absolute: float = 0.0
    max_relative: float = 0.0
    argmax_agreement: float = 1.0  # share of positions where both would choose the same token
    tolerance: float = 0.0
    detail: str = ""  # the first difference, or the task's two figures


@dataclass(frozen=True, kw_only=True)
class ParityReport:
    """All comparisons of one folder, bound to the SHA-256 of its files."""

    reference: str
    candidates: tuple[str, ...]
    versions: dict[str, str]
    cases: tuple[CaseResult, ...]
    files: dict[str, str]  # name → SHA-256, of every file but the report and the card

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
        return {**values, "digest": _digest(values)}

    def to_json(self) -> str:
        """The text of `parity.json`; equal results give equal bytes."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: Path | str) -> "ParityReport":
        """Read a report strictly; an edited one is refused."""
        try:
            values = json.loads(text)
            digest = values.pop("digest")
            if values["format"] != FORMAT:
                raise ValueError(f"format {values['format']}, where this version knows {FORMAT}")
            intact = _digest(values) == digest
            report = cls(
                reference=str(values["reference"]),
                candidates=tuple(values["candidates"]),
                versions={str(k): str(v) for k, v in values["versions"].items()},
                cases=tuple(CaseResult(**case) for case in values["cases"]),
                files={str(k): str(v) for k, v in values["files"].items()},
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            template = "{where} is not a parity report ({reason}); make it again: python -m export all."
            raise ParityError(template, where=where, reason=error) from None
        if not intact or values["verdict"] != report.verdict:
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
    """Write `parity.json`; a failed report is never written."""
    report.raise_if_failed()
    atomic.write_file(bundle.folder / PARITY, report.to_json())


def finite(value: float) -> float:
    """A difference as JSON can hold it: NaN and infinity become the largest float."""
    return float(f"{value:.3g}") if math.isfinite(value) else 1.7e308


def _digest(values: dict[str, Any]) -> str:
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
