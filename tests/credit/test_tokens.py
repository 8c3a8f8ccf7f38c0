"""Advantages at the tokens that the policy wrote."""

import numpy as np
import pytest

from guerdon.credit import to_token_advantages
from guerdon.errors import CreditError

NAN = float("nan")


@pytest.mark.parametrize("dtype", [bool, int, float])
def test_to_token_advantages_each_row_is_spread_over_its_tokens(dtype):
    mask = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 1]], dtype)
    tokens = to_token_advantages([0.5, 9.0, -1.0], mask)
    assert tokens.tolist() == [[0, 0.5, 0.5], [0, 0, 0], [-1, 0, -1]]
    assert tokens.dtype == np.float64


def test_to_token_advantages_index_maps_tokens_to_steps():
    mask = [[1, 1, 0, 1], [0, 1, 1, 1]]
    index = [[0, 0, 1, 1], [99, 2, -1, 2]]  # where the mask is 0, it may be anything
    tokens = to_token_advantages([0.5, 2.0, -1.0], mask, index=index)
    assert tokens.tolist() == [[0.5, 0.5, 0, 2.0], [0, -1, 0, -1]]


def test_to_token_advantages_accepts_empty_arrays():
    assert to_token_advantages([], np.zeros((0, 5))).shape == (0, 5)
    assert to_token_advantages([], np.zeros((2, 3)), index=np.full((2, 3), -1)).sum() == 0


def test_to_token_advantages_leaves_its_arguments_unchanged():
    advantage, mask = np.array([1.0]), np.array([[1, 1]])
    to_token_advantages(advantage, mask)[:] = 7
    assert (advantage.tolist(), mask.tolist()) == ([1.0], [[1, 1]])


@pytest.mark.parametrize(
    ("advantage", "mask", "index", "message"),
    [
        ([[1.0]], [[1]], None, "`advantage` must be 1-d, got shape (1, 1)"),
        (["a"], [[1]], None, "`advantage` must contain numbers, got <U1 values"),
        ([NAN], [[1]], None, "`advantage` is not finite in row 0"),
        (
            [1.0],
            [1],
            None,
            "`mask` must be 2-d, (rows, tokens), with booleans or 0 and 1, got int64 values",
        ),
        ([1.0], [[2]], None, "booleans or 0 and 1"),
        ([1.0], [[0.5]], None, "booleans or 0 and 1"),
        ([1.0], [[1], [1]], None, "`mask` must have one row for each of 1 advantages, got 2"),
        (
            [1.0],
            [[1, 1]],
            [[0]],
            "`index` must have integers and the mask's shape (1, 2), got int64",
        ),
        (
            [1.0],
            [[1]],
            [[0.0]],
            "`index` must have integers and the mask's shape (1, 1), got float64 values",
        ),
        ([1.0], [[1]], [[1]], "`index` is not in [-1, 0] in row 0"),
        ([1.0], [[0], [1]], [[0], [-2]], "in row 1"),
        ([1.0], [[1], [1, 1]], None, "`mask` can't be read as an array"),
    ],
)
def test_to_token_advantages_rejects_arrays_that_do_not_match(advantage, mask, index, message):
    with pytest.raises(CreditError) as refusal:
        to_token_advantages(advantage, mask, index=index)
    assert message in str(refusal.value)


def test_to_token_advantages_rejects_steps_of_invalid_rollouts():
    with pytest.raises(
        CreditError, match="`advantage` is not finite in row 1; leave out"
    ) as refusal:
        to_token_advantages([0.5, None], [[1, 1], [1, 0]])
    assert refusal.value.rows == (1,)
