"""The static site as files: the folder's own bytes, nothing unproved, all or nothing, and words in both languages."""

import json
import re
import shutil
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx
import pytest
from jinja2 import Template
from tokenizers import Tokenizer

from export.commands import main
from export.to_web import PARITY_FOLDER, export_site, named_folders, page_texts
from export.transformers_js import write_for_transformers_js
from tests.support.export_fixtures import Exported
from tests.support.hub_commands import with_graphs
from tests.support.hub_driver import stand_in_report
from tests.support.models import ROOT, BundleFactory
from tests.support.web_checkout import add_web
from tiny_transformer.bundle import DECODER_ONNX, GENERATION, PARITY, TOKENIZER, WEIGHTS, WEIGHTS_INT8, Bundle
from tiny_transformer.errors import ExportError, ParityError, TinyTransformerError
from tiny_transformer.generation.prompt import prompt_for
from tiny_transformer.parity.report import ParityReport, write_report
from tiny_transformer.tokenizer import EOS

Export = Callable[..., dict[str, bytes]]
PAGE = "".join(
    path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "web").iterdir())
    if path.suffix in (".html", ".css", ".js", ".svg")
)


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def web_root(tmp_path: Path) -> Path:
    return add_web(tmp_path / "checkout")


@pytest.fixture
def export(tmp_path: Path, web_root: Path) -> Export:
    def run(*folders: Path, out: str = "site") -> dict[str, bytes]:
        export_site(named_folders(folders), tmp_path / out, stand_in_report, root=web_root)
        return contents(tmp_path / out)

    return run


def test_a_site_is_the_page_the_runtime_and_the_models_own_bytes(
    export: Export, make_bundle: BundleFactory, web_root: Path
) -> None:
    folders = [with_graphs(make_bundle(name=name)).folder for name in ("one", "two")]
    found = export(*folders)
    for folder in folders:
        copied = {name for name in found if name.startswith(f"models/{folder.name}/")}
        assert {f"models/{folder.name}/{name}" for name in (WEIGHTS, DECODER_ONNX, TOKENIZER, PARITY)} <= copied
        copied.remove(f"models/{folder.name}/{PARITY}")
        assert found[f"models/{folder.name}/{PARITY_FOLDER}"] == (folder / PARITY).read_bytes()
        copied.remove(f"models/{folder.name}/{PARITY_FOLDER}")
        assert all(found[name] == (folder / name.rsplit("/", 1)[-1]).read_bytes() for name in copied)
    page = {path.name for path in (web_root / "web").iterdir() if path.suffix in (".html", ".css", ".js", ".svg")}
    assert page - found.keys() == {"witness.js"}  # the comparison's, not the page's
    assert b"Microsoft" in found["runtime/LICENSE.txt"]
    site = json.loads(found["site.json"])
    listed = {name: file["sha256"] for name, file in site["files"].items()}
    left = found.keys() - {"site.json", "service-worker.js"}
    assert listed == {name: sha256(found[name]).hexdigest() for name in left}
    assert [model["path"] for model in site["models"]] == ["models/one/", "models/two/"]
    assert site["runtime"] == {"package": "onnxruntime-web", "version": "1.30.0", "license": "MIT"}


def test_the_service_worker_names_every_file_but_those_that_the_model_store_keeps(
    export: Export, model: Bundle
) -> None:
    found = export(model.folder)
    worker = re.search(r"const SITE = (\{.*?\n\});", found["service-worker.js"].decode(), re.DOTALL)
    assert worker
    kept = json.loads(worker[1])
    assert kept["version"] == json.loads(found["site.json"])["version"]
    assert kept["files"] == {
        name: sha256(data).hexdigest()
        for name, data in found.items()
        if (not name.startswith("models/") and not name.endswith(".wasm") and name != "service-worker.js")
        or name.endswith(PARITY_FOLDER)
    }


def test_equal_input_gives_equal_bytes_and_any_change_another_version(export: Export, model: Bundle) -> None:
    first = export(model.folder, out="first")
    assert export(model.folder, out="second") == first
    (model.folder / TOKENIZER).write_text((model.folder / TOKENIZER).read_text() + "\n")
    changed = export(with_graphs(Bundle.open(model.folder)).folder, out="third")
    assert json.loads(changed["site.json"])["version"] != json.loads(first["site.json"])["version"]


def test_nothing_unproved_becomes_a_page_and_the_older_one_stays(export: Export, model: Bundle, tmp_path: Path) -> None:
    before = export(model.folder)
    for name in (WEIGHTS, DECODER_ONNX, PARITY):
        original = (model.folder / name).read_bytes()
        (model.folder / name).write_bytes(original[:-20] + bytes([original[-20] ^ 1]) + original[-19:])
        with pytest.raises(TinyTransformerError, match=re.escape(str(model.folder / name))):
            export(model.folder)
        (model.folder / name).unlink()
        if name != WEIGHTS:
            with pytest.raises(ExportError, match=f"has no {name}; make it first"):
                export(model.folder)
        (model.folder / name).write_bytes(original)
    whole = stand_in_report(model)
    write_report(model, replace(whole, files={k: v for k, v in whole.files.items() if k != DECODER_ONNX}))
    with pytest.raises(ParityError, match=f"does not cover {DECODER_ONNX}"):
        export(model.folder)
    assert contents(tmp_path / "site") == before
    assert not list(tmp_path.glob(".site*")), "a temporary folder was left behind"


