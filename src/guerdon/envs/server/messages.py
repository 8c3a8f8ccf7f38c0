"""The messages of the protocol: reading what clients send, writing what they are answered.

The protocol is OpenEnv's, as its servers and clients speak it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticSerializationError, from_json, to_json

from guerdon.errors import InvalidObservationError
from guerdon.models.observation import Observation
from guerdon.models.state import State

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


TYPES = ("reset", "step", "state", "close", "mcp")


def read(text: str | bytes) -> Request:
    """Read a message.

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


def observation_json(observation: Observation) -> bytes:
    """An observation as both faces send it.

    Its metadata stands in the observation and, where there is some, beside it: older clients
    look in one place, newer ones in the other.

    Raises:
        InvalidObservationError: JSON can't hold it: it has a NaN, or an object of some class.
    """
    try:
        inner = observation.__pydantic_serializer__.to_json(observation, exclude=_OUTSIDE)
        metadata = to_json(observation.metadata, inf_nan_mode="constants")
    except (PydanticSerializationError, UnicodeError, ValueError, RecursionError) as error:
        raise InvalidObservationError(
            f"{type(observation).__name__} can't be sent as JSON: {error}"
        ) from error
    _refuse_nan(observation, inner, metadata)
    reward = observation.reward
    parts = [
        b'{"observation":',
        inner,
        b',"reward":',
        b"null" if reward is None else repr(reward).encode(),
        b',"done":true' if observation.done else b',"done":false',
    ]
    if observation.metadata:
        parts += [b',"metadata":', metadata]
    parts.append(b"}")
    return b"".join(parts)


def state_json(state: State) -> bytes:
    """A state as both faces send it.

    Raises:
        InvalidObservationError: JSON can't hold it.
    """
    try:
        text = state.__pydantic_serializer__.to_json(state)
    except (PydanticSerializationError, UnicodeError, ValueError, RecursionError) as error:
        raise InvalidObservationError(
            f"{type(state).__name__} can't be sent as JSON: {error}"
        ) from error
    _refuse_nan(state, text)
    return text


def _refuse_nan(whose: BaseModel, *texts: bytes) -> None:
    """Refuse NaN and the infinities, which JSON doesn't have."""
    for text in texts:
        if b"NaN" in text or b"Infinity" in text:
            json.loads(text, parse_constant=lambda name: _no_such(whose, name))


def _no_such(whose: BaseModel, constant: str) -> None:
    paths = _paths(whose.model_dump(), constant)
    raise InvalidObservationError(
        f"{type(whose).__name__} has {constant} at {', '.join(paths) or 'some place'}, "
        "which JSON can't hold; give a finite number or None"
    )


def _paths(value: Any, constant: str, path: str = "") -> list[str]:
    """Where in nested data a float stands that JSON writes as `constant`."""
    if isinstance(value, float):
        return [path] if json.dumps(value) == constant else []
    if isinstance(value, Mapping):
        items = [(f"{path}.{key}" if path else str(key), each) for key, each in value.items()]
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        items = [(f"{path}[{index}]", each) for index, each in enumerate(value)]
    else:
        return []
    return [found for name, each in items for found in _paths(each, constant, name)][:5]
