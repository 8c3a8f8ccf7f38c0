"""The messages of OpenEnv's protocol: parsing requests, writing answers and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from guerdon._validation import field_errors, shown, summarize
from guerdon.envs.wire import (
    UNSENDABLE,
    NotFiniteError,
    array_as_list,
    model_json,
    parts,
    read_json,
)
from guerdon.errors import ConfigConflictError, InvalidObservationError, RewardConfigError
from guerdon.types.observation import Observation
from guerdon.types.state import State

# Requests -----------------------------------------------------------------------------------------


class ResetRequest(BaseModel):
    """The arguments of a reset; further fields reach environments that accept them."""

    model_config = ConfigDict(extra="allow")

    seed: int | None = Field(default=None, ge=0)
    episode_id: str | None = Field(default=None, max_length=255)


class StepRequest(BaseModel):
    """The body of a step over HTTP; further fields reach environments that accept them."""

    model_config = ConfigDict(extra="allow")

    action: dict[str, Any]
    timeout_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    request_id: str | None = Field(default=None, max_length=255)


class ClientMessage(BaseModel):
    """A message that a client sent over a WebSocket."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["reset", "step", "state", "close", "mcp", "config"]
    data: Any = None


_TYPES = get_args(ClientMessage.model_fields["type"].annotation)


def parse_message(text: str | bytes, max_config_bytes: int = 2**20) -> ClientMessage:
    """Parse a message of a session.

    Example:
        >>> parse_message('{"type": "step", "data": {"text": "hi"}}')
        ClientMessage(type='step', data={'text': 'hi'})

    Args:
        text: The message; bytes are of a binary frame, which the protocol doesn't have.
        max_config_bytes: The largest change of the configuration.

    Raises:
        ProtocolError: It is not JSON, of an unknown type, or invalid.
    """
    if isinstance(text, bytes):
        raise ProtocolError(ErrorCode.INVALID_JSON, "a message is a text frame, not a binary one")
    try:
        content = read_json(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(ErrorCode.INVALID_JSON, f"the message is not JSON: {error}") from None
    kind = content.get("type") if isinstance(content, dict) else _TYPES[0]
    if kind not in _TYPES:
        reason = f"`type` must be one of {', '.join(_TYPES)}, got {shown(kind)}"
        raise ProtocolError(ErrorCode.UNKNOWN_TYPE, reason)
    try:
        message = ClientMessage.model_validate(content)
    except ValidationError as error:
        raise validation_error("the message", error) from None
    if message.type == "config" and len(text) > max_config_bytes:
        raise ProtocolError(
            ErrorCode.VALIDATION_ERROR,
            f"a change of the configuration is larger than {max_config_bytes} bytes",
        )
    return message


# Errors -------------------------------------------------------------------------------------------


class ErrorCode(StrEnum):
    """The protocol's codes of errors."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    SESSION_ERROR = "SESSION_ERROR"
    CONFLICT = "CONFLICT"  # an addition: of a change of the configuration


class ProtocolError(Exception):
    """A request that is answered with an error; it never leaves the server.

    `error_frame` makes a WebSocket message of it, and `error_response` an HTTP response.

    Attributes:
        code: The protocol's code.
        message: What was wrong, and what would be accepted.
        status: The status over HTTP.
        headers: Headers of the HTTP response.
        details: Further fields, such as ``errors``.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        status: int = 500,
        headers: Mapping[str, str] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.headers = headers
        self.details = details


def error_frame(error: ProtocolError) -> str:
    """Return the WebSocket message for an error."""
    return json.dumps({"type": "error", "data": error_data(error)}, default=str)


def error_data(error: ProtocolError) -> dict[str, Any]:
    """Return what a client is sent about an error."""
    return {"message": error.message, "code": error.code, **error.details}


def plain_data(data: Any) -> Any:
    """Return data that every codec can represent; the text of an exception may have surrogates."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, default=str)
    return from_json(text.encode("utf-8", "replace"))


def validation_error(
    what: str, error: ValidationError, *, loc: tuple[str, ...] = ()
) -> ProtocolError:
    """Return the error for invalid fields.

    Args:
        what: What is invalid, for the message.
        error: The fields.
        loc: Where it is in the request.
    """
    errors = [{**each, "loc": [*loc, *each["loc"]]} for each in field_errors(error)]
    message = f"{what} is not valid: {summarize(error)}"
    return ProtocolError(ErrorCode.VALIDATION_ERROR, message, status=422, errors=errors)


def config_error(error: RewardConfigError) -> ProtocolError:
    """Return the error for a rejected change of the configuration."""
    if isinstance(error, ConfigConflictError):
        return ProtocolError(ErrorCode.CONFLICT, str(error), status=412, version=error.present)
    errors = []
    for problem in error.problems:
        where, colon, message = problem.partition(": ")
        loc = ["body", where] if colon else ["body"]
        errors.append({"type": "config", "loc": loc, "msg": message if colon else problem})
    return ProtocolError(ErrorCode.VALIDATION_ERROR, str(error), status=422, errors=errors)


# Answers ------------------------------------------------------------------------------------------

_BESIDE = {"reward", "done"}


def observation_json(observation: Observation) -> bytes:
    """Return an observation as the JSON that is sent.

    Its metadata is inside the observation and, unless it is empty, beside it: older clients read
    one, newer ones the other.

    Raises:
        InvalidObservationError: It is not JSON-serializable, or contains NaN or infinity.
    """
    reward = observation.reward
    try:
        content = model_json(observation, _BESIDE)
    except UNSENDABLE as error:
        raise unsendable(observation, error) from error
    pieces = [
        b'{"observation":',
        content,
        b',"reward":',
        b"null" if reward is None else repr(reward).encode(),
        b',"done":true' if observation.done else b',"done":false',
    ]
    if observation.metadata:
        pieces += [b',"metadata":', to_json(observation.metadata, fallback=array_as_list)]
    pieces.append(b"}")
    return b"".join(pieces)


def state_json(state: State) -> bytes:
    """Return a state as the JSON that is sent.

    Raises:
        InvalidObservationError: It is not JSON-serializable, or contains NaN or infinity.
    """
    try:
        return model_json(state)
    except UNSENDABLE as error:
        raise unsendable(state, error) from error


def unsendable(model: BaseModel, error: Exception) -> InvalidObservationError:
    """Return the error for an observation or a state that can't be encoded."""
    name = type(model).__name__
    if isinstance(error, NotFiniteError):
        return InvalidObservationError(f"{name} has {error}")
    path = _unsendable_path(model)
    return InvalidObservationError(f"{name}{path} is not JSON-serializable: {error}")


def _unsendable_path(value: Any, depth: int = 10) -> str:
    """Return the path to the first part that is not serializable; it may be a circle."""
    for name, each in parts(value) if depth else ():
        try:
            to_json(each, fallback=array_as_list)
        except UNSENDABLE:
            return name + _unsendable_path(each, depth - 1)
    return ""
