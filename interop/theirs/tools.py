"""Their clients on our tools: ``python -m interop.theirs.tools URL PRODUCTION``."""

from __future__ import annotations

import sys
from typing import Any

import httpx
from openenv.core import GenericEnvClient
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.mcp_client import MCPToolClient

from interop.checks import check, main, raises, same, true

NAMES = ["add", "boom", "finish", "undocumented"]


def _rpc(url: str, method: str, **params: Any) -> Any:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return httpx.post(f"{url}/mcp", json=request, trust_env=False).json()


@check("MCPToolClient: connect, list, call, errors, close")
async def tools(url: str, production: str) -> None:
    """Call tools on both servers."""
    for each in (url, production):
        async with MCPToolClient(base_url=each) as client:
            listed = {found.name: found for found in await client.list_tools()}
            same("names", sorted(listed), NAMES)
            same("schema", listed["add"].input_schema["required"], ["a"])
            same("add", await client.call_tool("add", a=2, b=3), 5)
            same("add", await client.call_tool("add", a=1), 6)
            same("text", await client.call_tool("undocumented"), "a text")
            with raises("unknown", RuntimeError, "Tool 'nope' failed", "nope"):
                await client.call_tool("nope")
            with raises("invalid", RuntimeError, "Tool 'add' failed", "a: "):
                await client.call_tool("add", a="x")
            with raises("raises", RuntimeError, "Tool 'boom' failed: kaboom"):
                await client.call_tool("boom")
            same("get_tool", (await client.get_tool("add")).name, "add")
            same("has_tool", await client.has_tool("nope"), False)
        sessions = httpx.get(f"{each}/metrics", trust_env=False).text
        true("no session is left", each, "guerdon_sessions 0.0" in sessions)


@check("MCPToolClient: reset, steps with tools and state are those of the same environment")
async def steps(url: str, production: str) -> None:
    """Play an episode."""
    for each in (url, production):
        async with MCPToolClient(base_url=each) as client:
            await client.reset(split="train", index=0, episode_id="ep-1")
            same("add", await client.call_tool("add", a=1), 1)
            listed = await client.step(ListToolsAction())
            same("list", sorted(tool.name for tool in listed.observation.tools), NAMES)
            state = await client.state()
            same("state", (state.episode_id, state.step_count), ("ep-1", 0))
            add = CallToolAction(tool_name="add", arguments={"a": 2})
            result = await client.step(add)
            same("step", result.observation.result["data"], 3)
            same("reward", (result.reward, result.done), (0.0, False))
            failed = await client.step(CallToolAction(tool_name="nope", arguments={}))
            same("error", failed.observation.error.error_type.value, "tool_not_found")
            last = await client.step(CallToolAction(tool_name="finish", arguments={}))
            same("the end", (last.reward, last.done), (1.0, True))
            same("state", (await client.state()).step_count, 3)


@check("MCPToolClient, sync")
def synchronous(url: str, production: str) -> None:
    """Call a tool."""
    with MCPToolClient(base_url=url).sync() as client:
        client.reset()
        same("add", client.call_tool("add", a=2), 2)


@check("sessions: create, attach, attach again, unknown, close while attached, close")
async def sessions(url: str, production: str) -> None:
    """Open and close sessions by hand."""
    key = _rpc(url, "openenv/session/create")["result"]["session_id"]
    attached = f"{url.replace('http', 'ws')}/ws?session_id={key}"
    import websockets

    async with websockets.connect(attached, proxy=None) as socket:
        await socket.send('{"type":"reset","data":{}}')
        true("reset", "observation", "observation" in await socket.recv())
        same("add", _rpc(url, "tools/call", name="add", arguments={"a": 3}, session_id=key)
             ["result"]["data"], 3)  # fmt: skip
        async with websockets.connect(attached, proxy=None) as second:
            true("second", "error", "already has an attached WebSocket" in await second.recv())
        same("close", _rpc(url, "openenv/session/close", session_id=key)["result"],
             {"session_id": key, "closed": False, "closing": True})  # fmt: skip
    async with websockets.connect(f"{attached}x", proxy=None) as unknown:
        true("unknown", "error", "Unknown session_id" in await unknown.recv())
    key = _rpc(url, "openenv/session/create")["result"]["session_id"]
    closed = {"session_id": key, "closed": True}
    same("close", _rpc(url, "openenv/session/close", session_id=key)["result"], closed)
    error = _rpc(url, "openenv/session/close", session_id=key)["error"]["code"]
    same("close again", error, -32602)


@check("modes: no /reset, /step and /state in production; /ws and the rest in both")
def modes(url: str, production: str) -> None:
    """Send requests to both servers."""
    with httpx.Client(trust_env=False) as http:
        for each, expected in ((url, 200), (production, 404)):
            same("reset", http.post(f"{each}/reset", json={}).status_code, expected)
            same("state", http.get(f"{each}/state").status_code, expected)
            paths = http.get(f"{each}/openapi.json").json()["paths"]
            same("documented", {"/reset", "/step", "/state"} <= set(paths), expected == 200)
            same("splits", http.get(f"{each}/counter/splits").status_code, 200)
            with GenericEnvClient(base_url=each).sync() as client:
                client.reset()
                true("state", each, client.state()["step_count"] == 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
