"""Returns of each step, in the order of the steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.credit import discounted_returns
from guerdon.errors import CreditError
from tests.credit.calls import run


def test_discounted_returns_a_return_is_the_reward_and_what_follows_at_a_discount():
    # 1 + 0.5 · (2 + 0.5 · 4) = 3, 2 + 0.5 · 4 = 4, 4; and 8 + 0.5 · 2 = 9, 2
    returns = run(
        discounted_returns,
        [1.0, 2.0, 4.0, 8.0, 2.0],
        trajectory=list("aaabb"),
        step=[0, 1, 2, 0, 1],
        gamma=0.5,
    )
    assert returns.tolist() == [3.0, 4.0, 4.0, 9.0, 2.0]


def test_discounted_returns_the_order_of_the_rows_does_not_matter():
    returns = run(
        discounted_returns,
        [4.0, 2.0, 1.0, 8.0, 2.0],
        trajectory=list("ababa"),
        step=[9, 9, 0, 0, 3],
        gamma=0.5,
    )
    assert returns.tolist() == [4.0, 2.0, 3.0, 9.0, 4.0]


def test_discounted_returns_invalid_rows_have_0():
    returns = run(
        discounted_returns, [1.0, 2.0], trajectory=["a", "b"], step=[0, 0], valid=[True, False]
    )
    assert returns.tolist() == [1.0, 0.0]


@given(
    st.lists(st.lists(st.floats(-9, 9), min_size=1, max_size=7), max_size=6),
    st.floats(0, 1),
)
def test_discounted_returns_equal_the_recursion(rewards, gamma):
    expected = []
    for one in rewards:
        later, backwards = 0.0, []
        for reward in reversed(one):
            later = reward + gamma * later
            backwards.append(later)
        expected += backwards[::-1]
    returns = run(
        discounted_returns,
        [reward for one in rewards for reward in one],
        trajectory=[number for number, one in enumerate(rewards) for _ in one],
        step=[step for one in rewards for step in range(len(one))],
        gamma=gamma,
    )
    assert returns.tolist() == expected


def test_discounted_returns_reject_sums_too_large_for_a_float():
    with pytest.raises(CreditError, match="too large"):
        run(discounted_returns, [1.7e308] * 2, trajectory=["a"] * 2, step=[0, 1])


def test_discounted_returns_reject_a_discount_above_1():
    with pytest.raises(CreditError, match=r"`gamma` must be in \[0, 1\], got 2"):
        run(discounted_returns, [1.0], trajectory=["a"], step=[0], gamma=2)


def test_discounted_returns_have_the_shape_of_the_rows():
    assert run(discounted_returns, np.empty(0), trajectory=[], step=[]).shape == (0,)
