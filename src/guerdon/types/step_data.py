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
        system_step_index: The number of the step in its rollout, from 0, as the system counts.
        observation_data: What the policy saw before it decided: of an episode that was played, what
            the environment showed; of a recorded conversation, the text of the message before.
        action_taken: The structured action.
        raw_policy_output: The text that the action was read from.
        resulting_messages_history: The conversation after the step.
        policy_logprobs: The log-probabilities of what was sampled, where the policy tells them.
        policy_value_estimate: The policy's own estimate of the return, where it has one.
        is_done: Whether the episode ended with this step.
        step_info: What else is known of the step: ``assistant_turn_index``, by which results are
            aligned, and perhaps a ``step_id``.
        base_reward: The step's own reward; None where nobody gave one.
        advantage: Its advantage; None where no credit was assigned.
        return_to_go: The discounted sum of the rewards from here on, or what the method has in its
            place; None likewise.
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
