"""A recipe: one readable TOML file that says everything about a training run."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from tiny_transformer.checks import check_choice
from tiny_transformer.config import TASKS, JsonConfig, ModelConfig, defaults_of
from tiny_transformer.data.files import HUB, exists, join, shipped_data, without_compression
from tiny_transformer.data.records import FORMATS, GENERATED
from tiny_transformer.data.source import Source, migrated, named_sources
from tiny_transformer.errors import ConfigError
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.settings import EvaluationSettings, Phase, TokenizerSettings, TrainingSettings

_SECTIONS = ("model", "tokenizer", "training", "evaluation")
_T = TypeVar("_T", bound=JsonConfig)
_KEYS = ("task", "languages", "licence", *_SECTIONS, "sources", "phases")


@dataclass(frozen=True)
class Recipe:
    """What to train, on what, and how."""

    name: str
    task: str
    languages: tuple[str, ...]  # the sources' and, last, the target's; ISO 639-1
    licence: str  # of the weights, as the Hub names it; for the model card
    model: ModelConfig  # as far as the vocabulary goes, the tokenizer's, once there is one: see `config_for`
    tokenizer: TokenizerSettings
    training: TrainingSettings
    evaluation: EvaluationSettings
    sources: tuple[Source, ...]
    phases: tuple[Phase, ...]

    def to_dict(self) -> dict[str, Any]:
        """The recipe as run, for training.json and for the comparison on resume."""
        values = {
            "name": self.name,
            "task": self.task,
            "languages": self.languages,
            "licence": self.licence,
            **{section: getattr(self, section).to_dict() for section in _SECTIONS},
            "sources": [source.to_dict() for source in self.sources],
            "phases": [phase.to_dict() for phase in self.phases],
        }
        return dict(json.loads(json.dumps(values)))  # plain JSON, equal to itself when it is read back

    def config_for(self, tokenizer: Tokenizer) -> ModelConfig:
        """The shape of the model over a tokenizer, which may have fewer tokens than the recipe asks for."""
        return self.model.with_changes(**_vocabulary(tokenizer.vocab_size, tokenizer.output_size))

    def of_split(self, split: str) -> tuple[Source, ...]:
        """The sources that have examples of a split: files of their own, or a held-out share to be evaluated by."""
        return tuple(
            s for s in self.sources if s.split == split or (s.split == "train" and s.evaluated and split in s.held_out)
        )

    @property
    def paths_below_root(self) -> tuple[str, ...]:
        """The paths of the sources that lie in a data folder; the others are absolute, on the Hub, or generated."""
        return tuple(s.path for s in self.sources if s.path and join("data", s.path) != s.path)

    def default_root(self) -> str:
        """The data folder where the user names none: the checkout's, if it has the files; empty if none is needed."""
        if not self.paths_below_root:
            return ""
        first, shipped = self.paths_below_root[0], shipped_data()
        if not shipped:
            raise ConfigError(
                "Recipe {recipe} needs data; add --data with the folder of {path}, or run it in a checkout of the "
                "project, whose folder datasets holds the data of the models that ship.",
                recipe=self.name,
                path=first,
            )
        if not any(exists(join(shipped, path)) for path in self.paths_below_root):
            raise ConfigError(
                "Recipe {recipe} needs data that {datasets} does not hold; add --data with the folder of {path}.",
                recipe=self.name,
                datasets=shipped,
                path=first,
            )
        return shipped

    def with_data(self, source: Source) -> "Recipe":
        """The same recipe over one source of the user's; phases that mix other sources make no sense then.

        What was added with --also is read like it. Nobody knows under which licence that text is. Where a question
        has no one right answer, as in a dialogue, the best weights are those with the lowest loss.
        """
        added = (
            replace(source, name=s.name, path=s.path, repeat=s.repeat, evaluated=False)
            for s in self.sources
            if not s.evaluated
        )
        return replace(
            self,
            licence="",
            sources=(source, *added),
            phases=(replace(self.phases[0], share=1.0, repeat={}),),
            evaluation=self.evaluation
            if FORMATS[source.format].has_answer
            else replace(self.evaluation, metric="loss"),
        )


