"""The comparison itself: fair turns, right ratios, and figures in the pages that come from the kept results."""

import json
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import comparison, corpus, machine
from benchmarks.chart import draw
from benchmarks.comparison import RESULTS, Task, compare
from benchmarks.engines import ENTRIES
from benchmarks.gpu import NEAR, shortfall
from benchmarks.machine import bandwidth
from benchmarks.models import copies
from benchmarks.shapes import SHAPES
from benchmarks.speed import disk, floor
from benchmarks.summary import agreement, ratio, ratios, summed_up
from benchmarks.table import corpus_table, tables
from tests.support.export_fixtures import ENCODER_DECODERS, Exported
from tests.support.models import ARCHITECTURES, ROOT, tiny_config
from tiny_transformer import corpus_run
from tiny_transformer.bundle import Bundle
from tiny_transformer.commands.init import random_bundle
from tiny_transformer.training.recipe import load_recipe, recipe_from_record


def test_a_ratio_compares_the_same_round() -> None:
    # A machine that halves its speed after the first round changes no ratio.
    assert ratio([1.0, 2.0, 2.0], [3.0, 6.0, 6.0]) == {"median": 3.0, "least": 3.0, "most": 3.0}
    assert agreement([[1, 2], [3]], [[1, 2], [4]]) == 0.5


