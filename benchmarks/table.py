"""The README's table of ratios, from the kept results.

python -m benchmarks.table [benchmarks/results/speed-cpu.json]
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .chart import NAMES
from .contest import RESULTS

KEPT = RESULTS / "speed-cpu.json"


def table(found: Mapping[str, Any], threads: int = 1) -> str:
    """Markdown: a line a comparison, a column a shape; medians, and the least and the most of the rounds."""
    contests = [contest for contest in found["contests"] if contest["threads"] == threads]
    columns = [contest["shape"] for contest in contests]
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for contest in contests:
        for one in contest["ratios"]:
            rows = {"one": "1", "many": "16 / 32"}[one["rows"]]
            cell = f"**{one['median']:.2f}** ({one['least']:.2f} – {one['most']:.2f})"
            lines.setdefault((one["ours"], one["peer"], rows), {})[contest["shape"]] = cell
    text = [f"| ours | peer | rows | {' | '.join(columns)} |", f"|---|---|---|{'---|' * len(columns)}"]
    for (ours, peer, rows), cells in lines.items():
        shown = " | ".join(cells.get(column, "") for column in columns)
        text.append(f"| `{ours}` | {NAMES[peer]} | {rows} | {shown} |")
    return "\n".join(text)


def main() -> None:
    """Print it."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT
    found = json.loads(path.read_text(encoding="utf-8"))
    for threads in sorted({contest["threads"] for contest in found["contests"]}):
        print(f"\nthreads: {threads}\n\n{table(found, threads)}")


if __name__ == "__main__":
    main()