def recipe_names() -> list[str]:
    """The recipes that ship."""
    folder = resources.files("tiny_transformer.training.recipes")
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def load_recipe(name: str, overrides: Sequence[str] = (), also: Sequence[str] = ()) -> Recipe:
    """A recipe by name or path, with `key=value` overrides; the keys are dotted, the values TOML.

    Files in `also` become sources like the first one, named after the files; nothing is evaluated by them.
    """
    if name in recipe_names():
        text = resources.files("tiny_transformer.training.recipes").joinpath(f"{name}.toml").read_text("utf-8")
    else:
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            template = "There is no recipe {name!r}; choose one of {recipe_names}, or name a TOML file."
            raise ConfigError(template, name=name, recipe_names=", ".join(recipe_names())) from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("{name} is not a TOML file ({reason}); correct it.", name=name, reason=error) from None
    for path in also:
        _add_source(values, path)
    for override in overrides:
        _override(values, override)
    return parse_recipe(values, name=Path(name).stem)


def recipe_from_record(values: Mapping[str, Any]) -> Recipe:
    """The recipe that is recorded in a `training.json`."""
    values = dict(values)
    return parse_recipe(values, name=str(values.pop("name")))


def parse_recipe(values: Mapping[str, Any], *, name: str) -> Recipe:
    """Build a recipe from plain values; an unknown key is an error that names it."""
    where = f"recipe {name}"
    unknown = sorted(set(values) - set(_KEYS))
    if unknown:
        template = "{path} has unknown keys {keys}; remove them (known: {known})."
        raise ConfigError(template, path=where, keys=", ".join(unknown), known=", ".join(_KEYS))
    task = values.get("task", "translate")
    check_choice("task", task, TASKS)
    sources = tuple(_source(item, f"{where}: sources") for item in _tables(values, "sources", [], where))
    phases = tuple(_build(Phase, item, f"{where}: phases") for item in _tables(values, "phases", [{}], where))
    tokenizer = _build(TokenizerSettings, values.get("tokenizer", {}), f"{where}: tokenizer")
    vocabulary = _vocabulary(tokenizer.vocab_size, tokenizer.output_vocab_size)
    recipe = Recipe(
        name=name,
        task=task,
        languages=tuple(values.get("languages", ())),
        licence=str(values.get("licence", "")),
        model=_model(task, {**vocabulary, **values.get("model", {})}, f"{where}: model"),
        tokenizer=tokenizer,
        training=_build(TrainingSettings, values.get("training", {}), f"{where}: training"),
        evaluation=_build(EvaluationSettings, values.get("evaluation", {}), f"{where}: evaluation"),
        sources=tuple(source if source.name else replace(source, name=source.path) for source in sources),
        phases=phases,
    )
    _check(recipe, where)
    return recipe


def _check(recipe: Recipe, where: str) -> None:
    if not any(source.split == "train" for source in recipe.sources):
        raise ConfigError("{where} has no source to train on; add one under [[sources]].", where=where)
    names = [source.name for source in recipe.sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            "{where} has two sources named {twice}; give each a name of its own.", where=where, twice=twice[0]
        )
    for source in recipe.sources:
        if source.is_pairs != (recipe.task == "translate"):
            fitting = [name for name, kind in FORMATS.items() if kind.is_pairs == (recipe.task == "translate")]
            raise ConfigError(
                "{where}: source {source} has the format {format}, but the task {task} learns from "
                "{fitting}; correct it.",
                where=where,
                source=source.name,
                format=source.format,
                task=recipe.task,
                fitting=" or ".join(fitting),
            )
    for source in recipe.sources:
        strangers = sorted(set(named_sources(source)) - set(names))
        if strangers:
            template = "{where}: a transform of {source} names the unknown source {stranger}; correct it."
            raise ConfigError(template, where=where, source=source.name, stranger=strangers[0])
    for phase in recipe.phases:
        strangers = sorted(set(phase.repeat) - set(names))
        if strangers:
            template = "{where}: phase {phase} repeats the unknown source {strangers}; correct it."
            raise ConfigError(template, where=where, phase=phase.name, strangers=strangers[0])
    total = sum(phase.share for phase in recipe.phases)
    if abs(total - 1.0) > 1e-6:
        raise ConfigError("{where}: the shares of the phases add up to {total:g}; make it 1.", where=where, total=total)


