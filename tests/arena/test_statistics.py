"""Intervals and paired comparisons."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.arena.statistics import compare, median

numbers = st.lists(st.floats(0.5, 1000), min_size=3, max_size=20)


@given(numbers)
def test_median_is_one_of_the_values_and_inside_its_interval(values):
    found = median(np.array(values), 200)
    assert found.value in values
    assert found.low <= found.value <= found.high


def test_median_of_mostly_infinite_values_is_infinite():
    assert median(np.array([1.0, np.inf, np.inf]), 100).value == np.inf


def test_median_interval_covers_the_true_median_in_about_95_of_100_samples():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        found = median(rng.normal(size=30), 400)
        hits += found.low <= 0 <= found.high
    assert 0.90 < hits / 400 < 0.99


@given(numbers)
def test_compare_of_equal_numbers_has_the_ratio_one_and_no_evidence(values):
    same = np.array(values)
    found = compare(same, same.copy(), 200)
    assert (found.ratio.value, found.ratio.low, found.ratio.high, found.p) == (1, 1, 1, 1)


def test_compare_finds_a_difference_that_is_larger_than_the_noise():
    rng = np.random.default_rng(2)
    base = rng.uniform(50, 60, 30)
    found = compare(base / 2, base, 2000)
    assert found.ratio.value == pytest.approx(0.5, abs=0.02)
    assert found.ratio.high < 1
    assert found.p < 0.01


def test_compare_has_false_alarms_in_about_5_of_100_cases():
    rng = np.random.default_rng(3)
    alarms = sum(compare(*rng.uniform(1, 2, (2, 20)), 300).p < 0.05 for _ in range(300))
    assert alarms / 300 < 0.1
