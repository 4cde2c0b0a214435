"""The end of a run: weights rounded to float16, judged as they will be shipped, and written as a model folder."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tiny_transformer.bundle import EVALUATION, TRAINING, Bundle, save_bundle
from tiny_transformer.config import GenerationConfig, ModelConfig
from tiny_transformer.evaluation import Question
from tiny_transformer.generation import GenerationOptions
from tiny_transformer.model import count_parameters, load_weights, weights_of
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.checkpoint import BEST, RunState, has_checkpoint, load_checkpoint
from tiny_transformer.training.judge import Judge
from tiny_transformer.training.plot import loss_curve
from tiny_transformer.training.questions import question_sets, sampled
from tiny_transformer.training.recipe import Recipe
from tiny_transformer.training.report import training_report

logger = logging.getLogger(__name__)

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
