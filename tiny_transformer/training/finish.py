"""The loss curve as a picture."""

import io
import json
import logging
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tiny_transformer import __version__
from tiny_transformer.bundle import EVALUATION, TRAINING, Bundle, save_bundle
from tiny_transformer.config import GenerationConfig, ModelConfig
from tiny_transformer.data.examples import source_files
from tiny_transformer.data.files import content_hash
from tiny_transformer.evaluation import Question
from tiny_transformer.generation import GenerationOptions
from tiny_transformer.model import count_parameters, load_weights, weights_of
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.checkpoint import BEST, RunState, has_checkpoint, load_checkpoint
from tiny_transformer.training.evaluation_data import question_sets, sampled
from tiny_transformer.training.evaluator import Judge
from tiny_transformer.training.recipe import Recipe

logger = logging.getLogger(__name__)

_INK, _ACCENT, _GRID = "#2b2b33", "#c2410c", "#e5e5ea"


def loss_curve(curve: Sequence[dict[str, float]], history: Sequence[dict[str, float]], title: str) -> bytes | None:
    """A PNG of training loss and dev loss over steps; None where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        logger.warning("matplotlib is not installed, so no curve was drawn; pip install matplotlib to get one.")
        return None
    figure = Figure(figsize=(7.2, 4.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([e["step"] for e in curve], [e["loss"] for e in curve], color=_INK, linewidth=1.0, label="training")
    judged = [entry for entry in history if "loss" in entry]
    if judged:
        axes.plot(
            [e["step"] for e in judged],
            [e["loss"] for e in judged],
            color=_ACCENT,
            marker="o",
            markersize=3.5,
            linewidth=1.4,
            label="dev (averaged weights)",
        )
    _dress(axes, title)
    buffer = io.BytesIO()
    # No date and no version inside: equal curves give equal bytes.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _dress(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=_INK)
    axes.set_xlabel("steps", color=_INK)
    axes.set_ylabel("loss (nats per token)", color=_INK)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    # The first few losses are near ln V; without a limit they would flatten the rest.
    losses = sorted(y for line in axes.lines for y in line.get_ydata())
    if losses:
        axes.set_ylim(0.0, losses[int(0.98 * (len(losses) - 1))] * 1.1)
    axes.legend(frameon=False, fontsize=9)


_CURVE_POINTS = 200
_PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "sacrebleu")


def training_report(
    recipe: Recipe, root: str, state: RunState, parameters: int, n_devices: int, results: dict[str, Any]
) -> dict[str, Any]:
    """Everything but the weights; paths are as the recipe writes them, below the data folder."""
    return {
        "recipe": _told_recipe(recipe),
        **({"started_from": state.started_from} if state.started_from else {}),
        "data": data_hashes(recipe, root),
        "parameters": parameters,
        "seed": recipe.training.seed,
        "hardware": hardware(n_devices),
        "versions": versions(),
        "steps": state.step,
        "tokens": state.tokens,
        "seconds": round(state.seconds, 1),
        "tokens_per_second": round(state.timed_tokens / max(state.timed_seconds, 1e-9)),
        "results": results,
        "dev_history": state.history,
        "curve": thinned(state.curve),
    }


def data_hashes(recipe: Recipe, root: str) -> dict[str, str]:
    """SHA-256 of every file of every source, by its name below the data folder."""
    prefix = root.rstrip("/") + "/" if root else ""
    return {
        _told(file.name.removeprefix(prefix), source.path): content_hash(file)
        for source in recipe.sources
        for unit in source_files(source, root)
        for file in unit
    }


def _told(name: str, path: str) -> str:
    """A file's name as others may read it: where it lay on this machine is nobody's business."""
    return str(Path(name).relative_to(Path(path).parent)) if Path(name).is_absolute() else name


def _told_recipe(recipe: Recipe) -> dict[str, Any]:
    values = recipe.to_dict()
    for source in values["sources"]:
        source["path"] = _told(source["path"], source["path"])
    return values


def thinned(curve: list[dict[str, float]]) -> list[dict[str, float]]:
    """At most 200 points of a curve, each the mean of its neighbourhood."""
    if len(curve) <= _CURVE_POINTS:
        return curve
    edges = [round(i * len(curve) / _CURVE_POINTS) for i in range(_CURVE_POINTS + 1)]
    groups = [curve[a:b] for a, b in pairwise(edges)]
    return [{**group[-1], "loss": sum(entry["loss"] for entry in group) / len(group)} for group in groups]


def hardware(n_devices: int) -> dict[str, Any]:
    """The machine, in words."""
    found: dict[str, Any] = {"machine": platform.machine(), "cpus": os.cpu_count(), "devices": n_devices}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions() -> dict[str, str]:
    """Of Python, this project and the packages that do the work."""
    found = {"python": platform.python_version(), "tiny_transformer": __version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


EVALUATION_LINES = 500
CURVE = "training.png"


@dataclass(frozen=True)
class Finished:
    """What the end of a run needs to know."""

    recipe: Recipe
    root: str
    tokenizer: Tokenizer
    config: ModelConfig
    run_dir: Path
    state: RunState
    n_devices: int


def write_model(run: Finished, model: Transformer, judge: Judge, out: Path, *, overwrite: bool) -> Bundle:
    """Take the best weights, round them, judge them, and write the folder."""
    if has_checkpoint(run.run_dir / BEST):
        _, tensors = load_checkpoint(run.run_dir / BEST)
        with torch.no_grad():
            for i, parameter in enumerate(model.parameters()):
                parameter.copy_(tensors[f"model.{i}"])
    weights = {name: array.astype(np.float16) for name, array in weights_of(model).items()}
    load_weights(model, weights)
    # What is reported must not depend on the device's shortcuts.
    torch.set_float32_matmul_precision("highest")
    results, length_penalty = judged(run, model, judge)
    report = training_report(run.recipe, run.root, run.state, count_parameters(model), run.n_devices, results)
    extra: dict[str, str | bytes] = {
        TRAINING: json.dumps(report, indent=1, ensure_ascii=False) + "\n",
        EVALUATION: evaluation_lines(run),
    }
    picture = loss_curve(run.state.curve, run.state.history, run.recipe.name)
    if picture is not None:
        extra[CURVE] = picture
    return save_bundle(
        out,
        run.config,
        generation_config(run, length_penalty),
        run.tokenizer,
        weights,
        half=True,
        extra={name: content for name, content in extra.items() if content},
        overwrite=overwrite,
    )


def judged(run: Finished, model: Transformer, judge: Judge) -> tuple[dict[str, Any], float]:
    """Dev and test figures by source, and the length penalty that was best on dev (test has no say)."""
    settings = run.recipe.evaluation
    results: dict[str, Any] = {"dev": judge.loss(model), "test": {}, "num_beams": settings.num_beams}
    best, chosen = -1.0, settings.length_penalties[0]
    penalties = settings.length_penalties if settings.num_beams > 1 else settings.length_penalties[:1]
    for penalty in penalties:
        figures = {g.name: judge.answer(model, g.questions, _options(run, penalty)).to_dict() for g in judge.dev}
        metric = settings.metric if settings.metric != "loss" else next(iter(_metrics(figures)), "")
        score = float(np.mean([figure["metrics"][metric] for figure in figures.values()])) if figures else 0.0
        if score > best:
            best, chosen = score, penalty
            results["dev_by_source"] = figures
    results["length_penalty"] = chosen
    if settings.test:
        for group in question_sets(run.recipe, run.root, "test"):
            results["test"][group.name] = judge.answer(model, group.questions, _options(run, chosen)).to_dict()
    for split in ("dev_by_source", "test"):
        for name, figure in results.get(split, {}).items():
            figures_text = ", ".join(f"{key} {value:.2f}" for key, value in figure["metrics"].items())
            logger.info("%s %s: %s", split.split("_")[0], name, figures_text)
    return results, chosen


def evaluation_lines(run: Finished) -> str:
    """`evaluation.jsonl`: a fixed sample of the test questions, equally many of each source."""
    groups = sampled(question_sets(run.recipe, run.root, "test"), EVALUATION_LINES)
    lines = [json.dumps(_record(question), ensure_ascii=False) for group in groups for question in group.questions]
    return "".join(line + "\n" for line in lines)


def generation_config(run: Finished, length_penalty: float) -> GenerationConfig:
    """What the folder says about its use."""
    languages = run.recipe.languages
    return GenerationConfig(
        task=run.recipe.task,
        pad_id=run.tokenizer.pad_id,
        bos_id=run.tokenizer.bos_id,
        eos_id=run.tokenizer.eos_id,
        roles=run.tokenizer.roles if run.recipe.task == "chat" else {},
        source_languages=languages[:-1] if run.config.is_encoder_decoder else (),
        target_language=languages[-1] if languages else "",
        length_penalty=length_penalty,
        repetition_penalty=run.recipe.evaluation.repetition_penalty,
        max_source_tokens=run.config.max_length,
        max_new_tokens=min(run.recipe.evaluation.max_new_tokens, run.config.max_length),
    )


def _options(run: Finished, length_penalty: float) -> GenerationOptions:
    settings = run.recipe.evaluation
    return GenerationOptions(
        max_new_tokens=min(settings.max_new_tokens, run.config.max_length),
        num_beams=settings.num_beams,
        length_penalty=length_penalty,
        repetition_penalty=settings.repetition_penalty,
    )


def _metrics(figures: dict[str, Any]) -> list[str]:
    return list(next(iter(figures.values()))["metrics"]) if figures else []


def _record(question: Question) -> dict[str, Any]:
    if isinstance(question.prompt, str):
        return {"source": question.prompt, "target": question.answer}
    return {"messages": list(question.prompt), "answer": question.answer}
