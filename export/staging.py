"""A model folder made ready to publish: a copy of its own, proven on exactly the bytes that will be sent."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tiny_transformer.bundle import (
    CARD,
    DECODER_ONNX,
    DERIVED,
    ENCODER_ONNX,
    EVALUATION,
    PARITY,
    REQUIRED,
    TRAINING,
    Bundle,
)
from tiny_transformer.errors import ExportError, ParityError
from tiny_transformer.parity.report import ParityReport, stored_report, write_report

from .model_card import CURVE

PUBLISHED = (*REQUIRED, *DERIVED, EVALUATION, TRAINING, CURVE, CARD)
_PREFIX = "tiny-transformer-push-"
_A_DAY = 24 * 3600.0

Verifier = Callable[[Bundle], ParityReport]


@dataclass(frozen=True)
class Staged:
    """What will be published, and what was left behind."""

    bundle: Bundle
    report: ParityReport
    left_out: tuple[str, ...]


@contextmanager
def staged(folder: Path, verify: Verifier) -> Iterator[Staged]:
    """A verified copy of a folder's files, gone when the block ends; the card is not yet written."""
    source = Bundle.open(folder)
    _sweep()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as temporary:
        copy = Path(temporary) / "model"
        copy.mkdir()
        names = [name for name in source.files() if name in PUBLISHED]
        for name in names:
            shutil.copyfile(folder / name, copy / name)
        bundle = Bundle.open(copy)
        report = _proven(bundle, folder, verify)
        yield Staged(bundle, report, tuple(sorted(set(source.files()) - set(names))))


def _proven(bundle: Bundle, folder: Path, verify: Verifier) -> ParityReport:
    """A report for the copy's bytes: the stored one if it names just these, else a new one."""
    graphs = [ENCODER_ONNX, DECODER_ONNX] if bundle.config.is_encoder_decoder else [DECODER_ONNX]
    missing = [name for name in graphs if not bundle.has(name)]
    if missing:
        raise ExportError(f"{folder} has no {', '.join(missing)}; make it first: python -m export all {folder}.")
    hashes = bundle.hashes()
    try:
        stored = stored_report(bundle, hashes)
    except ParityError as error:  # the user knows the folder, not our copy of it
        raise ParityError(str(error).replace(str(bundle.folder), str(folder))) from None
    fresh = verify(bundle)
    fresh.raise_if_failed()
    if fresh.files != hashes:
        raise ParityError(f"The files of {folder} changed while they were verified; try again.")
    if stored is not None and stored.files == hashes:
        return stored  # its bytes stay as they are, so that a second push has nothing to change
    (bundle.folder / PARITY).unlink(missing_ok=True)
    write_report(bundle, fresh)
    return fresh


def _sweep() -> None:
    """Remove copies that a killed push left behind; a day is longer than any push takes."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if time.time() - leftover.stat().st_mtime > _A_DAY:
            shutil.rmtree(leftover, ignore_errors=True)
