"""A judge as an MCP server: its tool ``judge`` puts a model's verdict within any client's reach."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from guerdon.errors import InvalidArgumentError, MissingInputError, ServiceError
from guerdon.rubrics.judge.template import Template
from guerdon.services.mcp.tool_service import need_mcp
from guerdon.services.models.chat import ChatModel
from guerdon.services.models.prompting import Prompting

if TYPE_CHECKING:
    from mcp.server import Server

__all__ = ["make_judge_server"]

DESCRIPTION = "Scores an answer: a number from 0 to 1, and the reasoning that led to it."
# What the tool promises to give; a client holds it to that.
VERDICT = {
    "type": "object",
    "properties": {
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "reasoning": {"type": "string"},
    },
    "required": ["score", "reasoning"],
    "additionalProperties": False,
}


def make_judge_server(
    chat: ChatModel,
    template: Template | str,
    *,
    name: str = "judge",
    description: str = DESCRIPTION,
) -> Server[Any]:
    """Make an MCP server with one tool, ``judge``, that gives ``{"score", "reasoning"}``.

    Its arguments are what the template has places for. ``action`` and ``observation``, which an
    `LLMJudge` gives any service, are taken also where it has none for them, unlisted. What fills
    the template in is fenced, so that it can't pass for a verdict. Where the model fails or gives
    no verdict, the tool fails, and says why.

    Example:
        >>> from guerdon import MCPClient
        >>> from guerdon.services import ChatModel, make_judge_server
        >>> with ChatModel("http://localhost:8000", "qwen3-8b") as chat:
        ...     server = make_judge_server(chat, "Rate from 0 to 1: {action}")
        ...     with MCPClient(server) as client:
        ...         [tool.name for tool in client.list_tools()]
        ['judge']

    Args:
        chat: The model, which is the caller's to close.
        template: The prompt.
        name: What the server calls itself.
        description: What a client is told of the tool.

    Returns:
        A server of the SDK's: to be served, or given to an `MCPClient` as it is.

    Raises:
        InvalidArgumentError: The template can't be one.
        MissingExtraError: A package of the extra isn't there.
    """
    need_mcp()
    # Not MCPServer, which installs a handler at the root of logging, and takes a tool's arguments
    # from a function's signature, not from a template.
    from mcp.server import Server
    from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

    text = template if isinstance(template, Template) else Template(template)
    prompting = Prompting(text, "verdict")
    tool = Tool(
        name="judge",
        description=description,
        input_schema=prompting.input_schema(),
        output_schema=VERDICT,
    )

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[tool])

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        try:
            if params.name != tool.name:
                raise InvalidArgumentError(f"there is no tool {params.name!r:.200}; there is judge")
            verdict = await prompting.ask(chat, params.arguments or {})
        except (InvalidArgumentError, MissingInputError, ServiceError) as error:
            return CallToolResult(content=[TextContent(text=str(error))], is_error=True)
        said = TextContent(text=json.dumps(verdict, ensure_ascii=False))
        return CallToolResult(content=[said], structured_content=verdict)

    return Server(
        name, version=version("guerdon"), on_list_tools=list_tools, on_call_tool=call_tool
    )
