import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.tracking.statistics import CAPACITY, Percentiles

PERCENTS = [0, 0.1, 1, 5, 25, 50, 75, 95, 99, 99.9, 100]


def sketch_of(values):
    values = np.asarray(values, dtype=float)
    return Percentiles.of_rows(values, np.zeros(len(values), int), 1)[0]


def bound(count):
    """The share of all rewards by which ranks are off at most, as the class documents."""
    return 0.0 if count < CAPACITY else (1 + math.log2(count / CAPACITY)) / CAPACITY


def furthest(sketch, values):
    """Return the largest error of the rank of a percentile, as a share of all values."""
    values = np.sort(values)
    off = 0
    for percent in PERCENTS:
        found, target = sketch.percentile(percent), max(1, percent * len(values) / 100)
        below, up_to = np.searchsorted(values, found), np.searchsorted(values, found, "right")
        assert up_to > below, "it must be one of the values"
        off = max(off, below + 1 - target - 1, target - up_to)
    return max(0, off) / len(values)


def shapes(size):
    dice = np.random.default_rng(7)
    return {
        "normal": dice.normal(size=size),
        "far from 0": 1e9 + dice.normal(size=size),
        "negative": -np.exp(dice.normal(size=size) * 20),
        "rising": np.arange(size, dtype=float),
        "falling": -np.arange(size, dtype=float),
        "mostly zero": (dice.random(size) > 0.97) * dice.normal(size=size),
        "two values": (dice.random(size) > 0.5) * 1.0,
        "saw": np.arange(size) % 4096 / 1.0,
    }


@given(st.lists(st.floats(-1e9, 1e9) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=60))
def test_percentile_of_few_rewards_is_exact(values):
    one_by_one = Percentiles.empty()
    for value in values:
        one_by_one.add(value)
    ordered = sorted(values)
    for percent in (0, 1, 5, 50, 95, 100):
        expected = ordered[max(0, math.ceil(percent * len(values) / 100) - 1)]
        assert sketch_of(values).percentile(percent) == expected
        assert one_by_one.percentile(percent) == expected


def test_percentile_below_the_capacity_is_exact():
    sketch = sketch_of(range(CAPACITY - 1))
    assert sketch.scale().rank_error == 0
    assert sketch.percentile(50) == CAPACITY // 2 - 1
    sketch.add(-1.0)
    assert 0 < sketch.scale().rank_error <= bound(CAPACITY)


@pytest.mark.parametrize("shape", shapes(1))
@pytest.mark.parametrize("way", ["at once", "in parts", "one by one", "merged"])
def test_percentile_is_within_the_rank_error(shape, way):
    values = shapes(30_000)[shape]
    if way == "at once":
        sketch = sketch_of(values)
    elif way == "one by one":
        sketch = Percentiles.empty()
        for value in values.tolist():
            sketch.add(value)
    else:  # each part comes into what is there; or pairs are merged, and pairs of pairs
        parts = [sketch_of(part) for part in np.array_split(values, 16)]
        while len(parts) > 1:
            parts[0].merge(parts[1])
            parts = [parts[0], *parts[2:]] if way == "in parts" else [*parts[2:], parts[0]]
        (sketch,) = parts
    reported = sketch.scale().rank_error
    assert sketch.count == len(values)
    assert furthest(sketch, values) <= reported <= bound(len(values))


@settings(max_examples=20)
@given(st.lists(st.integers(1, 9_000), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_merge_stays_within_the_rank_error(sizes, seed):
    dice = np.random.default_rng(seed)
    parts = [dice.normal(dice.normal(), size=size) for size in sizes]
    sketch = Percentiles.empty()
    for part in parts:
        sketch.merge(sketch_of(part))
    reported = sketch.scale().rank_error
    assert furthest(sketch, np.concatenate(parts)) <= reported <= bound(sum(sizes))
    assert sum(len(level) << n for n, level in enumerate(sketch.levels)) == sketch.count


def test_percentiles_use_bounded_memory():
    sketch = Percentiles.empty()
    part = sketch_of(np.random.default_rng(0).normal(size=500_000))
    for _ in range(40):
        sketch.merge(part)
    assert sketch.count == 20_000_000
    assert max(map(len, sketch.levels)) < CAPACITY
    assert len(sketch.levels) <= 2 + math.log2(20_000_000 / CAPACITY)
    assert sketch.scale().rank_error <= bound(20_000_000)


def test_percentile_is_usually_far_within_the_rank_error():
    values = np.random.default_rng(1).normal(size=1_000_000)
    sketch = Percentiles.empty()
    for part in np.array_split(values, 100):
        sketch.merge(sketch_of(part))
    assert furthest(sketch, values) < 0.001 < sketch.scale().rank_error < bound(10**6) < 0.0049
