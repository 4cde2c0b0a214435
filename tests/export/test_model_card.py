"""The card: its facts are the folder's, its front matter holds, its code runs, and what people wrote stays."""

import json
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
import yaml

import tiny_transformer as tt
from export.model_card import (
    END,
    LICENCES,
    PIPELINE_TAGS,
    START,
    bare_onnx,
    check_metadata,
    example_text,
    model_card,
    written_by_hand,
)
from export.published import published
from tests.support.hub_driver import stand_in_report
from tiny_transformer.accepted_answers import CaseReport, Failure
from tiny_transformer.bundle import CASES, CURVE, EVALUATION, TRAINING, Bundle
from tiny_transformer.errors import BundleError, ExportError
from tiny_transformer.parity.report import CaseResult

REPO = "ada/model"


def training(**changes: Any) -> dict[str, Any]:
    """A `training.json` as training writes it."""
    figure = {"examples": 1000, "metrics": {"bleu": 48.123, "chrf": 66.5}, "signatures": {"bleu": "nrefs:1|tok:13a"}}
    return {
        "recipe": {
            "name": "translate",
            "languages": ["de", "zh", "en"],
            "licence": "cc-by-2.0",
            "sources": [
                {
                    "name": "de-en",
                    "path": "tatoeba/de-en.train.tsv",
                    "split": "train",
                    "licence": "CC BY 2.0 FR",
                    "attribution": "Tatoeba | contributors",
                    "url": "https://tatoeba.org",
                },
                {"name": "opus", "path": "hf://datasets/ada/opus@main/de.tsv", "split": "train"},
                {"name": "de-en.test", "path": "tatoeba/de-en.test.tsv", "split": "test"},
            ],
        },
        "data": {"tatoeba/de-en.train.tsv": "0" * 64},
        "seed": 7,
        "hardware": {"machine": "x86_64", "cpus": 16, "devices": 1, "gpu": "H200"},
        "seconds": 480.0,
        "tokens_per_second": 1_300_000,
        "results": {"test": {"de-en.test": figure}, "num_beams": 5},
        **changes,
    }


@pytest.fixture
def bundle(make_bundle: Callable[..., Bundle]) -> Bundle:
    made = make_bundle()
    (made.folder / TRAINING).write_text(json.dumps(training()), encoding="utf-8")
    return replace(made, generation=replace(made.generation, source_languages=("de", "zh"), target_language="en"))


def front_matter(card: str) -> dict[str, Any]:
    _, block, _ = card.split("---\n", 2)
    values: dict[str, Any] = yaml.safe_load(block)
    return values


def test_front_matter_says_what_the_folder_says(bundle: Bundle) -> None:
    values = front_matter(model_card(bundle, stand_in_report(bundle), REPO))
    assert values["language"] == ["de", "zh", "en"]
    assert values["license"] == "cc-by-2.0"
    assert values["pipeline_tag"] == "translation"
    assert values["library_name"] == "tiny-transformer"
    assert values["datasets"] == ["ada/opus"]  # the other data is not on the Hub
    (index,) = values["model-index"]
    (result,) = index["results"]
    assert result["dataset"]["name"] == "de-en.test"
    assert {metric["type"]: metric["value"] for metric in result["metrics"]} == {"bleu": 48.12, "chrf": 66.5}


def test_the_clients_own_reader_understands_the_model_index(bundle: Bundle) -> None:
    from huggingface_hub import ModelCard

    data = ModelCard(model_card(bundle, stand_in_report(bundle), REPO)).data
    assert [(result.metric_type, result.metric_value) for result in data.eval_results] == [
        ("bleu", 48.12),
        ("chrf", 66.5),
    ]


def test_the_text_has_results_parity_data_and_attributions(bundle: Bundle) -> None:
    case = CaseResult(candidate="onnx", kind="full", name="one", passed=True, max_absolute=4.2e-6)
    task = CaseResult(candidate="onnx-int8", kind="task", name="BLEU", passed=True, detail="48.0 BLEU against 48.1")
    report = replace(stand_in_report(bundle), candidates=("onnx", "onnx-int8"), cases=(case, task))
    (bundle.folder / EVALUATION).write_text("{}\n")
    (bundle.folder / CURVE).write_bytes(b"picture")
    card = model_card(bundle, report, REPO)
    assert "| de-en.test | test | BLEU | 48.12 | 1,000 | `nrefs:1\\|tok:13a` |" in card
    assert "with beam search with 5 beams" in card
    assert "| onnx | 1 | 4.2e-06 | equal |" in card
    assert "| onnx-int8 | 1 | judged by its task | equal (48.0 BLEU against 48.1) |" in card
    assert "CC BY 2.0 FR | Tatoeba \\| contributors |" in card
    assert "(https://tatoeba.org)" in card
    assert "8.0 minutes on 1 × H200 at 1,300,000 tokens/s with seed 7" in card
    assert f"![Loss over the training run]({CURVE})" in card
    assert "## Limits" in card


def test_a_translator_measured_on_the_public_set_stands_beside_published_systems(bundle: Bundle) -> None:
    assert "Beside published systems" not in model_card(bundle, stand_in_report(bundle), REPO)
    figure = {"examples": 16_869, "metrics": {"bleu": 47.434}}
    values = training(data={s.file: s.sha256 for s in published()[0]})
    values["results"]["test"]["de-en.public"] = figure
    (bundle.folder / TRAINING).write_text(json.dumps(values), encoding="utf-8")
    section = model_card(bundle, stand_in_report(bundle), REPO).partition("### Beside published systems\n\n")[2]
    assert section.startswith(
        "| BLEU | parameters | German → English |\n| --- | --- | --- |\n| model | 0.0 M | **47.43** |"
    )
    assert (
        "| [OPUS-MT, opus-mt-de-en](https://huggingface.co/Helsinki-NLP/opus-mt-de-en) | 74 M | 53.1 to 53.5 |\n"
        in section
    )
    assert "less 696 of deu-eng.\n\n## Parity" in section


