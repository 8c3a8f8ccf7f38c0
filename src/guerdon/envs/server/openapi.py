"""The OpenAPI document of a server."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel, create_model
from pydantic.json_schema import models_json_schema

from guerdon.envs.server.protocol import ResetRequest, StepRequest
from guerdon.types.action import Action
from guerdon.types.observation import Observation
from guerdon.types.state import EnvironmentMetadata, State

__all__ = ["EnvTypes", "openapi_document"]

PROTOCOL = "1.0.0"

Schema = dict[str, Any]

_OBJECT: Schema = {"type": "object"}
_ERROR: Schema = {
    "type": "object",
    "required": ["detail"],
    "properties": {
        "detail": {
            "type": "object",
            "required": ["message", "code"],
            "properties": {"message": {"type": "string"}, "code": {"type": "string"}},
        }
    },
}
_FIELD_ERRORS: Schema = {
    "type": "object",
    "required": ["detail"],
    "properties": {"detail": {"type": "array", "items": {"type": "object"}}},
}
_FAILURES = {
    "409": "No episode is running, in an environment that requires one.",
    "408": "The body took too long.",
    "412": "The configuration has changed since the version in If-Match.",
    "413": "The body is too large.",
    "422": "The body is not valid; nothing was done.",
    "503": "All sessions are taken, or the server is shutting down.",
    "504": "The environment took too long.",
}


class EnvTypes(NamedTuple):
    """The classes of an environment's actions, observations and states."""

    action: type[Action]
    observation: type[Observation]
    state: type[State]


def openapi_document(title: str, types: EnvTypes) -> Schema:
    """Describe the HTTP interface of a server.

    Args:
        title: The environment's name.
        types: The environment's classes.
    """
    step_request = create_model("StepRequest", __base__=StepRequest, action=(types.action, ...))
    result = create_model(
        "Result",
        observation=(types.observation, ...),
        reward=(float | None, ...),
        done=(bool, ...),
        metadata=(dict[str, Any], {}),
    )
    models: list[type[BaseModel]] = [
        step_request, ResetRequest, result, types.observation, types.state, EnvironmentMetadata
    ]  # fmt: skip
    references, definitions = models_json_schema(
        [(model, "validation") for model in models],
        ref_template="#/components/schemas/{model}",
    )
    step, reset, results, observation, state, metadata = (
        references[model, "validation"] for model in models
    )
    schemas = definitions["$defs"]
    # As it is sent: the reward and `done` are beside the observation.
    sent = schemas[observation["$ref"].rpartition("/")[2]]
    for field in ("reward", "done"):
        sent["properties"].pop(field)
    sent["required"] = [field for field in sent.get("required", ()) if field in sent["properties"]]
    schemas.setdefault("State", state)
    names: Schema = {"type": "array", "items": {"type": "string"}}
    changes: Schema = {"type": "array", "items": _OBJECT}
    rejected = ("408", "413")
    calls = ("409", "503", "504")
    operations: list[tuple[str, str, Schema]] = [
        ("get", "/health", _operation("Whether the server runs.", _OBJECT)),
        ("get", "/metadata", _operation("The environment's metadata.", metadata)),
        ("get", "/schema", _operation("Schemas of action, observation and state.", _OBJECT)),
        ("get", "/list_environments", _operation("The environment's name.", names)),
        ("get", "/config", _operation("The reward configuration.", _OBJECT)),
        ("post", "/config", _operation(
            "Changes it for all sessions.", _OBJECT, ("412", "422", *rejected), body=_OBJECT)),
        ("get", "/config/audit", _operation("Its changes.", changes)),
        ("get", "/metrics", _operation("Metrics for Prometheus.", {}, media="text/plain")),
        ("get", "/state", _operation("The state of a fresh environment.", state, calls)),
        ("post", "/reset", _operation(
            "Resets a fresh environment.", results, ("422", *calls, *rejected), body=reset)),
        ("post", "/step", _operation(
            "Steps a fresh environment.", results, ("422", *calls, *rejected), body=step)),
        ("post", "/mcp", _operation("JSON-RPC.", _OBJECT, rejected, body=_OBJECT)),
    ]  # fmt: skip
    paths: dict[str, Schema] = {}
    for method, path, operation in operations:
        paths.setdefault(path, {})[method] = operation
    paths["/reset"]["post"]["requestBody"]["required"] = False
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": PROTOCOL,
            "description": "Each call has a fresh environment; sessions are at the WebSocket /ws.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(
    summary: str,
    answer: Schema,
    failures: tuple[str, ...] = (),
    *,
    body: Schema | None = None,
    media: str = "application/json",
) -> Schema:
    responses = {"200": {"description": "OK", "content": {media: {"schema": answer}}}}
    for status in failures:
        schema = _FIELD_ERRORS if status == "422" else _ERROR
        content = {"application/json": {"schema": schema}}
        responses[status] = {"description": _FAILURES[status], "content": content}
    operation: Schema = {"summary": summary, "responses": responses}
    if body is not None:
        content = {"application/json": {"schema": body}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation
