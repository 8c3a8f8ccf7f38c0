"""`ToolClient`: calling the tools of an environment on a server, by JSON-RPC."""

from __future__ import annotations

import itertools
from typing import Any

from guerdon._http import shown_url
from guerdon._validation import shown
from guerdon.envs.client.session import validated
from guerdon.errors import ConnectionLostError, ServerError
from guerdon.types.tool_calls import Tool, ToolResult, result_of

_numbers = itertools.count(1)


class ToolClient:
    """What clients do with tools; they send the requests."""

    base_url: str

    async def _rpc(self, request: dict[str, Any]) -> Any:
        """Send a request of JSON-RPC, and return its answer."""
        raise NotImplementedError

    async def list_tools(self) -> list[Tool]:
        """Return the tools that the agent may call now.

        Raises:
            ServerError: The environment can't list them.
        """
        result = await self._result("tools/list", {})
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(tools, list) or not all(isinstance(each, dict) for each in tools):
            raise self._unexpected(result)
        return [self._tool(each) for each in tools]

    async def call_tool(self, name: str, /, **arguments: Any) -> ToolResult:
        """Call a tool outside of a step: it advances no step count and has no reward.

        Take a step with `CallToolAction` for a reward. With `HTTPEnvClient` each call has a fresh
        environment, which was not reset.

        Args:
            name: The tool's name.
            **arguments: Its arguments.

        Raises:
            ServerError: There is no such tool, an argument is invalid, or the tool failed; the
                message is what an agent reads.
        """
        result = await self._result("tools/call", {"name": name, "arguments": arguments})
        if isinstance(result, dict) and "tool_name" in result:  # an observation, of some servers
            error = result.get("error")
            if isinstance(error, dict):
                raise ServerError(str(error.get("message")), code=str(error.get("error_type")))
            result = result.get("result")
        if not isinstance(result, dict) or "content" not in result:
            return result_of(result)
        return validated(result, ToolResult, what="a result", server=self.base_url)

    def _tool(self, fields: dict[str, Any]) -> Tool:
        # Servers write the schema in either way, and the description of some tools as null.
        known = {
            "name": fields.get("name"),
            "description": fields.get("description") or "",
            "input_schema": fields.get("input_schema") or fields.get("inputSchema") or {},
        }
        return validated(known, Tool, what="a tool", server=self.base_url)

    async def _result(self, method: str, params: dict[str, Any]) -> Any:
        request = {"jsonrpc": "2.0", "id": next(_numbers), "method": method, "params": params}
        answer = await self._rpc(request)
        if not isinstance(answer, dict) or not ("result" in answer or "error" in answer):
            raise self._unexpected(answer)
        error = answer.get("error")
        if error is None:
            return answer.get("result")
        if not isinstance(error, dict):
            raise self._unexpected(answer)
        data = error.get("data")
        details = data if isinstance(data, dict) else None
        raise ServerError(str(error.get("message")), code=str(error.get("code")), details=details)

    def _unexpected(self, answer: Any) -> ConnectionLostError:
        where = shown_url(self.base_url)
        return ConnectionLostError(f"{where} sent {shown(answer)}, which is no answer about tools")
