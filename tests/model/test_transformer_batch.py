"""A batch at the model's boundary: padded on the right, and refused before the model sees what it cannot read."""

import numpy as np
import pytest

from tests.support.models import tiny_config
from tiny_transformer.backends.base import Batch
from tiny_transformer.errors import InputError


def test_rows_are_padded_on_the_right() -> None:
    batch = Batch.of([[5, 6, 7], [8]], pad_id=2)
    assert batch.ids.tolist() == [[5, 6, 7], [8, 2, 2]]
    assert batch.lengths.tolist() == [3, 1]
    assert batch.mask.tolist() == [[True, True, True], [True, False, False]]
    batch.check(tiny_config(), "source")


@pytest.mark.parametrize("rows", [[], [[]], [[1], []]])
def test_an_empty_batch_is_refused(rows: list[list[int]]) -> None:
    with pytest.raises(InputError, match="at least one row and every row at least one token; pass some text"):
        Batch.of(rows)


BAD = [
    ([[1] * 17], [17], "The source has 17 tokens, more than the model's max_length 16; shorten it"),
    ([[1, 300]], [2], "The source holds the id 300, outside the vocabulary of 300; check the tokenizer"),
    ([[-1, 300]], [2], "the id -1, outside"),
    ([[1, 2]], [0], "lengths must lie from 1 to 2"),
    ([[1, 2]], [3], "lengths must lie from 1 to 2"),
    ([[1, 2]], [1, 1], "must be rows of at least one token"),
    ([1, 2], [1, 1], "must be rows of at least one token"),
    (np.empty((0, 3)), [], "must be rows of at least one token"),
    (np.empty((2, 0)), [1, 1], "must be rows of at least one token"),
]


@pytest.mark.parametrize(("ids", "lengths", "message"), BAD)
def test_what_the_model_cannot_read_is_refused(ids: object, lengths: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Batch(np.array(ids, dtype=np.int64), np.array(lengths, dtype=np.int64)).check(tiny_config(), "source")
