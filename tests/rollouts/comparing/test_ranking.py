"""Pairs kept, flipped and tied: examples, and a comparison with every pair."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.rollouts.comparing.group_comparison import PairCounts, count_pairs

few = st.lists(st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 1.0])] * 2), max_size=12)
many = st.lists(st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 2), max_size=40)


def one_by_one(before, after):
    """The same by the definition: each pair is compared."""
    counts = dict.fromkeys(("kept", "flipped", "ties_broken", "ties_made", "tied"), 0)
    for i, j in combinations(range(len(before)), 2):
        was = (before[i] > before[j]) - (before[i] < before[j])
        now = (after[i] > after[j]) - (after[i] < after[j])
        if was and now:
            counts["kept" if was == now else "flipped"] += 1
        elif was or now:
            counts["ties_made" if was else "ties_broken"] += 1
        else:
            counts["tied"] += 1
    return PairCounts(**counts)


@pytest.mark.parametrize(
    ("before", "after", "counts", "tau"),
    [
        ([], [], (0, 0, 0, 0, 0), None),
        ([1.0], [0.0], (0, 0, 0, 0, 0), None),
        ([0.1, 0.2, 0.3], [1.0, 2.0, 3.0], (3, 0, 0, 0, 0), 1.0),
        ([0.1, 0.2, 0.3], [3.0, 2.0, 1.0], (0, 3, 0, 0, 0), -1.0),
        ([0.1, 0.2, 0.3], [0.1, 0.3, 0.2], (2, 1, 0, 0, 0), 1 / 3),
        ([0.1, 0.2, 0.3], [0.5, 0.5, 0.5], (0, 0, 0, 3, 0), None),
        ([0.5, 0.5, 0.5], [0.1, 0.2, 0.3], (0, 0, 3, 0, 0), None),
        ([0.5, 0.5], [0.1, 0.1], (0, 0, 0, 0, 1), None),
        # a=b before and a>b after; a>c and b>c before; a>c and b=c after.
        ([1.0, 1.0, 0.0], [1.0, 0.0, 0.0], (1, 0, 1, 1, 0), 1 / 2),
        # 1-2 kept, 1-3 flipped, 1-4 tie made, 2-3 flipped, 2-4 flipped, 3-4 kept.
        ([1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 1.0, 2.0], (2, 3, 0, 1, 0), -1 / 30**0.5),
    ],
    ids=["none", "one", "same", "reversed", "one-flip", "all-tied-now", "all-were-tied", "tied",
         "ties-both-ways", "mixed"],
)  # fmt: skip
def test_count_pairs_example_with_known_result(before, after, counts, tau):
    found = count_pairs(before, after)
    assert found == PairCounts(*counts)
    assert found.pairs == len(before) * (len(before) - 1) // 2
    assert found.tau == (None if tau is None else pytest.approx(tau, abs=1e-12))


@given(few | many)
def test_count_pairs_equals_comparing_every_pair(scores):
    before, after = [one for one, _ in scores], [other for _, other in scores]
    assert count_pairs(before, after) == one_by_one(before, after)


@given(few | many)
def test_count_pairs_is_mirrored(scores):
    before, after = [one for one, _ in scores], [other for _, other in scores]
    there, back = count_pairs(before, after), count_pairs(after, before)
    assert (there.kept, there.flipped, there.tied) == (back.kept, back.flipped, back.tied)
    assert (there.ties_made, there.ties_broken) == (back.ties_broken, back.ties_made)
    assert there.tau == back.tau


@given(few | many)
def test_count_pairs_of_equal_scores_flips_nothing(scores):
    before = [one for one, _ in scores]
    found = count_pairs(before, before)
    assert (found.flipped, found.ties_broken, found.ties_made) == (0, 0, 0)
    assert found.tau == (1.0 if len(set(before)) > 1 else None)


@given(few | many)
def test_pair_counts_tau_is_between_minus_one_and_one(scores):
    tau = count_pairs([one for one, _ in scores], [other for _, other in scores]).tau
    assert tau is None or -1.0 <= tau <= 1.0


def test_count_pairs_of_a_large_group_is_fast():
    size = 20_000
    found = count_pairs(range(size), range(size, 0, -1))
    assert found == PairCounts(flipped=size * (size - 1) // 2)
