"""The model folder: opened strictly, saved whole, never taken for what it is not."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models import BundleFactory, run_python, tiny_model
from tiny_transformer import bundle as files
from tiny_transformer.bundle import Bundle, check_target, copy_bundle, remove_derived, save_bundle, sha256
from tiny_transformer.config import ARCHITECTURES
from tiny_transformer.errors import BundleError, ConfigError, TinyTransformerError, TokenizerError
from tiny_transformer.model import load_model, weights_of
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.weights import write_weights

A_FILE_OF_SYS = next((str(file) for file in Path("/sys").glob("*/*") if file.is_file()), "/proc/version")


def refusal(folder: Path) -> str:
    with pytest.raises(TinyTransformerError) as caught:
        Bundle.open(folder)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert str(folder) in message
    return message


def edit(bundle: Bundle, name: str, **changes: Any) -> None:
    path = bundle.folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_folder_gives_back_what_was_saved(architecture: str, tmp_path: Path, make_bundle: BundleFactory) -> None:
    made = make_bundle(architecture)
    model = tiny_model(made.config, seed=3)
    saved = save_bundle(
        tmp_path / "own", made.config, made.generation, made.tokenizer, weights_of(model), extra={"training.json": "{}"}
    )
    opened = Bundle.open(str(tmp_path / "own"))
    assert opened == saved
    assert opened.config == made.config
    assert opened.tokenizer.encode("Grüße") == made.tokenizer.encode("Grüße")
    loaded = weights_of(load_model(opened))
    assert all(np.array_equal(loaded[name], array) for name, array in weights_of(model).items())
    assert opened.files() == ["config.json", "generation.json", "model.safetensors", "tokenizer.json", "training.json"]
    assert opened.has("config.json", "training.json")
    assert not opened.has("config.json", "parity.json")


FORKED_WHILE_ANOTHER_THREAD_OPENS = """
import os, sys, threading
from tiny_transformer.bundle import Bundle
from tiny_transformer.tokenizer import Tokenizer
load, opening = Tokenizer.load, threading.Event()
def slow(*arguments, **options):
    if threading.current_thread() is not threading.main_thread():
        opening.set()
        threading.Event().wait()
    return load(*arguments, **options)
Tokenizer.load = slow
threading.Thread(target=Bundle.open, args=[sys.argv[1]], daemon=True).start()
opening.wait()
if os.fork() == 0:
    threading.Timer(20, os._exit, [3]).start()
    Bundle.open(sys.argv[1]).index
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_fork_opens_a_folder_whatever_other_threads_were_opening(make_bundle: BundleFactory) -> None:
    assert run_python(FORKED_WHILE_ANOTHER_THREAD_OPENS, make_bundle().folder).out.split() == ["0"]


def test_equal_models_give_equal_bytes(make_bundle: BundleFactory) -> None:
    assert make_bundle(name="one", seed=4).hashes() == make_bundle(name="two", seed=4).hashes()
    assert make_bundle(name="three", seed=5).hashes() != make_bundle(name="four", seed=4).hashes()


def test_hashes_are_sha256_of_all_but_report_and_card(make_bundle: BundleFactory) -> None:
    bundle = make_bundle()
    for name in ("README.md", "parity.json", "evaluation.jsonl", ".config.json.x.tmp"):
        (bundle.folder / name).write_text(name)
    (bundle.folder / "sub").mkdir()
    hashes = bundle.hashes()
    assert set(hashes) == {*files.REQUIRED, "evaluation.jsonl"}
    for name, digest in hashes.items():
        assert digest == hashlib.sha256((bundle.folder / name).read_bytes()).hexdigest()
    with pytest.raises(BundleError, match="gone cannot be read"):
        sha256(bundle.folder / "gone")


