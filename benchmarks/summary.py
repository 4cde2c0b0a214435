"""From timings to ratios: what is said of a comparison, and how it is printed."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .comparison import Record, Task


@dataclass(frozen=True)
class Goal:
    """A ratio of speeds that we want to reach."""

    ours: str
    peer: str
    task: str  # "one" row or "many"
    least: Mapping[str, float]  # shape → ratio


GOALS = (
    Goal("onnx", "ctranslate2", "one", {"S1": 2.0, "S2": 1.7, "G": 2.1}),
    Goal("onnx-int8", "ctranslate2-int8", "one", {"S1": 2.0, "S2": 1.4, "G": 2.6}),
    Goal("onnx", "ctranslate2", "many", {"S1": 1.05, "S2": 1.05, "G": 1.3}),
    Goal("onnx-int8", "ctranslate2-int8", "many", {"S1": 1.0, "S2": 1.05, "G": 1.3}),
    Goal("onnx", "transformers", "one", {"S1": 3.5, "S2": 7.0, "G": 2.5}),
    Goal("onnx", "optimum", "one", {}),
    Goal("onnx", "genai", "one", {"G": 0.95}),
    Goal("onnx-int8", "genai-int8", "one", {"G": 0.95}),
    Goal("eager", "transformers", "one", {"S1": 1.6, "G": 1.6}),
)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """How many times as fast we are: the median over the rounds, and the least and the most."""
    found = [their / our for our, their in zip(ours, theirs, strict=True)]
    return {"median": statistics.median(found), "least": min(found), "most": max(found)}


def summed_up(records: Mapping[str, Record], tasks: Sequence[Task], reference: str) -> dict[str, Any]:
    """Plain values of one comparison; ids are compared with those of `reference`."""
    entries = {}
    for name, record in records.items():
        entries[name] = {
            "start_s": record.start_s,
            "load_s": record.load_s,
            "import_mb": record.import_mb,
            "peak_mb": record.peak_mb,
            "tokens_per_second": {t.name: t.n_tokens / statistics.median(record.seconds[t.name]) for t in tasks},
            "seconds": record.seconds,
            "rows_as_ours": {t.name: agreement(record.ids[t.name], records[reference].ids[t.name]) for t in tasks},
        }
    return entries


def agreement(rows: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> float:
    """The share of rows that are equal to the last id."""
    return sum(list(a) == list(b) for a, b in zip(rows, others, strict=True)) / len(rows)


def ratios(shape: str, entries: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every comparison that the entries allow."""
    found = []
    for goal in GOALS:
        if goal.ours in entries and goal.peer in entries:
            ours, theirs = (entries[name]["seconds"][goal.task] for name in (goal.ours, goal.peer))
            wanted = goal.least.get(shape)
            found.append(
                {"ours": goal.ours, "peer": goal.peer, "rows": goal.task, "goal": wanted} | ratio(ours, theirs)
            )
    return found


def print_entries(title: str, entries: Mapping[str, Any]) -> None:
    """One line per engine."""
    print(f"\n{title}")
    columns = {"tokens/s": 10, "in batches": 12, "first token": 13, "start": 8, "memory": 9, "disk": 8, "same ids": 10}
    print(" " * 18 + "".join(f"{column:>{width}}" for column, width in columns.items()))
    for name, entry in entries.items():
        speed = entry["tokens_per_second"]
        first = statistics.median(entry["seconds"]["first"])
        print(
            f"{name:<18}{speed['one']:>10,.0f}{speed['many']:>12,.0f}{1000 * first:>10.1f} ms{entry['start_s']:>6.1f} s"
            f"{entry['peak_mb']:>6.0f} MB{entry['disk_mb']:>5.0f} MB{entry['rows_as_ours']['many']:>10.0%}"
        )


def print_ratios(found: Sequence[Mapping[str, Any]]) -> None:
    """One line per comparison."""
    for line in found:
        wanted = "" if line["goal"] is None else f"   wanted {line['goal']}"
        names = f"{line['ours']} / {line['peer']}, {line['rows']}"
        print(f"  {names:<44}{line['median']:>6.2f} ({line['least']:.2f} to {line['most']:.2f}){wanted}")
