"""`StepData`: one step of a rollout, from the policy's decision to its advantage."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from guerdon.types.message import Message
from guerdon.types.numbers import FiniteFloat

__all__ = ["StepData"]


class StepData(BaseModel):
    """One step of a rollout, as it is recorded, scored and credited.

    The last three fields are filled in later: the aligner sets `base_reward`, credit assignment
    the other two.

    Example:
        >>> from guerdon import StepData
        >>> step = StepData(system_step_index=3, action_taken={"column": 2},
        ...                 step_info={"assistant_turn_index": 3})
        >>> step.base_reward is None
        True

    Attributes:
        system_step_index: The index of the step in its rollout, from 0.
        observation_data: The input of the policy's decision: in a played episode, the observation;
            in a recorded conversation, the text of the message before.
        action_taken: The structured action.
        raw_policy_output: The text that the action was parsed from.
        resulting_messages_history: The conversation after the step.
        policy_logprobs: The log-probabilities of the sampled tokens, if the policy reports them.
        policy_value_estimate: The policy's own estimate of the return, if it has one.
        is_done: Whether the episode ended with this step.
        step_info: Further data of the step: ``assistant_turn_index``, by which results are
            aligned, and optionally a ``step_id``.
        base_reward: The step's own reward; None if it has none.
        advantage: Its advantage; None if no credit was assigned.
        return_to_go: The discounted sum of the rewards from this step on, or the estimator's
            equivalent; None if no credit was assigned.
    """

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, ser_json_inf_nan="constants"
    )

    system_step_index: StrictInt
    observation_data: Any = None
    action_taken: Any = None
    raw_policy_output: str | None = None
    resulting_messages_history: list[Message] = Field(default_factory=list)
    policy_logprobs: Any = None
    policy_value_estimate: FiniteFloat | None = None
    is_done: bool = False
    step_info: dict[str, Any] = Field(default_factory=dict)
    base_reward: FiniteFloat | None = None
    advantage: FiniteFloat | None = None
    return_to_go: FiniteFloat | None = None
