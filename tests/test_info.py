"""`info`: the tables and the JSON say what the files say."""

import hashlib
import json
from collections.abc import Callable

import numpy as np
import pytest

from tests.support.models import BundleFactory, Finished, count_parameters
from tiny_transformer.config import ARCHITECTURES
from tiny_transformer.model import load_model
from tiny_transformer.weights import write_weights

Run = Callable[..., Finished]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_numbers_are_those_of_the_model(
    run_cli: Run, make_bundle: BundleFactory, architecture: str, half: bool
) -> None:
    bundle = make_bundle(architecture, half=half, tie_embeddings=False)
    done = run_cli("info", bundle.folder, "--json")
    assert (done.code, done.err) == (0, "")
    said = json.loads(done.out)
    model = load_model(bundle)
    assert said["parameters"] == count_parameters(model)
    assert said["parameters_without_embeddings"] == count_parameters(model, embeddings=False)
    assert said["config"] == bundle.config.to_dict()
    assert said["verified"] == "unverified"
    assert said["stored_as"] == ["F16" if half else "F32"]
    parts = said["parts"]
    assert sum(part["parameters"] for part in parts.values()) == count_parameters(model)
    assert sum(part["bytes"] for part in parts.values()) == count_parameters(model) * (2 if half else 4)
    assert {name for name in parts if name.startswith("decoder.layers")} == {"decoder.layers.0", "decoder.layers.1"}
    assert {name: file["sha256"] for name, file in said["files"].items()} == {
        name: hashlib.sha256((bundle.folder / name).read_bytes()).hexdigest() for name in bundle.files()
    }
    assert all(file["bytes"] == (bundle.folder / name).stat().st_size for name, file in said["files"].items())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_table_is_for_people(run_cli: Run, make_bundle: BundleFactory, architecture: str) -> None:
    bundle = make_bundle(architecture)
    done = run_cli("info", bundle.folder)
    assert (done.code, done.err) == (0, "")
    assert "unverified" in done.out.splitlines()[0]
    assert f"{count_parameters(load_model(bundle)):,} parameters" in done.out
    for word in ("embedding", "decoder.layers.1", "d_model", "model.safetensors", *bundle.hashes().values()):
        assert word in done.out
    assert all(line == line.rstrip() for line in done.out.splitlines())


def test_shapes_are_those_after_every_part(run_cli: Run, make_bundle: BundleFactory) -> None:
    bundle = make_bundle()
    done = run_cli("info", bundle.folder, "--shapes", "--batch", "3", "--source", "7", "--target", "5", "--json")
    shapes = {entry["part"]: entry["shape"] for entry in json.loads(done.out)["shapes"]}
    assert shapes["encoder.layers.1"] == [3, 7, 16]
    assert shapes["encoder.layers.0.feed_forward.inner"] == [3, 7, 24]
    assert shapes["decoder.layers.0.self_attention.qkv"] == [3, 5, 48]
    assert shapes["decoder.layers.1.cross_attention"] == [3, 5, 16]
    assert shapes["decoder.norm"] == [3, 5, 16]
    assert shapes["logits"] == [3, 5, 300]
    assert list(shapes)[-1] == "logits"
    table = run_cli("info", bundle.folder, "--shapes", "--batch", "3").out
    assert "3 × 5 × 300" in table


def test_shapes_of_a_gpt_need_no_source(run_cli: Run, make_bundle: BundleFactory) -> None:
    done = run_cli("info", make_bundle("decoder-only").folder, "--shapes", "--json")
    parts = [entry["part"] for entry in json.loads(done.out)["shapes"]]
    assert not [part for part in parts if "encoder" in part or "cross" in part]
    assert "decoder.layers.0.self_attention" in parts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--batch", "0"), "--batch is 0; choose from 1 to"),
        (("--batch", "1000000"), "--batch is 1000000"),
        (("--source", "17"), "--source is 17; choose from 1 to 16"),
        (("--target", "-1"), "--target is -1; choose from 1 to 16"),
    ],
)
def test_an_impossible_batch_is_refused(
    run_cli: Run, make_bundle: BundleFactory, options: tuple[str, ...], message: str
) -> None:
    done = run_cli("info", make_bundle().folder, "--shapes", *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("name", ["config.json", "generation.json", "tokenizer.json", "model.safetensors"])
def test_a_damaged_folder_is_one_sentence(run_cli: Run, make_bundle: BundleFactory, name: str) -> None:
    bundle = make_bundle()
    path = bundle.folder / name
    path.write_bytes(path.read_bytes()[:-9])
    done = run_cli("info", bundle.folder)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {path}")
    assert done.err.count("\n") == 1
    path.unlink()
    done = run_cli("info", bundle.folder)
    assert done.code == 2
    assert f"lacks {name}" in done.err


def test_strange_names_of_tensors_are_no_reason_to_fall_over(run_cli: Run, make_bundle: BundleFactory) -> None:
    bundle = make_bundle()
    weights: dict[str, np.ndarray] = dict(bundle.weights())
    for strange, name in zip(("odd", "", "decoder.layers", "..."), sorted(weights)[:4], strict=True):
        weights[strange] = weights.pop(name)
    write_weights(bundle.folder / "model.safetensors", weights)
    assert run_cli("info", bundle.folder).code == 0
    done = run_cli("info", bundle.folder, "--shapes")
    assert done.code == 2
    assert "belongs to a model of another shape" in done.err
