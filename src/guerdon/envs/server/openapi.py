"""The OpenAPI document of a server."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel, create_model
from pydantic.json_schema import models_json_schema

from guerdon.envs.server.protocol import ResetRequest, StepRequest
from guerdon.types.action import Action
from guerdon.types.observation import Observation
from guerdon.types.state import EnvironmentMetadata, State

PROTOCOL = "1.0.0"

Schema = dict[str, Any]

_OBJECT: Schema = {"type": "object"}
_STRING: Schema = {"type": "string"}
_FAILURES = {
    "404": "There is no session with the ID in Mcp-Session-Id.",
    "409": "No episode is running, in an environment that requires one.",
    "408": "The body took too long.",
    "412": "The configuration has changed since the version in If-Match.",
    "413": "The body is too large.",
    "422": "The body is not valid; nothing was done.",
    "503": "All sessions are taken, or the server is shutting down.",
    "504": "The environment took too long.",
}


class _ErrorDetail(BaseModel):
    message: str
    code: str


class _Error(BaseModel):
    detail: _ErrorDetail


class _FieldErrors(BaseModel):
    detail: list[dict[str, Any]]


class EnvTypes(NamedTuple):
    """The classes of an environment's actions, observations and states."""

    action: type[Action]
    observation: type[Observation]
    state: type[State]


def openapi_document(title: str, types: EnvTypes, *, is_production: bool = False) -> Schema:
    """Describe the HTTP interface of a server.

    Args:
        title: The environment's name.
        types: The environment's classes.
        is_production: Whether there are no calls of a fresh environment.
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
        step_request, ResetRequest, result, types.observation, types.state, EnvironmentMetadata,
        _Error, _FieldErrors,
    ]  # fmt: skip
    references, definitions = models_json_schema(
        [(model, "validation") for model in models],
        ref_template="#/components/schemas/{model}",
    )
    step, reset, results, observation, state, metadata, error, field_errors = (
        references[model, "validation"] for model in models
    )
    schemas = definitions["$defs"]
    # As it is sent: the reward and `done` are beside the observation.
    sent = schemas[observation["$ref"].rpartition("/")[2]]
    for field in ("reward", "done"):
        sent["properties"].pop(field)
    sent["required"] = [field for field in sent.get("required", ()) if field in sent["properties"]]
    schemas.setdefault("State", state)
    rejected = ("408", "413")
    calls = ("409", "503", "504")
    posted = ("422", *calls, *rejected)

    def operation(
        summary: str, answer: Schema, failures: tuple[str, ...] = (), body: Schema | None = None
    ) -> Schema:
        responses = {"200": {"description": "OK", "content": _json(answer)}}
        for status in failures:
            content = _json(field_errors if status == "422" else error)
            responses[status] = {"description": _FAILURES[status], "content": content}
        described: Schema = {"summary": summary, "responses": responses}
        if body is not None:
            described["requestBody"] = {"required": True, "content": _json(body)}
        return described

    paths: dict[str, Schema] = {
        "/health": {"get": operation("Whether the server runs.", _OBJECT)},
        "/metadata": {"get": operation("The environment's metadata.", metadata)},
        "/schema": {"get": operation("Schemas of action, observation and state.", _OBJECT)},
        "/list_environments": {
            "get": operation("The environment's name.", {"type": "array", "items": _STRING})
        },
        "/config": {
            "get": operation("The reward configuration.", _OBJECT),
            "post": operation(
                "Changes it for all sessions.", _OBJECT, ("412", "422", *rejected), _OBJECT
            ),
        },
        "/config/audit": {"get": operation("Its changes.", {"type": "array", "items": _OBJECT})},
        "/metrics": {"get": operation("Metrics for Prometheus.", {})},
        "/state": {"get": operation("The state of a fresh environment.", state, calls)},
        "/reset": {"post": operation("Resets a fresh environment.", results, posted, reset)},
        "/step": {"post": operation("Steps a fresh environment.", results, posted, step)},
        "/mcp": {"post": operation("JSON-RPC.", _OBJECT, ("404", *rejected), _OBJECT)},
    }
    paths["/reset"]["post"]["requestBody"]["required"] = False
    if is_production:
        for path in ("/state", "/reset", "/step"):
            del paths[path]
    metrics = paths["/metrics"]["get"]["responses"]["200"]
    metrics["content"] = {"text/plain": {"schema": _STRING}}
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


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
