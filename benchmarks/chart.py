"""The picture of a comparison: one panel per shape and batch, one bar per engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

OURS, PEERS = "#4f46e5", "#b8bcc8"
NAMES = {
    "onnx": "Tiny Transformer, ONNX float32",
    "onnx-int8": "Tiny Transformer, ONNX int8",
    "eager": "Tiny Transformer, PyTorch",
    "ctranslate2": "CTranslate2 float32",
    "ctranslate2-int8": "CTranslate2 int8",
    "transformers": "transformers generate",
    "optimum": "optimum ONNX Runtime",
    "genai": "onnxruntime-genai float32",
    "genai-int8": "onnxruntime-genai int8",
}


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Tokens a second on one thread, a row of panels for single texts and one for batches."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    threads = found["comparisons"][0]["threads"]
    comparisons = [comparison for comparison in found["comparisons"] if comparison["threads"] == threads]
    figure, panels = pyplot.subplots(
        2, len(comparisons), figsize=(5.2 * len(comparisons), 6.4), squeeze=False, layout="constrained"
    )
    for column, comparison in enumerate(comparisons):
        for row, (task, rows) in enumerate((("one", 1), ("many", comparison["rows"]))):
            _panel(panels[row][column], comparison, task)
            text = "one text at a time" if rows == 1 else f"{rows} texts at once"
            panels[row][column].set_title(f"{comparison['shape']}, {text}", loc="left", fontsize=11, weight="bold")
    where = found["machine"]["processor"]
    figure.suptitle(f"Tokens a second, {threads} thread{'s' if threads > 1 else ''}, {where}", fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _panel(panel: Any, comparison: Mapping[str, Any], task: str) -> None:
    speeds = {name: entry["tokens_per_second"][task] for name, entry in comparison["entries"].items()}
    names = sorted(speeds, key=lambda name: speeds[name])
    colors = [OURS if NAMES[name].startswith("Tiny") else PEERS for name in names]
    bars = panel.barh([NAMES[name] for name in names], [speeds[name] for name in names], color=colors, height=0.72)
    panel.bar_label(bars, labels=[f"{speeds[name]:,.0f}" for name in names], padding=4, fontsize=9)
    panel.set_xlim(0, 1.18 * max(speeds.values()))
    panel.spines[["top", "right", "bottom"]].set_visible(False)
    panel.set_xticks([])
    panel.tick_params(axis="y", length=0, labelsize=9)
