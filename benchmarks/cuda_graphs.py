"""What CUDA graphs made by hand gain over `torch.compile(mode="reduce-overhead")`, in decoding and in training.

    python -m benchmarks.cuda_graphs [--rounds 7] [--json FILE]

Decoding: tokens per second, greedy, of the same random GPT: plain eager, our captured steps with and without the step
that is started before it is asked for, and the same step compiled by torch over the same static buffers. Training:
batches per second of the translator's shape, forward and backward, in bfloat16.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tiny_transformer.atomic import write_file
from tiny_transformer.backends import cuda_graphs, device_name
from tiny_transformer.backends.eager import EagerBackend
from tiny_transformer.config import ModelConfig
from tiny_transformer.generation import GenerationOptions, Request, generate_ids
from tiny_transformer.model import build_model
from tiny_transformer.training.feed import Batch
from tiny_transformer.training.gradients import CudaGraphGradients, PlainGradients
from tiny_transformer.training.objective import Objective, compile_parts

from .shapes import SHAPES

RESULT = Path(__file__).parent / "results" / "cuda-graphs.json"
ROWS = (1, 64)
SHAPES_OF_BATCHES = ((512, 32), (256, 64))  # rows and tokens of a training batch: two of a run's twenty shapes
STEPS = 30  # training steps per round


class WithoutSpeculation(cuda_graphs.CudaGraphBackend):
    """Captured steps, none of which is started before it is asked for."""

    def _state_on(self, *arguments: Any, **named: Any) -> Any:
        state = super()._state_on(*arguments, **named)
        state.speculate_after = sys.maxsize
        return state


class CompiledStep(cuda_graphs.CapturedStep):
    """The step compiled by torch, with the CUDA graphs that `reduce-overhead` makes."""

    def __init__(self, *arguments: Any) -> None:
        capture, cuda_graphs.capture = cuda_graphs.capture, lambda *_: None
        try:
            super().__init__(*arguments)
        finally:
            cuda_graphs.capture = capture

    def finish(self, n_rows: int) -> np.ndarray:
        """Logits of what was started last."""
        self._done.synchronize()
        return super().finish(n_rows)

    def _run(self) -> None:
        super()._run()
        self._done.record(torch.cuda.current_stream(self._device))


class Compiled(WithoutSpeculation):
    """Every step by `torch.compile(mode="reduce-overhead")` over the same static buffers."""

    def _capture(self, state: Any, n_rows: int, n_slots: int) -> Any:
        buffers = state.buffers
        keys, values = buffers.caches(n_rows, n_slots)
        for buffer in (*keys, *values):
            torch._dynamo.mark_static_address(buffer)

        def decode(ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.model.decode(ids, positions, keys, values)[0]
            return logits[:, -1]

        compiled = torch.compile(decode, mode="reduce-overhead", dynamic=False)
        last = min(n_slots, self.config.max_length) - 1
        return CompiledStep(
            compiled, n_rows, last, self.config.n_outputs, self.device, self._memory_pool, state.lengths
        )


DECODERS = {
    "eager": EagerBackend,
    "captured": cuda_graphs.CudaGraphBackend,
    "captured, no speculation": WithoutSpeculation,
    "torch.compile": Compiled,
}


def decoding(name: str, dtype: str, rounds: int) -> dict[str, Any]:
    """Tokens per second of one decoder, for each number of rows."""
    shape = SHAPES["G"]
    model = build_model(shape.config, torch.Generator().manual_seed(0))
    backend = DECODERS[name](model, shape.config, device="cuda", dtype=getattr(torch, dtype))
    options = GenerationOptions(max_new_tokens=shape.n_new, min_new_tokens=shape.n_new, logprobs=False)
    found: dict[str, Any] = {}
    for n_rows in ROWS:
        request = Request(shape.rows(n_rows, 1), None, options, eos_id=2, pad_id=0)
        seconds = [timed(lambda request=request: generate_ids(backend, request)) for _ in range(rounds + 2)]
        # The first two calls compile and capture.
        found[str(n_rows)] = summary([n_rows * shape.n_new / s for s in seconds[2:]])
        found[str(n_rows)]["seconds_to_prepare"] = round(sum(seconds[:2]), 1)
    return found


def training(name: str, _: str, rounds: int) -> dict[str, Any]:
    """Batches per second of one way to compute gradients, on two shapes in turns."""
    config = ModelConfig(vocab_size=12_000, n_encoder_layers=7, n_decoder_layers=3, max_length=128, dropout=0.1)
    batches = [random_batch(config, *size) for size in SHAPES_OF_BATCHES]
    model = build_model(config, torch.Generator().manual_seed(0)).cuda().train()
    objective: Any = Objective(model, 0.1, autocast=True)
    if name == "torch.compile":
        objective = torch.compile(objective, mode="reduce-overhead", dynamic=False)
    else:
        compile_parts(model, objective)
    parameters = list(model.parameters())
    gradients: Any = PlainGradients(objective, parameters)
    if name == "captured":
        gradients = CudaGraphGradients(objective, parameters, torch.device("cuda"))

    def steps(n: int) -> None:
        for i in range(n):
            torch.compiler.cudagraph_mark_step_begin()
            gradients.add(batches[i % len(batches)], 1e-4)
            gradients.clear()

    prepared = timed(lambda: steps(4 * len(batches)))
    found = summary([STEPS / timed(lambda: steps(STEPS)) for _ in range(rounds)])
    return found | {"seconds_to_prepare": round(prepared, 1)}


TRAINERS = ("compiled layers", "captured", "torch.compile")


def timed(work: Callable[[], Any]) -> float:
    """Seconds until the GPU has done it."""
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def random_batch(config: ModelConfig, n_rows: int, length: int) -> Batch:
    """Full rows of random tokens, every position of the target learned."""
    ids = torch.randint(config.vocab_size, (2, n_rows, length), device="cuda")
    picked = torch.arange(n_rows * length, device="cuda")
    labels = torch.randint(config.vocab_size, (n_rows * length,), device="cuda")
    return Batch(ids[0], torch.ones_like(ids[0], dtype=torch.bool), ids[1], picked, labels)


def summary(values: list[float]) -> dict[str, Any]:
    """Median and range, per second."""
    return {"median": round(statistics.median(values), 2), "range": [round(min(values), 2), round(max(values), 2)]}


def main() -> None:
    """Measure each way in a process of its own (graphs of torch's and of ours do not mix), print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("--one", nargs=3, metavar=("WORK", "WAY", "DTYPE"), help="measure one way and print it")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("error: this measures a GPU, and none was found.")
    if options.one:
        work, way, dtype = options.one
        print(json.dumps({"decoding": decoding, "training": training}[work](way, dtype, options.rounds)))
        return
    found: dict[str, Any] = {"device": device_name("cuda"), "torch": torch.__version__, "rounds": options.rounds}
    works = [("training", way, "bfloat16") for way in TRAINERS]
    works += [("decoding", way, dtype) for dtype in ("bfloat16", "float32") for way in DECODERS]
    for one in works:
        command = [sys.executable, "-m", "benchmarks.cuda_graphs", "--rounds", str(options.rounds), "--one", *one]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[", ".join(one)] = json.loads(done.stdout.splitlines()[-1])
        print(", ".join(one), found[", ".join(one)], flush=True)
    write_file(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
