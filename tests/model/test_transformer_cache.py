"""Decoding over the cache gives the logits of the whole sequence, in eager and in TorchScript."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.models import all_combinations, random_ids, tiny_config, tiny_model
from tiny_transformer.config import ARCHITECTURES, ModelConfig
from tiny_transformer.model import Memory

CLOSE = {"rtol": 0.0, "atol": 1e-12}
ROWS, CAPACITY = 3, 12


class Decoding:
    """A model with its caches: `feed` adds tokens at given positions and returns their logits."""

    def __init__(self, model: Any, config: ModelConfig, memory: Memory | None, rows: int = ROWS) -> None:
        shape = (rows, config.n_heads, CAPACITY, config.d_head)
        dtype = model.embedding.tokens.weight.dtype
        # Large numbers where nothing was written yet: a query that reads such a slot gives wrong logits.
        self.keys = [torch.full(shape, 1e6, dtype=dtype) for _ in range(config.n_decoder_layers)]
        self.values = [torch.full(shape, -1e6, dtype=dtype) for _ in range(config.n_decoder_layers)]
        self.model, self.memory = model, () if memory is None else (memory,)

    @torch.no_grad()
    def feed(self, ids: Tensor, positions: Tensor) -> Tensor:
        logits, keys, values = self.model.decode(ids, positions, self.keys, self.values, *self.memory)
        for given, returned in zip([*self.keys, *self.values], [*keys, *values], strict=True):
            assert given.data_ptr() == returned.data_ptr(), "the cache was copied, not written in place"
        return logits


def setting(config: ModelConfig) -> tuple[Any, Tensor, Memory | None, Tensor]:
    """A model, a target, the memory of a ragged source, and the logits of the whole target at once."""
    model = tiny_model(config, dtype=torch.float64)
    target = random_ids(config, ROWS, 10)
    with torch.no_grad():
        if not config.is_encoder_decoder:
            return model, target, None, model(target)
        source = random_ids(config, ROWS, 5, seed=1)
        mask = torch.arange(5) < torch.tensor([5, 2, 1])[:, None]
        return model, target, model.encode(source, mask), model(source, mask, target)


def positions_from(start: int, end: int, rows: int = ROWS) -> Tensor:
    return torch.arange(start, end).expand(rows, -1)


@pytest.mark.parametrize("config", all_combinations())
def test_prefill_and_steps_give_the_logits_of_the_whole(config: ModelConfig) -> None:
    model, target, memory, whole = setting(config)
    decoding = Decoding(model, config, memory)
    torch.testing.assert_close(decoding.feed(target[:, :4], positions_from(0, 4)), whole[:, :4], **CLOSE)
    for t in range(4, 7):
        torch.testing.assert_close(
            decoding.feed(target[:, t : t + 1], positions_from(t, t + 1)), whole[:, t : t + 1], **CLOSE
        )
    torch.testing.assert_close(decoding.feed(target[:, 7:], positions_from(7, 10)), whole[:, 7:], **CLOSE)


@pytest.mark.parametrize("config", all_combinations())
def test_rows_may_stand_at_different_lengths(config: ModelConfig) -> None:
    """A ragged prefill is padded on the right; each row goes on from its own end, over its own padding."""
    model, target, memory, whole = setting(config)
    decoding = Decoding(model, config, memory)
    lengths = torch.tensor([5, 2, 3])
    prefix = target[:, :5].masked_fill(torch.arange(5) >= lengths[:, None], 0)
    first = decoding.feed(prefix, positions_from(0, 5))
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(first[row, :length], whole[row, :length], **CLOSE)
    for step in range(4):
        at = (lengths + step)[:, None]
        logits = decoding.feed(target.gather(1, at), at)
        expected = whole.gather(1, at[:, :, None].expand(-1, -1, whole.size(-1)))
        torch.testing.assert_close(logits, expected, **CLOSE)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_reordered_cache_goes_on_as_the_other_row(architecture: str) -> None:
    config = tiny_config(architecture, positions="rotary")
    model, target, memory, whole = setting(config)
    decoding = Decoding(model, config, memory)
    decoding.feed(target[:, :6], positions_from(0, 6))
    rows = torch.tensor([2, 2, 0, 1])
    if memory is not None:
        parts = [[layer[rows] for layer in layers] for layers in (memory.keys, memory.values)]
        memory = Memory(parts[0], parts[1], memory.mask[rows])
    chosen = Decoding(model, config, memory, rows=4)
    chosen.keys, chosen.values = ([c[rows] for c in cache] for cache in (decoding.keys, decoding.values))
    logits = chosen.feed(target[rows, 6:7], positions_from(6, 7, rows=4))
    torch.testing.assert_close(logits, whole[rows, 6:7], **CLOSE)


def scripted(model: torch.nn.Module) -> Any:
    with warnings.catch_warnings():
        # PyTorch deprecates TorchScript; it is still one of the three backends.
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.\w+` is deprecated", category=DeprecationWarning)
        return torch.jit.script(model)


def in_pairs(given: Any) -> Any:
    """A combination as it is where norm and tied embeddings make every pair of values with the rest; else slow."""
    (config,) = given.values
    quick = (config.norm == "pre") == config.tie_embeddings
    return given if quick else pytest.param(config, id=given.id, marks=pytest.mark.slow)


@pytest.mark.long  # half a second each; those over positions in test_torchscript.py are quick
@pytest.mark.parametrize("config", [in_pairs(given) for given in all_combinations()])
def test_scripted_is_eager_to_the_last_bit(config: ModelConfig) -> None:
    model = tiny_model(config)
    script = scripted(model)
    target = random_ids(config, ROWS, 6)
    batch, memories = (target,), (None, None)
    if config.is_encoder_decoder:
        source = random_ids(config, ROWS, 5, seed=1)
        mask = torch.arange(5) < torch.tensor([5, 2, 1])[:, None]
        batch = (source, mask, target)
        with torch.no_grad():
            memories = (model.encode(source, mask), script.encode(source, mask))
        eager_parts, script_parts = ([*memory.keys, *memory.values, memory.mask] for memory in memories)
        assert all(torch.equal(one, other) for one, other in zip(eager_parts, script_parts, strict=True))
    with torch.no_grad():
        for _ in range(3):  # the third run of a script is the optimized one
            assert torch.equal(script(*batch), model(*batch))
    eager, compiled = Decoding(model, config, memories[0]), Decoding(script, config, memories[1])
    for start, end in ((0, 4), (4, 5), (5, 6)):
        ids = target[:, start:end]
        assert torch.equal(eager.feed(ids, positions_from(start, end)), compiled.feed(ids, positions_from(start, end)))


OPTIONS = [{"residual": False}, {"bias": False}, {"activation": "relu"}, {"activation": "gelu"}, {"dropout": 0.3}]


@pytest.mark.parametrize("changes", OPTIONS, ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_option_scripts(architecture: str, changes: dict[str, Any]) -> None:
    config = tiny_config(architecture, **changes)
    model, ids = tiny_model(config), random_ids(config, 2, 6)
    batch = (ids, torch.ones_like(ids, dtype=torch.bool), ids) if config.is_encoder_decoder else (ids,)
    assert torch.equal(scripted(model)(*batch), model(*batch))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_script_refuses_too_long_a_sequence(architecture: str) -> None:
    config = tiny_config(architecture)
    ids = random_ids(config, 1, 17)
    batch = (ids, torch.ones_like(ids, dtype=torch.bool), ids) if config.is_encoder_decoder else (ids,)
    with pytest.raises(torch.jit.Error, match="17 tokens"):
        scripted(tiny_model(config))(*batch)
