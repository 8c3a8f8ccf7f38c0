"""The classes of `nemo_gym.base_resources_server` that the adapter uses, without NeMo Gym."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel


class BaseVerifyRequest(BaseModel):
    """A task with its response."""

    responses_create_params: dict[str, Any]
    response: dict[str, Any]


class BaseVerifyResponse(BaseVerifyRequest):
    """A task with its response and its reward."""

    reward: float


class AggregateMetricsRequest(BaseModel):
    """The responses of `verify` of a run."""

    verify_responses: list[dict[str, Any]]


class SimpleResourcesServer:
    """A resources server, whose metrics are the rewards."""

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> list[float]:
        """Return the rewards."""
        return [each["reward"] for each in body.verify_responses]


MODULE = SimpleNamespace(
    BaseVerifyRequest=BaseVerifyRequest,
    BaseVerifyResponse=BaseVerifyResponse,
    AggregateMetricsRequest=AggregateMetricsRequest,
    AggregateMetrics=list,
    SimpleResourcesServer=SimpleResourcesServer,
)


def message(text: str) -> dict[str, Any]:
    """Return a message of the assistant, as an item of a response."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "m", "role": "assistant", "content": content}


def task(
    prompt: Any, *output: dict[str, Any], instructions: str | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a task with its response, as `verify` takes it."""
    response = {
        "id": "r", "object": "response", "created_at": 0, "model": "m", "output": list(output),
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    asked = {"input": prompt, "instructions": instructions}
    return {"responses_create_params": asked, "response": response, **fields}
