"""How long a program waits for its first token, from the start of its process, and how much memory it takes.

    python -m benchmarks.first_token [--python ENVIRONMENT/bin/python] [--rounds 9]

Each round starts a fresh process for every backend in turn; the medians and the spread are printed.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BACKENDS = ("onnx", "onnx-int8")

PROGRAM = """
import sys
import tiny_transformer as tt

pieces = tt.load(sys.argv[1], backend=sys.argv[2]).stream("Wie komme ich zum Bahnhof?")
first = next(pieces)
print("first", flush=True)
print(first + "".join(pieces))
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM:")))
"""


def first_token(python: str, backend: str) -> tuple[float, float]:
    """Seconds from the start of a process to its first token, and its peak memory in MB."""
    began = time.monotonic()
    command = [python, "-c", PROGRAM, str(ROOT / "checkpoints" / "translate"), backend]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "first\n"
        seconds = time.monotonic() - began
        assert program.stdout.readline() == "How do I get to the station?\n"
        return seconds, int(program.stdout.readline()) / 1024


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="the interpreter to measure (default: this one)")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    runs: dict[str, list[tuple[float, float]]] = {backend: [] for backend in BACKENDS}
    for _ in range(options.rounds):
        for backend in BACKENDS:
            runs[backend].append(first_token(options.python, backend))
    print(f"{'backend':<10} {'median s':>9} {'fastest':>8} {'slowest':>8} {'peak MB':>8}")
    for backend, found in runs.items():
        seconds = [run[0] for run in found]
        peak = max(run[1] for run in found)
        print(
            f"{backend:<10} {statistics.median(seconds):>9.2f} {min(seconds):>8.2f} {max(seconds):>8.2f} {peak:>8.0f}"
        )


if __name__ == "__main__":
    main()
