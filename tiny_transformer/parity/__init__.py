"""Proof of equality: the only comparison of backends in the project, and the report it writes.

The report is read whenever a model is loaded; the comparison itself is imported only when it runs.
"""

from typing import TYPE_CHECKING, Any

from tiny_transformer.backends.base import Tolerance
from tiny_transformer.parity.report import CaseResult, ParityReport, stored_report, write_report

if TYPE_CHECKING:
    from tiny_transformer.parity.verification import verify, verify_bundle, verify_device

__all__ = [
    "CaseResult",
    "ParityReport",
    "Tolerance",
    "stored_report",
    "verify",
    "verify_bundle",
    "verify_device",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tiny_transformer.parity import verification

    return getattr(verification, name)
