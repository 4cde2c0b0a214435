"""A translator that learns to write a part of its vocabulary: the data, the loss, the run, and what comes of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from export.quantize import export_int8
from export.to_onnx import export_onnx
from tests.support.models import random_ids, tiny_config, tiny_model
from tests.support.training_fixtures import small_recipe, write_pairs
from tiny_transformer.bundle import TOKENIZER, TRAINING, Bundle
from tiny_transformer.data.cache import tokenized
from tiny_transformer.data.source import Source
from tiny_transformer.errors import ConfigError
from tiny_transformer.parity import verify_bundle
from tiny_transformer.text_model import load
from tiny_transformer.tokenizer import Tokenizer
from tiny_transformer.training.fine_tuning import BaseModel, check_changes
from tiny_transformer.training.objective import Objective
from tiny_transformer.training.recipe import load_recipe, recipe_from_record
from tiny_transformer.training.run import prepare, train

PAIRS = [(f"schöne {a}{b} straße", f"a nice {b} street {a}") for a in "abcdefghij" for b in "klmnopqrstuvw"]
SIZES = ("tokenizer.vocab_size=330", "tokenizer.output_vocab_size=290")


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.tsv", PAIRS)


@pytest.fixture(scope="module")
def trained(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("trained") / "model"
    bundle = train(small_recipe("training.max_steps=40", "evaluation.test=true", *SIZES), str(pairs), folder)
    assert bundle is not None
    return bundle


def batch(n_outputs: int) -> tuple[torch.Tensor, ...]:
    """Source, mask, target, the positions that are predicted, and labels: target and source hold any token."""
    config = tiny_config()
    source, target = random_ids(config, 3, 6), random_ids(config, 3, 5, seed=1)
    picked = torch.tensor([0, 3, 4, 9, 14])
    labels = random_ids(config, 1, 5, seed=2)[0] % n_outputs
    return source, torch.ones_like(source, dtype=torch.bool), target, picked, labels


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_over_what_can_be_written(smoothing: float, tied: bool) -> None:
    model = tiny_model(tiny_config(output_vocab_size=270, tie_embeddings=tied))
    source, mask, target, picked, labels = batch(270)
    hidden = model.hidden(source, mask, target).flatten(0, 1)[picked]
    matrix = model.embedding.tokens.weight[:270] if tied else model.embedding.output.weight
    assert matrix.shape == (270, 16)
    log_probabilities = (hidden @ matrix.T).log_softmax(dim=-1)
    right = -log_probabilities[torch.arange(5), labels]
    wanted = ((1 - smoothing) * right - smoothing * log_probabilities.mean(dim=-1)).sum()
    found = Objective(model, smoothing, autocast=False)(source, mask, target, picked, labels)
    torch.testing.assert_close(found, wanted)


def test_r_drop_agrees_over_what_can_be_written() -> None:
    model = tiny_model(tiny_config(output_vocab_size=270, dropout=0.3)).train()
    found = Objective(model, 0.1, autocast=False, r_drop=2.0)(*batch(270))
    found.backward()
    assert torch.isfinite(found)
    gradient = model.embedding.tokens.weight.grad
    assert gradient is not None
    assert torch.isfinite(gradient).all()


def test_rows_that_are_neither_read_nor_written_do_not_learn() -> None:
    """Label smoothing pushes every token that is scored, and so every output; what is read learns from being read."""
    model = tiny_model(tiny_config(output_vocab_size=270))
    source, mask, target, picked, labels = batch(270)
    Objective(model, 0.1, autocast=False)(source, mask, target, picked, labels).backward()
    gradient = model.embedding.tokens.weight.grad
    assert gradient is not None
    learned = set(torch.nonzero(gradient.abs().sum(dim=1)).flatten().tolist())
    read = {*source.flatten().tolist(), *target.flatten().tolist()}
    assert set(range(270)) <= learned
    assert {i for i in learned if i >= 270} == {i for i in read if i >= 270} != set()


def test_the_gradient_is_that_of_scores_cut_off() -> None:
    part = tiny_model(tiny_config(output_vocab_size=270))
    whole = tiny_model(tiny_config())
    source, mask, target, picked, labels = batch(270)
    Objective(part, 0.1, autocast=False)(source, mask, target, picked, labels).backward()
    logits = whole(source, mask, target).flatten(0, 1)[picked][:, :270]
    F.cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum").backward()
    for (name, a), (_, b) in zip(part.named_parameters(), whole.named_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=name)


def test_what_is_learned_is_spelt_with_the_output_and_what_is_read_is_not(pairs: Path) -> None:
    texts = [text for pair in PAIRS for text in pair]
    tokenizer = Tokenizer.train(texts, 330, show_progress=False).with_output_first([b for _, b in PAIRS], 264)
    source = Source(name="pairs", path=str(pairs))
    part = tokenized(source, "", tokenizer, 32)
    assert part.source is not None
    assert part.target.ids.max() < 264 <= part.source.ids.max()
    first = part.target.ids[part.target.offsets[0] : part.target.offsets[1]].tolist()
    assert tokenizer.decode(first) == PAIRS[0][1]
    # Another output of the same tokens is another spelling, and is not found under the same name.
    all_of_them = tokenized(source, "", Tokenizer.from_json(tokenizer.to_json()), 32)
    assert all_of_them.target.ids.max() >= 264


@pytest.mark.long
def test_a_run_with_an_output_part_leaves_a_model_that_has_one(trained: Bundle, pairs: Path) -> None:
    assert trained.config.vocab_size == trained.tokenizer.vocab_size == 330
    assert trained.config.output_vocab_size == trained.tokenizer.output_size == 290
    story = json.loads((trained.folder / TRAINING).read_text(encoding="utf-8"))
    assert story["recipe"]["tokenizer"]["output_vocab_size"] == 290
    assert recipe_from_record(story["recipe"]).tokenizer.output_vocab_size == 290
    for _, english in PAIRS:
        ids = trained.tokenizer.encode(english, target=True)
        assert max(ids) < 290
        assert trained.tokenizer.decode(ids) == english
    # What the targets use most can be written as it is; German alone has the rest.
    assert max(trained.tokenizer.encode("a nice")) < 290
    assert max(i for german, _ in PAIRS for i in trained.tokenizer.encode(german)) >= 290
    prepare(small_recipe(*SIZES), str(pairs))


@pytest.mark.slow
def test_the_trained_model_is_exported_and_proved(trained: Bundle) -> None:
    export_onnx(trained.folder)
    export_int8(trained.folder)
    report = verify_bundle(Bundle.open(trained.folder), ["numpy", "onnx", "onnx-int8"])
    assert report.verdict == "verified", [case for case in report.cases if not case.passed]
    (figure,) = (case.detail for case in report.cases if case.kind == "training")
    assert "on the same" in figure  # training measured exactly the examples that it left in the folder
    texts = [load(str(trained.folder), name).generate("schöne ak straße").text for name in ("eager", "onnx")]
    assert texts[0] == texts[1]


@pytest.mark.long
def test_the_run_can_be_resumed_and_gives_the_same(pairs: Path, tmp_path: Path) -> None:
    found = []
    for name, stops in (("whole", (6,)), ("parts", (3, 6))):
        for steps in stops:
            values = (f"training.max_steps={steps}", "training.schedule=constant", "training.evaluations=1")
            bundle = train(small_recipe(*values, *SIZES), str(pairs), tmp_path / name, resume=True, overwrite=True)
        assert bundle is not None
        assert bundle.config.output_vocab_size == 290
        story = json.loads((bundle.folder / TRAINING).read_text(encoding="utf-8"))
        found.append((story["dev_history"][-1]["loss"], (bundle.folder / TOKENIZER).read_bytes()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    assert found[0][1] == found[1][1]


@pytest.mark.long
def test_fine_tuning_keeps_the_number_of_the_model(trained: Bundle, pairs: Path, tmp_path: Path) -> None:
    base = BaseModel.open(str(trained.folder))
    recipe = base.fit(small_recipe("training.max_steps=2"))
    assert recipe.tokenizer.output_vocab_size == recipe.model.output_vocab_size == 290
    found = train(recipe, str(pairs), tmp_path / "more", base=base)
    assert found is not None
    assert found.config == trained.config
    with pytest.raises(ConfigError, match=r"tokenizer\.output_vocab_size cannot be changed"):
        check_changes(["tokenizer.output_vocab_size=300"])


@pytest.mark.long
def test_more_outputs_than_tokens_are_all_of_them(pairs: Path, tmp_path: Path) -> None:
    """A small text may not have as many tokens as the recipe wants, and --vocab-size may ask for fewer."""
    for n_tokens, n_outputs in ((12_000, 5_120), (5_121, 5_120), (5_120, 0), (300, 0)):
        recipe = load_recipe("translate", ["tokenizer.output_vocab_size=5120", f"tokenizer.vocab_size={n_tokens}"])
        assert recipe.model.output_vocab_size == n_outputs
    sizes = ("tokenizer.vocab_size=5000", "tokenizer.output_vocab_size=4000")
    found = train(small_recipe("training.max_steps=1", *sizes), str(pairs), tmp_path / "model")
    assert found is not None
    assert found.config.vocab_size < 4000
    assert found.config.output_vocab_size == 0


def test_a_recipe_for_chat_has_no_output_part() -> None:
    with pytest.raises(ConfigError, match="a decoder-only model writes what it reads"):
        load_recipe("chat", ["tokenizer.output_vocab_size=4000"])
    assert "output_vocab_size" not in load_recipe("chat").to_dict()["tokenizer"]
