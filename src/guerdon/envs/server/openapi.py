"""The OpenAPI document of a server."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, create_model
from pydantic.json_schema import models_json_schema

from guerdon.envs.server.protocol import ResetRequest, StepRequest
from guerdon.types.action import Action
from guerdon.types.observation import Observation
from guerdon.types.state import EnvironmentMetadata, State

__all__ = ["openapi_document"]

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
    "503": "All sessions are taken, or the server is shutting down.",
    "504": "The environment took too long.",
}


def openapi_document(
    title: str,
    *,
    action_type: type[Action],
    observation_type: type[Observation],
    state_type: type[State],
) -> Schema:
    """Describes the HTTP interface of a server.

    Args:
        title: The environment's name.
        action_type: The class of actions.
        observation_type: The class of observations.
        state_type: The class of states.
    """
    step_request = create_model("StepRequest", __base__=StepRequest, action=(action_type, ...))
    result = create_model(
        "Result",
        observation=(observation_type, ...),
        reward=(float | None, ...),
        done=(bool, ...),
        metadata=(dict[str, Any], {}),
    )
    models: list[type[BaseModel]] = [
        step_request, ResetRequest, result, observation_type, state_type, EnvironmentMetadata
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
    names = {"type": "array", "items": {"type": "string"}}
    change = _operation("Changes it for all sessions.", _OBJECT, body=_OBJECT, failures=("412",))
    change["responses"]["422"] = _response(
        "The change is invalid; it is not applied.", _FIELD_ERRORS
    )
    calls = ("409", "503", "504")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": PROTOCOL,
            "description": "Each call has a fresh environment; sessions are at the WebSocket /ws.",
        },
        "paths": {
            "/health": {"get": _operation("Whether the server runs.", _OBJECT)},
            "/metadata": {"get": _operation("The environment's metadata.", metadata)},
            "/schema": {"get": _operation("Schemas of action, observation and state.", _OBJECT)},
            "/list_environments": {"get": _operation("The environment's name.", names)},
            "/config": {
                "get": _operation("The reward configuration.", _OBJECT),
                "post": change,
            },
            "/config/audit": {
                "get": _operation("Its changes.", {"type": "array", "items": _OBJECT})
            },
            "/metrics": {
                "get": {
                    "summary": "Metrics for Prometheus.",
                    "responses": {"200": {"description": "OK", "content": {"text/plain": {}}}},
                }
            },
            "/state": {"get": _operation("The state of a fresh one.", state, failures=calls)},
            "/reset": {
                "post": _operation(
                    "Resets a fresh one.", results, body=reset, required=False, failures=calls
                )
            },
            "/step": {"post": _operation("Steps a fresh one.", results, body=step, failures=calls)},
            "/mcp": {"post": _operation("JSON-RPC.", _OBJECT, body=_OBJECT)},
        },
        "components": {"schemas": schemas},
    }


def _operation(
    summary: str,
    answer: Schema,
    *,
    body: Schema | None = None,
    required: bool = True,
    failures: tuple[str, ...] = (),
) -> Schema:
    """Describes an operation, with the failures of reading its body if it has one."""
    responses = {"200": _response("OK", answer)}
    operation: Schema = {"summary": summary, "responses": responses}
    if body is not None:
        content = {"application/json": {"schema": body}}
        operation["requestBody"] = {"required": required, "content": content}
        failures = (*failures, "408", "413")
        if body is not _OBJECT:
            responses["422"] = _response("The body is not valid.", _FIELD_ERRORS)
    responses.update((status, _response(_FAILURES[status], _ERROR)) for status in failures)
    return operation


def _response(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
