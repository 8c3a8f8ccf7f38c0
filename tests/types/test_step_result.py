"""StepResult: what a client gets."""

import pytest

from guerdon import StepResult


def test_step_result_has_its_fields_and_no_others():
    result = StepResult({"echoed": "hi"}, 0.5, True, {"error": "x"})
    assert (result.observation, result.reward, result.done) == ({"echoed": "hi"}, 0.5, True)
    assert result.metadata == {"error": "x"}
    with pytest.raises(AttributeError):
        result.rewrad = 1.0


def test_step_result_by_default_is_not_done_and_has_no_reward():
    result = StepResult("hi")
    assert (result.reward, result.done, result.metadata) == (None, False, {})


def test_step_result_metadata_is_not_shared():
    one, other = StepResult(1), StepResult(1)
    one.metadata["seen"] = True
    assert other.metadata == {}