def test_half_the_bytes_with_float16_and_the_rounded_weights(make_bundle: BundleFactory) -> None:
    full, half = make_bundle(name="full"), make_bundle(name="half", half=True)
    assert {entry.dtype for entry in half.index.tensors.values()} == {"F16"}
    assert sum(e.length for e in half.index.tensors.values()) * 2 == sum(e.length for e in full.index.tensors.values())
    exact = full.weights()
    for name, array in weights_of(load_model(half)).items():
        assert array.dtype == np.float32
        assert np.array_equal(array, exact[name].astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(("half", "value"), [(True, 70_000.0), (True, np.inf), (False, np.nan), (False, 1e300)])
def test_a_weight_that_cannot_be_stored_is_refused_by_name(
    tmp_path: Path, make_bundle: BundleFactory, half: bool, value: float
) -> None:
    made = make_bundle()
    weights: dict[str, np.ndarray] = {name: array.astype(np.float64) for name, array in made.weights().items()}
    weights["decoder.norm.weight"][3] = value
    target = tmp_path / "deep" / "er"
    with pytest.raises(BundleError, match=r"decoder\.norm\.weight has values that float(16|32) cannot hold"):
        save_bundle(target, made.config, made.generation, made.tokenizer, weights, half=half)
    assert not target.parent.exists(), "something was written"


@pytest.mark.parametrize("name", files.REQUIRED)
def test_a_folder_without_a_file_is_refused_by_name(make_bundle: BundleFactory, name: str) -> None:
    bundle = make_bundle()
    (bundle.folder / name).unlink()
    assert f"lacks {name}; restore the files or train the model again" in refusal(bundle.folder)


@pytest.mark.parametrize("name", files.REQUIRED)
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\x00", b"null", b"{}"])
def test_a_folder_with_a_damaged_file_is_refused_by_name(make_bundle: BundleFactory, name: str, content: bytes) -> None:
    bundle = make_bundle()
    (bundle.folder / name).write_bytes(content)
    assert str(bundle.folder / name) in refusal(bundle.folder)


@pytest.mark.parametrize("name", [files.CONFIG, files.TOKENIZER, files.WEIGHTS, files.DECODER_ONNX, files.PARITY])
@pytest.mark.parametrize("kind", ["folder", "pipe", "/dev/zero", "/dev/tty", "link to a pipe"])
def test_only_regular_files_are_opened(make_bundle: BundleFactory, name: str, kind: str) -> None:
    folder = make_bundle().folder
    (folder / name).unlink(missing_ok=True)
    if kind == "folder":
        (folder / name).mkdir()
    elif kind.startswith("/"):
        (folder / name).symlink_to(kind)
    else:
        pipe = folder / name if kind == "pipe" else folder / "pipe"
        os.mkfifo(pipe)
        if kind != "pipe":
            (folder / name).symlink_to(pipe)
    with pytest.raises(BundleError, match=rf"{name} is not a regular file; put a copy of the real one in its place"):
        Bundle.open(folder)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="only Linux has files of the kernel in /proc")
@pytest.mark.parametrize("name", [files.CONFIG, files.WEIGHTS, files.EVALUATION, "notes.txt"])
@pytest.mark.parametrize("target", ["/proc/version", "/proc/self/mem", "/proc/self/status", A_FILE_OF_SYS])
def test_files_of_the_kernel_are_not_opened(make_bundle: BundleFactory, name: str, target: str) -> None:
    folder = make_bundle().folder
    (folder / name).unlink(missing_ok=True)
    assert Path(target).is_file()
    (folder / name).symlink_to(target)
    with pytest.raises(BundleError, match=f"{name} is not a regular file"):
        Bundle.open(folder)


def test_no_folder_at_all(tmp_path: Path) -> None:
    assert "is not a folder; name a model folder" in refusal(tmp_path / "gone")
    (tmp_path / "file").touch()
    assert "is not a folder" in refusal(tmp_path / "file")


