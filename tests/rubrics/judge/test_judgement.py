"""What several verdicts come to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.rubrics.judge.verdict import JudgeVerdict, judgement_of


def of(scores, aggregate, **arguments):
    return judgement_of([JudgeVerdict(score, f"it is {score}") for score in scores], aggregate,
                        **arguments)  # fmt: skip


@pytest.mark.parametrize(
    ("scores", "aggregate", "score"),
    [
        pytest.param([0.2], "mean", 0.2, id="mean_of_one"),
        pytest.param([0.1, 0.2, 0.6], "mean", 0.3, id="mean"),
        pytest.param([0.7, 0.2, 0.1, 0.0, 0.0], "mean", 0.2, id="mean_rounded_once"),
        pytest.param([0.1, 0.2, 0.9], "median", 0.2, id="median"),
        pytest.param([0.1, 0.3], "median", 0.2, id="median_of_two"),
        pytest.param([1.0, 0.0, 1.0], "majority", 1.0, id="majority"),
        pytest.param([1.0, 0.0, 0.5, 0.5], "majority", 0.5, id="the_most_frequent"),
        pytest.param([1.0, 0.0], "majority", 0.0, id="as_frequent_the_lowest"),
        pytest.param([0.3, 0.2, 0.9], "min", 0.2, id="min"),
    ],
)
def test_judgement_of_aggregates_scores(scores, aggregate, score):
    assert of(scores, aggregate).score == pytest.approx(score, abs=1e-15)


def test_judgement_disagreement_is_the_standard_deviation():
    judgement = of([0.0, 1.0, 1.0, 1.0], "mean")
    assert judgement.disagreement == pytest.approx(0.4330127)
    assert str(judgement) == ("4 verdicts, standard deviation 0.433: it is 1.0")
    assert str(of([0.5], "mean")) == "it is 0.5"


def test_judgement_of_aggregates_each_criterion():
    scores = {"a": {"x": 0.0, "y": 1.0}, "b": {"x": 1.0, "y": 1.0}, "c": {"x": 0.0, "y": 0.4}}
    verdicts = [JudgeVerdict(None, why, criteria) for why, criteria in scores.items()]
    judgement = judgement_of(verdicts, "majority", weights={"x": 1.0, "y": 3.0})
    assert judgement.criteria == {"x": 0.0, "y": 1.0}
    assert (judgement.score, judgement.reasoning) == (0.75, "a")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9),
       st.sampled_from(["mean", "median", "majority", "min"]))  # fmt: skip
def test_judgement_of_is_within_the_scores(scores, aggregate):
    judgement = of(scores, aggregate)
    assert min(scores) <= judgement.score <= max(scores)
    assert 0.0 <= judgement.disagreement <= 0.5


def test_judgement_of_equal_scores_is_that_score():
    assert of([0.1] * 3, "mean").score == 0.1
    verdict = JudgeVerdict(None, "", {"x": 0.1, "y": 0.1, "z": 0.1})
    weights = dict.fromkeys("xyz", 1.0)
    assert judgement_of([verdict] * 3, "mean", weights=weights).score == 0.1
