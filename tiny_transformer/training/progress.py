"""What a run says: a bar on stderr, lines of metrics on disk, and a dashboard for those who want one."""

import json
import math
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tiny_transformer import atomic
from tiny_transformer.errors import TrainingError


class Reporter:
    """Reports of the first rank; the other ranks report nothing."""

    def __init__(self, metrics: Path, *, talks: bool, name: str, track: bool, after_step: int) -> None:
        self._metrics = metrics
        self._talks = talks
        self._tracker = _tracker(name) if track and talks else None
        self._bar: Any = None
        self._title = ""
        if talks:
            _keep_up_to(metrics, after_step)

    def start(self, title: str, progress: float) -> None:
        """Open the bar of a phase."""
        self._title = title
        if self._talks:
            # Where nobody watches, a line every ten seconds is enough.
            self._bar = tqdm(
                total=100.0,
                initial=100.0 * progress,
                desc=title,
                bar_format="{percentage:3.0f}%|{bar:20}| {desc}",
                mininterval=0.2 if sys.stderr.isatty() else 10.0,
                file=sys.stderr,
                leave=True,
            )

    def training(self, entry: dict[str, float], seconds_left: float) -> None:
        """One window of steps."""
        if not self._talks:
            return
        left = f"{int(seconds_left) // 60}:{int(seconds_left) % 60:02d}" if math.isfinite(seconds_left) else "?"
        self._bar.set_description_str(
            f"{self._title} · step {entry['step']:,} · loss {entry['loss']:.3f} · lr {entry['learning_rate']:.1e} · "
            f"{_short(entry['tokens_per_second'])} tokens/s · {left} left",
            refresh=False,
        )
        self._bar.update(100.0 * entry["progress"] - self._bar.n)
        self._write(entry)

    def evaluation(self, entry: dict[str, float]) -> None:
        """One evaluation on dev."""
        if self._talks:
            figures = " · ".join(f"{k} {v:.3f}" for k, v in entry.items() if k not in ("step", "seconds", "progress"))
            tqdm.write(f"step {int(entry['step']):,} · dev {figures}", file=sys.stderr)
            self._write({("dev_" + k if k not in ("step", "seconds", "progress") else k): v for k, v in entry.items()})

    def stop(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def finish(self) -> None:
        """Close the dashboard."""
        if self._tracker is not None:
            self._tracker.finish()

    def _write(self, entry: dict[str, float]) -> None:
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        if self._tracker is not None:
            self._tracker.log(entry)


def _tracker(name: str) -> Any:
    try:
        trackio = import_module("trackio")
    except ImportError:
        raise TrainingError("--track needs trackio, which is not installed; run: pip install trackio") from None
    trackio.init(project="tiny-transformer", name=name)
    return trackio


def _keep_up_to(metrics: Path, step: int) -> None:
    """Drop lines of steps that a resumed run will do again, and a last line cut short by a kill."""
    kept: list[str] = []
    if step and metrics.is_file():
        for line in metrics.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line)
            except ValueError:
                break
    atomic.write_file(metrics, "".join(line + "\n" for line in kept))


def _short(number: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.2f}{letter}"
    return f"{number:.0f}"
