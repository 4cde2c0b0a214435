"""What each kind of position promises, and what it means to have none."""

import math

import numpy as np
import pytest
import torch

from tests.support.models import random_ids, tiny_config, tiny_model
from tiny_transformer.model.positions import Rotation, rotary_table, rotate, sinusoidal_table


def test_the_sinusoidal_table_is_the_papers_formula() -> None:
    table = sinusoidal_table(50, 12)
    for position in range(50):
        for i in range(6):
            angle = position / 10_000 ** (2 * i / 12)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


@pytest.mark.parametrize("shift", [1, 5, 40])
def test_a_shift_is_linear_in_the_sinusoidal_encoding(shift: int) -> None:
    """PE(pos + k) = M_k PE(pos), where M_k knows k but not pos: it turns each sine-cosine pair by k × frequency."""
    table = sinusoidal_table(600, 16).double().numpy()
    matrix = np.zeros((16, 16))
    for i in range(0, 16, 2):
        turn = shift / 10_000 ** (i / 16)
        matrix[i : i + 2, i : i + 2] = [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
    np.testing.assert_allclose(table[:500] @ matrix.T, table[shift : 500 + shift], rtol=0, atol=1e-6)


def test_angles_stay_exact_at_far_positions() -> None:
    """In float32 the angle itself would be off by 1e-4 and more out there."""
    position = 500_000
    table = sinusoidal_table(position + 1, 4)
    assert table[position, 0].item() == pytest.approx(math.sin(position), abs=1e-6)
    assert rotary_table(position + 1, 4)[position, 2].item() == pytest.approx(math.sin(position), abs=1e-6)


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    table = rotary_table(64, 8).double()
    query, key = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    everywhere = torch.ones(1, 1, 64, 1, dtype=torch.float64)
    queries, keys = rotate(query * everywhere, table)[0, 0], rotate(key * everywhere, table)[0, 0]
    scores = queries @ keys.T  # score of a query at position i with a key at position j
    for distance in (-20, -3, 0, 3, 20):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-6)
    assert (scores.diagonal(3)[0] - scores.diagonal(4)[0]).abs() > 1e-3, "distance makes no difference"
    # A turn changes no length, and position 0 is not turned at all.
    torch.testing.assert_close(queries.norm(dim=-1), query.norm().expand(64), rtol=0, atol=1e-6)
    torch.testing.assert_close(queries[0], query)


def test_rotation_gives_the_rows_of_the_table_for_ragged_positions() -> None:
    rotation = Rotation(tiny_config(positions="rotary"))
    positions = torch.tensor([[0, 1], [5, 6]])
    assert torch.equal(rotation(positions)[1, 0], rotary_table(16, 8)[5:7])
    assert Rotation(tiny_config(positions="none"))(positions).numel() == 0


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_the_learned_table_is_trained(architecture: str) -> None:
    config = tiny_config(architecture, positions="learned")
    model = tiny_model(config)
    ids = random_ids(config, 2, 5)
    batch = (ids, torch.ones_like(ids, dtype=torch.bool), ids) if config.is_encoder_decoder else (ids,)
    model(*batch).logsumexp(dim=-1).sum().backward()
    gradient = model.embedding.positions.grad
    assert gradient is not None
    assert gradient[:5].abs().sum(dim=1).min() > 0, "a position in use was not trained"
    assert not gradient[5:].any(), "a position that was not in use was trained"


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "none"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_without_positions_an_encoder_sees_a_set(positions: str, norm: str) -> None:
    """A permuted source gives the permuted memory exactly when the model has no positions."""
    config = tiny_config(positions=positions, norm=norm)
    model = tiny_model(config, dtype=torch.float64)
    source, order = random_ids(config, 2, 6), torch.tensor([3, 0, 5, 1, 4, 2])
    mask = torch.ones_like(source, dtype=torch.bool)
    straight, permuted = model.encode(source, mask), model.encode(source[:, order], mask)
    difference = max(
        float((a[:, :, order] - b).detach().abs().max()) for a, b in zip(straight.keys, permuted.keys, strict=True)
    )
    assert (difference < 1e-12) == (positions == "none")


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "none"])
def test_computed_tables_are_not_stored(positions: str) -> None:
    model = tiny_model(tiny_config(positions=positions))
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
    assert not any("position" in name or "rotation" in name for name in model.state_dict())
