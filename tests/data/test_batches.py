"""Batches: every row once, within the budget, in an order of seed and epoch; and what the loss makes of them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from tests.support.models import tiny_config
from tests.support.training_fixtures import byte_tokenizer, write_jsonl, write_pairs
from tiny_transformer.data.batches import EpochPlan, Rows, RowSizes, TrainingData, padded_length, plan_epoch
from tiny_transformer.data.source import Source
from tiny_transformer.model import build_model
from tiny_transformer.training.feed import IGNORED, Batch, HostRows, ResidentRows, ahead, batches
from tiny_transformer.training.objective import Objective, positions_in_texts, same_text

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_TRANSFORMER_CACHE", str(tmp_path / "cache"))


def plan(source: list[int], target: list[int], budget: int, seed: int = 0) -> tuple[EpochPlan, RowSizes]:
    sizes = RowSizes(np.array(source), *[np.array(target)] * 3)
    return plan_epoch(np.arange(len(source)), sizes, budget, np.random.default_rng(seed)), sizes


@pytest.mark.long
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=200), st.integers(8, 4096))
def test_every_row_is_in_one_batch_that_holds_it_and_fits(lengths: list[tuple[int, int]], budget: int) -> None:
    found, sizes = plan([s for s, _ in lengths], [t for _, t in lengths], budget)
    seen = np.concatenate([found.order[batch.start : batch.stop] for batch in found.batches])
    assert sorted(seen) == list(range(len(lengths)))
    for batch in found.batches:
        rows = found.order[batch.start : batch.stop]
        assert sizes.source[rows].max() <= batch.source_length
        assert sizes.target[rows].max() <= batch.target_length
        assert batch.source_length % 8 == batch.target_length % 8 == 0
        assert len(rows) == 1 or len(rows) * max(batch.source_length, batch.target_length) <= budget
        assert batch.tokens == sizes.target[rows].sum()


def test_little_is_padded_and_shapes_are_few() -> None:
    rng = np.random.default_rng(0)
    source = np.clip(rng.lognormal(2.3, 0.5, 20_000), 1, 120).astype(int)
    target = np.clip(source + rng.normal(0, 2, 20_000), 1, 120).astype(int)
    found, sizes = plan(source.tolist(), target.tolist(), 8_192)
    positions = sum((batch.stop - batch.start) * batch.target_length for batch in found.batches)
    assert sizes.target.sum() / positions > 0.7  # a random order gives 0.25
    full = [batch for batch in found.batches if (batch.stop - batch.start) % 8 == 0]
    assert len(full) > 0.8 * len(found.batches)
    assert len({(b.stop - b.start, b.source_length, b.target_length) for b in found.batches}) < 40


def test_the_grid_is_fine_for_short_rows_and_never_too_short() -> None:
    lengths = np.arange(1, 600)
    padded = padded_length(lengths)
    assert (padded >= lengths).all()
    assert (padded - lengths <= np.maximum(7, lengths // 8)).all()


def test_the_order_follows_from_seed_and_epoch_alone(tmp_path: Path) -> None:
    source = Source(name="p", path=str(write_pairs(tmp_path / "a.tsv", [("a" * i, "b" * i) for i in range(1, 60)])))
    data = TrainingData((source,), "", byte_tokenizer(), 64)
    rows = data.rows(0)

    def order(seed: int, epoch: int) -> str:
        found = data.plan(rows, epoch, {}, 128, (seed,))
        return str([found.order[b.start : b.stop].tolist() for b in found.batches])

    assert order(1, 0) == order(1, 0)
    assert len({order(1, 0), order(1, 1), order(2, 0)}) == 3


def test_repeats_show_a_source_more_often_and_draw_fractions_anew(tmp_path: Path) -> None:
    source = Source(name="p", path=str(write_pairs(tmp_path / "a.tsv", [("a", "b")] * 40)), repeat=2.5)
    data = TrainingData((source,), "", byte_tokenizer(), 64)
    draws = [np.bincount(data.plan(data.rows(e), e, {}, 128, (0,)).order, minlength=40) for e in range(2)]
    assert all(draw.sum() == 100 and draw.min() == 2 and draw.max() == 3 for draw in draws)
    assert (draws[0] != draws[1]).any()
    assert len(data.plan(data.rows(0), 0, {"p": 0.25}, 128, (0,)).order) == 10


def test_the_ranks_parts_of_a_step_are_the_step_itself() -> None:
    found, _ = plan([5] * 64, [5] * 64, 32)
    steps = [found.of_step(i, 4) for i in range(found.steps(4))]
    assert [part for step in steps for part in step] == found.batches[: 4 * (len(found.batches) // 4)]
    assert found.steps(1000) == 1  # too little data for one step is shown again, not an error
    assert len(found.of_step(0, 1000)) == 1000


def rows_of(tmp_path: Path, *, packing: bool) -> Rows:
    tokenizer = byte_tokenizer()
    first = Source(
        name="p",
        path=str(write_pairs(tmp_path / "a.tsv", [("x" * i, "y" * (9 - i)) for i in range(1, 9)])),
        packing=packing,
    )
    second = Source(name="q", path=str(write_pairs(tmp_path / "b.tsv", [("longer source", "t")] * 3)))
    return TrainingData((first, second), "", tokenizer, 16).rows(0)


@pytest.fixture(params=[False, True], ids=["a pair a row", "packed"])
def rows(tmp_path: Path, request: pytest.FixtureRequest) -> Rows:
    """Eleven pairs, each in a row of its own or some of them together."""
    found = rows_of(tmp_path, packing=request.param)
    assert (len(found.sizes.target) < 11) == request.param
    return found


def test_rows_on_the_device_equal_rows_from_the_host(rows: Rows) -> None:
    found = plan_epoch(np.arange(len(rows.sizes.target)), rows.sizes, 48, np.random.default_rng(0))
    host = list(batches(HostRows(rows, found.order, CPU), found.batches, 0, CPU))
    resident = list(batches(ResidentRows(rows, found.order, CPU), found.batches, 0, CPU))
    assert len(host) == len(found.batches) > 1
    for a, b in zip(host, resident, strict=True):
        for one, other in zip(a.tensors, b.tensors, strict=True):
            assert (one is None) == (other is None)
            assert one is None or torch.equal(one, other)
        if a.source_texts is not None and a.target_texts is not None:  # padding, and nothing else, is of no text
            assert torch.equal(a.source_texts == 0, a.source == 0)
            assert torch.equal(a.target_texts == 0, a.target == 0)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "learned"])
def test_the_loss_is_that_of_each_pair_alone_so_padding_and_neighbors_count_nothing(
    rows: Rows, tmp_path: Path, positions: str
) -> None:
    model = build_model(tiny_config(positions=positions), torch.Generator().manual_seed(0))
    found = plan_epoch(np.arange(len(rows.sizes.target)), rows.sizes, 96, np.random.default_rng(0))
    objective = Objective(model, 0.1, autocast=False)
    made = batches(HostRows(rows, found.order, CPU), found.batches, 0, CPU)
    whole = sum(objective(*batch.tensors) for batch in made)
    whole.backward()
    assert all(bool(torch.isfinite(parameter.grad).all()) for parameter in model.parameters())
    alone = 0.0
    for part in rows_of(tmp_path, packing=False).parts:
        assert part.source is not None
        for i in range(len(part)):
            source = torch.tensor(part.source.ids[slice(*part.source.offsets[i : i + 2])].astype(np.int64))[None]
            target = torch.tensor(part.target.ids[slice(*part.target.offsets[i : i + 2])].astype(np.int64))[None]
            logits = model(source, torch.ones_like(source, dtype=torch.bool), target[:, :-1])
            alone += F.cross_entropy(logits[0], target[0, 1:], label_smoothing=0.1, reduction="sum").item()
    assert whole.item() == pytest.approx(alone, rel=1e-5)
    assert sum(batch.learned for batch in found.batches) == int(rows.sizes.learned.sum())
    assert sum(batch.tokens for batch in found.batches) == int(rows.sizes.learned.sum())


def test_a_dialogues_loss_is_that_of_its_replies(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    path = write_jsonl(tmp_path / "d.jsonl", [{"turns": ["ab", "c"]}, {"turns": ["d", "efg", "h", "i"]}])
    data = TrainingData((Source(name="d", path=str(path), format="dialogues"),), "", tokenizer, 16).rows(0)
    found = plan_epoch(np.arange(2), data.sizes, 64, np.random.default_rng(0))
    (batch,) = batches(HostRows(data, found.order, CPU), found.batches, 0, CPU)
    labels = sorted(label for label in batch.labels.tolist() if label != IGNORED)
    assert labels == sorted([*tokenizer.encode("cefgi"), *[tokenizer.eos_id] * 3])
    model = build_model(tiny_config("decoder-only"), torch.Generator().manual_seed(0))
    found_loss = Objective(model, 0.0, autocast=False)(None, None, batch.target, batch.picked, batch.labels)
    logits = model(batch.target).flatten(0, 1)[batch.picked]
    kept = batch.labels != IGNORED
    assert found_loss.item() == pytest.approx(F.cross_entropy(logits[kept], batch.labels[kept], reduction="sum").item())


def test_a_thread_that_works_ahead_gives_the_same_batches_and_passes_its_errors_on(rows: Rows) -> None:
    found = plan_epoch(np.arange(len(rows.sizes.target)), rows.sizes, 32, np.random.default_rng(0))
    host = HostRows(rows, found.order, CPU)
    plain = [batch.target.tolist() for batch in batches(host, found.batches, 0, CPU)]
    assert [batch.target.tolist() for batch in ahead(host.batch(p, 0) for p in found.batches)] == plain

    def failing() -> Iterator[Batch]:
        yield host.batch(found.batches[0], 0)
        raise OSError("the disk is gone")

    received = ahead(failing())
    next(received)
    with pytest.raises(OSError, match="the disk is gone"):
        next(received)


def test_r_drop_adds_nothing_where_two_passes_agree(rows: Rows) -> None:
    found = plan_epoch(np.arange(len(rows.sizes.target)), rows.sizes, 96, np.random.default_rng(0))
    batch = next(iter(batches(HostRows(rows, found.order, CPU), found.batches, 0, CPU)))
    for dropout, agrees in ((0.0, True), (0.3, False)):
        model = build_model(tiny_config(dropout=dropout), torch.Generator().manual_seed(0)).train()
        losses = []
        for r_drop in (0.0, 4.0):
            torch.manual_seed(0)
            objective = Objective(model, 0.1, autocast=False, r_drop=r_drop)
            losses.append(objective(*batch.tensors).item())
        assert (losses[1] == pytest.approx(losses[0], rel=1e-5)) is agrees
        assert losses[1] > losses[0] - 1e-3


def test_no_row_is_padded_beyond_what_fits_the_model() -> None:
    sizes = RowSizes(np.array([3, 100, 7]), *[np.array([100, 99, 5])] * 3)
    plan = plan_epoch(np.arange(3), sizes, 4096, np.random.default_rng(0), 100)
    assert max(max(batch.source_length, batch.target_length) for batch in plan.batches) == 100


def test_texts_in_one_row_keep_apart_and_count_from_their_own_start() -> None:
    texts = torch.tensor([[1, 1, 1, 2, 2, 3, 0, 0]])
    assert positions_in_texts(texts).tolist() == [[0, 1, 2, 0, 1, 0, 0, 1]]
    seen = same_text(texts, torch.tensor([[1, 2, 2, 3, 3, 0]]))[0, 0]
    assert seen[:6].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0],
    ]
    # No query of a text sees padding; a query of padding sees something, or it would be NaN.
    assert bool(seen[6:].all())
