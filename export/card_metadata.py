"""The front matter of a model card: made from facts, and checked before anyone sees it."""

import math
import re
from typing import Any

from tiny_transformer.bundle import Bundle
from tiny_transformer.errors import ExportError

from .training_facts import TrainingFacts

LIBRARY = "tiny-transformer"
UNKNOWN_LICENCE = "unknown"
PIPELINE_TAGS = {"translate": "translation", "chat": "text-generation", "complete": "text-generation"}
METRICS = {"bleu": "BLEU", "chrf": "chrF", "accuracy": "Accuracy", "exact_match": "Exact match"}
# The Hub's own identifiers; its validator lets any word pass, and its pages then show none.
_LICENCES = """
    afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 c-uda cc cc0-1.0
    cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0
    cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 gfdl gpl gpl-2.0 gpl-3.0
    isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openrail openrail++
    osl-3.0 other pddl postgresql unknown unlicense wtfpl zlib
"""
LICENCES = frozenset(_LICENCES.split())


def front_matter(bundle: Bundle, facts: TrainingFacts, name: str, licence: str = "") -> dict[str, Any]:
    """The metadata as plain values, checked."""
    generation = bundle.generation
    languages = [*generation.source_languages, generation.target_language] if generation.source_languages else []
    values: dict[str, Any] = {
        "language": _unique(languages or list(facts.languages)),
        "license": licence or facts.licence or UNKNOWN_LICENCE,
        "library_name": LIBRARY,
        "pipeline_tag": PIPELINE_TAGS[generation.task],
        "tags": [LIBRARY, "transformer", bundle.config.architecture, "onnx", "pytorch"],
        "datasets": _unique([source.dataset for source in facts.sources]),
        "model-index": _model_index(facts, name, PIPELINE_TAGS[generation.task]),
    }
    values = {key: value for key, value in values.items() if value}
    check_metadata(values)
    return values


def as_yaml(values: dict[str, Any]) -> str:
    """The block between the two lines of dashes, with them."""
    import yaml  # type: ignore[import-untyped]

    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---\n"


def check_metadata(values: dict[str, Any]) -> None:
    """Refuse what the Hub would take and then not understand."""
    licence = values.get("license")
    if licence not in LICENCES:
        raise ExportError(f"The licence {licence!r} is none the Hub knows; use one such as apache-2.0 or mit.")
    tag = values.get("pipeline_tag")
    if tag not in PIPELINE_TAGS.values():
        raise ExportError(f"The pipeline tag {tag!r} is none of {', '.join(sorted(set(PIPELINE_TAGS.values())))}.")
    for language in values.get("language", []):
        if not re.fullmatch(r"[a-z]{2,3}", language):
            raise ExportError(f"The language {language!r} is no ISO 639 code such as en or de; correct it.")
    for model in values.get("model-index", []):
        for result in model["results"]:
            for metric in result["metrics"]:
                if not math.isfinite(metric["value"]):
                    data = result["dataset"]["name"]
                    raise ExportError(f"{metric['name']} on {data} is {metric['value']}; a card needs a finite figure.")


def _model_index(facts: TrainingFacts, name: str, task: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for data in _unique([figure.data for figure in facts.figures]):
        figures = [figure for figure in facts.figures if figure.data == data and figure.metric in METRICS]
        if figures:
            results.append(
                {
                    "task": {"type": task},
                    "dataset": {"name": data, "type": "custom", "split": figures[0].split},
                    "metrics": [
                        {"type": figure.metric, "name": METRICS[figure.metric], "value": round(figure.value, 2)}
                        for figure in figures
                    ],
                }
            )
    return [{"name": name, "results": results}] if results else []


def _unique(values: list[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if value]
