"""Thresholds: rounding decides nothing, on any way to a number."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import Ensemble, Gate, Rollout, RubricComposer, Sequential, WeightedSum, score_rollouts
from guerdon._thresholds import is_zero, reaches
from guerdon.errors import RubricError
from guerdon.rollouts.scoring.summary import Summary
from guerdon.rubrics import as_rubric

ROLLOUT = Rollout.from_row({"id": 1, "messages": [{"role": "assistant", "content": "x"}]})


def fixed(value):
    return as_rubric(lambda action, observation: value)


def perfect(weights):
    return WeightedSum([fixed(1.0)] * len(weights), weights)


@pytest.mark.parametrize(
    "weights",
    [[0.01, 0.29, 0.7], [0.1, 0.2, 0.7], [1 / 3] * 3, [0.5, 0.5], [0.07, 0.14, 0.79], [0.1] * 10],
)
def test_a_perfect_answer_passes_a_gate_however_its_weights_round(weights):
    gate = Gate(perfect(weights))
    assert gate("a", None) == pytest.approx(1.0, abs=1e-12)
    assert gate.score("a", None).value == pytest.approx(1.0, abs=1e-12)
    assert Sequential(gate, fixed(0.5))("a", None) == 0.5


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8))
def test_shares_of_a_whole_pass_a_gate(parts):
    assert Gate(perfect([part / sum(parts) for part in parts]))("a", None) > 0.0


@pytest.mark.parametrize("below", [1e-8, 1e-6, 0.01])
def test_a_score_that_is_really_below_fails(below):
    assert Gate(fixed(1.0 - below))("a", None) == 0.0
    assert not reaches(1.0 - below, 1.0)


def test_a_sequential_stops_at_a_zero_that_was_rounded():
    nothing = WeightedSum([fixed(1.0)] * 3, [0.1, 0.2, -0.3])
    assert nothing("a", None) != 0.0
    assert is_zero(nothing("a", None))
    rubric = Sequential(nothing, fixed(1.0))
    score = rubric.score("a", None)
    assert (rubric("a", None), score.value, anyio.run(rubric.evaluate, "a", None)) == (0, 0, 0)
    assert score["rubric_1"].reason == "rubric_0 scored 0"
    [row] = score_rollouts(rubric, [ROLLOUT])
    assert row["stopped_by"] == ["rubric_0"]


def test_a_tiny_score_in_the_last_place_is_kept():
    assert Sequential(fixed(1.0), fixed(1e-12))("a", None) == 1e-12


def test_votes_that_differ_by_rounding_are_one_vote():
    votes = [0.3, 0.1 + 0.2, 0.0, 0.0, 0.3]
    assert Ensemble([fixed(vote) for vote in votes], "majority")("a", None) == 0.3
    ensemble = Ensemble([fixed(1.0), fixed(1.0), fixed(0.0)], "majority", agree=2 / 3 + 1e-12)
    assert ensemble("a", None) == 1.0
    ensemble.agree = 0.67
    with pytest.raises(RubricError, match="disagree"):
        ensemble("a", None)


def test_a_summary_counts_a_rounded_score_as_passed_and_as_zero():
    summary = Summary(passing=1.0)
    for rubric in (perfect([0.01, 0.29, 0.7]), WeightedSum([fixed(1.0)] * 3, [0.1, 0.2, -0.3])):
        for row in score_rollouts(rubric, [ROLLOUT]):
            summary.add(row)
    assert (summary.passed, summary.zeros) == (1, 1)


def test_a_composer_accepts_a_score_that_is_rounded_out_of_its_range():
    composer = RubricComposer({"a": lambda action, observation: 1.0000000000000002}, {"a": 1.0})
    assert composer("a", None) == pytest.approx(1.0)
