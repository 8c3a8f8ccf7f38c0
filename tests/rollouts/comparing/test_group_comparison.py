"""Groups: whose order changed, whose best changed, and which pairs flipped."""

import json

import pytest

from guerdon.rollouts.comparing.group_comparison import MAX_COMBINED, GroupRanks, PairCounts


def compared(rows, *, top=10):
    """Rows of (group, id, before, after); None where it isn't valid in both."""
    ranks = GroupRanks()
    for group, found, *scores in rows:
        ranks.add(group, found, None if None in scores else tuple(scores))
    return ranks.compare(top=top)


def test_group_comparison_example_with_known_result():
    found = compared([("g", "a", 1.0, 0.25), ("g", "b", 0.5, 0.75), ("g", "c", 0.0, 0.0)])
    assert found.pairs == PairCounts(kept=2, flipped=1)
    assert found.mean_tau == pytest.approx(1 / 3)
    assert (found.with_flips, found.best_changed, found.best_tied) == (1, 1, 0)
    [flip] = found.flips
    assert (flip.group, flip.better_before, flip.better_after) == ("g", "a", "b")
    assert (flip.before, flip.after) == ((1.0, 0.5), (0.25, 0.75))
    assert flip.clarity == 0.5
    [move] = found.moved
    assert (move.rows, move.valid_in_both, move.best) == (3, 3, "changed")
    assert (move.best_before, move.best_after) == (("a",), ("b",))


def test_group_comparison_compares_within_groups_only():
    found = compared([("g", "a", 1.0, 0.0), ("h", "b", 0.0, 1.0)])
    assert (found.groups, found.compared, found.pairs) == (2, 0, PairCounts())
    assert (found.mean_tau, found.with_tau) == (None, 0)


def test_group_comparison_accepts_scattered_groups():
    apart = [("g", 1, 1.0, 0.0), ("h", 2, 1.0, 1.0), ("g", 3, 0.0, 1.0), ("h", 4, 0.0, 0.0)]
    together = sorted(apart, key=lambda row: row[0])
    assert compared(apart) == compared(together)
    assert compared(apart).pairs == PairCounts(kept=1, flipped=1)


def test_group_comparison_failure_is_not_zero():
    found = compared([("g", "a", 1.0, None), ("g", "b", 0.5, 1.0), ("g", "c", None, 0.0)])
    assert (found.groups, found.compared, found.pairs.pairs) == (1, 0, 0)
    found = compared([("g", "a", 1.0, None), ("g", "b", 0.5, 1.0), ("g", "c", 1.0, 0.5)])
    assert (found.compared, found.pairs) == (1, PairCounts(flipped=1))
    assert (found.moved[0].rows, found.moved[0].valid_in_both) == (3, 2)


@pytest.mark.parametrize(
    ("before", "after", "best"),
    [
        ([1.0, 0.0], [0.5, 0.0], "same"),
        ([1.0, 1.0, 0.0], [0.5, 0.5, 0.0], "same"),
        ([1.0, 0.0], [0.0, 1.0], "changed"),
        ([1.0, 1.0, 0.0], [0.0, 0.0, 1.0], "changed"),
        ([1.0, 0.0], [1.0, 1.0], "tied"),
        ([1.0, 1.0], [1.0, 0.0], "tied"),
    ],
    ids=["same", "same-two", "another", "another-than-two", "tie-made", "tie-broken"],
)
def test_group_comparison_finds_the_best_of_a_group(before, after, best):
    found = compared([("g", *row) for row in zip("abc", before, after, strict=False)])
    counted = (found.best_changed, found.best_tied)
    assert counted == {"same": (0, 0), "changed": (1, 0), "tied": (0, 1)}[best]


def test_group_comparison_of_equal_scores_is_dead_without_tau():
    rows = [("alive", 1, 0.0, 1.0), ("alive", 2, 1.0, 2.0),
            ("dies", 3, 0.0, 1.0), ("dies", 4, 1.0, 1.0),
            ("wakes", 5, 0.5, 0.0), ("wakes", 6, 0.5, 1.0)]  # fmt: skip
    found = compared(rows)
    assert (found.dead_before, found.dead_after) == (1, 1)
    assert (found.mean_tau, found.with_tau) == (1.0, 1)
    assert (found.pairs.ties_made, found.pairs.ties_broken) == (1, 1)


def test_group_comparison_tau_is_the_mean_over_groups():
    rows = [("small", 1, 0.0, 1.0), ("small", 2, 1.0, 0.0)]
    rows += [("large", place, place, place) for place in range(10)]
    assert compared(rows).mean_tau == 0.0


def test_group_comparison_counts_rollouts_without_a_group():
    found = compared([(None, 1, 0.0, 1.0), (None, 2, 1.0, 0.0), ("g", 3, 0.0, 0.0)])
    assert (found.groups, found.rows_without_group, found.pairs.pairs) == (1, 2, 0)
    assert compared([(None, 1, 0.0, 1.0)]) is None


def test_group_comparison_distinguishes_groups_like_json():
    rows = [(1, "a", 0.0, 1.0), ("1", "b", 1.0, 0.0), ({"t": [1]}, "c", 0.0, 1.0),
            ({"t": [1]}, "d", 1.0, 0.0)]  # fmt: skip
    found = compared(rows)
    assert (found.groups, found.pairs) == (3, PairCounts(flipped=1))
    assert found.moved[0].group == {"t": [1]}


def test_group_comparison_cuts_and_distinguishes_long_names():
    long = "x" * 5_000
    rows = [(long + end, long + end + row, *scores) for end in "ab"
            for row, scores in (("1", (0.0, 1.0)), ("2", (1.0, 0.0)))]  # fmt: skip
    found = compared(rows)
    assert (found.groups, found.pairs) == (2, PairCounts(flipped=2))
    assert len(found.flips[0].group) == len(found.flips[0].better_before) == 201


def test_group_comparison_lists_the_clearest_flips_first():
    rows = [("g", "a", 1.0, 0.0), ("g", "b", 0.9, 1.0), ("h", "c", 1.0, 0.0), ("h", "d", 0.0, 0.5)]
    found = compared(rows, top=1)
    assert found.pairs.flipped == 2
    assert [flip.better_before for flip in found.flips] == ["c"]
    assert compared(rows, top=0).flips == ()


def test_group_comparison_of_a_large_group_lists_flips():
    size = MAX_COMBINED + 1
    found = compared([("g", place, float(place), float(-place)) for place in range(size)])
    assert found.pairs == PairCounts(flipped=size * (size - 1) // 2)
    assert len(found.flips) == 10
    for flip in found.flips:
        assert flip.before[0] - flip.before[1] == 1.0  # neighbours: not all are compared
        assert flip.after[1] - flip.after[0] == 1.0


def test_group_comparison_lists_a_hundred_groups_with_most_flips():
    rows = [(f"g{group}", place, float(place), float(-place))
            for group in range(120) for place in range(2 + (group == 119))]  # fmt: skip
    found = compared(rows)
    assert (found.with_flips, len(found.moved)) == (120, 100)
    assert [move.group for move in found.moved[:2]] == ["g119", "g0"]


def test_group_comparison_to_dict_is_json():
    found = compared([("g", 1, 0.0, 1.0), ("g", ("a", 2), 1.0, 0.0), ("h", float("nan"), 0.5, 0.5)])
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (data["flipped"], data["mean_tau"], data["best_changed"]) == (1, -1.0, 1)
    assert data["flips"][0]["better_before"] == ["a", 2]
