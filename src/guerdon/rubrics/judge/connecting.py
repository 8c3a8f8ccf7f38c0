"""`connect_services`: the judges in a rubric call the services of where the rubric is used."""

from __future__ import annotations

from guerdon.rubrics.judge.question import ServiceClient
from guerdon.rubrics.rubric import Rubric


def connect_services(rubric: Rubric, client: ServiceClient | None) -> None:
    """Let each rubric of a tree that asks services, such as an `LLMJudge`, use those of a client.

    Example:
        >>> from guerdon import LLMJudge, MCPClient
        >>> from guerdon.services import OpenAIService
        >>> model = OpenAIService(endpoint="http://localhost:8000", model="qwen3-8b")
        >>> judge = LLMJudge("How polite is this? {action}", "politeness")
        >>> connect_services(judge, MCPClient({"politeness": model}))

    Args:
        rubric: The tree.
        client: The services; None if there are none.

    Raises:
        InvalidArgumentError: A judge asks a service that the client doesn't have.
    """
    if client is not None:
        for each in (rubric, *(child for _, child in rubric.named_rubrics())):
            use_services = getattr(each, "use_services", None)
            if use_services is not None:
                use_services(client)