def test_the_page_is_proved_itself_and_proved_anew_only_if_something_changed(
    model: Bundle, tmp_path: Path, web_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs: list[Bundle] = []

    def verify(bundle: Bundle, *, backends: Sequence[str] | None = None) -> ParityReport:
        proofs.append(bundle)
        return stand_in_report(bundle, backends=backends)

    def export() -> int:
        export_site({"model": model.folder}, tmp_path / "site", verify, root=web_root)
        return len(proofs)

    assert export() == 1
    written = ParityReport.from_json((tmp_path / "site/models/model" / PARITY).read_text(), where="site")
    assert written.candidates == ("web",)
    assert export() == 1
    (web_root / "web" / "generation.js").write_text("// another loop\n")
    assert export() == 2
    (model.folder / TOKENIZER).write_text((model.folder / TOKENIZER).read_text() + "\n")
    with_graphs(model)
    assert export() == 3
    (tmp_path / "site/models/model" / PARITY).write_text("{}")
    assert export() == 4
    monkeypatch.setenv("STAND_IN_FAILS", "web")
    (web_root / "web" / "generation.js").write_text("// a broken mask\n")
    before = contents(tmp_path / "site")
    with pytest.raises(ParityError, match="Parity failed in 1 of 1 cases: web"):
        export()
    assert contents(tmp_path / "site") == before


def test_in_8_bits_the_weights_are_the_small_file_and_the_graphs_read_it(
    exported: Exported, tmp_path: Path, web_root: Path
) -> None:
    source = exported("encoder-decoder-rotary")
    folder = tmp_path / "translate"
    shutil.copytree(source.folder, folder)
    bundle = Bundle.open(folder)
    write_report(bundle, stand_in_report(bundle))
    before = contents(folder)
    export_site({"translate": folder}, tmp_path / "site", stand_in_report, int8=True, root=web_root)
    found = contents(tmp_path / "site" / "models" / "translate")
    assert {WEIGHTS_INT8, "encoder_model_web.onnx", "decoder_model_web.onnx"} <= found.keys()
    assert WEIGHTS not in found
    assert found[WEIGHTS_INT8] == before[WEIGHTS_INT8]
    proof = json.loads(found[PARITY])
    assert proof["candidates"] == ["web-int8"]
    for name in found.keys() - {PARITY, PARITY_FOLDER}:
        assert proof["files"][name] == sha256(found[name]).hexdigest()
    assert contents(folder) == before  # the graphs are made in a copy
    (model,) = json.loads((tmp_path / "site" / "site.json").read_text())["models"]
    assert model["backend"] == "web-int8"


def test_the_form_for_transformers_js_has_its_names_and_our_bytes(
    exported: Exported, tmp_path: Path, web_root: Path
) -> None:
    source = exported("decoder-only-rotary")
    folder = shutil.copytree(source.folder, tmp_path / "chat")
    bundle = Bundle.open(folder)
    write_report(bundle, stand_in_report(bundle))
    export_site({"chat": folder}, tmp_path / "site", stand_in_report, transformers_js=True, root=web_root)
    found = contents(tmp_path / "site" / "transformers.js" / "chat")
    assert found["onnx/model.onnx_data"] == (folder / WEIGHTS).read_bytes()
    graph = onnx.load_from_string(found["onnx/model.onnx"])
    axes = {value.name: [size.dim_param for size in value.type.tensor_type.shape.dim] for value in graph.graph.input}
    assert axes["past_key_values.0.key"] == ["batch_size", "", "past_sequence_length", ""]
    assert onnx.TensorProto.DOUBLE not in {tensor.data_type for tensor in graph.graph.initializer}
    assert b"transformers.js/" not in (tmp_path / "site" / "service-worker.js").read_bytes()  # no visitor reads it
    tokenizer = Tokenizer.from_str(found["tokenizer.json"].decode())
    template = Template(json.loads(found["tokenizer_config.json"])["chat_template"])
    turns: Any = [{"role": role, "content": role[:2]} for role in ("system", "user")]
    text = template.render(messages=turns, eos_token=EOS, add_generation_prompt=True)
    prefix = prompt_for(bundle.tokenizer, bundle.config, bundle.generation, turns, max_new_tokens=1).prefix
    assert tokenizer.encode(text).ids == list(prefix)
    # A model that goes on with a text begins it with <bos>, as Python does.
    generation = json.loads((folder / GENERATION).read_text()) | {"task": "complete", "roles": {}}
    (folder / GENERATION).write_text(json.dumps(generation))
    write_for_transformers_js(Bundle.open(folder), tmp_path / "complete")
    encoded = Tokenizer.from_file(str(tmp_path / "complete" / "tokenizer.json")).encode("ab").ids
    assert encoded == [bundle.generation.bos_id, *bundle.tokenizer.encode("ab")]
    assert "chat_template" not in json.loads((tmp_path / "complete" / "tokenizer_config.json").read_text())
    translator = exported("encoder-decoder-rotary").folder
    with pytest.raises(TinyTransformerError, match=r"an encoder-decoder, which transformers\.js cannot"):
        export_site({"t": translator}, tmp_path / "other", stand_in_report, transformers_js=True, root=web_root)
    assert not (tmp_path / "other").exists()


def test_only_a_site_of_ours_is_replaced(export: Export, model: Bundle, tmp_path: Path) -> None:
    export(model.folder)
    export(model.folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(TinyTransformerError, match="is no site of this project"):
        export(model.folder, out="mine")
    assert contents(tmp_path / "mine") == {"thesis.txt": b"years of work"}


def test_a_name_is_an_address(export: Export, make_bundle: BundleFactory, tmp_path: Path) -> None:
    for name in ("with space", "ümlaut", "a?b"):
        with pytest.raises(TinyTransformerError, match="no address on a page"):
            export(with_graphs(make_bundle(name=name)).folder)
    one = with_graphs(make_bundle(name="chat")).folder
    other = with_graphs(make_bundle(name="elsewhere/chat")).folder
    with pytest.raises(TinyTransformerError, match="Two model folders have the name chat"):
        export(one, other)


def test_a_runtime_with_other_bytes_is_refused(export: Export, model: Bundle, web_root: Path) -> None:
    wasm = web_root / "web/node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm"
    wasm.write_bytes(b"another build")
    with pytest.raises(ExportError, match=r"is not the file that .*runtime\.json names"):
        export(model.folder)


def test_a_missing_runtime_is_installed_and_if_that_fails_one_sentence_says_what_to_run(
    export: Export, model: Bundle, web_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = web_root / "web/node_modules"
    package.rename(tmp_path / "installed")
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(ExportError, match=r"needs onnxruntime-web 1\.30\.0, and `npm ci` in .* failed \(No such file"):
        export(model.folder)
    npm = programs / "npm"
    npm.write_text("#!/bin/sh\necho 'npm error no network' >&2; exit 1\n")
    npm.chmod(0o755)
    with pytest.raises(ExportError, match=r"failed \(npm error no network\); run it there"):
        export(model.folder)
    npm.write_text(f"#!/bin/sh\n/bin/cp -r {tmp_path / 'installed'} node_modules\n")
    assert "runtime/ort-wasm-simd-threaded.wasm" in export(model.folder)


def test_without_a_checkout_there_is_no_page(model: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"no web/index\.html; the page is made from a checkout"):
        export_site({"model": model.folder}, tmp_path / "site", stand_in_report, root=tmp_path)


def test_the_command_says_what_it_wrote(model: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model.folder / PARITY).unlink()
    assert main(["web", str(model.folder), "--out", str(tmp_path / "site")]) == 2
    assert "has no parity.json; make it first" in capsys.readouterr().err


def test_every_word_of_the_page_is_there_in_both_languages() -> None:
    texts = page_texts(PAGE)
    named = set(re.findall(r'said\("(\w+)"|data-(?:text|label|hint)="(\w+)"', PAGE))
    assert {first or second for first, second in named} <= texts["en"].keys()
    assert texts["en"].keys() == texts["zh"].keys()
    for task in ("chat", "translate", "complete"):
        assert {f"task_{task}", f"{task}_placeholder"} <= texts["en"].keys()


def test_no_word_is_left_over() -> None:
    table = tomllib.loads((ROOT / "tiny_transformer/ui/sentences.toml").read_text(encoding="utf-8"))
    texts = page_texts(PAGE)
    assert table["web"].keys() <= texts["en"].keys()
    assert {entry["en"] for entry in table["web_message"]} <= texts["messages"].keys()
    assert not {entry["en"] for entry in table["web_message"]} & {entry["en"] for entry in table["message"]}


# What only a program can meet that calls the library itself: the page offers nothing that leads there.
FOR_PROGRAMS = re.compile(
    r"There is no (backend|option)|loaded in 8 bits|^stop |min_new_tokens|takes a text, not|^The role|"
    r"content of a message|^The last message|Expected text|has no room for a message"
)


def test_every_sentence_that_a_visitor_can_meet_has_a_chinese_form() -> None:
    templates = re.findall(r'(?:ModelError|sentence)\(\s*"((?:[^"\\]|\\.)*)"|template =\s*"((?:[^"\\]|\\.)*)"', PAGE)
    met = {first or second for first, second in templates} - {""}
    assert len(met) > 20
    missing = {template for template in met if not FOR_PROGRAMS.search(template)} - page_texts(PAGE)["messages"].keys()
    assert not missing
