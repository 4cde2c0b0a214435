"""How fast the training loop is: real target tokens a second, and how much of the time the GPU works.

    python -m benchmarks.training_speed --data DATA_FOLDER

It runs the product's own loop in two shapes: the recipe `translate`, and a GPT of width 384 with 6 layers and a
context of 512. Without --data it makes random text of like lengths. A shape takes about a minute, compiling included.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from tiny_transformer.data.batches import TrainingData
from tiny_transformer.data.source import Source
from tiny_transformer.errors import TinyTransformerError
from tiny_transformer.model import build_model
from tiny_transformer.training.checkpoint import RunState
from tiny_transformer.training.distributed import World, joined_world
from tiny_transformer.training.finish import hardware, versions
from tiny_transformer.training.loop import StepBatch, Trainer
from tiny_transformer.training.progress import Reporter
from tiny_transformer.training.recipe import Recipe, load_recipe
from tiny_transformer.training.run import learned_tokenizer

SHAPES = ("translate", "gpt")
GPT = ("model.d_model=384", "model.n_heads=6", "model.n_decoder_layers=6", "model.d_ff=1536", "model.max_length=512")
PROFILED_STEPS = 10
RESULT = Path(__file__).parent / "results" / "training-speed.json"
# What the profiler calls the work itself; on a CPU there are no kernels, and the run only shows that all is well.
WORK = {"cuda": (ProfilerActivity.CUDA, "kernel"), "cpu": (ProfilerActivity.CPU, "cpu_op")}


def main() -> int:
    """Measure the shapes, print a table, write the result; 0, or 2 where the data or a setting is at fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--data", default="", help="the data folder of the recipes (default: random text)")
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, after the warm-up")
    parser.add_argument("--warmup-seconds", type=float, default=25.0, help="compiling and the first steps")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the recipe")
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--out", type=Path, default=RESULT, help="the JSON file to write")
    options = parser.parse_args()
    try:
        run(options)
    except TinyTransformerError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace) -> None:
    """Measure every shape that was asked for."""
    after = {"warmup_seconds": options.warmup_seconds, "seconds": options.seconds}
    result: dict[str, Any] = {"hardware": hardware(1), "versions": versions(), **after, "shapes": {}}
    for name in options.shapes:
        with tempfile.TemporaryDirectory() as folder:
            result["shapes"][name] = measure(name, options, Path(folder))
        for key, value in result["shapes"][name].items():
            print(f"{name:<10} {key:<26} {value}")
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measure(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One shape: warm up, time, profile; then time again with the recipe's own R-Drop, which sees every row twice."""
    recipe, root = shape(name, options, folder)
    with joined_world(options.device) as world:
        bench = Bench.of(recipe, root, world, folder)
        own = bench.trainer.objective.r_drop
        bench.trainer.objective.r_drop = 0.0
        bench.run_for(options.warmup_seconds)
        found = bench.run_for(options.seconds)
        busy = bench.busy_share()
        result = {
            "parameters": sum(parameter.numel() for parameter in bench.trainer.parameters),
            "batch_tokens": recipe.training.batch_tokens,
            "tokens_per_second": found.tokens_per_second,
            "steps_per_second": found.steps_per_second,
            "busy_share": round(busy, 4),
            "peak_memory_gib": round(peak_memory(world.device), 2),
        }
        if own:
            bench.trainer.objective.r_drop = own
            bench.run_for(options.warmup_seconds / 3)
            found = bench.run_for(options.seconds / 2)
            result |= {"r_drop": own, "tokens_per_second_with_r_drop": found.tokens_per_second}
        bench.steps.close()
    return result


@dataclass(frozen=True)
class Pace:
    """What a stretch of training did."""

    tokens: int  # real target tokens: padding is not among them
    steps: int
    seconds: float

    @property
    def tokens_per_second(self) -> int:
        """The speed that is promised."""
        return round(self.tokens / self.seconds)

    @property
    def steps_per_second(self) -> float:
        """Updates of the weights."""
        return round(self.steps / self.seconds, 2)


@dataclass(frozen=True)
class Bench:
    """The product's trainer, step after step, without evaluation and checkpoints."""

    trainer: Trainer
    steps: Any  # generator of StepBatch
    device: torch.device
    folder: Path

    @classmethod
    def of(cls, recipe: Recipe, root: str, world: World, folder: Path) -> "Bench":
        """A trainer at the start of the recipe's first phase."""
        tokenizer = learned_tokenizer(recipe, root, show_progress=sys.stderr.isatty())
        config = recipe.config_for(tokenizer)
        torch.set_float32_matmul_precision("high")
        model = build_model(config, torch.Generator().manual_seed(1)).to(world.device)
        sources = tuple(source for source in recipe.sources if source.split == "train")
        data = TrainingData(sources, root, tokenizer, config.max_length)
        data.prepare()
        reporter = Reporter(folder / "metrics.jsonl", talks=False, name=recipe.name, track=False, after_step=0)
        trainer = Trainer(recipe, model, data, None, world, folder, reporter, RunState())
        trainer.start_phase(None)
        return cls(trainer, trainer.steps(recipe.phases[0]), world.device, folder)

    def run_for(self, seconds: float) -> Pace:
        """Train for a while; the device's queue is empty at both ends."""
        synchronize(self.device)
        began = time.monotonic()
        tokens = steps = 0
        while time.monotonic() - began < seconds:
            tokens += self.step().tokens
            steps += 1
            # The CPU may run far ahead of the GPU: ask it how far it is, as the loop does when it logs.
            if steps % self.trainer.settings.log_steps == 0:
                self.trainer.window_loss()
        synchronize(self.device)
        return Pace(tokens, steps, time.monotonic() - began)

    def step(self) -> StepBatch:
        """One step of the loop."""
        step: StepBatch = next(self.steps)
        self.trainer.step(step, 1e-4)
        return step

    def busy_share(self) -> float:
        """Share of wall time, from the first kernel to the last of a few steps, in which at least one ran."""
        activity, category = WORK[self.device.type]
        trace = self.folder / "trace.json"
        # The first steps under a profiler pay for its start; they are run, and not recorded.
        with profile(activities=[activity], schedule=schedule(wait=0, warmup=2, active=PROFILED_STEPS)) as profiler:
            for i in range(2 + PROFILED_STEPS):
                self.step()
                if i == 1 + PROFILED_STEPS:
                    synchronize(self.device)
                else:
                    profiler.step()
        # The raw trace: `profiler.events()` would first build a tree of all events, which takes minutes.
        profiler.export_chrome_trace(str(trace))
        events = list(work_events(trace, category))
        print_costliest(events)
        return covered([(start, start + length) for _, start, length in events])


def work_events(trace: Path, category: str) -> Iterator[tuple[str, float, float]]:
    """Name, start and length in microseconds of every event of a category."""
    for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]:
        if event.get("cat") == category and event.get("ph") == "X":
            yield event["name"], float(event["ts"]), float(event["dur"])


