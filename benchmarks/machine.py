"""What a figure was measured on: the processor, how fast it reads memory, and the versions of everyone."""

import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("numpy", "onnxruntime", "torch", "ctranslate2", "transformers", "onnxruntime-genai", "optimum-onnx", "ray")
_TRIES, _PASSES = 8, 20  # the best of so many tries counts, each over all bytes so many times


def describe() -> dict[str, Any]:
    """Processor, cores and versions."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def bandwidth(n_bytes: int, threads: int) -> float:
    """Bytes a second that so many cores read of as many bytes, again and again, as a decoder reads its weights."""
    parts = [np.ones(max(1, n_bytes // 4 // threads), dtype=np.float32) for _ in range(threads)]
    best = np.inf
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_TRIES):
            began = time.perf_counter()
            list(pool.map(_read, parts))
            best = min(best, time.perf_counter() - began)
    return sum(part.nbytes for part in parts) * _PASSES / best


def _read(array: np.ndarray) -> None:
    for _ in range(_PASSES):
        np.dot(array, array)  # one thread each: told so by the environment of whoever calls this


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
