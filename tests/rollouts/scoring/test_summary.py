"""Summary: counts and means over rows, in bounded memory."""

import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.rollouts.scoring import summary
from guerdon.rollouts.scoring.summary import GroupStats, GroupSummary, Summary
from guerdon.rubrics import Gate, Rubric, WeightedSum


class One(Rubric):
    def forward(self, action, observation):
        return 1.0


def result(score=1.0, error=None, **components):
    return {
        "id": 1,
        "group": None,
        "score": score,
        "is_score_valid": score is not None,
        "components": components,
        "step_rewards": None if score is None else [score],
        "error": error,
        "fingerprint": "f",
    }


def summary_of(*rows, **options):
    counted = Summary(**options)
    for row in rows:
        counted.add(row)
    return counted


def test_summary_without_rows_has_no_mean():
    assert Summary(passing=0.5).to_dict() == {
        "rows": 0,
        "valid": 0,
        "failed": 0,
        "zeros": 0,
        "mean_score": None,
        "passing": 0.5,
        "accuracy": None,
        "components": {},
        "stopped": {},
        "failures": {},
        "dealt_with": 0,
        "first_failures": {},
        "noted": 0,
    }


def test_summary_counts_failures_apart_from_zeros():
    counted = summary_of(
        result(0.0), result(1.0), result(None, "step 0: ValueError: no"), result(0.0, "guarded")
    )
    assert (counted.rows, counted.failed, counted.zeros, counted.dealt_with) == (4, 1, 2, 1)
    assert counted.score.value == 1 / 3
    assert counted.to_dict()["valid"] == 3


def test_summary_counts_rows_that_pass_at_equality():
    rows = [result(0.5), result(0.49), result(1.0), result(None, "x")]
    counted = summary_of(*rows, passing=0.5)
    assert (counted.passed, counted.accuracy) == (2, 2 / 3)
    assert "accuracy" not in summary_of(*rows).to_dict()


def test_summary_means_of_components_are_over_the_rows_that_have_them():
    counted = summary_of(result(a=1.0, b=0.5), result(a=0.0), result(None, "x", a=9.0))
    assert counted.to_dict()["components"] == {
        "a": {"mean": 0.5, "rows": 2},
        "b": {"mean": 0.5, "rows": 1},
    }


def test_summary_counts_rows_stopped_by_gates():
    stopped = [result(0.0) | {"stopped_by": gates} for gates in (["gate"], ["gate", "last"])]
    counted = summary_of(*stopped, result(1.0), gates=("gate", "last", "other"))
    assert counted.to_dict()["stopped"] == {"gate": 2, "last": 1, "other": 0}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("step 0: rubric 'a.b': ValueError: no: luck", "ValueError"),
        ("ValueError", "ValueError"),
        ("line 3: RolloutError: the line is not valid JSON: x", "RolloutError"),
        ("step 2: KeyError: 'x'", "KeyError"),
        (None, "unknown"),
    ],
)
def test_summary_counts_failures_by_kind(error, kind):
    assert summary_of(result(None, error), result(None, error)).failures == {kind: 2}


def test_summary_parts_count_their_own_rows():
    counted = Summary(passing=1.0)
    counted.add(result(1.0), "small")
    counted.add(result(0.0), "large")
    counted.add(result(1.0), "large")
    counted.add(result(1.0))
    assert counted.rows == 4
    by = counted.to_dict()["by"]
    assert {name: (part["rows"], part["accuracy"]) for name, part in by.items()} == {
        "small": (1, 1.0),
        "large": (2, 0.5),
    }


def test_summary_bounds_parts_and_failures():
    counted = Summary()
    for i in range(1000):
        counted.add(result(None, f"Error{i}: x"), f"part {i}")
    for counts in (counted.parts, counted.failures):
        assert len(counts) == summary.MAX_PARTS + 1
    assert counted.parts["(others)"].rows == 1000 - summary.MAX_PARTS
    assert sum(counted.failures.values()) == 1000


def test_summary_keeps_the_first_failure_of_each_kind():
    counted = summary_of(
        result(None, "step 0: ValueError: one"),
        result(None, "KeyError: two"),
        result(None, "step 1: ValueError: three"),
        result(1.0, "ValueError: dealt with"),
    )
    first = {"ValueError": "step 0: ValueError: one", "KeyError": "KeyError: two"}
    assert counted.first_failures == counted.to_dict()["first_failures"] == first
    merged = Summary()
    merged.merge(counted)
    merged.merge(summary_of(result(None, "ValueError: four"), result(None, "OSError: five")))
    assert merged.first_failures == first | {"OSError": "OSError: five"}


def test_summary_bounds_the_first_failures():
    counted = Summary()
    for i in range(300):
        counted.add(result(None, f"Error{i}: {'x' * 10_000}"))
    assert len(counted.first_failures) == summary.MAX_PARTS + 1
    assert {len(each) for each in counted.first_failures.values()} == {summary.MAX_TEXT}


