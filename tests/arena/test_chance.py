"""Random numbers of seeds and counters."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from guerdon.arena.chance import derive, uniform

seeds = st.integers(0, 2**64 - 1)


@given(seeds, st.integers(0, 10**6))
def test_uniform_is_the_same_for_a_number_and_an_array(seed, counter):
    array = np.array([seed, 5], np.uint64)
    assert uniform(array, counter)[0] == uniform(seed, counter)
    assert int(derive(array, counter)[0]) == derive(seed, counter) < 2**53


def test_uniform_is_uniform_and_independent_between_counters():
    many = np.arange(20_000, dtype=np.uint64)
    first, second = uniform(many, 0), uniform(many, 1)
    assert 0 <= first.min() < 0.001 < 0.999 < first.max() < 1
    assert abs(first.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03


def test_uniform_has_the_numbers_of_splitmix64():
    # The first outputs of Vigna's splitmix64.c for the seed 1234567.
    outputs = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [uniform(1234567, counter) for counter in range(3)] == [
        (each >> 11) * 2.0**-53 for each in outputs
    ]
