"""What a run starts from, where it does not start from nothing: the weights and the tokenizer of a model folder."""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tiny_transformer.backends import files_read
from tiny_transformer.bundle import TOKENIZER, TRAINING, WEIGHTS, Bundle, sha256
from tiny_transformer.errors import BundleError, ConfigError, TrainingError
from tiny_transformer.model import load_weights
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.parity.report import stored_report
from tiny_transformer.text_model import resolve
from tiny_transformer.training.checkpoint import RunState
from tiny_transformer.training.recipe import Recipe

logger = logging.getLogger(__name__)

# Of a source that was learnt from: what whoever publishes the new model must say of it too.
_THANKS = ("name", "path", "split", "licence", "attribution", "url")
_FREE = ("model.dropout",)  # all else of model and tokenizer is the folder's


@dataclass(frozen=True)
class Origin:
    """A trained model that goes on learning."""

    bundle: Bundle
    told: dict[str, Any]  # for `training.json`: which model, and what it had learnt from, as far as its folder says

    @classmethod
    def open(cls, name: str) -> "Origin":
        """A model folder, or USER/NAME on the Hub; bytes that its parity report does not vouch for are refused."""
        if not name:
            raise ConfigError("The model to start from has no name; give a model folder such as checkpoints/chat.")
        folder = resolve(name, "eager", all_files=True)
        bundle = Bundle.open(folder)
        stored_report(bundle, files_read(bundle, "eager"))
        told = {
            "name": folder.resolve().name if folder == Path(name) else name,
            "sha256": sha256(folder / WEIGHTS),
            "tokenizer_sha256": sha256(folder / TOKENIZER),
            **_learnt(folder / TRAINING),
        }
        if not told["sources"]:
            logger.warning("what %s learnt from is not known: its %s does not say", name, TRAINING)
        return cls(bundle, told)

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
            tokenizer=replace(recipe.tokenizer, vocab_size=config.vocab_size, path=""),
        )

    def give_weights(self, model: Transformer) -> None:
        """Start the model where the folder's ended."""
        load_weights(model, self.bundle.weights(), where=str(self.bundle.folder / WEIGHTS))


def check_changes(changes: Iterable[str]) -> None:
    """Refuse key=value changes of a recipe that a model with a shape of its own cannot follow."""
    for change in changes:
        key = change.partition("=")[0]
        if key.startswith(("model.", "tokenizer.")) and key not in _FREE:
            raise ConfigError(
                "{key} cannot be changed: shape and vocabulary are those of the model to start from; leave it out.",
                key=key,
            )


def check_same_origin(state: RunState, origin: Origin | None) -> None:
    """A resumed run goes on from what it was started from: other weights would be ignored, other tokens ruin it."""
    first, now = state.started_from, origin.told if origin is not None else {}
    if any(first.get(key) != now.get(key) for key in ("sha256", "tokenizer_sha256")):
        raise TrainingError(
            "The unfinished run started from {get}, not from {get_2}; resume it as it was, or add "
            "--overwrite without --resume to start anew.",
            get=first.get("name", "nothing"),
            get_2=now.get("name", "nothing"),
        )


def _learnt(path: Path) -> dict[str, Any]:
    """Licence and sources of a `training.json`, with those of the model that it had started from."""
    try:
        story = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        recipe, earlier = story.get("recipe", {}), story.get("started_from", {})
        sources = [
            {key: str(source.get(key, "")) for key in _THANKS}
            for source in (*recipe.get("sources", ()), *earlier.get("sources", ()))
            if source.get("split") == "train"
        ]
        licences = {recipe.get("licence", ""), *([earlier.get("licence", "")] if earlier else [])}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise BundleError(
            "{path} is not what training writes ({reason!r}); restore it or remove it.", path=path, reason=error
        ) from None
    return {"licence": str(licences.pop()) if len(licences) == 1 else "", "sources": sources}
