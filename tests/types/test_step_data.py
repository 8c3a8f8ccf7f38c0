"""StepData: one step, recorded, scored and credited."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from guerdon.types import Message, StepData

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
NUMBERS = ("policy_value_estimate", "base_reward", "advantage", "return_to_go")
FINITE = st.none() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


def test_step_data_requires_only_its_index():
    step = StepData(system_step_index=3)
    assert step.step_info == {}
    assert step.resulting_messages_history == []
    assert not step.is_done
    assert all(getattr(step, name) is None for name in NUMBERS)
    assert step.observation_data is step.action_taken is step.policy_logprobs is None


def test_step_data_rejects_a_missing_index_and_unknown_fields():
    with pytest.raises(ValidationError, match="system_step_index"):
        StepData()
    with pytest.raises(ValidationError, match="Extra inputs"):
        StepData(system_step_index=0, reward=1.0)


@pytest.mark.parametrize("index", [None, "x", 0.5, [0]])
def test_step_data_index_is_an_integer(index):
    with pytest.raises(ValidationError, match="system_step_index"):
        StepData(system_step_index=index)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, "1"], ids=repr)
def test_step_data_numbers_are_finite_when_given_and_when_assigned(name, value):
    with pytest.raises(ValidationError, match=name):
        StepData(system_step_index=0, **{name: value})
    step = StepData(system_step_index=0)
    with pytest.raises(ValidationError, match=name):
        setattr(step, name, value)
    assert getattr(step, name) is None


@pytest.mark.parametrize("name", NUMBERS)
def test_step_data_numbers_can_be_filled_in_later_and_taken_back(name):
    step = StepData(system_step_index=0)
    for value in (0.5, 1, np.float32(0.5), np.int64(2)):
        setattr(step, name, value)
        assert type(getattr(step, name)) is float
        assert getattr(step, name) == value
    setattr(step, name, None)
    assert getattr(step, name) is None


def test_step_data_messages_may_be_dicts():
    given = [{"role": "user", "content": "1 + 2?"}, {"role": "assistant", "tool_calls": [CALL]}]
    step = StepData(system_step_index=0, resulting_messages_history=given)
    assert all(type(message) is Message for message in step.resulting_messages_history)
    assert [message.to_openai() for message in step.resulting_messages_history] == given
    with pytest.raises(ValidationError, match="role"):
        StepData(system_step_index=0, resulting_messages_history=[{"role": "robot"}])


def test_step_data_keeps_observation_and_action_unchanged():
    observation, action, logprobs = object(), {"column": 2}, np.zeros(3)
    step = StepData(
        system_step_index=0,
        observation_data=observation,
        action_taken=action,
        policy_logprobs=logprobs,
    )
    assert step.observation_data is observation
    assert step.action_taken is action
    assert step.policy_logprobs is logprobs


def test_step_data_steps_share_nothing():
    one, other = StepData(system_step_index=0), StepData(system_step_index=1)
    one.step_info["step_id"] = "s"
    one.resulting_messages_history.append(Message(role="user", content="x"))
    assert other.step_info == {}
    assert other.resulting_messages_history == []


@given(
    st.builds(
        StepData,
        system_step_index=st.integers(0, 99),
        observation_data=JSON,
        action_taken=JSON,
        raw_policy_output=st.none() | st.text(max_size=9),
        policy_logprobs=st.none() | st.lists(st.floats(-9, 0), max_size=3),
        is_done=st.booleans(),
        step_info=st.dictionaries(st.text(max_size=9), JSON, max_size=2),
        **dict.fromkeys(NUMBERS, FINITE),
    )
)
def test_step_data_round_trips_through_json(step):
    assert StepData.model_validate_json(step.model_dump_json()) == step
    assert StepData.model_validate_json(step.model_dump_json(exclude_unset=True)) == step


@pytest.mark.parametrize("exclude_unset", [False, True])
def test_step_data_messages_round_trip_through_json(exclude_unset):
    given = [
        {"role": "user", "content": [{"type": "text", "text": "1 + 2?"}], "cache": True},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "3", "tool_call_id": "c1"},
    ]
    step = StepData(system_step_index=0, resulting_messages_history=given)
    again = StepData.model_validate_json(step.model_dump_json(exclude_unset=exclude_unset))
    assert [message.to_openai() for message in again.resulting_messages_history] == given
    again = StepData.model_validate(step.model_dump(exclude_unset=exclude_unset))
    assert [message.to_openai() for message in again.resulting_messages_history] == given


def test_step_data_log_probabilities_of_minus_infinity_go_through_json():
    step = StepData(system_step_index=0, policy_logprobs=[-0.5, -math.inf])
    again = StepData.model_validate_json(step.model_dump_json())
    assert again.policy_logprobs == [-0.5, -math.inf]
