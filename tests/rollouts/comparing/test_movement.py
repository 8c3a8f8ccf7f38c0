"""Movement: means, quantiles and counts of what moved."""

import sys
from array import array

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from guerdon.rollouts.comparing.comparison import QUANTILES, Movement, quantile

HUGE = sys.float_info.max
finite = st.floats(-1e6, 1e6, allow_nan=False)


def moved(*pairs):
    movement = Movement(differences=array("d"))
    for pair in pairs:
        movement.add(pair)
    return movement


def test_movement_example_with_known_result():
    found = moved((0.0, 1.0), (1.0, 0.5), (0.5, 0.5), None)
    assert (found.rows, found.both) == (4, 3)
    assert (found.before.value, found.after.value) == (0.5, 2 / 3)
    assert found.difference.value == pytest.approx(1 / 6)
    assert (found.rose, found.fell, found.unmoved) == (1, 1, 1)
    assert found.quantiles()[0.0] == -0.5
    assert found.quantiles()[0.5] == 0.0
    assert found.quantiles()[0.75] == 0.5
    assert found.quantiles()[1.0] == 1.0


def test_movement_without_valid_scores_has_no_numbers():
    found = moved(None, None)
    assert (found.rows, found.both, found.rose, found.fell, found.unmoved) == (2, 0, 0, 0, 0)
    assert (found.before.value, found.after.value, found.difference.value) == (None, None, None)
    assert found.quantiles() == {}
    assert "quantiles" not in found.to_dict()


def test_movement_that_overflows_is_none():
    found = moved((-HUGE, HUGE), (HUGE, -HUGE), (0.0, 1.0))
    assert found.difference.value is None
    assert found.quantiles()[0.0] is None
    assert found.quantiles()[0.5] == 1.0
    assert (found.rose, found.fell) == (2, 1)


@given(st.lists(finite, min_size=1, max_size=30))
@example([524288.9999999999, -524289.0])
def test_quantile_equals_numpy(values):
    ordered = sorted(values)
    rounding = 1e-12 * max(map(abs, values))  # of two large values that nearly cancel
    for share in QUANTILES:
        expected = pytest.approx(float(np.quantile(values, share)), abs=max(rounding, 1e-12))
        assert quantile(ordered, share) == expected


@given(st.lists(st.tuples(finite, finite) | st.none(), max_size=30))
def test_movement_is_mirrored(pairs):
    there = moved(*pairs)
    back = moved(*(pair and pair[::-1] for pair in pairs))
    assert (there.rows, there.both, there.unmoved) == (back.rows, back.both, back.unmoved)
    assert (there.rose, there.fell) == (back.fell, back.rose)
    assert (there.before.value, there.after.value) == (back.after.value, back.before.value)
    assert there.difference.value == (
        None if back.difference.value is None else -back.difference.value
    )
    for share, value in there.quantiles().items():
        assert value == pytest.approx(-back.quantiles()[round(1 - share, 2)])
