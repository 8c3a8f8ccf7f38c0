"""`ConversationReward`: a reward that scores one conversation at a time, for trainers."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from guerdon._validation import as_score
from guerdon.errors import RewardFunctionError
from guerdon.rubrics import Rubric, as_reward_function
from guerdon.rubrics.failure import describe_failure
from guerdon.rubrics.function import RubricLike
from guerdon.types.evaluate_result import EvaluateResult

__all__ = ["ConversationReward", "OnInvalid", "or_nan", "score_of", "substitute"]

OnInvalid: TypeAlias = Literal["raise"] | float

logger = logging.getLogger(__name__)


class ConversationReward:
    """A reward that scores one conversation at a time, whether it is sync or async.

    Example:
        >>> from guerdon import NumericAnswer, WeightedSum
        >>> from guerdon.integrations.conversation_reward import ConversationReward
        >>> reward = ConversationReward(WeightedSum([NumericAnswer()], [1.0]))
        >>> chat = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]
        >>> result = reward.evaluate(chat, {"ground_truth": "42"})
        >>> result.score, reward.components(result)
        (1.0, {'rubric_0': 1.0})

    Args:
        reward: A rubric, or a pointwise reward function.

    Attributes:
        names: The names of the components of a rubric; empty for a reward function.
        fingerprint: The digest of the reward, which is logged.
        is_async: Whether it is async.

    Raises:
        RewardFunctionError: It is a reward function that scores batches.
    """

    def __init__(self, reward: RubricLike) -> None:
        self._function = as_reward_function(reward)
        if self._function.mode == "batch":
            raise RewardFunctionError(
                f"{self._function.__name__} scores batches, but this trainer scores one rollout at "
                "a time; pass a rubric or a pointwise reward function"
            )
        self.is_async = self._function.is_async
        self.names: list[str] = []
        self.fingerprint = self._function.fingerprint
        if isinstance(reward, Rubric):
            self.names = [name for name, _ in reward.named_rubrics()]
            self.fingerprint = reward.fingerprint()
        logger.info("the reward is %s, fingerprint %s", self._function.__name__, self.fingerprint)

    def evaluate(self, messages: list[dict[str, Any]], columns: Mapping[str, Any]) -> Any:
        """Return the result for a conversation; of an async reward, an awaitable.

        Args:
            messages: The conversation, in OpenAI's format.
            columns: Further data of the task, such as ``ground_truth``.
        """
        return self._function.evaluate(messages, columns.get("ground_truth"), dict(columns))

    def components(self, result: EvaluateResult) -> dict[str, float | None]:
        """Return the components of a rubric, all of them, with None for those not reached.

        Those of a reward function are the numbers among its metrics.
        """
        numbers = {name: as_score(value) for name, value in result.metrics.items()}
        names = self.names or [name for name in numbers if numbers[name] is not None]
        return {name: numbers.get(name) for name in names}


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
