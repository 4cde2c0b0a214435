"""The end of a run: the best weights are rounded, evaluated, and written as a model folder with its record."""

import io
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
from tqdm import tqdm

from tiny_transformer import __version__
from tiny_transformer.bundle import CURVE, EVALUATION, TRAINING, Bundle, save_bundle
from tiny_transformer.config import ModelConfig
from tiny_transformer.data.examples import source_files
from tiny_transformer.data.files import content_hash
from tiny_transformer.evaluation import Question, evaluation_line
from tiny_transformer.generation import GenerationOptions
from tiny_transformer.model import load_weights, weights_of
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.checkpoint import BEST, RunState, has_checkpoint, load_checkpoint, load_parameters
from tiny_transformer.training.evaluation_data import QuestionSet, question_sets, sampled
from tiny_transformer.training.evaluator import Evaluator, generation_config
from tiny_transformer.training.recipe import Recipe
from tiny_transformer.training_record import TrainingRecord

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
    evaluated = [entry for entry in history if "loss" in entry]
    if evaluated:
        axes.plot(
            [e["step"] for e in evaluated],
            [e["loss"] for e in evaluated],
            color=_ACCENT,
            marker="o",
            markersize=3.5,
            linewidth=1.4,
            label="dev (averaged weights)",
        )
    _style(axes, title)
    buffer = io.BytesIO()
    # No date and no version inside: equal curves give equal bytes.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _style(axes: Any, title: str) -> None:
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


def training_record(
    recipe: Recipe, root: str, state: RunState, parameters: int, n_devices: int, results: dict[str, Any]
) -> TrainingRecord:
    """Everything but the weights; paths are as the recipe writes them, below the data folder."""
    return TrainingRecord(
        recipe=_without_local_paths(recipe),
        started_from=state.started_from,
        data=data_hashes(recipe, root),
        parameters=parameters,
        seed=recipe.training.seed,
        hardware=hardware(n_devices),
        versions=versions(),
        steps=state.step,
        tokens=state.tokens,
        seconds=round(state.seconds, 1),
        tokens_per_second=round(state.timed_tokens / max(state.timed_seconds, 1e-9)),
        results=results,
        dev_history=state.history,
        curve=thinned(state.curve),
    )


def data_hashes(recipe: Recipe, root: str) -> dict[str, str]:
    """SHA-256 of every file of every source, by its name below the data folder."""
    prefix = root.rstrip("/") + "/" if root else ""
    return {
        _without_local_path(file.name.removeprefix(prefix), source.path): content_hash(file)
        for source in recipe.sources
        for unit in source_files(source, root)
        for file in unit
    }


def _without_local_path(name: str, path: str) -> str:
    """A file's name as others may read it: the folders of this machine say nothing to them."""
    return str(Path(name).relative_to(Path(path).parent)) if Path(name).is_absolute() else name


def _without_local_paths(recipe: Recipe) -> dict[str, Any]:
    values = recipe.to_dict()
    for source in values["sources"]:
        source["path"] = _without_local_path(source["path"], source["path"])
    return values


def thinned(curve: list[dict[str, float]]) -> list[dict[str, float]]:
    """At most 200 points of a curve, each the mean of its neighborhood."""
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
_MOST_ON_CPU = 5_000  # questions of one test set: a quarter of an hour on two cores for a translator of 12 M


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


def write_model(run: Finished, model: Transformer, evaluator: Evaluator, out: Path, *, overwrite: bool) -> Bundle:
    """Take the best weights, round them, evaluate them, and write the folder."""
    if has_checkpoint(run.run_dir / BEST):
        _, tensors = load_checkpoint(run.run_dir / BEST)
        load_parameters(model, tensors)
    weights = {name: array.astype(np.float16) for name, array in weights_of(model).items()}
    load_weights(model, weights)
    # What is reported must not depend on the device's shortcuts.
    torch.set_float32_matmul_precision("highest")
    results, length_penalty = evaluated(run, model, evaluator)
    generation = generation_config(run.recipe, run.tokenizer, run.config, length_penalty)
    questions = evaluation_questions(run)
    if questions:
        results["sample"] = evaluator.sample(model, generation, questions).to_dict()
    record = training_record(run.recipe, run.root, run.state, run.config.n_parameters, run.n_devices, results)
    extra: dict[str, str | bytes] = {
        TRAINING: record.to_json(),
        EVALUATION: "".join(map(evaluation_line, questions)),
    }
    picture = loss_curve(run.state.curve, run.state.history, run.recipe.name)
    if picture is not None:
        extra[CURVE] = picture
    return save_bundle(
        out,
        run.config,
        generation,
        run.tokenizer,
        weights,
        half=True,
        extra={name: content for name, content in extra.items() if content},
        overwrite=overwrite,
    )


def evaluated(run: Finished, model: Transformer, evaluator: Evaluator) -> tuple[dict[str, Any], float]:
    """Dev and test figures by source, and the length penalty that was best on dev (test has no say)."""
    settings = run.recipe.evaluation
    results: dict[str, Any] = {"dev": evaluator.loss(model), "test": {}, "num_beams": settings.num_beams}
    best, chosen = -1.0, settings.length_penalties[0]
    penalties = settings.length_penalties if settings.num_beams > 1 else settings.length_penalties[:1]
    for penalty in penalties:
        figures = {
            g.name: evaluator.answer(model, g.questions, _options(run, penalty)).to_dict() for g in evaluator.dev
        }
        metric = settings.metric if settings.metric != "loss" else next(iter(_metrics(figures)), "")
        score = float(np.mean([figure["metrics"][metric] for figure in figures.values()])) if figures else 0.0
        if score > best:
            best, chosen = score, penalty
            results["dev_by_source"] = figures
    results["length_penalty"] = chosen
    if settings.test:
        groups = _measured_here(question_sets(run.recipe, run.root, "test"), evaluator.device)
        with tqdm(total=sum(len(group.questions) for group in groups), unit="text", disable=None) as bar:
            for group in groups:
                bar.set_description_str(group.name)
                found = evaluator.answer(model, group.questions, _options(run, chosen), bar.update)
                results["test"][group.name] = found.to_dict()
    for split in ("dev_by_source", "test"):
        for name, figure in results.get(split, {}).items():
            figures_text = ", ".join(f"{key} {value:.2f}" for key, value in figure["metrics"].items())
            logger.info("%s %s: %s", split.split("_")[0], name, figures_text)
    return results, chosen


def _measured_here(groups: Sequence[QuestionSet], device: torch.device) -> list[QuestionSet]:
    """The sets that are measured at the end of a run: all of them on a GPU, elsewhere those that take minutes."""
    small = [group for group in groups if device.type == "cuda" or len(group.questions) <= _MOST_ON_CPU]
    for group in groups:
        if group not in small:
            logger.info(
                "test %s: %s questions take too long on the CPU; measure them with evaluate --sources %s",
                group.name,
                f"{len(group.questions):,}",
                group.name,
            )
    return small


def evaluation_questions(run: Finished) -> list[Question]:
    """Those of `evaluation.jsonl`: a fixed sample of the test questions with one answer, equally many of each set."""
    groups = [g for g in question_sets(run.recipe, run.root, "test") if all(q.has_one_answer for q in g.questions)]
    return [question for group in sampled(groups, EVALUATION_LINES) for question in group.questions]


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
