"""The evaluator of a model in training: loss on dev, and the task's metric by greedy or beam generation."""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from tiny_transformer.backends.cuda_graphs import eager_on
from tiny_transformer.backends.eager import EagerBackend
from tiny_transformer.config import GenerationConfig, ModelConfig
from tiny_transformer.data.batches import Rows, plan_epoch
from tiny_transformer.data.cache import tokenized
from tiny_transformer.evaluation import Evaluation, Question, perplexity, reply_metrics, translation_metrics
from tiny_transformer.generation import GenerationOptions, Request, generate_ids
from tiny_transformer.generation.prompt import Prompt, prompt_for
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.parity.texts import sample_texts
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.evaluation_data import question_sets, sampled
from tiny_transformer.training.feed import batches, device_rows
from tiny_transformer.training.objective import Objective
from tiny_transformer.training.recipe import Recipe

logger = logging.getLogger(__name__)

_ANSWERED_AT_ONCE = 2_048  # questions between two reports of progress; fewer would leave rows of a GPU idle
_LOSS_TOKENS = 16_384  # positions of a batch when only the loss is wanted


@contextmanager
def _not_compiled() -> Iterator[None]:
    """Evaluation runs the layers with other arguments than training: compiling them for it would never pay.

    The stance is set only in a process that compiles: to name it imports the compiler, which takes two seconds.
    """
    with torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext():
        yield


@dataclass
class Evaluator:
    """Measures a model; the model comes back in the mode it was in."""

    recipe: Recipe
    root: str
    tokenizer: Tokenizer
    config: ModelConfig
    device: torch.device

    def __post_init__(self) -> None:
        sources = self.recipe.of_split("dev")
        parts = [
            tokenized(s, self.root, self.tokenizer, self.config.max_length, split="dev", among=self.recipe.sources)
            for s in sources
        ]
        self._dev = Rows.of(sources, parts, self.tokenizer) if any(len(part) for part in parts) else None
        self._generation = generation_config(self.recipe, self.tokenizer, self.config)
        self.dev = question_sets(self.recipe, self.root, "dev")
        if self._dev is None:
            logger.warning("no example is left for dev: nothing is evaluated, and the last weights are taken")

    def quick(self, model: Transformer) -> dict[str, float]:
        """Loss on dev, and the metric on a sample of it, greedily."""
        metrics = self.loss(model)
        settings = self.recipe.evaluation
        options = GenerationOptions(max_new_tokens=min(settings.max_new_tokens, self.config.max_length), logprobs=False)
        found = [self.answer(model, group.questions, options) for group in sampled(self.dev, settings.max_examples)]
        for name in found[0].metrics if found else ():
            if all(name in evaluation.metrics for evaluation in found):  # only stories are counted as stories
                metrics[name] = float(np.mean([evaluation.metrics[name] for evaluation in found]))
        return metrics

    @_not_compiled()
    @torch.no_grad()
    def loss(self, model: Transformer) -> dict[str, float]:
        """Mean negative log-likelihood per token of dev, and its perplexity."""
        if self._dev is None:
            return {}
        training = model.training
        objective = Objective(model.eval(), 0.0, autocast=False)
        numbers = np.arange(sum(len(part) for part in self._dev.parts))
        plan = plan_epoch(numbers, self._dev.sizes, _LOSS_TOKENS, np.random.default_rng(0), self.config.max_length)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        rows = device_rows(self._dev, plan.order, self.device)
        for batch in batches(rows, plan.batches, self.tokenizer.pad_id, self.device):
            total += objective(*batch.tensors)
        model.train(training)
        mean = float(total) / sum(batch.learned for batch in plan.batches)
        return {"loss": mean, "perplexity": perplexity(mean)}

    @_not_compiled()
    def answer(
        self,
        model: Transformer,
        questions: Sequence[Question],
        options: GenerationOptions,
        progress: Callable[[int], object] = lambda answered: None,
    ) -> Evaluation:
        """Generate an answer to each question and measure; `progress` hears how many more were answered."""
        training = model.training
        backend = eager_on(model, self.config, self.device)
        texts: list[str] = []
        for first in range(0, len(questions), _ANSWERED_AT_ONCE):
            prompts = [self.prompt(question, options) for question in questions[first : first + _ANSWERED_AT_ONCE]]
            texts += self._generate(backend, prompts, options)
            progress(len(prompts))
        model.train(training)
        if self.config.is_encoder_decoder:
            answers = [question.answer for question in questions]
            return translation_metrics(texts, answers, self.recipe.evaluation.tokenize)
        return reply_metrics(texts, questions)

    @_not_compiled()
    def sample(self, model: Transformer, generation: GenerationConfig, questions: Sequence[Question]) -> Evaluation:
        """What the proof of the folder will find on its own examples."""
        training = model.training
        backend = eager_on(model, self.config, self.device)
        texts = sample_texts(self.tokenizer, self.config, generation, backend, questions)
        model.train(training)
        if generation.task == "chat":
            return reply_metrics(texts, questions)
        return translation_metrics(texts, [question.answer for question in questions])

    def prompt(self, question: Question, options: GenerationOptions) -> Prompt:
        """What the model reads for a question: the same as when it is served."""
        return prompt_for(
            self.tokenizer,
            self.config,
            self._generation,
            question.prompt,
            max_new_tokens=options.max_new_tokens,
        )

    def _generate(self, backend: EagerBackend, prompts: list[Prompt], options: GenerationOptions) -> list[str]:
        sources = [prompt.source for prompt in prompts if prompt.source is not None]
        request = Request(
            [prompt.prefix for prompt in prompts],
            sources or None,
            options,
            self.tokenizer.eos_id,
            self.tokenizer.pad_id,
        )
        return [self.tokenizer.decode(generated.ids) for generated in generate_ids(backend, request)]


def generation_config(
    recipe: Recipe, tokenizer: Tokenizer, config: ModelConfig, length_penalty: float = 1.0
) -> GenerationConfig:
    """How text is made with the model that a recipe trains."""
    languages = recipe.languages
    return GenerationConfig(
        task=recipe.task,
        pad_id=tokenizer.pad_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        roles=tokenizer.roles if recipe.task == "chat" else {},
        source_languages=languages[:-1] if config.is_encoder_decoder else (),
        target_language=languages[-1] if languages else "",
        length_penalty=length_penalty,
        repetition_penalty=recipe.evaluation.repetition_penalty,
        max_source_tokens=config.max_length,
        max_new_tokens=min(recipe.evaluation.max_new_tokens, config.max_length),
    )
