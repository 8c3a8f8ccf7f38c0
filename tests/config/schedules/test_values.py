import math
from fractions import Fraction

import numpy as np
import pytest

from guerdon.config.schedules.values import is_finite, told


@pytest.mark.parametrize("value", [0, -1.5, 2**900, Fraction(1, 3), np.float32(1), np.int8(1)])
def test_a_number_is_one(value):
    assert is_finite(value)


@pytest.mark.parametrize(
    "value",
    [True, np.True_, math.nan, math.inf, np.float64("nan"), 10**400, "1", None, 1j, [1], b"1"],
    ids=lambda value: f"{type(value).__name__} {value!r:.9}",
)
def test_what_is_none_is_none(value):
    assert not is_finite(value)


def test_a_value_is_told_in_short():
    assert told("a" * 99) == "'" + "a" * 58 + "…"
    assert told([1, 2]) == "[1, 2]"


def test_what_cannot_be_written_out_is_told_by_its_type():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    assert told(10**5000) == "int that can't be told"
    assert told(nested) == "list that can't be told"
