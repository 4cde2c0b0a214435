"""What a figure was measured on: the processor, how fast it reads memory, and the versions of everyone."""

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("numpy", "onnxruntime", "torch", "ctranslate2", "transformers", "onnxruntime-genai", "optimum-onnx")


def describe() -> dict[str, Any]:
    """Processor, cores and versions."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def bandwidth(n_bytes: int) -> float:
    """Bytes a second that one core reads of an array of this size, again and again, as a decoder reads its weights."""
    array = np.ones(max(1, n_bytes // 4), dtype=np.float32)
    best = np.inf
    for _ in range(30):
        began = time.perf_counter()
        np.dot(array, array)  # one thread: told so by the environment of whoever calls this
        best = min(best, time.perf_counter() - began)
    return array.nbytes / best


def _processor() -> str:
    """The model's name on x86, the part's number on ARM."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    named = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return named.get("model name") or f"part {named.get('CPU part', '?')}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
