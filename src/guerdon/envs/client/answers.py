"""What servers answer, checked: a client believes nothing that the protocol doesn't allow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from guerdon.errors import ConnectionLostError, InvalidArgumentError, InvalidObservationError

__all__ = ["Answer", "message", "read_answer"]


class Answer(NamedTuple):
    """What a server answers to a reset or a step.

    Attributes:
        observation: What the environment shows, metadata among it where the server puts it there.
        reward: A finite float, or None.
        done: Whether the episode has ended.
        metadata: What else there is to tell.
    """

    observation: dict[str, Any]
    reward: float | None
    done: bool
    metadata: dict[str, Any]

    def fields(self) -> dict[str, Any]:
        """All of it together, as an observation model takes it."""
        return {
            **self.observation,
            "reward": self.reward,
            "done": self.done,
            "metadata": self.metadata,
        }


def read_answer(payload: Any) -> Answer:
    """Read the answer to a reset or a step.

    Newer servers tell the metadata inside the observation and beside it, older ones nowhere.

    Example:
        >>> read_answer({"observation": {"echoed": "hi"}, "reward": True, "done": False})
        Answer(observation={'echoed': 'hi'}, reward=1.0, done=False, metadata={})

    Raises:
        ConnectionLostError: It is no answer of the protocol.
        InvalidObservationError: The reward is no finite number, or the metadata are no object.
    """
    observation = payload.get("observation") if isinstance(payload, Mapping) else None
    if not isinstance(observation, dict):
        raise ConnectionLostError(f"the server's answer has no observation: {payload!r:.80}")
    metadata = payload.get("metadata") or observation.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InvalidObservationError(f"the server's metadata are no object: {metadata!r:.80}")
    reward = payload.get("reward")
    if type(reward) is not float and reward is not None:
        if not isinstance(reward, (bool, int)):
            raise InvalidObservationError(f"the server's reward is no number: {reward!r:.80}")
        reward = float(reward)
    if reward is not None and not math.isfinite(reward):
        raise InvalidObservationError(f"the server's reward is not finite: {reward!r}")
    return Answer(observation, reward, bool(payload.get("done", False)), metadata)


def message(kind: str, data: Any) -> bytes:
    """A message to a server, as JSON.

    Raises:
        InvalidArgumentError: JSON can't hold it.
    """
    if isinstance(data, BaseModel):
        data = data.model_dump(mode="json")
    try:
        return to_json({"type": kind, "data": data}, inf_nan_mode="constants")
    except (PydanticSerializationError, UnicodeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{kind} can't be sent as JSON: {error}") from error
