"""The messages of the protocol: reading what clients send, writing what they are answered.

The protocol is OpenEnv's, as its servers and clients speak it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticSerializationError, from_json, to_json

from guerdon.errors import InvalidObservationError
from guerdon.types.observation import Observation
from guerdon.types.state import State

__all__ = [
    "ErrorCode",
    "Problem",
    "Request",
    "ResetRequest",
    "StepRequest",
    "error_text",
    "observation_json",
    "read",
    "state_json",
]


class ErrorCode(StrEnum):
    """What went wrong, as the protocol calls it."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    SESSION_ERROR = "SESSION_ERROR"
    CONFLICT = "CONFLICT"  # ours: of a change of the configuration


class Problem(Exception):
    """What a client is told; it never leaves the server as an exception.

    Attributes:
        code: The protocol's code.
        message: What was wrong, and what would be accepted.
        more: Further fields, such as ``errors``.
    """

    def __init__(self, code: ErrorCode, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.more = more


class ResetRequest(BaseModel):
    """What a reset takes; further fields reach environments that take them."""

    model_config = ConfigDict(extra="allow")

    seed: int | None = Field(default=None, ge=0)
    episode_id: str | None = Field(default=None, max_length=255)


class StepRequest(BaseModel):
    """What a step over HTTP takes; further fields reach environments that take them."""

    model_config = ConfigDict(extra="allow")

    action: dict[str, Any]
    timeout_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    request_id: str | None = Field(default=None, max_length=255)


class Request(NamedTuple):
    """A message that a client sent over a WebSocket."""

    type: str
    data: Any


TYPES = ("reset", "step", "state", "close", "mcp", "config")


def read(text: str | bytes, max_config_bytes: int = 2**20) -> Request:
    """Read a message.

    Args:
        text: The message.
        max_config_bytes: How large one that changes the configuration may be.

    Raises:
        Problem: It is no JSON, of no type there is, or not as it should be.
    """
    try:
        message = from_json(text, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        raise Problem(ErrorCode.INVALID_JSON, f"the message is no JSON: {error}") from None
    if not isinstance(message, dict):
        raise Problem(
            ErrorCode.VALIDATION_ERROR,
            f"a message is an object with a 'type', not {type(message).__name__}",
        )
    kind = message.get("type")
    if kind not in TYPES:
        raise Problem(
            ErrorCode.UNKNOWN_TYPE,
            f"there is no message type {kind!r:.60}; there are {', '.join(TYPES)}",
        )
    if kind == "config" and len(text) > max_config_bytes:
        raise Problem(
            ErrorCode.VALIDATION_ERROR,
            f"a change of the configuration is larger than {max_config_bytes} bytes",
        )
    if len(message) > 1 + ("data" in message):
        unknown = sorted(message.keys() - {"type", "data"})
        raise Problem(
            ErrorCode.VALIDATION_ERROR,
            f"unknown fields {unknown!r:.200}; a message has 'type' and 'data'",
            errors=[
                {"type": "extra_forbidden", "loc": [name], "msg": "Extra inputs are not permitted"}
                for name in unknown
            ],
        )
    return Request(kind, message.get("data"))


def error_text(code: ErrorCode, message: str, more: Mapping[str, Any]) -> str:
    """An error, as a WebSocket message."""
    data = {"message": message, "code": code, **more}
    return json.dumps({"type": "error", "data": data}, default=str)


_OUTSIDE = {"reward", "done"}
_QUOTE = "'"


def observation_json(observation: Observation) -> bytes:
    """An observation as both faces send it.

    Its metadata stands in the observation and, where there is some, beside it: older clients
    look in one place, newer ones in the other.

    Raises:
        InvalidObservationError: JSON can't hold it: it has a NaN, or an object of some class.
    """
    inner = _json(observation, exclude=_OUTSIDE)
    parts = [
        b'{"observation":',
        inner,
        b',"reward":',
        _reward_json(observation),
        b',"done":true' if observation.done else b',"done":false',
    ]
    if observation.metadata:
        parts += [b',"metadata":', to_json(observation.metadata, inf_nan_mode="constants")]
    parts.append(b"}")
    return b"".join(parts)


def state_json(state: State) -> bytes:
    """A state as both faces send it.

    Raises:
        InvalidObservationError: JSON can't hold it.
    """
    return _json(state)


def _reward_json(observation: Observation) -> bytes:
    reward: Any = observation.reward
    if reward is None:
        return b"null"
    if reward.__class__ is not float and isinstance(reward, (bool, int)):
        reward = float(reward)
    if reward.__class__ is not float or reward - reward != 0.0:
        raise InvalidObservationError(
            f"the reward of {type(observation).__name__} is {reward!r:.60}, no finite float"
        )
    return repr(reward).encode()


def _json(model: BaseModel, exclude: set[str] | None = None) -> bytes:
    try:
        text: bytes = model.__pydantic_serializer__.to_json(model, exclude=exclude)
    except (PydanticSerializationError, UnicodeError, ValueError, RecursionError) as error:
        where = type(model).__name__ + "".join(_culprit(model))
        raise InvalidObservationError(f"{where} can't be sent as JSON: {error}") from error
    # A NaN shows as NaN or, where some model inside says so, as null.
    if b"null" in text or b"NaN" in text or b"Infinity" in text:
        found = _not_finite(model.model_dump())
        if found:
            raise InvalidObservationError(
                f"{type(model).__name__} has {', '.join(found[:5])}, which JSON can't hold; give "
                "a finite number or None"
            )
    return text


def _culprit(value: Any, depth: int = 10) -> list[str]:
    """The path to what JSON can't hold, so deep at most: it may lead in a circle."""
    for name, each in _items(value):
        try:
            to_json(each)
        except (PydanticSerializationError, UnicodeError, ValueError, RecursionError):
            return [name, *_culprit(each, depth - 1)] if depth else [name]
    return []


def _not_finite(value: Any, path: str = "") -> list[str]:
    """Where floats stand that JSON can't hold, each with what it is."""
    if isinstance(value, float):
        return [] if math.isfinite(value) else [f"{value!r} at {path.lstrip('.')}"]
    return [found for name, each in _items(value) for found in _not_finite(each, f"{path}{name}")]


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of nested data, each with what a path to it goes on with."""
    if isinstance(value, BaseModel):
        yield from ((f".{name}", each) for name, each in value if name not in _OUTSIDE)
    elif isinstance(value, Mapping):
        yield from ((f".{ascii(key).strip(_QUOTE)}", value[key]) for key in value)
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{place}]", each) for place, each in enumerate(value))
