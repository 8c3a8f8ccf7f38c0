"""What an observation says of its reward, as a logger takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guerdon.errors import InvalidArgumentError

__all__ = ["reward_fields"]


def reward_fields(observation: Any) -> dict[str, Any]:
    """What an observation says of its reward, as the arguments of `RewardLogger.log_step`.

    A reward that failed is told with the rubric that failed, as ``reward/invalid/{name}``.

    Example:
        >>> from guerdon import Observation
        >>> from guerdon.tracking import reward_fields
        >>> seen = Observation(reward=None, metadata={
        ...     "reward_components": {"brief": 1.0},
        ...     "reward_error": "OSError: the judge is down",
        ...     "reward_failed": "style",
        ... })
        >>> reward_fields(seen)["invalid"]
        {'style': 'OSError: the judge is down'}
        >>> def train(logger, step, episode, observation):
        ...     logger.log_step(step, episode, **reward_fields(observation))

    Args:
        observation: An observation, or the result of a client's step, which has the same.

    Returns:
        ``reward``, ``components``, ``invalid`` and ``reward_error``.

    Raises:
        InvalidArgumentError: It has no reward and metadata.
    """
    metadata = getattr(observation, "metadata", None)
    if not hasattr(observation, "reward") or not isinstance(metadata, Mapping | None):
        raise InvalidArgumentError(
            f"{observation!r:.60} is no observation; it takes what a step gives"
        )
    told = metadata or {}
    error = told.get("reward_error")
    failed = told.get("reward_failed")
    return {
        "reward": observation.reward,
        "components": dict(told.get("reward_components") or {}),
        "invalid": {str(failed): str(error)} if error is not None and failed else None,
        "reward_error": None if error is None else str(error),
    }
