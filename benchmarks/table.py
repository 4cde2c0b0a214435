"""The tables of the README and of docs/benchmarks.md, from the kept results.

python -m benchmarks.table [benchmarks/results]
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .chart import NAMES
from .comparison import RESULTS

SUMMARY_SHAPES = ("S1", "G")


def speed_table(found: Mapping[str, Any], threads: int) -> str:
    """One line per comparison, one column per shape: medians, with the least and the most of the rounds."""
    comparisons = [comparison for comparison in found["comparisons"] if comparison["threads"] == threads]
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for comparison in comparisons:
        for one in comparison["ratios"]:
            rows = {"one": "1", "many": "16 / 32"}[one["rows"]]
            lines.setdefault((one["ours"], one["peer"], rows), {})[comparison["shape"]] = spread(one)
    columns = [comparison["shape"] for comparison in comparisons]
    body = (
        (f"`{ours}`", NAMES[peer], rows, *(cells.get(column, "") for column in columns))
        for (ours, peer, rows), cells in lines.items()
    )
    return _markdown(["ours", "peer", "rows", *columns], body)


def summary_table(found: Mapping[str, Any]) -> str:
    """The README's: one line per pair of engines, medians alone, "one thread / two threads"."""
    columns: dict[tuple[str, str], str] = {}
    lines: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = {}
    for comparison in found["comparisons"]:
        if comparison["shape"] in SUMMARY_SHAPES:
            for task, rows in (("one", "1 row"), ("many", f"{comparison['rows']} rows")):
                columns[comparison["shape"], task] = f"{comparison['shape']}, {rows}"
            for one in comparison["ratios"]:
                cells = lines.setdefault((one["ours"], one["peer"]), {})
                cells.setdefault((comparison["shape"], one["rows"]), []).append(f"{one['median']:.2f}")
    body = (
        (f"`{ours}`", NAMES[peer], *(" / ".join(cells.get(column, [])) for column in columns))
        for (ours, peer), cells in lines.items()
    )
    return _markdown(["ours", "peer", *columns.values()], body)


def many_texts_table(found: Mapping[str, Any]) -> str:
    """A thousand sentences: one column per beam size."""
    pairs = next(iter(found["beams"].values()))["ratios"]
    body = []
    for pair in pairs:
        ours, peer = pair.split(" / ")
        body.append((f"`{ours}`", NAMES[peer], *(spread(beams["ratios"][pair]) for beams in found["beams"].values())))
    return _markdown(["ours", "peer", *(f"beam {beams}" for beams in found["beams"])], body)


def corpus_table(found: Mapping[str, Any]) -> str:
    """A corpus: texts and tokens per second by engine, and what exactly once adds to the time."""
    backends = found["backends"]
    body = [
        (name, *(f"{run['texts_per_second']:,.0f} ({run['tokens_per_second']:,.0f})" for run in runs))
        for name in next(iter(backends.values()))["runs"]
        for runs in [[backend["runs"][name] for backend in backends.values()]]
    ]
    for name, title in (("whole", "files and shards add"), ("resumed", "the same with a break halfway")):
        body.append((title, *(f"{100 * backend['added'][name]:.1f} %" for backend in backends.values())))
    return _markdown(["texts (tokens) per second", *(f"`{name}`" for name in backends)], body)


def gpu_table(results: Sequence[Mapping[str, Any]]) -> str:
    """On a GPU: one line per precision, one column per batch size."""
    body = [
        (
            f"`eager`, {one['precision']}",
            f"{NAMES['transformers']}, {one['precision']}",
            *(spread(line["ratio"]) for line in one["rows"].values()),
        )
        for one in results
    ]
    columns = [f"{rows} row{'' if rows == '1' else 's'}" for rows in results[0]["rows"]]
    return _markdown(["ours", "peer", *columns], body)


def web_table(found: Mapping[str, Any]) -> str:
    """The page in Chromium: how many times as fast it is, at one row and on one thread."""
    body = [
        (f"shipped {task}", f"{figures['Chromium']['share_of_python']:.2f}", "")
        for task, figures in found["shipped"].items()
    ]
    for shape, figures in found["peer"].items():
        body.append((shape, *(spread(figures[name]["page_as_fast"]) for name in ("onnx", "transformers-js"))))
    return _markdown(["model", "Python's ONNX Runtime", "transformers.js"], body)


def first_answer_table(found: Mapping[str, Any]) -> str:
    """A first visit of the page in 8 bits, from its load to the first word of an answer."""
    columns = {
        "MB": "megabytes",
        "seconds": "seconds",
        "fastest": "fastest",
        "processor": "processor_seconds",
        "busiest thread": "thread_seconds",
    }
    body = [(name, *(str(figures[key]) for key in columns.values())) for name, figures in found["first_answer"].items()]
    return _markdown(["model", *columns], body)


def spread(ratio: Mapping[str, float]) -> str:
    """A ratio's median, and the least and the most of its rounds."""
    return f"**{ratio['median']:.2f}** ({ratio['least']:.2f} – {ratio['most']:.2f})"


def tables(folder: Path = RESULTS) -> dict[str, str]:
    """Title → Markdown of every table, from the results in a folder."""

    def read(name: str) -> dict[str, Any]:
        values: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
        return values

    found = read("speed-cpu.json")
    web = read("web-cpu.json")
    threads = sorted({comparison["threads"] for comparison in found["comparisons"]})
    return {
        "summary": summary_table(found),
        **{f"threads: {n}": speed_table(found, n) for n in threads},
        "many texts": many_texts_table(read("many-texts-cpu.json")),
        "web": web_table(web),
        "first answer": first_answer_table(web),
        "corpus": corpus_table(read("corpus-cpu.json")),
        "gpu": gpu_table([read("speed-cuda.json"), read("speed-cuda-bfloat16.json")]),
    }


def _markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(line)} |" for line in body)]
    return "\n".join(lines)


def main() -> None:
    """Print them."""
    for title, text in tables(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS).items():
        print(f"\n{title}\n\n{text}")


if __name__ == "__main__":
    main()
