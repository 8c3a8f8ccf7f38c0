"""StepResult: what a client gets."""

import pytest

from guerdon import StepResult


def test_a_result_holds_what_it_is_given_and_nothing_else():
    result = StepResult({"echoed": "hi"}, 0.5, True, {"error": "x"})
    assert (result.observation, result.reward, result.done) == ({"echoed": "hi"}, 0.5, True)
    assert result.metadata == {"error": "x"}
    with pytest.raises(AttributeError):
        result.rewrad = 1.0


def test_by_default_nothing_has_ended_and_there_is_no_reward():
    result = StepResult("hi")
    assert (result.reward, result.done, result.metadata) == (None, False, {})


def test_two_results_never_share_their_metadata():
    one, other = StepResult(1), StepResult(1)
    one.metadata["seen"] = True
    assert other.metadata == {}
