"""Fine-tuning: a run that starts from the weights and the tokenizer of a model folder."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tiny_transformer.backends import files_read
from tiny_transformer.bundle import TOKENIZER, TRAINING, WEIGHTS, Bundle, sha256
from tiny_transformer.errors import ConfigError, TrainingError
from tiny_transformer.model import load_weights
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.parity.report import stored_report
from tiny_transformer.text_model import resolve
from tiny_transformer.training.checkpoint import RunState
from tiny_transformer.training.recipe import Recipe
from tiny_transformer.training_record import TrainingRecord

logger = logging.getLogger(__name__)

_CHANGEABLE = ("model.dropout",)  # all else of model and tokenizer is the folder's


@dataclass(frozen=True)
class BaseModel:
    """A trained model that goes on learning."""

    bundle: Bundle
    provenance: dict[str, Any]  # for `training.json`: which model, and what it learned from, as far as its folder says

    @classmethod
    def open(cls, name: str) -> "BaseModel":
        """A model folder, or USER/NAME on the Hub; bytes that its parity report does not vouch for are refused."""
        if not name:
            raise ConfigError("The model to start from has no name; give a model folder such as checkpoints/chat.")
        folder = resolve(name, "eager", all_files=True)
        bundle = Bundle.open(folder)
        stored_report(bundle, files_read(bundle, "eager"))
        provenance = {
            "name": folder.resolve().name if folder == Path(name) else name,
            "sha256": sha256(folder / WEIGHTS),
            "tokenizer_sha256": sha256(folder / TOKENIZER),
            **TrainingRecord.read(folder).provenance,
        }
        if not provenance["sources"]:
            logger.warning("what %s learned from is not known: its %s does not say", name, TRAINING)
        return cls(bundle, provenance)

    def fit(self, recipe: Recipe) -> Recipe:
        """The recipe for a model of the folder's shape."""
        folder, generation, config = self.bundle.folder, self.bundle.generation, self.bundle.config
        if generation.task != recipe.task:
            raise ConfigError(
                "{folder} was trained to {task}, recipe {recipe} is to {recipe_task}; match them.",
                folder=folder,
                task=generation.task,
                recipe=recipe.name,
                recipe_task=recipe.task,
            )
        languages = (*generation.source_languages, generation.target_language)
        if recipe.task == "translate" and recipe.languages and languages != recipe.languages:
            known, said = ", ".join(languages), ", ".join(recipe.languages)
            logger.warning(
                "%s knows %s, and will be said to know %s: what recipe %s says", folder, known, said, recipe.name
            )
        return replace(
            recipe,
            model=config.with_changes(dropout=recipe.model.dropout),
            tokenizer=replace(
                recipe.tokenizer,
                vocab_size=config.vocab_size,
                output_vocab_size=config.output_vocab_size,
                path="",
            ),
        )

    def load_into(self, model: Transformer) -> None:
        """Give the model the folder's weights."""
        load_weights(model, self.bundle.weights(), where=str(self.bundle.folder / WEIGHTS))


def check_changes(changes: Iterable[str]) -> None:
    """Refuse key=value changes of a recipe that a model with a shape of its own cannot follow."""
    for change in changes:
        key = change.partition("=")[0]
        if key.startswith(("model.", "tokenizer.")) and key not in _CHANGEABLE:
            raise ConfigError(
                "{key} cannot be changed: shape and vocabulary are those of the model to start from; leave it out.",
                key=key,
            )


def check_same_base(state: RunState, base: BaseModel | None) -> None:
    """A resumed run goes on from what it was started from: other weights would be ignored, other tokens ruin it."""
    first, now = state.started_from, base.provenance if base is not None else {}
    if any(first.get(key) != now.get(key) for key in ("sha256", "tokenizer_sha256")):
        raise TrainingError(
            "The unfinished run started from {first}, not from {now}; resume it as it was, or add "
            "--overwrite without --resume to start anew.",
            first=first.get("name", "nothing"),
            now=now.get("name", "nothing"),
        )
