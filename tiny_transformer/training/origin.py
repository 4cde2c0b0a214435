"""What a run starts from, where it does not start from nothing: the weights and the tokenizer of a model folder."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tiny_transformer.backends import files_read
from tiny_transformer.bundle import TRAINING, WEIGHTS, Bundle, sha256
from tiny_transformer.errors import ConfigError
from tiny_transformer.model import load_weights
from tiny_transformer.model.transformer import Transformer
from tiny_transformer.parity.report import stored_report
from tiny_transformer.text_model import resolve
from tiny_transformer.training.recipe import Recipe

# Of a source that was learnt from: what whoever publishes the new model must say of it too.
_THANKS = ("name", "path", "split", "licence", "attribution", "url")
_FREE = ("model.dropout",)  # all else of model and tokenizer is the folder's


@dataclass(frozen=True)
class Origin:
    """A trained model that goes on learning."""

    bundle: Bundle

    @classmethod
    def open(cls, name: str) -> "Origin":
        """A model folder, or USER/NAME on the Hub; bytes that its parity report does not vouch for are refused."""
        bundle = Bundle.open(resolve(name, "eager"))
        stored_report(bundle, files_read(bundle, "eager"))
        return cls(bundle)

    def fit(self, recipe: Recipe, changes: Iterable[str] = ()) -> Recipe:
        """The recipe for a model of the folder's shape; `changes` are the user's, as key=value."""
        folder, task = self.bundle.folder, self.bundle.generation.task
        if task != recipe.task:
            raise ConfigError(f"{folder} was trained to {task}, recipe {recipe.name} is to {recipe.task}; match them.")
        for change in changes:
            key = change.partition("=")[0]
            if key.startswith(("model.", "tokenizer.")) and key not in _FREE:
                raise ConfigError(f"{key} cannot be changed: shape and vocabulary are those of {folder}; leave it out.")
        config = self.bundle.config
        return replace(
            recipe,
            model=config.with_changes(dropout=recipe.model.dropout),
            tokenizer=replace(recipe.tokenizer, vocab_size=config.vocab_size, path=""),
        )

    def give_weights(self, model: Transformer) -> None:
        """Start the model where the folder's ended."""
        load_weights(model, self.bundle.weights(), where=str(self.bundle.folder / WEIGHTS))

    def told(self) -> dict[str, Any]:
        """For `training.json`: which weights, and what they had learnt from, as far as the folder says."""
        path = self.bundle.folder / TRAINING
        story = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        recipe, earlier = story.get("recipe", {}), story.get("started_from", {})
        sources = [
            *({key: source.get(key, "") for key in _THANKS} for source in recipe.get("sources", ())),
            *earlier.get("sources", ()),
        ]
        return {
            "name": self.bundle.folder.name,
            "sha256": sha256(self.bundle.folder / WEIGHTS),
            "licence": recipe.get("licence", ""),
            "sources": [source for source in sources if source["split"] == "train"],
        }