def _vocabulary(size: int, output_size: int) -> dict[str, int]:
    """The two sizes as a model has them: as many tokens as there are, or more, are all of them."""
    return {"vocab_size": size, "output_vocab_size": output_size if output_size < size else 0}


def _source(values: Any, where: str) -> Source:
    """A source; its settings may have the form that they had when an older model was trained."""
    return _build(Source, migrated(values, where) if isinstance(values, Mapping) else values, where)


def _build(cls: type[_T], values: Any, where: str) -> _T:
    """A settings value; keys that are not given have their defaults."""
    if not isinstance(values, Mapping):
        raise ConfigError("{where} must be a table, not {values!r}; correct it.", where=where, values=values)
    return cls.from_dict({**defaults_of(cls), **values}, where=where)


def _tables(values: Mapping[str, Any], key: str, default: list[Any], where: str) -> list[Any]:
    found = values.get(key, default)
    if not isinstance(found, list):
        raise ConfigError(
            "{where}: {key} must be a list of tables, not {found!r}; correct it.", where=where, key=key, found=found
        )
    return found


def _model(task: str, values: Mapping[str, Any], where: str) -> ModelConfig:
    decoder_only = values.get("architecture", "decoder-only" if task != "translate" else "") == "decoder-only"
    defaults = ModelConfig.gpt() if decoder_only else ModelConfig()
    config = ModelConfig.from_dict({**defaults.to_dict(), **values}, where=where)
    if (task == "translate") != config.is_encoder_decoder:
        template = "{where}: a {architecture} model cannot {task}; change task or architecture."
        raise ConfigError(template, where=where, architecture=config.architecture, task=task)
    return config


def _add_source(values: dict[str, Any], path: str) -> None:
    sources = values.get("sources", [])
    if not sources:
        raise ConfigError(
            "{path} cannot be added: the recipe has no source to take it like; name it with --data.", path=path
        )
    absolute = path if path.startswith(HUB) else str(Path(path).resolve())  # not below the recipe's data folder
    # Dots would be taken for steps of a key: sources.NAME.repeat must reach it.
    name = Path(without_compression(Path(path).name)).stem.replace(".", "-")
    if any(source.get("name") == name for source in sources):
        name += "-also"
    first = {key: value for key, value in sources[0].items() if value != GENERATED and key != "judged"}
    sources.append({**first, "name": name, "path": absolute, "repeat": 1.0, "evaluated": False})


def _override(values: dict[str, Any], override: str) -> None:
    """Set `training.seed=2`, `sources.smalltalk.repeat=3` or `phases.0.share=0.5` in the recipe's values."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(
            "--set {override} is not key=value; write for example --set training.seed=2.", override=override
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string
    *path, last = key.split(".")
    table: Any = values
    for part in path:
        table = _descend(table, part, override)
    if isinstance(table, list):
        raise ConfigError("--set {override} names a list; add a name or a number to the key.", override=override)
    table[last] = value


def _descend(table: Any, part: str, override: str) -> Any:
    if isinstance(table, list):
        for i, item in enumerate(table):
            if part in (str(i), item.get("name"), item.get("path")):
                return item
        raise ConfigError(
            "--set {override}: there is no {part!r} in this recipe; correct the key.", override=override, part=part
        )
    if not isinstance(table, dict) or not isinstance(table.setdefault(part, {}), dict | list):
        raise ConfigError(
            "--set {override}: {part!r} is a value, not a table; correct the key.", override=override, part=part
        )
    return table[part]
