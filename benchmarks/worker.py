"""One engine in a process of its own: opens its model, then does the work it gets, line by line.

    python -m benchmarks.worker ENTRY FOLDER THREADS DEVICE

Every line on standard input is a `benchmarks.comparison.Task` as JSON; every answer tells the seconds
it took, the ids, and the process's memory.
"""

import json
import os
import resource
import sys
import time
from importlib import import_module
from pathlib import Path

from .engines import ENTRIES


def memory(field: str) -> float:
    """MB of this process: VmRSS now, or VmHWM at the peak. macOS, which has no /proc, knows the peak alone."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS
    lines = status.read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{field}:"))) / 1024


def main() -> None:
    """Open, answer until the input ends."""
    name, folder, threads, device = sys.argv[1:]
    entry = ENTRIES[name]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    import_module(entry.code.RUNTIME)
    imported = memory("VmRSS")
    began = time.perf_counter()
    model = entry.code.open_model(Path(folder), entry.precision, int(threads), device)
    print(json.dumps({"import_mb": imported, "load_s": time.perf_counter() - began}), file=answers, flush=True)
    for line in sys.stdin:
        work = json.loads(line)
        began = time.perf_counter()
        for _ in range(work["times"]):
            if work["n_new"]:
                ids = model.generate(work["rows"], work["n_new"])
            else:
                ids = model.search(work["rows"], work["beams"])
        seconds = (time.perf_counter() - began) / work["times"]
        print(json.dumps({"seconds": seconds, "ids": ids, "peak_mb": memory("VmHWM")}), file=answers, flush=True)


if __name__ == "__main__":
    main()
