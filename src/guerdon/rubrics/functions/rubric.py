"""`RewardFunctionRubric`: a pointwise reward function as a rubric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guerdon.errors import (
    MissingInputError,
    RewardFunctionError,
    RubricDefinitionError,
    TrajectoryError,
)
from guerdon.rubrics.checks.inputs import field_of, text_of
from guerdon.rubrics.functions.placement import place_outputs, places_of
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.trajectory import TrajectoryRubric
from guerdon.types.content import text_or_parts
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message import TEXT_FIELDS, Message
from guerdon.types.rollout import MessageAction

__all__ = ["RewardFunctionRubric"]


def rubric_of(function: Any) -> Rubric:
    """Return the rubric of a pointwise `RewardFunction`; see `as_rubric`.

    Raises:
        RubricDefinitionError: The function scores batches.
    """
    if function.mode == "batch":
        raise RubricDefinitionError(
            f"{function.__name__} compares the rollouts of a batch, and a rubric sees only one "
            "rollout; pass the function itself to `guerdon score`, or convert one of TRL with "
            "mode='pointwise'"
        )
    return (_AsyncRewardFunctionRubric if function.is_async else RewardFunctionRubric)(function)


class RewardFunctionRubric(TrajectoryRubric):
    """A pointwise reward function as a rubric: it scores the conversation when it is over.

    `as_rubric` and the containers make it of a `RewardFunction`. It is called at every step, as
    every trajectory rubric; the function is called once, with the whole conversation.

    The rewards of the steps are the base rewards that the function returns, and 0 for other steps.
    If it returns none, the last step has the score.

    Example:
        >>> from guerdon import as_rubric, reward_function, Rollout
        >>> from guerdon.rollouts import score_rollouts
        >>> @reward_function
        ... def answered(messages, ground_truth=None):
        ...     return float(ground_truth in messages[-1].text)
        >>> rollout = Rollout.from_row({"ground_truth": "42", "messages": [
        ...     {"role": "assistant", "content": "Let me see."}, {"role": "user", "content": "So?"},
        ...     {"role": "assistant", "content": "It is 42."}]})
        >>> [row] = score_rollouts(as_rubric(answered), [rollout])
        >>> row["score"], row["step_rewards"]
        (1.0, [0.0, 1.0])
    """

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function
        self._result: EvaluateResult | None = None

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Any:
        """Call the function with the conversation."""
        return self._score(self._function.evaluate_or_raise(*_arguments(trajectory)))

    def compute_step_rewards(self) -> list[float]:
        """Return the base rewards that the function returned."""
        if not self._trajectory:
            return []
        score = self._final_score()
        rewards = [0.0] * len(self._trajectory)
        outputs = self._result.step_outputs if self._result is not None else None
        if not outputs:
            return [*rewards[:-1], score]
        places = places_of(
            (action.turn, action.step_id) if isinstance(action, MessageAction) else (place, None)
            for place, (action, _) in enumerate(self._trajectory)
        )
        placed, misfits = place_outputs(outputs, places)
        if misfits:
            raise TrajectoryError(f"{self._function.__name__}: {'; '.join(map(str, misfits))}")
        for place, output in placed.items():
            rewards[place] = output.base_reward
        return rewards

    def _score(self, result: EvaluateResult) -> float:
        self._result = result
        if not result.is_score_valid or result.score is None:
            raise RewardFunctionError(
                f"{self._function.__name__} returned no valid score: "
                f"{result.error or result.reason}"
            )
        return result.score

    def _reset_own(self) -> None:
        super()._reset_own()
        self._result = None

    def _title(self) -> str:
        return str(self._function.__name__)

    def _described(self) -> object:
        return self._function.function


class _AsyncRewardFunctionRubric(RewardFunctionRubric):
    async def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Any:
        """Call the function with the conversation."""
        return self._score(await self._function.evaluate_or_raise(*_arguments(trajectory)))


def _arguments(trajectory: list[tuple[Any, Any]]) -> tuple[list[Message], Any, dict[str, Any]]:
    """The messages, the ground truth and all other arguments at the end of an episode."""
    action, observation = trajectory[-1]
    metadata = field_of(observation, "metadata")
    others = dict(metadata) if isinstance(metadata, Mapping) else {}
    others.pop("messages", None)
    ground_truth = others.pop("ground_truth", None)
    if ground_truth is None:
        ground_truth = field_of(observation, "ground_truth")
    if isinstance(action, MessageAction):
        return action.conversation, ground_truth, others
    return _conversation(trajectory), ground_truth, others


def _conversation(trajectory: list[tuple[Any, Any]]) -> list[Message]:
    """The messages of an episode that was played and not read from a recording."""
    messages = []
    for place, (action, observation) in enumerate(trajectory):
        messages.append(Message(role="assistant", content=text_of(action)))
        texts = (text_or_parts(field_of(observation, name)) for name in TEXT_FIELDS)
        text = next((each for each in texts if isinstance(each, str)), None)
        if text is not None:
            messages.append(Message(role="user", content=text))
        elif place + 1 < len(trajectory):
            raise MissingInputError(
                f"the observation of step {place} ({type(observation).__name__}) has no text for a "
                f"message; one of {', '.join(TEXT_FIELDS)} must contain it"
            )
    return messages
