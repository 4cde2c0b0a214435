"""What a folder's `training.json` says of the training: its only reader and its only writer."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin

from tiny_transformer.bundle import EVALUATION, TRAINING
from tiny_transformer.checks import shown
from tiny_transformer.errors import BundleError, Sentence

_HUB_DATASETS = "hf://datasets/"
_MAX_NUMBER = 2**63  # far above any count; beyond it, arithmetic on a hostile file could overflow


@dataclass(frozen=True)
class DataSource:
    """One body of text the model learned from, and whom to thank for it."""

    name: str
    path: str
    licence: str = ""
    attribution: str = ""
    url: str = ""

    @property
    def dataset(self) -> str:
        """USER/NAME of a dataset on the Hub; empty for other data."""
        if not self.path.startswith(_HUB_DATASETS):
            return ""
        return "/".join(self.path.removeprefix(_HUB_DATASETS).split("@")[0].split("/")[:2])


@dataclass(frozen=True)
class Figure:
    """One measured figure."""

    data: str
    split: str
    metric: str  # bleu, chrf, accuracy, exact_match …
    value: float
    examples: int = 0
    signature: str = ""  # how sacrebleu computed it


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """Everything about a run but the weights; a value that the file does not hold is empty."""

    recipe: dict[str, Any] = field(default_factory=dict)  # as run; paths are below the data folder
    started_from: dict[str, Any] = field(default_factory=dict)  # the model whose weights were the first; else empty
    data: dict[str, str] = field(default_factory=dict)  # file → SHA-256
    parameters: int | None = None
    seed: int | None = None
    hardware: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    tokens_per_second: float | None = None
    results: dict[str, Any] = field(default_factory=dict)
    dev_history: list[dict[str, float]] = field(default_factory=list)
    curve: list[dict[str, float]] = field(default_factory=list)  # step, loss, learning rate

    @classmethod
    def read(cls, folder: Path) -> "TrainingRecord":
        """The record of a model folder, strictly checked; an empty one for a folder without the file."""
        path = folder / TRAINING
        if not path.is_file():
            return cls()
        try:
            return _checked(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:
            reason = error.args[0] if isinstance(error, _DamagedError) else error
            raise BundleError(
                "{path} is not what training writes ({reason}); restore it or remove it.", path=path, reason=reason
            ) from None

    def to_json(self) -> str:
        """The text of the file; what is not known is left out."""
        values = {name: value for name, value in asdict(self).items() if value not in ({}, None)}
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"

    @property
    def recipe_name(self) -> str:
        """Which recipe was run."""
        return str(self.recipe.get("name", ""))

    @property
    def licence(self) -> str:
        """Of the weights: where they went on from those of another model, one that holds for both, or none."""
        licence = str(self.recipe.get("licence", ""))
        return licence if not self.started_from or self.started_from.get("licence") == licence else ""

    @property
    def sources(self) -> tuple[DataSource, ...]:
        """What was learned from, in this training and in those before it; each source once."""
        trained = [source for source in self.recipe.get("sources", ()) if source.get("split") == "train"]
        return tuple(dict.fromkeys(map(_data_source, (*trained, *self.started_from.get("sources", ())))))

    @property
    def provenance(self) -> dict[str, Any]:
        """What the record of a model that goes on from these weights must say of them."""
        return {"licence": self.licence, "sources": [{**asdict(source), "split": "train"} for source in self.sources]}

    @property
    def figures(self) -> tuple[Figure, ...]:
        """What was measured on the test data; on dev where there was no test."""
        split, by_source = "test", self.results.get("test")
        if not by_source:
            split, by_source = "dev", self.results.get("dev_by_source", {})
        return tuple(
            Figure(name, split, metric, value, found.get("examples", 0), found.get("signatures", {}).get(metric, ""))
            for name, found in by_source.items()
            for metric, value in found.get("metrics", {}).items()
        )

    def sample(self, metric: str) -> Figure | None:
        """What was measured on exactly the folder's `evaluation.jsonl`, greedily; None in older records."""
        found = self.results.get("sample", {})
        value = found.get("metrics", {}).get(metric)
        return None if value is None else Figure(EVALUATION, "sample", metric, value, found.get("examples", 0))

    @property
    def decoding(self) -> str:
        """How the measured texts were generated, in words."""
        beams = self.results.get("num_beams", 1)
        return f"beam search with {beams} beams" if beams > 1 else "greedy decoding"

    @property
    def run_summary(self) -> str:
        """Time, hardware, speed and seed in words."""
        hardware, parts = self.hardware, []
        if self.seconds is not None:
            parts.append(f"{self.seconds / 60:,.1f} minutes")
        if hardware.get("gpu"):
            parts.append(f"on {hardware.get('devices', 1)} × {hardware['gpu']}")
        elif hardware:
            parts.append(f"on {hardware.get('cpus', '?')} CPU cores ({hardware.get('machine', '?')})")
        if self.tokens_per_second is not None:
            parts.append(f"at {int(self.tokens_per_second):,} tokens/s")
        if self.seed is not None:
            parts.append(f"with seed {self.seed}")
        return " ".join(parts)


