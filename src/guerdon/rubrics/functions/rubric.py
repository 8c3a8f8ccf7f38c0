"""`RewardFunctionRubric`: a pointwise reward function as a rubric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from guerdon.errors import (
    MissingInputError,
    RewardFunctionError,
    RubricDefinitionError,
    TrajectoryError,
)
from guerdon.rubrics.checks.inputs import text_of
from guerdon.rubrics.functions.placement import place_outputs, places_of
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.trajectory import TrajectoryRubric
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message import TEXT_FIELDS, Message
from guerdon.types.rollout import MessageAction

__all__ = ["RewardFunctionRubric", "rubric_of"]


class Scores(Protocol):
    """What is asked of a `RewardFunction`, which itself makes rubrics."""

    __name__: str
    function: Any
    mode: Any
    is_async: bool

    def evaluate_or_raise(
        self, messages: Any, ground_truth: Any = None, others: dict[str, Any] | None = None
    ) -> Any:
        """Score a conversation; raises what the function raises."""


def rubric_of(function: Scores) -> Rubric:
    """A pointwise reward function as a rubric; see `as_rubric`.

    Raises:
        RubricDefinitionError: It is one of batches, which compares rollouts; a rubric sees one.
    """
    if function.mode == "batch":
        raise RubricDefinitionError(
            f"{function.__name__} scores batches of rollouts against each other, and a rubric sees "
            "one rollout alone; give `guerdon score` the function itself"
        )
    kind = _AsyncRewardFunctionRubric if function.is_async else RewardFunctionRubric
    return kind(function)


class RewardFunctionRubric(TrajectoryRubric):
    """A pointwise reward function as a rubric: it scores the conversation when it is over.

    `as_rubric` and the containers make it of a `RewardFunction`. It is called at every step, as
    any trajectory rubric; the function is called once, with the whole conversation.

    The rewards of the steps are the base rewards that the function gives; the steps it says
    nothing of have 0. Where it says nothing of any step, the last one has the score.

    Example:
        >>> from guerdon import as_rubric, reward_function, Rollout, score_rollouts
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

    def __init__(self, function: Scores) -> None:
        super().__init__()
        self._function = function
        self._result: EvaluateResult | None = None

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Any:
        """Call the function with the conversation."""
        return self._score(self._function.evaluate_or_raise(*_arguments(trajectory)))

    def compute_step_rewards(self) -> list[float]:
        """The base rewards that the function gave."""
        if not self._trajectory:
            return []
        score = self._final_score()
        rewards = [0.0] * len(self._trajectory)
        outputs = self._result.step_outputs if self._result is not None else None
        if not outputs:
            rewards[-1] = score
        placed, misfits = place_outputs(outputs or (), _numbered(self._trajectory))
        if misfits:
            raise TrajectoryError(f"{self._function.__name__}: {'; '.join(map(str, misfits))}")
        for place, output in placed.items():
            rewards[place] = output.base_reward
        return rewards

    def _score(self, result: EvaluateResult) -> float:
        self._result = result
        if not result.is_score_valid or result.score is None:
            raise RewardFunctionError(
                f"{self._function.__name__} gave no valid score: {result.error or result.reason}"
            )
        return result.score

    def _reset_own(self) -> None:
        super()._reset_own()
        self._result = None

    def _title(self) -> str:
        return self._function.__name__

    def _described(self) -> object:
        return self._function.function


class _AsyncRewardFunctionRubric(RewardFunctionRubric):
    async def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Any:
        """Call the function with the conversation."""
        return self._score(await self._function.evaluate_or_raise(*_arguments(trajectory)))


def _arguments(trajectory: list[tuple[Any, Any]]) -> tuple[list[Message], Any, dict[str, Any]]:
    """What the function is called with at the end of an episode."""
    action, observation = trajectory[-1]
    metadata = _of(observation, "metadata")
    others = dict(metadata) if isinstance(metadata, Mapping) else {}
    others.pop("messages", None)
    ground_truth = others.pop("ground_truth", None)
    if ground_truth is None:
        ground_truth = _of(observation, "ground_truth")
    if isinstance(action, MessageAction):
        return action.conversation, ground_truth, others
    return list(_conversation(trajectory)), ground_truth, others


def _conversation(trajectory: list[tuple[Any, Any]]) -> list[Message]:
    """What was said in an episode that was played and not read from a recording."""
    messages = []
    for place, (action, observation) in enumerate(trajectory):
        messages.append(Message(role="assistant", content=text_of(action)))
        texts = (_of(observation, name) for name in TEXT_FIELDS)
        text = next((each for each in texts if isinstance(each, str)), None)
        if text is not None:
            messages.append(Message(role="user", content=text))
        elif place + 1 < len(trajectory):
            raise MissingInputError(
                f"the observation of step {place} ({type(observation).__name__}) says nothing that "
                f"could be a message; one of {', '.join(TEXT_FIELDS)} takes its text"
            )
    return messages


def _of(observation: Any, name: str) -> Any:
    """What an observation holds, an object or a mapping."""
    if isinstance(observation, Mapping):
        return observation.get(name)
    return getattr(observation, name, None)


def _numbered(trajectory: list[tuple[Any, Any]]) -> dict[int | str, int | None]:
    return places_of(
        (action.turn, action.step_id) if isinstance(action, MessageAction) else (place, None)
        for place, (action, _) in enumerate(trajectory)
    )
