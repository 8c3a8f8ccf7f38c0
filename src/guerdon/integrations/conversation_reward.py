"""`ConversationReward`: a reward as trainers take it, whether code or a pipeline's file."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from guerdon._validation import as_score
from guerdon.config.pipeline import RewardPipeline, is_pipeline_file
from guerdon.config.runtime import RewardRuntime
from guerdon.errors import InvalidArgumentError, RewardFunctionError
from guerdon.integrations.stepping import OnInvalid
from guerdon.rollouts.scoring.scorers import scorer_of
from guerdon.rubrics.failure import describe_failure
from guerdon.rubrics.function import RubricLike
from guerdon.rubrics.functions.conversion import as_reward, as_reward_function
from guerdon.rubrics.functions.loading import load_reward
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import classes_of
from guerdon.types.evaluate_result import EvaluateResult

RewardLike: TypeAlias = "RubricLike | str | Path"

logger = logging.getLogger(__name__)


class ConversationReward:
    """A reward as a function of conversations, with the names of its components.

    Its fingerprint is logged.

    Example:
        >>> from guerdon import NumericAnswer, WeightedSum
        >>> from guerdon.integrations.conversation_reward import ConversationReward
        >>> reward = ConversationReward(WeightedSum([NumericAnswer()], [1.0]))
        >>> chat = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]
        >>> result = reward.evaluate(chat, {"ground_truth": "42"})
        >>> result.score, reward.components(result)
        (1.0, {'rubric_0': 1.0})

    Args:
        reward: A rubric, a function that scores, a reward function, or the name of one: the path of
            a pipeline's file, ``module:name`` or ``file.py:name``.
        parameters: Keyword arguments for a reward function.

    Attributes:
        function: The reward as a reward function.
        names: The names of the components of a rubric; empty for a reward function.
        is_async: Whether the reward is async, or can be, as one with an `LLMJudge`.

    Raises:
        RewardConfigError: The file is invalid.
        InvalidArgumentError: The file has a curriculum.
        LoadError: The reward can't be loaded.
        ServiceUnavailableError: A service of the file is not available.
    """

    def __init__(self, reward: RewardLike, parameters: dict[str, Any] | None = None) -> None:
        self._pipeline: RewardPipeline | None = None
        self._live: tuple[RewardRuntime, Rubric] | None = None
        if isinstance(reward, (str, Path)):
            name = str(reward)
            reward = self._open(name) if is_pipeline_file(name) else load_reward(name)
        self._reward = as_reward(reward)
        self._parameters = parameters
        self.function = as_reward_function(self._reward, prefer_async=True)
        self.is_async = self.function.is_async
        self.names: list[str] = []
        if isinstance(self._reward, Rubric):
            self.names = list(classes_of(self._reward))
        logger.info("the reward is %s, fingerprint %s", self.function.__name__, self.fingerprint)

    def _open(self, path: str) -> Rubric:
        self._pipeline = pipeline = RewardPipeline.of(path)
        if pipeline.config.curriculum:
            raise InvalidArgumentError(
                f"{path} has a curriculum, whose stages follow the episodes of environments; use "
                "schedules by training_step"
            )
        pipeline.check_services()
        tree = pipeline.make()
        if any(entry.schedule is not None for entry in pipeline.config.entries):
            self._live = RewardRuntime(pipeline.make(), config=pipeline.config), tree
        return tree

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the reward, as ``guerdon score`` computes it."""
        return scorer_of(self._reward, self._parameters).fingerprint

    @property
    def has_schedules(self) -> bool:
        """Whether the file has schedules, which follow `report_step`."""
        return self._live is not None

    def report_step(self, training_step: int, episode: int) -> None:
        """Move the schedules of a file to a training step and an episode, each from 0."""
        if self._live is not None:
            runtime, tree = self._live
            runtime.progress.report(training_step=training_step)
            runtime.apply(tree, episode=episode)

    def evaluate(self, messages: list[dict[str, Any]], columns: Mapping[str, Any]) -> Any:
        """Return the result for a conversation; of an async reward, an awaitable.

        Args:
            messages: The conversation, in OpenAI's format.
            columns: Further data of the task, such as ``ground_truth``.
        """
        return self.function.evaluate(messages, columns.get("ground_truth"), dict(columns))

    async def evaluate_async(
        self, messages: list[dict[str, Any]], columns: Mapping[str, Any]
    ) -> EvaluateResult:
        """Return the result for a conversation; a sync reward runs in a thread."""
        # An async reward returns an awaitable at once.
        result = await asyncio.to_thread(self.evaluate, messages, columns)
        return await result if self.is_async else result  # type: ignore[no-any-return]

    def components(self, result: EvaluateResult) -> dict[str, float | None]:
        """Return the components of a rubric, all of them, with None for those not reached.

        Those of a reward function are the numbers among its metrics.
        """
        numbers = {name: as_score(value) for name, value in result.metrics.items()}
        names = self.names or [name for name in numbers if numbers[name] is not None]
        return {name: numbers.get(name) for name in names}

    def close(self) -> None:
        """Disconnect the services of a pipeline."""
        if self._pipeline is not None:
            self._pipeline.close()


def one_at_a_time(reward: RewardLike) -> ConversationReward:
    """Return a reward for a trainer that passes one rollout at a time, and no training step.

    Raises:
        RewardFunctionError: It is a reward function that scores batches.
        InvalidArgumentError: Its file has schedules.
    """
    made = ConversationReward(reward)
    if made.function.mode == "batch":
        raise RewardFunctionError(
            f"{made.function.__name__} scores batches, but this trainer scores one rollout at a "
            "time; pass a rubric or a pointwise reward function"
        )
    if made.has_schedules:
        raise InvalidArgumentError(
            f"{reward} has schedules, but this trainer doesn't pass its training step to rewards; "
            "use a file without schedules"
        )
    return made


def with_ground_truth(columns: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the columns of a row with the one of that name, if there is one, as the ground truth.

    Example:
        >>> from guerdon.integrations.conversation_reward import with_ground_truth
        >>> with_ground_truth({"answer": "42"}, "answer")
        {'answer': '42', 'ground_truth': '42'}
    """
    return {**columns, "ground_truth": columns[name]} if name in columns else dict(columns)


def score_of(result: EvaluateResult) -> float:
    """Return the score of a result.

    Example:
        >>> from guerdon import EvaluateResult
        >>> from guerdon.integrations.conversation_reward import score_of
        >>> score_of(EvaluateResult(error="the judge did not answer"))
        Traceback (most recent call last):
        guerdon.errors.RewardFunctionError: the reward failed: the judge did not answer

    Raises:
        RewardFunctionError: It has no valid score.
    """
    if not result.is_score_valid or result.score is None:
        raise RewardFunctionError(f"the reward failed: {result.error or result.reason}")
    return result.score


def substitute(error: Exception, on_invalid: OnInvalid, framework: str) -> float:
    """Log an error, and return the number that replaces the reward, or raise the error again.

    Example:
        >>> from guerdon.integrations.conversation_reward import substitute
        >>> substitute(ValueError("no answer"), -1, "verl")
        -1.0
    """
    logger.error("%s", describe_failure(error, f"a reward for {framework} failed"))
    if on_invalid == "raise":
        raise error
    return float(on_invalid)


def or_nan(components: Mapping[str, float | None]) -> dict[str, float]:
    """Return the components with NaN for those that were not reached.

    Example:
        >>> from guerdon.integrations.conversation_reward import or_nan
        >>> or_nan({"correct": None})
        {'correct': nan}
    """
    return {name: math.nan if value is None else value for name, value in components.items()}
