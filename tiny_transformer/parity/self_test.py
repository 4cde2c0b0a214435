"""The self-test: a few cases of the proof, run once where the processor is of another kind than the one it was made on.

The processor decides which kernels multiply. A report says that backends agree on the machine that compared them; here
a folder's report is confirmed on another one, without torch.
"""

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tiny_transformer import __version__, atomic
from tiny_transformer.backends import BACKENDS, Choice, on_cpu
from tiny_transformer.backends.base import CLOSE, Backend, Batch
from tiny_transformer.bundle import PARITY, Bundle
from tiny_transformer.checks import check_number
from tiny_transformer.config import ModelConfig
from tiny_transformer.data.files import cache_folder
from tiny_transformer.errors import InputError, ParityError, Sentence
from tiny_transformer.parity.report import ExpectedLogits, ParityReport

if TYPE_CHECKING:
    from tiny_transformer.parity.cases import TensorCase

# As /proc/cpuinfo names them: x86's and ARM's vectors, fused products, 8-bit products and bfloat16.
INSTRUCTION_SETS = (
    *("sse4_1", "avx", "avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"),
    *("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2"),
)
N_NUMBERS, MOST_COLUMNS = 512, 64  # logits that are kept of a case, and of one position
# How much larger the differences of rounded weights may be than where the proof was made: between what other orders of
# summing cost, and what sums that saturate cost (tests/parity/test_processors.py has both).
MOST_OF_ROUNDING = 1.6


def instruction_sets(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Those of the processor that choose a kernel; nothing where the system does not say."""
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as lines:
            # x86 has "flags", ARM "Features"; the processors of one machine have the same, so the first is enough.
            named = next((line for line in lines if line.lower().startswith(("flags", "feat"))), "")
    except OSError:
        return ""
    flags = named.partition(":")[2].split()
    return " ".join(flag for flag in INSTRUCTION_SETS if flag in flags)


def processor() -> dict[str, str]:
    """The kind of this machine's processor, as a report names it."""
    return {"machine": platform.machine(), "instruction sets": instruction_sets()}


def versions() -> dict[str, str]:
    """What the comparison ran on: packages, and the processor, which decides what kernels run and how they sum."""
    from importlib import metadata

    found = {"tiny-transformer": __version__, "python": platform.python_version(), **processor()}
    found["cores"] = str(os.cpu_count())
    for name in ("numpy", "torch", "onnxruntime", "tokenizers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def expected_logits(
    config: ModelConfig, reference: Backend, rounded: Sequence[Backend] = ()
) -> tuple[ExpectedLogits, ...]:
    """What a self-test compares with: one row token by token, and many rows at once, for which there are other kernels.

    `rounded` are the backends with rounded weights: what rounding does to these logits is part of the expectation.
    """
    from tiny_transformer.parity.cases import tensor_cases

    cases = tensor_cases(config)
    one_row = [case for case in cases if case.kind == "cached" and len(case.target.ids) == 1]
    many_rows = [case for case in cases if case.kind == "full" and case.is_ragged][-1:]
    return tuple(_expected(case, reference, rounded) for case in (*one_row, *many_rows))


def _expected(case: "TensorCase", reference: Backend, rounded: Sequence[Backend]) -> ExpectedLogits:
    logits = np.concatenate(case.run(reference))  # N V
    n_positions, n_outputs = logits.shape
    n_columns = min(MOST_COLUMNS, n_outputs, max(1, N_NUMBERS // n_positions))
    columns = np.arange(n_columns) * n_outputs // n_columns
    kept = logits[:, columns].astype(np.float64).round(6)
    found = {backend.name: np.concatenate(case.run(backend))[:, columns] for backend in rounded}
    return ExpectedLogits(
        kind=case.kind,
        name=case.name,
        target=_rows(case.target),
        source=() if case.source is None else _rows(case.source),
        n_steps=case.n_steps,
        columns=tuple(columns.tolist()),
        logits=tuple(tuple(row) for row in kept.tolist()),
        rounding={name: float(f"{_root_mean_square(values - kept):.3g}") for name, values in found.items()},
    )


def _rows(batch: Batch) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, batch.rows))


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).mean()))


