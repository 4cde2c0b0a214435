"""The numbers that 8 bits of a layer's input stand for: measured once on text, stored in the graphs for many rows.

A stored range keeps a row independent of those beside it, and saves the passes that would find a range for each. Few
inputs are large, so all that was seen is not the best range: in a smaller one rounding is finer, at the price of the
values that are cut off. The range with the least squared error of the layer's product is taken.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.graph_file import FIRST_ROWS
from tiny_transformer.backends.observed_values import Node
from tiny_transformer.backends.onnx_runtime import open_ort
from tiny_transformer.bundle import EMBEDDING, EVALUATION, Bundle, sha256
from tiny_transformer.config import ModelConfig
from tiny_transformer.evaluation import read_evaluation
from tiny_transformer.generation.prompt import Prompt, prompt_for

LEVELS = 255  # steps of 8 bits between the lowest and the highest number
MOST_ROWS = 4_096  # of a layer's inputs that a range is chosen by; its ends come from all of them
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)  # of an end of the range that was seen
N_RANDOM, RANDOM_LENGTH = 32, 24  # rows of random tokens where there are fewer tokens of text, and how long they are
METHOD = "range of least squared error of the product"


@dataclass(frozen=True)
class Rounding:
    """How a layer's input becomes bytes: x ≈ (byte - zero) × step."""

    step: float
    zero: int

    @classmethod
    def between(cls, low: float, high: float) -> "Rounding":
        """Bytes for the numbers of a range; 0 always has a byte of its own."""
        low, high = min(low, 0.0), max(high, 0.0)
        step = float(f"{(high - low) / LEVELS:.3g}") or 1.0
        return cls(step, min(LEVELS, round(-low / step)))

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """What is left of numbers."""
        step = np.float32(self.step)
        return np.clip(np.rint(x / step), -self.zero, LEVELS - self.zero) * step


@dataclass(frozen=True)
class Calibration:
    """The rounding of every layer's input, by the name of the layer's weight, and what it was measured on."""

    roundings: Mapping[str, Rounding]
    record: str  # JSON


def calibrate(bundle: Bundle) -> Calibration:
    """Run the float32 graphs over the folder's examples, and look at what every linear layer reads."""
    prompts, text = _prompts(bundle)
    seen: dict[str, list[np.ndarray]] = defaultdict(list)  # name of a weight → some of its inputs, each R K
    ends: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    n_positions = sum(prompt.n_tokens for prompt in prompts)
    every = max(1, n_positions // MOST_ROWS)
    random = np.random.default_rng(0)

    def keep(name: str, x: np.ndarray) -> None:
        low, high = ends[name]
        ends[name] = [min(low, float(x.min())), max(high, float(x.max()))]
        seen[name].append(x[random.integers(every) :: every])

    backend = open_ort(bundle, threads=1).observed(keep, _layer_inputs)
    for prompt in prompts:
        backend.logits(Batch.of([prompt.prefix]), None if prompt.source is None else Batch.of([prompt.source]))
    weights = bundle.weights()
    found = {}
    for name, inputs in seen.items():
        weight = weights[EMBEDDING][: bundle.config.n_outputs] if name == FIRST_ROWS else weights[name]
        found[name] = best_rounding(np.concatenate(inputs), weight, *ends[name])
    return Calibration(found, json.dumps({"method": METHOD, "tokens": n_positions, **text}))


def best_rounding(inputs: np.ndarray, weight: np.ndarray, low: float, high: float) -> Rounding:
    """The range whose rounding changes the product of inputs (R K) and weight (N K) least.

    Errors of different inputs are taken as independent: then each counts by the size of its column of the weight.
    """
    size = np.square(weight, dtype=np.float32).sum(axis=0)  # K

    def error(rounding: Rounding) -> float:
        return float(np.square(rounding.rounded(inputs) - inputs).sum(axis=0) @ size)

    def best(ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
        return min(ranges, key=lambda ends: error(Rounding.between(*ends)))

    low, high = best([(low * share, high * share) for share in SHARES])
    low, high = best([(low * share, high) for share in SHARES])
    low, high = best([(low, high * share) for share in SHARES])
    return Rounding.between(low, high)


def _layer_inputs(nodes: Sequence[Node], config: ModelConfig, stacks: Sequence[str]) -> dict[str, str]:
    """The name of each linear layer's weight → the graph's name of what the layer reads."""
    return {node.inputs[1]: node.inputs[0] for node in nodes if node.op == "Gemm"}


def _prompts(bundle: Bundle) -> tuple[list[Prompt], dict[str, str]]:
    """What the model reads and writes in the folder's examples, with random tokens where they are few; and its name."""
    config, path = bundle.config, bundle.folder / EVALUATION
    found, text = [], {}
    if path.is_file():
        text = {"text": EVALUATION, "sha256": sha256(path)}
        for question in read_evaluation(path):
            answer = bundle.tokenizer.encode(question.answer, target=True)[: config.max_length // 4]
            found.append(prompt_for(bundle.tokenizer, config, bundle.generation, question.prompt, prefix=answer))
    if sum(prompt.n_tokens for prompt in found) < N_RANDOM * RANDOM_LENGTH:
        ids = np.random.default_rng(0).integers(
            config.vocab_size, size=(2, N_RANDOM, min(RANDOM_LENGTH, config.max_length))
        )
        found += [Prompt(a, b if config.is_encoder_decoder else None) for a, b in zip(*ids.tolist(), strict=True)]
        text["text"] = f"{EVALUATION} and random tokens" if text else "random tokens"
    return found, text