def test_files_of_different_models_are_refused(make_bundle: BundleFactory) -> None:
    bundle = make_bundle()
    edit(bundle, "config.json", vocab_size=301)
    assert "(301, 16)" in refusal(bundle.folder)
    edit(bundle, "config.json", vocab_size=300, d_model=32)
    assert "(300, 32)" in refusal(bundle.folder)
    edit(bundle, "config.json", d_model=16)
    Tokenizer.synthetic(280).save(bundle.folder / "tokenizer.json")
    assert "tokenizer.json has 280 tokens, but config.json says vocab_size 300; use the" in refusal(bundle.folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eos_id": 50}, "eos_id is 50, which is no special token"),
        ({"pad_id": 299}, "pad_id is 299"),
        ({"bos_id": 4_000_000}, "bos_id is 4000000"),
        ({"roles": {"user": 3, "assistant": 77}}, "roles.assistant is 77"),
        ({"max_source_tokens": 17}, "max_source_tokens is 17, above the model's max_length of 16; lower it"),
    ],
)
def test_a_use_that_does_not_fit_the_model_is_refused(
    make_bundle: BundleFactory, changes: dict[str, Any], message: str
) -> None:
    bundle = make_bundle("decoder-only")
    edit(bundle, "generation.json", **changes)
    found = refusal(bundle.folder)
    assert message in found
    assert "generation.json" in found


def test_weights_of_another_kind_or_shape_are_refused(make_bundle: BundleFactory) -> None:
    bundle = make_bundle()
    weights = {name: np.array(array) for name, array in bundle.weights().items()}
    path = bundle.folder / "model.safetensors"
    write_weights(path, weights | {"decoder.norm.bias": np.zeros(16, np.int64)})
    assert "decoder.norm.bias is stored as I64, not as F32 or F16" in refusal(bundle.folder)
    write_weights(path, {name: array for name, array in weights.items() if name != "embedding.tokens.weight"})
    assert "embedding.tokens.weight" in refusal(bundle.folder)
    write_weights(path, weights | {"decoder.norm.bias": np.zeros(15, np.float32)})
    assert "numbers, but config.json describes a model of" in refusal(bundle.folder)
    write_weights(path, weights | {"decoder.norm.bias": np.zeros((2, 8), np.float32)})
    with pytest.raises(BundleError, match=r"decoder\.norm\.bias has shape \(2, 8\)"):
        load_model(Bundle.open(bundle.folder))


def test_a_config_cannot_ask_for_more_memory_than_the_file_holds(make_bundle: BundleFactory) -> None:
    """Refused before anything is allocated: these layers would take 17 terabytes."""
    bundle = make_bundle()
    edit(bundle, "config.json", d_ff=65_536, n_decoder_layers=1_024)
    assert "model.safetensors holds" in refusal(bundle.folder)


def test_saving_refuses_what_would_not_open_and_names_the_place_the_user_chose(
    tmp_path: Path, make_bundle: BundleFactory
) -> None:
    made = make_bundle()
    with pytest.raises(BundleError, match="has 280 tokens") as caught:
        save_bundle(tmp_path / "new", made.config, made.generation, Tokenizer.synthetic(280), made.weights())
    assert f"{tmp_path / 'new' / 'tokenizer.json'} has" in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


def test_an_error_about_a_copy_names_the_folder_of_the_user(tmp_path: Path) -> None:
    """The sentence inside the sentence too, and nothing but whole paths: a text that looks like one stays."""
    copy, folder = tmp_path / "copy", tmp_path / "own"
    inner = ConfigError("{path} lacks {keys}", path=copy / "config.json", keys=str(copy))
    with pytest.raises(BundleError) as caught, files.reported_as(copy, folder):
        raise BundleError("{folder}: {reason}; see {other}", folder=copy, reason=inner, other=tmp_path / "copy-2")
    expected = f"{folder}: {folder / 'config.json'} lacks {copy}; see {tmp_path / 'copy-2'}"
    assert str(caught.value) == expected
    assert caught.value.message.template == "{folder}: {reason}; see {other}"
    assert caught.value.message.values["reason"].template == "{path} lacks {keys}"


