"""What a model card says of the training: the one place that reads `training.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiny_transformer.bundle import TRAINING, Bundle
from tiny_transformer.errors import BundleError

_HUB_DATASETS = "hf://datasets/"


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


@dataclass(frozen=True)
class TrainingFacts:
    """Everything a card wants to know; empty where the file does not say."""

    recipe: str = ""
    started_from: str = ""  # the model whose weights were the first, and how far its data is known
    languages: tuple[str, ...] = ()
    licence: str = ""
    sources: tuple[DataSource, ...] = ()
    figures: tuple[Figure, ...] = ()
    decoding: str = ""
    run: str = ""  # hardware, time and speed in words


def training_facts(bundle: Bundle) -> TrainingFacts:
    """Read the folder's `training.json`; a folder without one has no facts."""
    path = bundle.folder / TRAINING
    if not path.is_file():
        return TrainingFacts()
    try:
        return _facts(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BundleError(f"{path} is not what training writes ({error!r}); restore it or remove it.") from None


def _facts(values: Mapping[str, Any]) -> TrainingFacts:
    recipe = values.get("recipe", {})
    earlier = values.get("started_from", {})
    sources = [source for source in recipe.get("sources", ()) if source.get("split") == "train"]
    results = values.get("results", {})
    beams = int(results.get("num_beams", 1))
    licence = str(recipe.get("licence", ""))
    return TrainingFacts(
        recipe=str(recipe.get("name", "")),
        started_from=_started_from(earlier),
        languages=tuple(str(language) for language in recipe.get("languages", ())),
        licence=licence if not earlier or earlier.get("licence") == licence else "",  # one for both trainings, or none
        # Twice the same source, once in each training, is one to thank.
        sources=tuple(dict.fromkeys(_source(source) for source in (*sources, *earlier.get("sources", ())))),
        figures=tuple(_figures(results)),
        decoding=f"beam search with {beams} beams" if beams > 1 else "greedy decoding",
        run=_run(values),
    )


def _started_from(earlier: Mapping[str, Any]) -> str:
    if not earlier:
        return ""
    known = "the data of both is listed" if earlier.get("sources") else "what that model learnt from is not known"
    return f"It went on from the weights of `{earlier.get('name', '?')}`; {known}."


def _source(values: Mapping[str, Any]) -> DataSource:
    words = {key: str(values.get(key, "")) for key in ("path", "licence", "attribution", "url")}
    return DataSource(name=str(values.get("name") or Path(words["path"]).name), **words)


def _figures(results: Mapping[str, Any]) -> list[Figure]:
    """Of the test data; of dev where there was no test."""
    split, by_source = ("test", results.get("test")) if results.get("test") else ("dev", results.get("dev_by_source"))
    return [
        Figure(
            data=str(name),
            split=split,
            metric=str(metric),
            value=float(value),
            examples=int(figure.get("examples", 0)),
            signature=str(figure.get("signatures", {}).get(metric, "")),
        )
        for name, figure in (by_source or {}).items()
        for metric, value in figure.get("metrics", {}).items()
    ]


def _run(values: Mapping[str, Any]) -> str:
    hardware = values.get("hardware", {})
    parts = []
    if "seconds" in values:
        parts.append(f"{float(values['seconds']) / 60:,.1f} minutes")
    if hardware:
        device = hardware.get("gpu") or f"{hardware.get('cpus', '?')} CPU cores ({hardware.get('machine', '?')})"
        parts.append(f"on {hardware.get('devices', 1)} × {device}" if hardware.get("gpu") else f"on {device}")
    if "tokens_per_second" in values:
        parts.append(f"at {int(values['tokens_per_second']):,} tokens/s")
    if "seed" in values:
        parts.append(f"with seed {values['seed']}")
    return " ".join(parts)
