"""The ONNX graphs: their names, their size, what they say and do not say, and that a wrong one is never written."""

import itertools
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from export import fused
from export.onnx_graph import table_formula, with_external_weights
from export.to_onnx import export_onnx, graphs_of
from tests.support.export_fixtures import (
    ENCODER_DECODERS,
    MODELS,
    OPTIONS,
    Exported,
    exported,
    save_random,
    small_config,
)
from tests.support.models import ROOT
from tiny_transformer.bundle import DECODER_ONNX, ENCODER_ONNX, INSIDE_ONNX, TOKENIZER, WEIGHTS
from tiny_transformer.errors import ExportError
from tiny_transformer.model.positions import rotary_table, sinusoidal_table

__all__ = ["exported"]

GPT = "decoder-only-learned"


def test_the_models_hold_every_pair_of_options():
    options = {name: values for name, (values, _) in OPTIONS.items()}
    options["positions"] = tuple(dict.fromkeys(model["positions"] for model in MODELS.values()))
    assert len(MODELS) == 8
    for (a, a_values), (b, b_values) in itertools.combinations(options.items(), 2):
        found = {(model[a], model[b]) for model in MODELS.values()}
        assert found == set(itertools.product(a_values, b_values)), (a, b)


@pytest.mark.parametrize("name", MODELS)
def test_graphs_have_the_declared_ports_and_no_weights(exported: Exported, name: str):
    bundle = exported(name)
    for file, graph in graphs_of(bundle.config).items():
        path = bundle.folder / file
        model = onnx.load(path, load_external_data=False)
        for values, specs in ((model.graph.input, graph.inputs), (model.graph.output, graph.outputs)):
            shapes = {v.name: tuple(d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}
            assert shapes == {spec.name: spec.shape for spec in specs}
        inline = [tensor for tensor in model.graph.initializer if not tensor.external_data]
        assert sum(tensor.ByteSize() for tensor in inline) < 4_000
        external = [{entry.key: entry.value for entry in t.external_data} for t in model.graph.initializer]
        assert {entry["location"] for entry in external if entry} == {WEIGHTS}
        assert path.stat().st_size < 50_000


@pytest.mark.parametrize("name", MODELS)
def test_no_file_names_the_machine_that_made_it(exported: Exported, name: str):
    bundle = exported(name)
    secrets = [str(ROOT), sys.prefix, sys.base_prefix, str(Path.home()), tempfile.gettempdir(), str(bundle.folder)]
    secrets += ["site-packages", ".py", os.uname().nodename, "exported-"]
    for file in set(bundle.files()) - {TOKENIZER}:  # the vocabulary is text
        content = (bundle.folder / file).read_bytes()
        assert not [secret for secret in secrets if len(secret) > 2 and secret.encode() in content], file


@pytest.mark.slow
def test_a_graph_follows_from_the_config_alone(tmp_path: Path):
    """Other weights with the same header give the same bytes: nothing of the values is folded in."""
    config = small_config("decoder-only", n_decoder_layers=1)
    first, second = (save_random(tmp_path / str(seed), config, seed=seed) for seed in (0, 1))
    export_onnx(first.folder)
    export_onnx(second.folder)
    assert (first.folder / WEIGHTS).read_bytes() != (second.folder / WEIGHTS).read_bytes()
    for file in (DECODER_ONNX, INSIDE_ONNX):
        assert (first.folder / file).read_bytes() == (second.folder / file).read_bytes()


@pytest.mark.long
def test_a_wrong_graph_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A deliberately broken exporter: it forgets the bias of every linear layer."""
    bundle = save_random(tmp_path / "model", small_config("decoder-only", n_decoder_layers=1))
    gemm = fused._gemm
    monkeypatch.setattr(fused, "_gemm", lambda x, weight, bias: gemm(x, weight, None))
    with pytest.raises(ExportError, match=r"decoder_model\.onnx was not written: its logits is off by .* eager"):
        export_onnx(bundle.folder)
    assert DECODER_ONNX not in os.listdir(bundle.folder)
    assert not [name for name in os.listdir(bundle.folder) if name.endswith(".tmp")]


@pytest.mark.long
def test_a_mask_that_is_not_applied_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bundle = save_random(tmp_path / "model", small_config("encoder-decoder", n_encoder_layers=1, n_decoder_layers=1))
    attend = fused._multi_head_attention

    def unmasked(query, key, value, mask, n_heads):
        return attend(query, key, value, mask * 0 + 1, n_heads)

    monkeypatch.setattr(fused, "_multi_head_attention", unmasked)
    with pytest.raises(ExportError, match=r"encoder_model\.onnx was not written"):
        export_onnx(bundle.folder)
    assert ENCODER_ONNX not in os.listdir(bundle.folder)


def test_a_folded_parameter_is_refused(exported: Exported):
    model = onnx.ModelProto()
    model.graph.initializer.append(helper.make_tensor("val_1", TensorProto.FLOAT, [64], [0.0] * 64))
    with pytest.raises(ExportError, match="folded a parameter into val_1"):
        with_external_weights(model, exported(GPT).index, WEIGHTS)


@pytest.mark.parametrize("length", [1, 2, 4096])
def test_the_formula_gives_the_tables_of_the_model(length: int):
    cosine, sine = rotary_table(length, 16).numpy().reshape(length, 2, 8).transpose(1, 0, 2)
    wanted = {"a.positions": sinusoidal_table(length, 32).numpy(), "b.cosine": cosine, "c.sine": sine}
    for name, table in wanted.items():
        nodes, constants = table_formula(name, *table.shape)
        output = helper.make_tensor_value_info(name, TensorProto.FLOAT, table.shape)
        graph = helper.make_graph(nodes, "tables", [], [output], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {})
        np.testing.assert_allclose(found, table, atol=1e-7, rtol=0)


@pytest.mark.parametrize("name", ENCODER_DECODERS[:1])
def test_a_source_of_nothing_but_padding_has_values_of_zero(exported: Exported, name: str):
    session = onnxruntime.InferenceSession(exported(name).folder / ENCODER_ONNX)
    feeds = {"input_ids": np.array([[5, 6, 7], [5, 6, 7]]), "attention_mask": np.array([[1, 1, 0], [0, 0, 0]])}
    outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    for output, array in outputs.items():
        assert np.isfinite(array).all()
        if output.endswith("value"):
            assert not array[1].any()
            assert not array[0, :, 2].any()
            assert array[0, :, :2].all()