def _data_source(values: dict[str, str]) -> DataSource:
    words = {key: values.get(key, "") for key in ("path", "licence", "attribution", "url")}
    return DataSource(name=values.get("name") or Path(words["path"]).name, **words)


class _DamagedError(ValueError):
    """A value is not of the kind that training writes; its argument is the sentence."""


def _checked(values: Any) -> TrainingRecord:
    """The record that plain values describe. Keys of other versions are ignored, wrong kinds are refused."""
    values = _typed(values, dict, "the file")
    known = [f for f in fields(TrainingRecord) if f.name in values]
    record = TrainingRecord(**{f.name: _typed(values[f.name], _kind(f.type), f.name) for f in known})
    for origin, where in ((record.recipe, "recipe"), (record.started_from, "started_from")):
        for key in ("name", "licence"):
            _typed(origin.get(key, ""), str, f"{where}.{key}")
        for source in _typed(origin.get("sources", []), list, f"{where}.sources"):
            for key in ("name", "path", "split", "licence", "attribution", "url"):
                _typed(_typed(source, dict, f"{where}.sources").get(key, ""), str, f"{where}.sources.{key}")
    for language in _typed(record.recipe.get("languages", []), list, "recipe.languages"):
        _typed(language, str, "recipe.languages")
    _typed(record.results.get("num_beams", 1), int, "results.num_beams")
    for split in ("test", "dev_by_source"):
        for name, figures in _typed(record.results.get(split, {}), dict, f"results.{split}").items():
            _check_figures(figures, f"results.{split}.{name}")
    _check_figures(record.results.get("sample", {}), "results.sample")
    for entry in record.curve:
        for key in ("step", "loss"):
            _typed(_typed(entry, dict, "curve").get(key), float, f"curve.{key}")
    return record


def _check_figures(values: Any, where: str) -> None:
    values = _typed(values, dict, where)
    _typed(values.get("examples", 0), int, f"{where}.examples")
    for metric, value in _typed(values.get("metrics", {}), dict, f"{where}.metrics").items():
        _typed(value, float, f"{where}.metrics.{metric}")
    for metric, value in _typed(values.get("signatures", {}), dict, f"{where}.signatures").items():
        _typed(value, str, f"{where}.signatures.{metric}")


def _kind(annotation: Any) -> type:
    """dict, list, int or float, of a field's annotation."""
    return get_origin(annotation) if get_origin(annotation) in (dict, list) else get_args(annotation)[0]


def _typed(value: Any, kind: type, where: str) -> Any:
    """A value of a kind; a whole number is a float too, True is no number, and numbers have a size that adds up."""
    kinds = (int, float) if kind is float else (kind,)
    is_huge = isinstance(value, int) and abs(value) > _MAX_NUMBER
    if not isinstance(value, kinds) or isinstance(value, bool) or is_huge:
        raise _DamagedError(Sentence("{where} is {value}", where=where, value=shown(value)))
    return value
