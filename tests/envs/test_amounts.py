"""check_amount and check_seconds: what counts as an amount."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.envs.amounts import check_amount, check_seconds
from guerdon.errors import InvalidArgumentError


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False) | st.integers(1, 10**300))
def test_a_finite_number_over_0_is_given_back_as_a_float(amount):
    checked = check_seconds("timeout_s", amount)
    assert type(checked) is float
    assert checked == float(amount)


@pytest.mark.parametrize(
    "amount",
    [0, 0.0, -0.0, -1, -1e-9, math.nan, math.inf, -math.inf, True, False, None, "5", b"5",
     Decimal(5), 1j, [5], 10**400, -(10**400)],
    ids=repr,
)  # fmt: skip
def test_anything_else_is_refused_with_what_would_be_taken(amount):
    with pytest.raises(InvalidArgumentError, match=r"^timeout_s is .*a number of seconds over 0$"):
        check_seconds("timeout_s", amount)


def test_an_amount_tells_its_own_unit():
    assert check_amount("--size", 3, "MB") == 3.0
    with pytest.raises(InvalidArgumentError, match="--size is -3; it takes a number of MB over 0"):
        check_amount("--size", -3, "MB")
