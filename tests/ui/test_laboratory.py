"""Every number that the laboratory shows is the model's own: compared with hooks on the PyTorch model."""

import base64
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.models import tiny_config
from tests.support.ui_fixtures import models
from tiny_transformer.backends.base import Batch
from tiny_transformer.backends.inside_graph import InsideGraph, PartialBackend
from tiny_transformer.bundle import Bundle
from tiny_transformer.commands.init import random_bundle
from tiny_transformer.generation.sampling import likeliest
from tiny_transformer.inner_values import LENS, attentions_of, switches_without
from tiny_transformer.text_model import TextModel, load
from tiny_transformer.ui.inspection import MAX_SHOWN, chances, inspect_answer, prompt_of
from tiny_transformer.ui.laboratory import (
    Pass,
    attention_steps,
    box_values,
    boxes_of,
    code_of,
    lens,
    parts_of,
    pass_over,
    query_of,
    switches_of,
)
from tiny_transformer.ui.laboratory_views import lens_table, odds_panel, signed_map, steps_view
from tiny_transformer.ui.model_views import box_view, without_view
from tiny_transformer.ui.service import dialogue

__all__ = ["models"]

WRITTEN = 5  # the token of the answer that is looked at


class Looked:
    """A text on one model, and all its inner values by hooks."""

    def __init__(self, folder: Path) -> None:
        self.model = load(folder, "eager")
        text = "Guten Tag"
        self.prompt = prompt_of(self.model, dialogue([], text) if self.model.task == "chat" else text)
        self.answer = inspect_answer(self.model, self.prompt)
        graph = InsideGraph(Bundle.open(folder))
        self.look: Pass = pass_over(self.model.tokenizer, graph, self.prompt, self.answer.ids)
        self.at = self.look.n_prefix - 1 + WRITTEN
        self.wanted = self.hooks(switches_without(self.look.config))

    def hooks(self, switches: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        eager: Any = self.model.backend
        source = None if self.look.source is None else Batch.of([self.look.source])
        found = eager.inside(Batch.of([self.look.target]), source, np.array([self.at]), switches)
        return {name: np.squeeze(array, axis=1 if array.ndim > 3 else 0) for name, array in found.items()}


@pytest.fixture(scope="module", params=["chat", "translate", "few outputs"])
def looked(request: pytest.FixtureRequest, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Looked:
    if request.param in models:
        return Looked(models[request.param])
    folder = tmp_path_factory.mktemp("few") / "model"  # a model that writes fewer tokens than it reads
    random_bundle(folder, tiny_config(output_vocab_size=270, max_length=64), "translate", seed=2)
    write_inside(folder)
    return Looked(folder)


def write_inside(folder: Path) -> None:
    """The one graph alone: the others take seconds to trace."""
    from export.to_onnx import WEIGHTS, add_signature, addressable, built, graphs_of, with_external_weights

    bundle = Bundle.open(folder)
    graph = built(graphs_of(bundle.config)["inside.onnx"], bundle.config)
    graph = with_external_weights(graph, addressable(bundle.index, bundle.config), WEIGHTS)
    add_signature(graph, bundle.config, bundle.index)
    (folder / "inside.onnx").write_bytes(graph.SerializeToString())


def softmax(logits: np.ndarray) -> np.ndarray:
    found: np.ndarray = torch.from_numpy(logits).double().softmax(-1).numpy()
    return found


def test_the_lens_reads_the_stream_after_every_layer(looked: Looked) -> None:
    rows = [row for (row,) in lens(looked.look, [WRITTEN])]
    wanted = softmax(looked.wanted[LENS][:, 0])
    assert len(rows) == looked.look.config.n_decoder_layers + 1
    chosen = looked.answer.ids[WRITTEN]
    for row, shares in zip(rows, wanted, strict=True):
        assert [choice.id for choice in row.best] == likeliest(shares, 5).tolist()
        np.testing.assert_allclose([choice.probability for choice in row.best], np.sort(shares)[::-1][:5], atol=1e-5)
        assert abs(row.probability - shares[chosen]) < 1e-5
        assert row.rank == 1 + (shares > shares[chosen]).sum()
    own = looked.answer.written[WRITTEN].chosen.probability
    assert abs(rows[-1].probability - own) < 1e-5, "after the last layer it is the model's own"
    assert f"place 1, {100 * own:.0f} %" in lens_table(rows, looked.answer.written[WRITTEN], "en") or own < 0.1


def test_the_steps_of_a_head_are_the_models(looked: Looked) -> None:
    for kind in attentions_of(looked.look.config):
        query = query_of(looked.look, kind, WRITTEN)
        if kind == "encoder":
            assert query == looked.wanted["cross_attentions"][-1].mean(0)[looked.at].argmax()
        steps = attention_steps(looked.look, kind, 1, 1, query)
        part = {
            name.removeprefix(f"{kind}_"): array[1] for name, array in looked.wanted.items() if name.startswith(kind)
        }
        rows = np.arange(len(part["keys"][1]))
        if len(rows) > MAX_SHOWN:
            rows = np.sort(np.argsort(-part["attentions"][1, query], kind="stable")[:MAX_SHOWN])
        pairs = {
            "query": (steps.query, part["queries"][1, query]),
            "keys": (steps.keys, part["keys"][1, rows]),
            "values": (steps.values, part["values"][1, rows]),
            "scores": (steps.scores, part["scores"][1, query, rows]),
            "weights": (steps.weights, part["attentions"][1, query, rows]),
            "result": (steps.result, part["mixed"][1, query]),
        }
        for name, (found, wanted) in pairs.items():
            np.testing.assert_allclose(found, wanted, atol=1e-4, err_msg=f"{kind} {name}")
        assert (steps.weights[~steps.visible] == 0).all(), "what is said to be hidden weighs nothing"
        page = steps_view(steps, kind, 1, 1, "en")
        drawn = [np.frombuffer(base64.b64decode(b), np.int8) for b in re.findall(r'data-strip="([^"]*)"', page)]
        scale = np.abs(np.concatenate([steps.query[None], steps.keys])).max()
        np.testing.assert_allclose(drawn[0] / 127 * scale, steps.query, atol=scale / 250)
        assert len(drawn) == 2 + 2 * len(steps.names)


def test_every_box_gives_the_numbers_of_its_part(looked: Looked) -> None:
    names = {"attention": "{stack}_output", "cross": "cross_output", "feed_forward": "{stack}_feed_forward"}
    for box in boxes_of(looked.look.config).values():
        found = box_values(looked.look, box, WRITTEN)
        if box.key == "output":
            wanted = looked.wanted["logits"][0]
        elif box.key == "embedding":
            wanted = looked.wanted["decoder_stream"][0][looked.at]
        else:
            at = looked.at if box.stack == "decoder" else query_of(looked.look, "encoder", WRITTEN)
            wanted = looked.wanted[names[box.key].format(stack=box.stack)][box.layer][at]
        np.testing.assert_allclose(found.rows[found.marked], wanted, atol=1e-4, err_msg=box.name)
        if box.key == "feed_forward":
            assert found.active == pytest.approx(
                (looked.wanted[f"{box.stack}_inner"][box.layer][at] > 0).mean(), abs=0.02
            )
        code = code_of(box)
        assert code.startswith(f"class {box.code}(nn.Module):")
        assert code.count("\nclass ") == 0
        assert "<section" in box_view(box, found, looked.look, "zh")


def test_the_map_says_the_shapes_of_the_weights(looked: Looked) -> None:
    """The numbers on a box are those of the parameters in the file."""
    shapes = {name: array.shape for name, array in looked.model.bundle.weights().items()}
    modules = {"attention": "self_attention", "cross": "cross_attention", "feed_forward": "feed_forward"}
    for box in boxes_of(looked.look.config).values():
        prefix = box.key + "." if box.layer is None else f"{box.stack}.layers.{box.layer}.{modules[box.key]}."
        told = {int(number) for number in re.findall(r"\d+", box.weights.replace(",", ""))}
        found = {
            size for name, shape in shapes.items() if name.startswith(prefix) and len(shape) == 2 for size in shape
        }
        if box.key in ("attention", "cross"):
            d = looked.look.config.d_model
            assert {size // d for size in found} <= told | {1}
        elif box.key != "output":
            assert found == told


@pytest.mark.parametrize("off", [["decoder.1.1"], ["decoder.0"], ["decoder.0.0", "decoder.0.1", "decoder.1"]])
def test_without_parts_the_model_is_eager_without_them(looked: Looked, off: list[str]) -> None:
    switches = switches_of(looked.look.config, off)
    partial = TextModel(looked.model.bundle, PartialBackend(looked.look.graph, switches))
    kept = chances(partial, looked.prompt, looked.answer.ids)
    wanted = softmax(looked.hooks(switches)["logits"][0])
    assert abs(kept[WRITTEN] - wanted[looked.answer.ids[WRITTEN]]) < 1e-4
    found = inspect_answer(partial, looked.prompt)
    written = chances(partial, looked.prompt, found.ids)
    np.testing.assert_allclose([token.chosen.probability for token in found.written], written, atol=1e-6)
    page = without_view(looked.answer, found, kept, len(off), "en")
    assert page.count("<tr>") == 1 + len(looked.answer.written)


def test_with_everything_on_the_answer_is_the_models(looked: Looked) -> None:
    partial = TextModel(looked.model.bundle, PartialBackend(looked.look.graph, switches_of(looked.look.config, [])))
    assert inspect_answer(partial, looked.prompt).ids == looked.answer.ids
    beams = (
        partial.generate("abc", num_beams=2, max_new_tokens=4),
        looked.model.generate("abc", num_beams=2, max_new_tokens=4),
    )
    assert beams[0].ids == beams[1].ids
    weights = partial.attention("abc", "ab").weights
    np.testing.assert_allclose(weights.decoder, looked.model.attention("abc", "ab").weights.decoder, atol=1e-5)


def test_every_part_can_be_switched_off_by_name(looked: Looked) -> None:
    config = looked.look.config
    for part in parts_of(config):
        switches = switches_of(config, [part])
        assert sum(int((~array).sum()) for array in switches.values()) == 1
        name, layer, *head = part.split(".")
        array = switches[f"{name}_heads" if head else f"{name}_layers"]
        assert not array[tuple(int(i) for i in (layer, *head))]


def test_odds_bring_all_logits_sorted(looked: Looked) -> None:
    logits = looked.answer.logits[WRITTEN]
    page = odds_panel(looked.answer.written[WRITTEN], logits, WRITTEN, "en")
    found = np.frombuffer(base64.b64decode(re.findall(r'data-logits="([^"]*)"', page)[0]), "<f4")
    np.testing.assert_array_equal(found, np.sort(logits)[::-1])
    order = np.argsort(-logits, kind="stable")
    for token, rank in re.findall(r'data-id="(\d+)" data-rank="(\d+)"', page):
        assert logits[order[int(rank)]] == logits[int(token)]


def test_a_table_of_numbers_is_drawn_as_it_is() -> None:
    values = np.array([[0.0, 1.0, -1.0], [0.5, -0.25, 0.1]])
    page = signed_map(values, "a < b")
    drawn = np.frombuffer(base64.b64decode(re.findall(r'data-strip="([^"]*)"', page)[0]), np.int8)
    np.testing.assert_allclose(drawn.reshape(2, 3) / 127, values, atol=0.004)
    assert "a &lt; b" in page
