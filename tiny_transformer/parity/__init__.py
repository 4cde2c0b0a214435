"""Proof of equality: the only comparison of backends in the project, and the report it writes."""

from tiny_transformer.parity.report import CaseResult, ParityReport, stored_report, write_report
from tiny_transformer.parity.verify import Tolerance, verify, verify_bundle

__all__ = [
    "CaseResult",
    "ParityReport",
    "Tolerance",
    "stored_report",
    "verify",
    "verify_bundle",
    "write_report",
]
