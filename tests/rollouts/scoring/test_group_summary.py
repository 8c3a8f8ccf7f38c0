"""GroupSummary: what a run over groups gave, in bounded memory."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.rollouts.scoring import summary
from guerdon.rollouts.scoring.summary import GroupStats, GroupSummary, group_stats


def row(score=1.0, *steps, group="g", **fields):
    """A row whose steps have these anchors and returns."""
    listed = [
        {"step_index": turn, "advantage": 0.5, "return_to_go": value}
        | ({} if anchor is None else {"anchor": anchor})
        for turn, (anchor, value) in enumerate(steps)
    ]
    return {
        "id": 1, "group": group, "score": score, "is_score_valid": score is not None,
        "components": {}, "step_rewards": None, "error": None, "fingerprint": "f",
    } | ({"steps": listed} if steps else {}) | fields  # fmt: skip


def summary_of(*facts):
    counted = GroupSummary()
    for each in facts:
        counted.add(each)
    return counted


# The facts of one group


def test_group_stats_of_rows_without_credit():
    facts = group_stats([row(1.0), row(None), row(0.5)], credited=False)
    assert facts == GroupStats("g", 3, (1.0, 0.5))
    assert (facts.mean_score, facts.dead, facts.uncredited) == (0.75, False, False)


def test_group_stats_counts_steps_by_shared_states():
    rows = [row(1.0, (0, 1.0), (1, 1.0), (0, 1.0)), row(0.0, (0, 0.0), (2, 0.5), (3, 0.5)),
            row(0.0, (2, 0.5))]  # fmt: skip
    facts = group_stats(rows, credited=True)
    assert (facts.steps, facts.shared_steps) == (7, 5)
    assert facts.anchors == {1: 2, 2: 1, 3: 1}
    assert facts.dead_anchors == 1
    assert not facts.uncredited


def test_group_stats_of_steps_without_anchors_shares_nothing():
    facts = group_stats([row(1.0, (None, 1.0), (None, 1.0))], credited=True)
    assert (facts.steps, facts.shared_steps, facts.anchors, facts.dead_anchors) == (2, 0, {}, 0)


def test_group_stats_skips_steps_without_an_advantage():
    masked = row(None, steps=[{"step_index": 0, "advantage": None, "return_to_go": None}])
    uncredited = row(1.0, steps=[{"step_index": 0, "base_reward": 0.5, "reason": None}])
    facts = group_stats([masked, uncredited], credited=True)
    assert (facts.steps, facts.uncredited) == (0, True)


@pytest.mark.parametrize(
    ("scores", "dead"),
    [((), False), ((1.0,), False), ((1.0, 1.0), True), ((0.0, -0.0), True), ((0.0, 1e-12), False)],
    ids=str,
)
def test_group_stats_is_dead_with_two_or_more_equal_scores(scores, dead):
    assert GroupStats("g", 3, scores).dead is dead


def test_group_stats_without_scores_has_no_mean_and_misses_no_credit():
    facts = group_stats([row(None), row(None)], credited=True)
    assert (facts.mean_score, facts.scores, facts.uncredited) == (None, (), False)


def test_group_stats_mean_of_large_scores_is_exact():
    assert GroupStats("g", 3, (1e16, 1.0, -1e16)).mean_score == pytest.approx(1 / 3)


HUGE = 1.7e308


@pytest.mark.parametrize(
    ("scores", "mean"),
    [((HUGE,) * 4, HUGE), ((HUGE, HUGE, -HUGE, -HUGE), 0.0), ((-HUGE,) * 3, -HUGE)],
    ids=["large", "both", "small"],
)
def test_group_stats_mean_is_finite_though_the_sum_overflows(scores, mean):
    facts = group_stats([row(score) for score in scores], credited=False)
    assert facts.mean_score == pytest.approx(mean)
    json.dumps(summary_of(facts).to_dict(), allow_nan=False)


# Over groups


def test_group_summary_counts_groups_with_nothing_to_learn():
    counted = summary_of(
        GroupStats("a", 2, (1.0, 0.0)),
        GroupStats("b", 2, (1.0, 1.0)),
        GroupStats("c", 2, (1.0,)),
        GroupStats("d", 1, (), uncredited=False),
        GroupStats("e", 2, (1.0, 0.0), uncredited=True),
    )
    data = counted.to_dict()
    assert (data["groups"], data["dead_groups"]) == (5, 1)
    assert (data["groups_of_one"], data["uncredited_groups"]) == (1, 1)
    assert [each["group"] for each in data["by_group"]] == list("abcde")
    assert data["by_group"][1] == {
        "group": "b", "rows": 2, "scores": [1.0, 1.0], "mean_score": 1.0, "dead": True,
        "steps": 0, "shared_steps": 0,
    }  # fmt: skip


def test_group_summary_counts_rollouts_without_a_group():
    counted = summary_of(
        GroupStats(None, 1, (1.0,), steps=2, anchors={1: 2}), GroupStats(None, 1, ())
    )
    data = counted.to_dict()
    assert (data["groups"], data["rows_without_group"], data["groups_of_one"]) == (0, 2, 0)
    assert (data["steps"], data["anchor_sizes"], data["by_group"]) == (2, {"1": 2}, [])


def test_group_summary_counts_anchors_by_size():
    counted = summary_of(
        GroupStats(
            "a", 2, (1.0, 0.0), steps=4, shared_steps=2, anchors={1: 2, 2: 1}, dead_anchors=1
        ),
        GroupStats("b", 2, (1.0, 0.0), steps=12, shared_steps=12, anchors={10: 1, 2: 1}),
    )
    data = counted.to_dict()
    assert data["anchor_sizes"] == {"1": 2, "2": 2, "10": 1}
    assert list(data["anchor_sizes"]) == ["1", "2", "10"]
    assert (data["steps"], data["anchor_coverage"], data["dead_anchors"]) == (16, 14 / 16, 1)


def test_group_summary_without_steps_has_no_coverage():
    assert GroupSummary().to_dict() == {
        "groups": 0, "rows_without_group": 0, "groups_of_one": 0, "dead_groups": 0,
        "uncredited_groups": 0, "steps": 0, "anchor_coverage": None, "anchor_sizes": {},
        "dead_anchors": 0, "by_group": [],
    }  # fmt: skip


def test_group_summary_lists_a_bounded_number_of_groups():
    counted = GroupSummary()
    for number in range(1000):
        counted.add(GroupStats(number, 2, (1.0, 0.0)))
    assert counted.groups == 1000
    assert [each.group for each in counted.first] == list(range(summary.MAX_GROUPS))
    assert len(counted.to_dict()["by_group"]) == summary.MAX_GROUPS == 100


def test_group_summary_bounds_the_list_when_merging(monkeypatch):
    monkeypatch.setattr(summary, "MAX_GROUPS", 3)
    one = summary_of(GroupStats("a", 1, ()), GroupStats("b", 1, ()))
    one.merge(summary_of(GroupStats("c", 1, ()), GroupStats("d", 1, ())))
    assert ([each.group for each in one.first], one.groups) == (["a", "b", "c"], 4)


FACTS = st.builds(
    GroupStats,
    st.none() | st.sampled_from(["a", 1]),
    st.integers(1, 3),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=3).map(tuple),
    steps=st.integers(0, 4),
    shared_steps=st.integers(0, 4),
    anchors=st.dictionaries(st.integers(1, 3), st.integers(1, 3)),
    dead_anchors=st.integers(0, 2),
    uncredited=st.booleans(),
)


@given(chunks=st.lists(st.lists(FACTS, max_size=4), max_size=3))
def test_group_summary_merging_equals_counting_at_once(chunks):
    merged, parts = GroupSummary(), [summary_of(*chunk) for chunk in chunks]
    before = copy.deepcopy(parts)
    for part in parts:
        merged.merge(part)
    assert merged == summary_of(*(facts for chunk in chunks for facts in chunk))
    assert parts == before
    json.dumps(merged.to_dict(), allow_nan=False)
