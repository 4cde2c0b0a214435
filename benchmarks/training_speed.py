"""How fast the training loop is: real target tokens a second, and how much of the time the GPU works.

    python -m benchmarks.training_speed --shape translate --data DATA_FOLDER --seconds 60 --out speed.json

It runs the product's own loop. Without --data it makes random text of like lengths.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tiny_transformer.model import build_model, count_parameters
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.checkpoint import RunState
from tiny_transformer.training.distributed import joined_world
from tiny_transformer.training.epoch import TrainingData
from tiny_transformer.training.examples import texts_of
from tiny_transformer.training.loop import Trainer
from tiny_transformer.training.progress import Reporter
from tiny_transformer.training.recipe import Recipe, load_recipe
from tiny_transformer.training.report import hardware, versions
from tiny_transformer.training.settings import Source
from tiny_transformer.training.sources import read_examples

PROFILED_STEPS = 60


def main() -> None:
    """Measure one shape and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=("translate", "gpt"), default="translate")
    parser.add_argument("--data", default="", help="the data folder of the recipes (default: random text)")
    parser.add_argument("--seconds", type=float, default=60.0, help="measured, after the warm-up")
    parser.add_argument("--warmup-seconds", type=float, default=60.0, help="compilation and first epochs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the recipe")
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options, Path(folder))
    for name, value in result.items():
        print(f"{name:<24} {value if not isinstance(value, float) else format(value, ',.4g')}")
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Warm up, time, and profile the loop."""
    recipe, root = shape(options, folder)
    with joined_world(options.device) as world:
        tokenizer = learn_tokenizer(recipe, root)
        config = recipe.model.with_changes(vocab_size=tokenizer.vocab_size)
        torch.set_float32_matmul_precision("high")
        model = build_model(config, torch.Generator().manual_seed(1)).to(world.device)
        sources = tuple(source for source in recipe.sources if source.split == "train")
        data = TrainingData(sources, root, tokenizer, config.max_length)
        data.prepare()
        reporter = Reporter(folder / "metrics.jsonl", talks=False, name=recipe.name, track=False, after_step=0)
        trainer = Trainer(recipe, model, data, None, world, folder, reporter, RunState())
        trainer.start_phase(None)
        steps = trainer.steps(recipe.phases[0])
        run_for(trainer, steps, options.warmup_seconds, world.device)
        tokens, n_steps, seconds = run_for(trainer, steps, options.seconds, world.device)
        busy = busy_share(trainer, steps) if world.device.type == "cuda" else None
        steps.close()
        return {
            "shape": options.shape,
            "parameters": count_parameters(model),
            "tokens_per_second": round(tokens / seconds),
            "steps_per_second": round(n_steps / seconds, 2),
            "busy_share": busy,
            "batch_tokens": recipe.training.batch_tokens,
            "loss": float(trainer.window_loss()),
            "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30 if world.device.type == "cuda" else None,
            "hardware": hardware(world.size),
            "versions": versions(),
        }


def shape(options: argparse.Namespace, folder: Path) -> tuple[Recipe, str]:
    """The recipe to run, over the data folder or over random text."""
    if options.shape == "translate":
        recipe = load_recipe("translate", options.set)
        if options.data:
            return recipe, options.data
        return replace(recipe, sources=(random_pairs(folder),)), ""
    values = ["model.d_model=384", "model.n_heads=6", "model.n_decoder_layers=6", "model.d_ff=1536"]
    recipe = load_recipe("chat", [*values, "model.max_length=512", *options.set])
    recipe = replace(recipe, phases=(replace(recipe.phases[0], share=1.0, repeat={}),))
    if not options.data:
        return replace(recipe, sources=(random_text(folder),)), ""
    packed = tuple(replace(source, packing=True, loss_on="all", variants=1) for source in recipe.sources)
    return replace(recipe, sources=packed), options.data


def random_pairs(folder: Path) -> Source:
    """Pairs of random words with about Tatoeba's lengths."""
    rng = random.Random(0)
    words = vocabulary(rng)
    lines = [f"{sentence(words, rng)}\t{sentence(words, rng)}" for _ in range(100_000)]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Source(name="random pairs", path=str(folder / "pairs.tsv"), format="pairs")


def random_text(folder: Path) -> Source:
    """Documents of random words, packed into full rows."""
    rng = random.Random(0)
    words = vocabulary(rng)
    documents = ["\n".join(sentence(words, rng) for _ in range(15)) for _ in range(20_000)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return Source(name="random text", path=str(folder / "text.txt"), format="text", packing=True)


def vocabulary(rng: random.Random) -> list[str]:
    """Words in which a vocabulary of the usual size can be learnt."""
    return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(10_000)]


def sentence(words: list[str], rng: random.Random) -> str:
    """A few words, sometimes many."""
    return " ".join(rng.choices(words, k=min(40, 2 + int(rng.lognormvariate(1.5, 0.5)))))


def learn_tokenizer(recipe: Recipe, root: str) -> Tokenizer:
    """A vocabulary of the recipe's size from the training texts."""
    sources = [source for source in recipe.sources if source.split == "train"]
    texts = (text for source in sources for e in read_examples(source, root, "train") for text in texts_of(e))
    return Tokenizer.train(texts, recipe.tokenizer.vocab_size, show_progress=sys.stderr.isatty())


def run_for(trainer: Trainer, steps: Any, seconds: float, device: torch.device) -> tuple[int, int, float]:
    """Train for a while; real tokens, steps and seconds, the device's queue emptied at both ends."""
    synchronize(device)
    began = time.monotonic()
    tokens = n_steps = 0
    while time.monotonic() - began < seconds:
        # The CPU may run far ahead of the GPU: ask it how far it is, as the loop does when it logs.
        for _ in range(trainer.settings.log_steps):
            step = next(steps)
            trainer.step(step, 1e-4)
            tokens += step.tokens
            n_steps += 1
        trainer.window_loss()
    synchronize(device)
    return tokens, n_steps, time.monotonic() - began


def busy_share(trainer: Trainer, steps: Any) -> float:
    """Share of wall time, from the first kernel to the last, in which at least one kernel ran."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED_STEPS):
            trainer.step(next(steps), 1e-4)
        torch.cuda.synchronize()
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    busy, reached = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return busy / (reached - spans[0][0])


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