def self_test(bundle: Bundle, report: ParityReport | None, choice: Choice) -> Sentence | None:
    """What is wrong with a folder on a backend on this processor; None where all is well, and where a GPU runs it.

    Nothing is done where the proof was made on a processor of the same kind, or holds no expected logits. Else the
    result is kept, for this kind of processor and these files.
    """
    if report is None or not report.expected:
        return None
    here, name = processor(), choice.name
    if all(report.versions.get(key) == here[key] for key in here) or not on_cpu(choice):
        return None
    path = _kept(bundle, name, here)
    found = _read(path)
    if found is None:
        found = _measured(bundle, report, name)
        with suppress(OSError):  # it will be measured again
            atomic.write_file(path, json.dumps(found) + "\n")
    if not found:
        return None
    template = "on this processor its logits are {found:.2g} off, where {allowed:.2g} is allowed ({case})"
    return Sentence(template, **found)


def _kept(bundle: Bundle, name: str, here: dict[str, str]) -> Path:
    """Where the result lies. The report lists the SHA-256 of every file, so its own stands for the folder."""
    package = import_module(BACKENDS[name].package)  # which is to run the model in any case
    known = [bundle.sha256(PARITY), name, str(getattr(package, "__version__", "")), *here.values()]
    return cache_folder() / "self-test" / f"{hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]}.json"


def _read(path: Path) -> dict[str, Any] | None:
    """An earlier result: empty, or what was wrong; None without one that can be read."""
    try:
        found = json.loads(path.read_bytes())
        if found == {}:
            return {}
        numbers = {key: check_number(key, found[key], 0.0, error=ParityError) for key in ("found", "allowed")}
        return {"case": str(found["case"]), **numbers}
    except (OSError, ValueError, RecursionError, LookupError, TypeError, ParityError):
        return None


def _measured(bundle: Bundle, report: ParityReport, name: str) -> dict[str, Any]:
    """Run the cases; empty, or the first that is not as expected.

    The backend is opened for this alone: sessions for many rows must not stay in the memory of a user of one.
    """
    backend = BACKENDS[name].open(bundle, "cpu")
    for expected in report.expected:
        wanted = np.array(expected.logits, dtype=np.float64)
        found = _found(bundle, backend, expected)
        if found.shape != wanted.shape:
            raise _unfit(bundle, f"{expected.name}: {wanted.shape} logits, {found.shape} found")
        difference = np.abs(found - wanted)
        if BACKENDS[name].tolerance is None:
            size, allowed = _root_mean_square(difference), MOST_OF_ROUNDING * expected.rounding.get(name, np.inf)
        else:  # another processor sums in another order, so nothing is equal to the last bit
            excess = difference - CLOSE.relative * np.abs(wanted)
            size, allowed = float(excess.max()), CLOSE.absolute
        if not size <= allowed:  # NaN is not
            return {"case": expected.name, "found": min(size, 1e9) if size == size else 1e9, "allowed": allowed}
    return {}


def _found(bundle: Bundle, backend: Backend, expected: ExpectedLogits) -> np.ndarray:
    """The logits that a backend gives here, at the columns that are kept."""
    from tiny_transformer.parity.cases import TensorCase  # with numpy.random, which nobody else loads with a model

    try:
        source = Batch.of(expected.source) if expected.source else None
        case = TensorCase(expected.kind, expected.name, Batch.of(expected.target), source, expected.n_steps)
        return np.concatenate(case.run(backend))[:, list(expected.columns)]
    except (InputError, IndexError, ValueError) as error:  # ids, columns or lengths that this model does not have
        raise _unfit(bundle, error) from None


def _unfit(bundle: Bundle, reason: object) -> ParityError:
    template = "{where} is not a parity report ({reason}); make it again: python -m export all."
    return ParityError(template, where=bundle.folder / PARITY, reason=reason)