def test_summary_merging_bounds_kinds_of_failures():
    merged = Summary(most=2)
    for kinds in (["AError", "BError"], ["AError", "CError", "DError"]):
        merged.merge(summary_of(*(result(None, f"{kind}: {kinds[0]}") for kind in kinds)))
    assert merged.failures == {"AError": 2, "BError": 1, "(others)": 2}
    assert merged.first_failures == {
        "AError": "AError: AError",
        "BError": "BError: AError",
        "(others)": "CError: AError",
    }


def test_summary_counts_a_failure_without_text():
    assert summary_of(result(None)).first_failures == {"unknown": ""}


SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0, -2.0])  # their sums are exact
RESULTS = st.builds(
    lambda score, error, components: result(
        score, error if score is not None else f"step 0: {error or 'E'}: x", **components
    ),
    st.none() | SCORES,
    st.none() | st.sampled_from(["ValueError", "KeyError", "OSError"]),
    st.dictionaries(st.sampled_from("abc"), SCORES),
)
COUNTED = st.lists(st.tuples(RESULTS, st.none() | st.sampled_from(["x", "y", "z", "w"])))


def counted_in_one_go(rows, **options):
    whole = Summary(("a", "b"), 0.5, **options)
    for row, part in rows:
        whole.add(row, part)
    return whole


@given(chunks=st.lists(COUNTED, max_size=4))
def test_summary_merging_equals_counting_at_once(chunks):
    merged = Summary(("a", "b"), 0.5)
    for chunk in chunks:
        merged.merge(counted_in_one_go(chunk))
    assert merged == counted_in_one_go([row for chunk in chunks for row in chunk])


@given(chunks=st.lists(COUNTED, max_size=4), most=st.integers(1, 3))
def test_summary_merging_bounds_the_same_names_as_counting_at_once(chunks, most):
    merged = Summary(("a", "b"), 0.5, most=most)
    for chunk in chunks:
        merged.merge(counted_in_one_go(chunk, most=math.inf))
    whole = counted_in_one_go([row for chunk in chunks for row in chunk], most=most)
    assert merged.failures == whole.failures
    assert merged.first_failures == whole.first_failures
    parts = [
        {name: (part.rows, part.failed, part.score) for name, part in each.parts.items()}
        for each in (merged, whole)
    ]
    assert parts[0] == parts[1]


@given(one=COUNTED, two=COUNTED)
def test_summary_merging_keeps_the_other_unchanged(one, two):
    first, second = counted_in_one_go(one), counted_in_one_go(two)
    before = copy.deepcopy(second)
    first.merge(second)
    first.merge(counted_in_one_go(one))
    assert second == before


def test_summary_merging_bounded_parts_loses_no_row():
    merged = Summary(most=2)
    for names in (["x", "y"], ["w", "z", "x", "y"]):
        merged.merge(counted_in_one_go([(result(1.0), name) for name in names]))
    assert list(merged.parts) == ["x", "y", "(others)"]
    assert sum(part.rows for part in merged.parts.values()) == merged.rows == 6


def test_summary_counts_rows_stopped_by_a_root_gate(row):
    from guerdon.rollouts import score_rollouts
    from guerdon.types import Rollout

    gate = Gate(WeightedSum([One()], [0.5]))
    counted = summary_of(*score_rollouts(gate, [Rollout.from_row(row("x"))]), gates=("",))
    assert (counted.zeros, counted.to_dict()["stopped"]) == (1, {"": 1})


# Notes and groups


def test_summary_counts_rows_with_notes():
    rows = [result() | {"notes": ["odd"]}, result() | {"notes": []}, result(),
            result(None, "x") | {"notes": ["odd", "too"]}]  # fmt: skip
    assert summary_of(*rows).to_dict()["noted"] == 2


def test_summary_has_groups_only_if_they_matter():
    assert "groups" not in summary_of(result()).to_dict()
    assert summary_of(groups=GroupSummary()).to_dict()["groups"]["groups"] == 0


def test_summary_merging_counts_notes_and_groups():
    merged = Summary(groups=GroupSummary())
    for name in "gh":
        other = Summary(groups=GroupSummary())
        other.add(result() | {"notes": ["odd"]}, "x")
        other.groups.add(GroupStats(name, 1, (1.0,)))
        merged.merge(other)
    data = merged.to_dict()
    assert (data["noted"], data["groups"]["groups"], data["by"]["x"]["noted"]) == (2, 2, 2)


def test_summary_parts_have_no_groups():
    counted = Summary(groups=GroupSummary())
    counted.add(result(), "x")
    assert "groups" not in counted.to_dict()["by"]["x"]


def test_mean_of_an_infinite_sum_is_none():
    mean = summary.Mean(total=float("inf"), count=2)
    assert mean.value is None