def test_an_existing_model_needs_overwrite_and_goes_as_a_whole(tmp_path: Path, make_bundle: BundleFactory) -> None:
    made = make_bundle()
    for name in files.DERIVED:
        (made.folder / name).write_text("stale")
    again = (made.folder, made.config, made.generation, made.tokenizer, made.weights())
    before = made.hashes()
    with pytest.raises(BundleError, match="already holds a model; add --overwrite to replace it"):
        save_bundle(*again)
    assert Bundle.open(made.folder).hashes() == before
    assert save_bundle(*again, overwrite=True).files() == sorted(files.REQUIRED)


def test_a_failed_overwrite_keeps_the_old_model(make_bundle: BundleFactory) -> None:
    made = make_bundle()
    before = made.hashes()
    with pytest.raises(BundleError):
        save_bundle(made.folder, made.config, made.generation, Tokenizer.synthetic(280), made.weights(), overwrite=True)
    assert Bundle.open(made.folder).hashes() == before


def test_only_a_model_folder_may_be_replaced(
    tmp_path: Path, make_bundle: BundleFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_target(tmp_path / "new", overwrite=False)
    (tmp_path / "empty").mkdir()
    check_target(tmp_path / "empty", overwrite=False)
    made = make_bundle()
    check_target(made.folder, overwrite=True)

    def refused(folder: Path, message: str) -> None:
        with pytest.raises(BundleError, match=message):
            check_target(folder, overwrite=True)

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.txt").touch()
    refused(tmp_path / "work", "work holds other files than a model's; choose another folder")
    shutil.copytree(made.folder, tmp_path / "repository")
    (tmp_path / "repository" / ".git").mkdir()
    refused(tmp_path / "repository", "holds other files than a model's")
    refused(tmp_path / "work" / "thesis.txt", "not a folder of its own")
    (tmp_path / "link").symlink_to(made.folder)
    refused(tmp_path / "link", "link is not a folder of its own; choose another place")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    refused(tmp_path / "dangling", "not a folder of its own")
    monkeypatch.chdir(made.folder)
    refused(Path(), r"\. is the current folder")
    refused(made.folder, "is the current folder")


def test_a_folder_behind_a_symlink_opens(tmp_path: Path, make_bundle: BundleFactory) -> None:
    made = make_bundle()
    (tmp_path / "link").symlink_to(made.folder)
    assert Bundle.open(tmp_path / "link").hashes() == made.hashes()
    inside = tmp_path / "cache"
    inside.mkdir()
    for name in made.files():  # as the Hub's cache keeps its files
        (inside / name).symlink_to(made.folder / name)
    assert Bundle.open(inside).hashes() == made.hashes()


def test_a_copy_has_all_files_and_never_replaces(tmp_path: Path, make_bundle: BundleFactory) -> None:
    made, other = make_bundle(), make_bundle(name="other", seed=1)
    (made.folder / "README.md").write_text("card")
    (made.folder / ".left.tmp").write_text("no part of the model")
    copy = copy_bundle(made.folder, tmp_path / "copy")
    assert copy.hashes() == made.hashes()
    assert copy.files() == made.files()
    assert not (copy.folder / ".left.tmp").exists()
    before = other.hashes()
    with pytest.raises(BundleError, match="already holds a model"):
        copy_bundle(made.folder, other.folder)
    assert other.hashes() == before


def test_derived_files_are_removed_and_nothing_else(make_bundle: BundleFactory) -> None:
    made = make_bundle()
    for name in (*files.DERIVED, "training.json"):
        (made.folder / name).write_text("x")
    remove_derived(made.folder)
    remove_derived(made.folder)
    assert made.files() == sorted((*files.REQUIRED, "training.json"))


def test_every_error_is_of_the_family() -> None:
    assert issubclass(ConfigError, TinyTransformerError)
    assert issubclass(TokenizerError, TinyTransformerError)
