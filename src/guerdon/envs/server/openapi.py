"""The OpenAPI document of the HTTP face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from guerdon.envs.server.messages import ResetRequest, StepRequest
from guerdon.types.state import EnvironmentMetadata

__all__ = ["openapi"]

PROTOCOL = "1.0.0"

_JSON: dict[str, Any] = {"type": "object"}
_FAILED = {
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
_INVALID = {
    "type": "object",
    "required": ["detail"],
    "properties": {"detail": {"type": "array", "items": {"type": "object"}}},
}


def openapi(schemas: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """Describe the HTTP face.

    Args:
        schemas: JSON Schemas of ``action``, ``observation`` and ``state``.
        name: What the environment is called.
    """
    parts: dict[str, Any] = {}
    action = _placed(schemas["action"], "Action", parts)
    observation = _placed(_inner(schemas["observation"]), "Observation", parts)
    state = _placed(schemas["state"], "State", parts)
    step = _placed(_schema(StepRequest), "StepRequest", parts)
    parts["StepRequest"]["properties"]["action"] = action
    reset = _placed(_schema(ResetRequest), "ResetRequest", parts)
    metadata = _placed(_schema(EnvironmentMetadata), "EnvironmentMetadata", parts)
    parts["Result"] = {
        "type": "object",
        "required": ["observation", "reward", "done"],
        "properties": {
            "observation": observation,
            "reward": {"type": ["number", "null"]},
            "done": {"type": "boolean"},
            "metadata": {"type": "object"},
        },
    }
    result = {"$ref": "#/components/schemas/Result"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": name,
            "version": PROTOCOL,
            "description": "An environment, a fresh one a call; sessions are at the WebSocket /ws.",
        },
        "paths": {
            "/health": {"get": _plain("Whether the server is there.", _JSON)},
            "/metadata": {"get": _plain("What the environment is.", metadata)},
            "/schema": {"get": _plain("Schemas of actions, observations and states.", _JSON)},
            "/list_environments": {
                "get": _plain("Its name.", {"type": "array", "items": {"type": "string"}})
            },
            "/config": {
                "get": _plain("What the reward is configured with.", _JSON),
                "post": _changing("Change that for all sessions, from their next resets on."),
            },
            "/config/audit": {
                "get": _plain("Who changed what, and when.", {"type": "array", "items": _JSON})
            },
            "/metrics": {
                "get": _operation(
                    "What the server has done, for Prometheus.",
                    {"200": {"description": "OK", "content": {"text/plain": {}}}},
                )
            },
            "/state": {"get": _calling("The state of a fresh environment.", state)},
            "/reset": {"post": _calling("Reset a fresh environment.", result, reset, False)},
            "/step": {"post": _calling("Take a step in a fresh environment.", result, step)},
            "/mcp": {"post": _operation("JSON-RPC.", _answers(_JSON, "408", "413"), _JSON)},
        },
        "components": {"schemas": parts},
    }


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _inner(schema: dict[str, Any]) -> dict[str, Any]:
    """An observation as it is sent: its reward and `done` stand beside it."""
    properties = {
        key: each for key, each in schema["properties"].items() if key not in ("reward", "done")
    }
    required = [key for key in schema.get("required", ()) if key in properties]
    return {**schema, "properties": properties, "required": required}


def _placed(schema: dict[str, Any], name: str, parts: dict[str, Any]) -> dict[str, Any]:
    """Put a schema among the document's, with what it refers to, and refer to it."""
    schema = _renamed(schema, name)
    for key, part in schema.pop("$defs", {}).items():
        parts[f"{name}.{key}"] = part
    parts[name] = schema
    return {"$ref": f"#/components/schemas/{name}"}


def _renamed(value: Any, name: str) -> Any:
    """The same schema, its references leading to where `_placed` puts what they mean."""
    if isinstance(value, dict):
        return {
            key: f"#/components/schemas/{name}.{each.removeprefix('#/$defs/')}"
            if key == "$ref" and isinstance(each, str)
            else _renamed(each, name)
            for key, each in value.items()
        }
    return [_renamed(each, name) for each in value] if isinstance(value, list) else value


def _plain(summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    return _operation(summary, _answers(schema))


def _changing(summary: str) -> dict[str, Any]:
    """A change of the configuration, and how it may fail."""
    answers = _answers(_JSON, "408", "412", "413")
    answers["422"] = _answer("The change is refused, whole.", _INVALID)
    return _operation(summary, answers, _JSON)


def _calling(
    summary: str,
    schema: dict[str, Any],
    body: dict[str, Any] | None = None,
    required: bool = True,
) -> dict[str, Any]:
    """A call of an environment, and how it may fail."""
    failures = ("409", "503", "504") if body is None else ("408", "409", "413", "503", "504")
    answers = _answers(schema, *failures)
    if body is not None:
        answers["422"] = _answer("The body is not valid.", _INVALID)
    return _operation(summary, answers, body, required)


_SAID = {
    "409": "No episode is running, in an environment that wants one.",
    "408": "The body took too long to come.",
    "412": "The configuration has been changed since the version that If-Match says.",
    "413": "The body is too large.",
    "503": "All sessions are taken, or the server is shutting down.",
    "504": "The environment took too long.",
}


def _answers(schema: dict[str, Any], *failures: str) -> dict[str, Any]:
    answers = {"200": _answer("OK", schema)}
    return answers | {status: _answer(_SAID[status], _FAILED) for status in failures}


def _answer(said: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": said, "content": {"application/json": {"schema": schema}}}


def _operation(
    summary: str,
    answers: dict[str, Any],
    body: dict[str, Any] | None = None,
    required: bool = True,
) -> dict[str, Any]:
    found: dict[str, Any] = {"summary": summary, "responses": answers}
    if body is not None:
        content = {"application/json": {"schema": body}}
        found["requestBody"] = {"required": required, "content": content}
    return found