@pytest.mark.slow
def test_everyone_does_the_same_work_in_turns(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = exported("decoder-only-learned").folder
    turns: list[str] = []
    work = comparison.Process.work

    def noted(self: comparison.Process, task: Task) -> dict:
        turns.append(self.record.name)
        return work(self, task)

    monkeypatch.setattr(comparison.Process, "work", noted)
    tasks = [Task("one", [[7, 8, 9]], 6), Task("many", [[7, 8, 9], [9, 8, 7]], 6), Task("first", [[7, 8, 9]], 1)]
    names = ("onnx", "onnx-int8", "eager")
    records = compare(dict.fromkeys(names, folder), tasks, rounds=3, threads=1)
    for record in records.values():
        assert {name: len(seconds) for name, seconds in record.seconds.items()} == {"one": 3, "many": 3, "first": 3}
        assert record.peak_mb > record.import_mb > 0
        assert [len(row) for row in record.ids["many"]] == [6, 6]
    assert records["onnx"].ids == records["eager"].ids
    first_task = turns[len(names) : len(names) * (1 + comparison.WARM_UPS + 3)]
    rounds = first_task[comparison.WARM_UPS * len(names) :]
    assert [rounds[i] for i in (0, 3, 6)] == list(names), "everyone begins one round"
    entries = summed_up(records, tasks, "onnx")
    assert entries["eager"]["rows_as_ours"]["many"] == 1.0
    assert [(line["ours"], line["peer"]) for line in ratios("G", entries)] == []
    for entry in entries.values():
        entry["disk_mb"] = disk(folder, ("*.safetensors",)) / 2**20
    found = {
        "machine": {"processor": "test"},
        "comparisons": [{"shape": "G", "threads": 1, "rows": 2, "entries": entries}],
    }
    draw(found, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is not a folder"):
        compare({"onnx": tmp_path / "absent"}, [Task("one", [[7]], 1)], rounds=1, threads=1)


@pytest.mark.parametrize("name", ["decoder-only-learned", ENCODER_DECODERS[0]])
def test_a_token_that_the_cpu_would_not_choose_is_found(exported: Exported, name: str) -> None:
    bundle = exported(name)
    rows = [[7, 8, 9], [9, 8, 7]]
    (record,) = compare({"eager": bundle.folder}, [Task("all", rows, 6)], rounds=1, threads=1).values()
    ids = record.ids["all"]
    assert shortfall(bundle, rows, ids) <= NEAR["float32"]
    for place in (0, 3, 5):
        wrong = [list(row) for row in ids]
        wrong[1][place] = (wrong[1][place] + 50) % 290 + 5
        assert shortfall(bundle, rows, wrong) > 10 * NEAR["float32"]


def test_the_shapes_are_the_ones_that_were_published() -> None:
    assert [(shape.n_read, shape.n_new, shape.batches) for shape in SHAPES.values()] == [
        (16, 64, (1, 32)),
        (16, 64, (1, 32)),
        (32, 128, (1, 16)),
    ]
    assert {entry.module for entry in ENTRIES.values() if not entry.ours} == {
        "ctranslate2",
        "transformers",
        "optimum",
        "transformers_js",
        "onnxruntime_genai",
    }


def test_a_peers_copy_belongs_to_the_weights_it_was_made_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(bundle: Bundle, folder: Path) -> None:
        folder.mkdir(parents=True)

    peer = SimpleNamespace(
        architectures=ARCHITECTURES, ours=False, graphs=False, module="peer", code=SimpleNamespace(convert=convert)
    )
    runner = SimpleNamespace(**(vars(peer) | {"graphs": True, "module": "runner"}))
    monkeypatch.setitem(ENTRIES, "peer", peer)
    monkeypatch.setitem(ENTRIES, "runner", runner)
    bundles = [
        random_bundle(tmp_path / f"{i}", tiny_config(), "translate", seed=seed) for i, seed in enumerate((1, 2, 1))
    ]
    found = [copies(tmp_path / "copies", bundle, ["peer"])["peer"] for bundle in bundles]
    assert found[0] == found[2] != found[1]
    both = [copies(tmp_path / "copies", bundles[0], ["peer", "runner"])]
    (bundles[0].folder / "decoder_model.onnx").write_bytes(b"another exporter's")
    both.append(copies(tmp_path / "copies", bundles[0], ["peer", "runner"]))
    assert both[0]["peer"] == both[1]["peer"]
    assert both[0]["runner"] != both[1]["runner"]  # whoever runs our graphs has today's


def test_genai_is_told_of_a_model_without_another_folder_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.engines import onnxruntime_genai as engine

    bundle = random_bundle(tmp_path / "ours", tiny_config(architecture="decoder-only"), "chat")
    for names in engine.FILES.values():
        for name in names:
            (bundle.folder / name).touch()
    engine.convert(bundle, tmp_path / "elsewhere" / "genai")
    genai = SimpleNamespace(Model=lambda folder: json.loads((Path(folder) / "genai_config.json").read_text("utf-8")))
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", genai)
    for threads in (2, 1):
        told = engine.open_model(tmp_path / "elsewhere" / "genai", "int8", threads, "cpu").model
        assert told["model"]["decoder"]["session_options"]["intra_op_num_threads"] == threads
        assert told["model"]["decoder"]["filename"] == "decoder_model_int8.onnx"
        assert told["model"]["vocab_size"] == bundle.config.vocab_size


def test_the_page_about_the_page_shows_the_kept_load() -> None:
    found = json.loads((RESULTS / "load-cpu.json").read_text(encoding="utf-8"))
    text = page("docs/page.md")
    costs = found["batches"]
    shown = [f"{found['kinds']['all']['n']:,}", ", ".join(map(str, found["megabytes_by_round"]))]
    shown += [str(found["short_beside_long_s"]), *map(str, costs["page_cpu_ms"].values())]
    shown += [str(statistics.median(costs[f"model_{how}_cpu_ms"])) for how in ("alone", "in_batch")]
    shown += [str(costs["at_most_median"][states]) for states in ("as it is", "one state")]
    assert [figure for figure in shown if figure not in text] == []
    assert (found["errors"], found["wrong_texts"]) == (0, 0)
    assert costs["at_most_median"]["as it is"] < 1.5, "answers on the page should share batches"


@pytest.mark.long
def test_a_corpus_is_measured_with_and_without_a_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, kept = random_bundle(tmp_path / "ours", tiny_config(max_length=8), "translate"), tmp_path / "found.json"
    monkeypatch.setattr(corpus_run, "BLOCK_ROWS", 1)  # put back afterwards
    flags = ("--backends", "numpy", "--workers", "1", "--lines", "8", "--compared", "0", "--block-rows", "2")
    monkeypatch.setattr(sys, "argv", ["corpus", "--bundle", str(bundle.folder), *flags, "--json", str(kept)])
    corpus.main()
    found = json.loads(kept.read_text(encoding="utf-8"))
    assert found["backends"]["numpy"]["runs"]["1 process"]["tokens_per_second"] > 0
    assert found["backends"]["numpy"]["added"]["resumed"] > -1
    assert "target tokens/s" in capsys.readouterr().out
    assert [line.split(" | ")[0] for line in corpus_table(found).splitlines()[2:]] == [
        "| 1 process",
        "| files and shards add",
        "| the same with a break halfway",
    ]


def test_the_pages_show_the_kept_results() -> None:
    found = tables()
    text = page("docs/benchmarks.md")
    assert "benchmarks/results/speed.png" in text
    for title, table in found.items():
        assert (page("README.md") if title == "summary" else text).count(table) == 1, (
            f"{title}: stale, see benchmarks.table"
        )
    assert found["gpu"] in page("README.md")
    many = json.loads((RESULTS / "many-texts-cpu.json").read_text(encoding="utf-8"))
    medians = [line["median"] for beams in many["beams"].values() for line in beams["ratios"].values()]
    assert f"ratios of {min(medians):.2f} to {max(medians):.2f}" in page("README.md")
    for file in RESULTS.glob("speed-cuda*.json"):
        assert all(line["equal"] for line in json.loads(file.read_text(encoding="utf-8"))["rows"].values())


def test_a_first_visit_of_the_8_bit_page_reads_30_megabytes_at_most_and_no_peer_is_faster() -> None:
    found = json.loads((RESULTS / "web-cpu.json").read_text(encoding="utf-8"))
    assert found["first_answer"].keys() == {"chat", "translate"}
    for figures in found["first_answer"].values():
        assert figures["backend"] == "web-int8"
        assert figures["megabytes"] <= 30
    for figures in found["peer"].values():
        assert figures["transformers-js"]["page_as_fast"]["median"] >= 1
        assert all(engine["same_ids"] for engine in figures.values())


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_cores_that_read_side_by_side_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_read", lambda part: time.sleep(0.05 * part.nbytes / 4_000_000))
    one, two = bandwidth(4_000_000, 1), bandwidth(4_000_000, 2)
    assert 1.5 < two / one < 2.5


def test_training_is_as_fast_as_the_page_says() -> None:
    found = json.loads((RESULTS / "training-speed.json").read_text(encoding="utf-8"))
    translate, gpt = found["shapes"]["translate"], found["shapes"]["gpt"]
    assert translate["batch_tokens"] == load_recipe("translate").training.batch_tokens
    text = page("docs/benchmarks.md")
    for shape in (translate, gpt):
        assert f"| {shape['tokens_per_second']:,} | {shape['busy_share']:.1%}".replace("%", " % |") in text
    assert f"| {translate['tokens_per_second_with_r_drop']:,} | |" in text


def test_the_papers_table_is_that_of_the_kept_runs() -> None:
    folder = RESULTS / "multi30k-en-de"
    found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    runs = [json.loads((folder / f"seed-{seed}.json").read_text(encoding="utf-8")) for seed in found["seeds"]]
    scores = [run["results"]["test"]["test2016"]["metrics"]["bleu"] for run in runs]
    assert scores == [figures["test2016"]["bleu"] for figures in found["seeds"].values()]
    median = found["median"]["test2016"]["bleu"]
    assert median == sorted(scores)[1] >= 41.02
    assert found["parameters"] <= 2_600_000
    recipe = load_recipe("multi30k-en-de").to_dict()
    for run in runs:
        kept = recipe_from_record(run["recipe"]).to_dict()
        limits = ("max_epochs", "max_minutes", "seed")  # the clock ended these runs in the 61st or 63rd epoch
        assert {**kept["training"], **{name: recipe["training"][name] for name in limits}} == recipe["training"]
        assert all(kept[part] == recipe[part] for part in ("model", "tokenizer", "evaluation", "sources"))
    size = f"{found['parameters'] / 1e6:.2f} M |"
    assert f"{size} **{median:.2f}** ({min(scores):.2f} – {max(scores):.2f}) |" in page("docs/reproduce.md")
    assert f"{size} {median:.2f} BLEU on test2016, median of three seeds; published: 41.02 |" in page("README.md")


def test_the_floor_is_that_of_the_files_that_are_there(tmp_path: Path) -> None:
    folder = random_bundle(tmp_path / "ours", tiny_config(), "translate").folder
    assert list(floor(folder, 1)) == ["float32"]
    (folder / "model_int8.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert list(floor(folder, 1)) == ["float32", "int8"]