def covered(spans: list[tuple[float, float]]) -> float:
    """The share of the time from the first start to the last end that lies in at least one span."""
    spans = sorted(spans)
    first = reached = spans[0][0]
    inside = 0.0
    for start, end in spans:
        inside += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return inside / (reached - first)


def print_costliest(events: list[tuple[str, float, float]], count: int = 16) -> None:
    """Where the time goes, for whoever wants it to go faster."""
    total: Counter[str] = Counter()
    for name, _, length in events:
        total[name] += length / 1000 / PROFILED_STEPS
    for name, milliseconds in total.most_common(count):
        print(f"{milliseconds:9.3f} ms a step  {name[:100]}", file=sys.stderr)
    rest = total.total() - sum(milliseconds for _, milliseconds in total.most_common(count))
    print(f"{rest:9.3f} ms a step  in {max(0, len(total) - count)} others", file=sys.stderr)


def shape(name: str, options: argparse.Namespace, folder: Path) -> tuple[Recipe, str]:
    """The recipe to run, over the data folder or over random text."""
    if name == "translate":
        recipe = load_recipe("translate", options.set)
        sources = recipe.sources if options.data else (random_pairs(folder),)
    else:
        recipe = load_recipe("chat", [*GPT, *options.set])
        recipe = replace(recipe, phases=(replace(recipe.phases[0], share=1.0, repeat={}),))
        packed = tuple(replace(source, packing=True, loss_on="all", bpe_dropout=0.0) for source in recipe.sources)
        sources = packed if options.data else (random_text(folder),)
    # One variant of each text: how it is spelt makes no difference to the speed.
    return replace(recipe, sources=tuple(replace(source, variants=1) for source in sources)), options.data


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
    """Words in which a vocabulary of the usual size can be learned."""
    return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(10_000)]


def sentence(words: list[str], rng: random.Random) -> str:
    """A few words, sometimes many."""
    return " ".join(rng.choices(words, k=min(40, 2 + int(rng.lognormvariate(1.5, 0.5)))))


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(device: torch.device) -> float:
    """Most memory of the GPU that was taken at once, in GiB."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0


if __name__ == "__main__":
    sys.exit(main())
