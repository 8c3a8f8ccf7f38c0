"""Comparison: result rows of two rewards, side by side."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.comparing.comparison import Comparison, compare_rows

HUGE = sys.float_info.max
score = st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(-10, 10) | st.none()


def row(found, value, *, group=None, error="ValueError: no", **components):
    return {
        "id": found,
        "group": group,
        "score": value,
        "is_score_valid": value is not None,
        "components": components,
        "step_rewards": None,
        "error": error if value is None else None,
        "fingerprint": "f",
    }


def rows(values, *, group=None, **components):
    return [row(place, value, group=group, **components) for place, value in enumerate(values)]


def test_compare_rows_example_with_known_result():
    found = compare_rows(rows([0.0, 1.0, None, 0.5, None]), rows([1.0, 0.5, 1.0, None, None]))
    assert (found.rows, found.movement.both, found.failed) == (5, 2, 3)
    assert (found.only_before, found.only_after, found.neither) == (1, 1, 1)
    assert (found.before.score.value, found.after.score.value) == (0.5, 2.5 / 3)
    assert (found.movement.before.value, found.movement.after.value) == (0.5, 0.75)
    assert found.movement.difference.value == 0.25
    assert [(move.id, move.difference) for move in found.moved] == [(0, 1.0), (1, -0.5)]


def test_compare_rows_failure_is_neither_a_difference_nor_zero():
    found = compare_rows(rows([1.0, None]), rows([None, 1.0], group=None))
    assert (found.movement.both, found.movement.difference.value, found.moved) == (0, None, ())
    [lost], [won] = found.lost, found.won
    assert (lost.id, lost.before, lost.after, lost.difference) == (0, 1.0, None, None)
    assert (won.id, won.before, won.after) == (1, None, 1.0)
    assert lost.error == won.error == "ValueError: no"


def test_compare_rows_lists_the_components_of_moved_rows():
    before = [row(1, 0.5, a=0.5), row(2, 0.5, a=0.5), row(3, 0.5, a=0.5)]
    after = [row(1, 0.75, a=0.75), row(2, 0.0, a=0.0, b=1.0), row(3, 0.5, a=0.5)]
    found = compare_rows(before, after, top=1)
    [move] = found.moved
    assert (move.id, move.components_before) == (2, {"a": 0.5})
    assert move.components_after == {"a": 0.0, "b": 1.0}


def test_compare_rows_lists_the_first_of_equal_movements():
    found = compare_rows(rows([0.0] * 6), rows([0.0, 1.0, -1.0, 1.0, 0.5, 1.0]), top=3)
    assert [move.id for move in found.moved] == [1, 2, 3]
    assert len(compare_rows(rows([0.0] * 6), rows([0.0, 1.0] * 3)).moved) == 3


def test_compare_rows_compares_components_that_both_rows_have():
    before = [row(1, 1.0, a=0.0, gone=1.0), row(2, 1.0, a=1.0), row(3, None)]
    after = [row(1, 1.0, a=1.0, new=0.5), row(2, 1.0), row(3, 1.0, a=1.0)]
    found = compare_rows(before, after).components
    assert list(found) == ["a", "gone", "new"]
    assert (found["a"].both, found["a"].before.value, found["a"].difference.value) == (1, 0.0, 1.0)
    assert found["gone"].both == found["new"].both == 0


def in_parts(before, after, parts):
    comparison = Comparison()
    for triple in zip(before, after, parts, strict=True):
        comparison.add(*triple)
    return comparison


def test_comparison_parts_have_their_own_movement():
    found = in_parts(rows([0.0, 1.0, 0.0]), rows([1.0, 1.0, None]), "xyx")
    assert {
        name: (part.rows, part.both, part.difference.value) for name, part in found.parts.items()
    } == {
        "x": (2, 1, 1.0),
        "y": (1, 1, 0.0),
    }


def test_comparison_counts_parts_beyond_a_hundred_together():
    values = [0.0] * 250
    found = in_parts(rows(values), rows(values), map(str, range(250)))
    assert len(found.parts) == 101
    assert found.parts["(others)"].rows == 150


def test_compare_rows_ranks_groups():
    found = compare_rows(rows([0.0, 1.0], group="g"), rows([1.0, 0.0], group="g"))
    assert found.groups.pairs.flipped == 1
    assert compare_rows(rows([0.0]), rows([1.0])).groups is None


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (rows([0.0, 1.0]), rows([0.0]), "after row 1 only one reward has rows"),
        ([row("a", 0.0)], [row("b", 0.0)], "row 1 has the id 'a' before and 'b' after"),
        ([row(1, 0.0)], [row("1", 0.0)], "row 1 has the id 1 before and '1' after"),
        ([row(1, 0.0, group=1)], [row(1, 0.0)], "row 1 has the group 1 before and None after"),
        (rows([0.0, float("nan")]), rows([0.0, 0.0]), "finite score or None before, got nan"),
        (rows([0.0]), rows([float("inf")]), "finite score or None after, got inf"),
        (rows([True]), rows([0.0]), "row 1 must have a finite score or None before, got True"),
        (rows([10**400]), rows([0.0]), "finite score or None before, got 1000"),
        (rows(["1.0"]), rows([0.0]), "finite score or None before, got '1.0'"),
    ],
    ids=["fewer", "ids", "kinds", "groups", "nan", "inf", "bool", "huge", "text"],
)
def test_compare_rows_rejects_rows_that_can_not_be_compared(before, after, message):
    with pytest.raises(InvalidArgumentError, match=message):
        compare_rows(before, after)


@pytest.mark.parametrize("top", [-1, 1.0, True, "3"])
def test_compare_rows_rejects_an_invalid_top(top):
    with pytest.raises(InvalidArgumentError, match="`top` must be an integer >= 0"):
        compare_rows([], [], top=top)


def test_compare_rows_raises_errors_of_its_iterables():
    def broken():
        yield row(0, 0.0)
        raise ValueError("the file is gone")

    with pytest.raises(ValueError, match="the file is gone"):
        compare_rows(broken(), rows([0.0, 0.0]))


def test_comparison_to_dict_is_json_for_any_scores():
    before, after = rows([-HUGE, HUGE, 0.0], group="g"), rows([HUGE, -HUGE, None], group="g")
    found = compare_rows(before, after)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["mean_difference"] is None
    assert (data["quantiles"]["0"], data["quantiles"]["1"]) == (None, None)
    assert [move["difference"] for move in data["moved"]] == [None, None]
    assert (data["valid_before_only"], data["groups"]["flipped"]) == (1, 1)


scored = st.lists(st.tuples(score, score, st.sampled_from([None, "g", "h"])), max_size=15)


def both(found):
    before = [row(place, one, group=group, c=1.0) for place, (one, _, group) in enumerate(found)]
    after = [row(place, two, group=group, c=0.0) for place, (_, two, group) in enumerate(found)]
    return before, after


@given(scored)
def test_compare_rows_of_equal_rows_moves_nothing(found):
    before, _ = both(found)
    same = compare_rows(before, before)
    assert (same.movement.rose, same.movement.fell, same.moved) == (0, 0, ())
    assert set(same.movement.quantiles().values()) <= {0.0}
    assert (same.only_before, same.only_after, same.lost, same.won) == (0, 0, [], [])
    if same.groups is not None:
        pairs = same.groups.pairs
        assert (pairs.flipped, pairs.ties_broken, pairs.ties_made) == (0, 0, 0)
        assert (same.groups.best_changed, same.groups.best_tied) == (0, 0)
        assert same.groups.mean_tau in (None, 1.0)


@given(scored)
def test_compare_rows_is_mirrored(found):
    before, after = both(found)
    there, back = compare_rows(before, after, top=99), compare_rows(after, before, top=99)
    assert (there.only_before, there.only_after) == (back.only_after, back.only_before)
    assert [m.id for m in there.moved] == [m.id for m in back.moved]
    assert [m.difference for m in there.moved] == [-m.difference for m in back.moved]
    assert [(m.id, m.before) for m in there.lost] == [(m.id, m.after) for m in back.won]
    if there.groups is not None:
        one, other = there.groups, back.groups
        assert (one.pairs.flipped, one.mean_tau) == (other.pairs.flipped, other.mean_tau)
        assert (one.best_changed, one.best_tied) == (other.best_changed, other.best_tied)
        assert (one.dead_before, one.dead_after) == (other.dead_after, other.dead_before)
        assert {(f.better_before, f.better_after) for f in one.flips} == {
            (f.better_after, f.better_before) for f in other.flips
        }


@given(scored, st.integers(0, 5))
def test_compare_rows_lists_at_most_top_rows(found, top):
    comparison = compare_rows(*both(found), top=top)
    assert max(len(comparison.moved), len(comparison.lost), len(comparison.won)) <= top
    assert comparison.groups is None or len(comparison.groups.flips) <= top