def test_the_cases_of_the_folder_are_in_the_card_with_what_failed(bundle: Bundle) -> None:
    assert "What people type first" not in model_card(bundle, stand_in_report(bundle), REPO)
    report = CaseReport({"de-words": (3, 4)}, (Failure("de-words", "Haus|Hof", "horse", "house"),))
    (bundle.folder / CASES).write_text(report.to_json(), encoding="utf-8")
    card = model_card(bundle, stand_in_report(bundle), REPO)
    assert "| de-words | 4 | 75.00 % |\n| all | 4 | 75.00 % |" in card
    assert "| de-words | Haus\\|Hof | horse | house |" in card


def test_equal_facts_give_equal_bytes(bundle: Bundle) -> None:
    report = stand_in_report(bundle)
    assert model_card(bundle, report, REPO) == model_card(bundle, report, REPO)


def test_a_folder_without_a_training_file_has_a_card_too(make_bundle: Callable[..., Bundle]) -> None:
    bundle = make_bundle("decoder-only")
    card = model_card(bundle, stand_in_report(bundle), REPO)
    values = front_matter(card)
    assert values["license"] == "unknown"
    assert values["pipeline_tag"] == "text-generation"
    assert "model-index" not in values
    assert "## Results" not in card


def test_dev_figures_stand_in_where_there_was_no_test(bundle: Bundle) -> None:
    results = {"test": {}, "dev_by_source": {"dev": {"examples": 9, "metrics": {"accuracy": 97.5}}}}
    (bundle.folder / TRAINING).write_text(json.dumps(training(results=results)), encoding="utf-8")
    card = model_card(bundle, stand_in_report(bundle), REPO)
    assert "| dev | dev | Accuracy | 97.50 |" in card
    assert "greedy decoding" in card


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_a_figure_that_is_no_number_is_refused(bundle: Bundle, value: str) -> None:
    text = json.dumps(training()).replace("48.123", value)
    (bundle.folder / TRAINING).write_text(text, encoding="utf-8")
    with pytest.raises(ExportError, match=r"BLEU on de-en\.test"):
        model_card(bundle, stand_in_report(bundle), REPO)


@pytest.mark.parametrize("text", ["[]", "{", '{"recipe": 3}', '{"results": {"test": {"a": 1}}}'])
def test_a_training_file_that_is_none_is_named(bundle: Bundle, text: str) -> None:
    (bundle.folder / TRAINING).write_text(text, encoding="utf-8")
    with pytest.raises(BundleError, match=TRAINING):
        model_card(bundle, stand_in_report(bundle), REPO)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("license", "bogus-1.0", "licence 'bogus-1.0'"),
        ("license", None, "licence None"),
        ("pipeline_tag", "magic", "pipeline tag 'magic'"),
        ("language", ["English"], "language 'English'"),
    ],
)
def test_the_validator_refuses_what_the_hub_would_take(key: str, value: Any, words: str) -> None:
    good = {"license": "mit", "pipeline_tag": "translation", "language": ["en"]}
    check_metadata(good)
    with pytest.raises(ExportError, match=words):
        check_metadata({**good, key: value})


def test_licences_and_tags_are_the_hubs() -> None:
    assert {"apache-2.0", "mit", "cc-by-4.0", "cdla-sharing-1.0", "bsd-3-clause", "other"} <= LICENCES
    assert set(PIPELINE_TAGS.values()) == {"translation", "text-generation"}


def test_the_section_written_by_hand_goes_through_unchanged(bundle: Bundle) -> None:
    words = "### A warning\n\nIt knows *nothing* about ---\n| cats |."
    card = model_card(bundle, stand_in_report(bundle), REPO, by_hand=words)
    assert written_by_hand(card) == words
    assert model_card(bundle, stand_in_report(bundle), REPO, by_hand=written_by_hand(card)) == card


@pytest.mark.parametrize("card", ["", "# A card", f"{START} unfinished", f"{END} {START}"])
def test_a_card_without_the_section_has_nothing_by_hand(card: str) -> None:
    assert written_by_hand(card) == ""


def test_a_fresh_card_has_nothing_by_hand(bundle: Bundle) -> None:
    assert written_by_hand(model_card(bundle, stand_in_report(bundle), REPO)) == ""


@pytest.mark.parametrize(
    ("name", "task", "text"),
    [
        ("encoder-decoder-sinusoidal", "translate", "Good morning!"),
        ("decoder-only-learned", "chat", "Hi"),  # what the small context holds
        ("decoder-only-learned", "complete", "Once"),
    ],
)
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_the_cards_bare_onnx_code_says_what_we_say(
    exported: Callable[[str], Bundle], name: str, task: str, text: str, penalty: float
) -> None:
    made = exported(name)
    bundle = replace(made, generation=replace(made.generation, task=task, repetition_penalty=penalty))
    code = bare_onnx(bundle, REPO).replace(json.dumps(example_text(bundle), ensure_ascii=False), json.dumps(text))
    code = re.sub(r"snapshot_download\(.*\)", repr(str(made.folder)), code)
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "card", "exec"), {})
    model = tt.load(made.folder, "onnx")
    expected = model.generate(text, raw=task == "complete", repetition_penalty=penalty).text
    assert printed.getvalue().rstrip("\n") == expected.rstrip("\n")
