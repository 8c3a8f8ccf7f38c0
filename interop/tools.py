"""Our clients on their tools, and MCP's on ours: ``python -m interop.tools THEIRS OURS``."""

from __future__ import annotations

import sys

import mcp

from guerdon import GenericEnvClient, HTTPEnvClient
from guerdon.errors import ServerError
from interop.checks import check, main, raises, same, true


@check("EnvClient.list_tools: names, descriptions also of a tool without one, schemas")
async def listing(theirs: str, ours: str) -> None:
    """List the tools of each server."""
    for url in (theirs, ours):
        async with GenericEnvClient(url) as client:
            tools = {each.name: each for each in await client.list_tools()}
            true("names", sorted(tools), {"add", "boom", "undocumented"} <= set(tools))
            same("description", tools["undocumented"].description, "")
            same("schema", tools["add"].input_schema["properties"]["a"]["type"], "integer")


@check("EnvClient.call_tool: in the session's environment, between resets and steps")
async def calling(theirs: str, ours: str) -> None:
    """Call tools."""
    for url in (theirs, ours):
        async with GenericEnvClient(url) as client:
            await client.reset()
            same("add", (await client.call_tool("add", a=2, b=3)).data, 5)
            same("add", (await client.call_tool("add", a=1)).data, 6)
            same("text", (await client.call_tool("undocumented")).text, "a text")
            step = {"type": "call_tool", "tool_name": "add", "arguments": {"a": 1}}
            same("step", (await client.step(step)).observation["result"]["data"], 7)
            await client.reset()
            same("after a reset", (await client.call_tool("add", a=1)).data, 1)


@check("EnvClient.call_tool: an unknown tool, invalid arguments, a tool that raises: ServerError")
async def failing(theirs: str, ours: str) -> None:
    """Call tools in vain."""
    for url in (theirs, ours):
        async with GenericEnvClient(url) as client:
            await client.reset()
            with raises("unknown", ServerError, "nope"):
                await client.call_tool("nope")
            with raises("invalid", ServerError, "a"):
                await client.call_tool("add", a="x")
            with raises("raises", ServerError, "kaboom"):
                await client.call_tool("boom")
            same("goes on", (await client.call_tool("add", a=1)).data, 1)


@check("HTTPEnvClient: tools of a fresh environment, and tasks")
async def http(theirs: str, ours: str) -> None:
    """Send requests."""
    for url in (theirs, ours):
        async with HTTPEnvClient(url) as client:
            true("list", url, len(await client.list_tools()) >= 3)
            for _ in range(2):
                same("add", (await client.call_tool("add", a=1)).data, 1)
            splits = await client.get("/counter/splits")
            train, dev = (
                {"name": a, "type": b} for a, b in (("train",) * 2, ("dev", "validation"))
            )
            same("splits", splits, [train, dev])
            number = await client.post("/counter/num_tasks", json={"split": "train"})
            same("num_tasks", number, {"num_tasks": 3})
            tasks = await client.post("/Counter/tasks", json={"split": "train"})
            same("env_name", tasks["env_name"], "counter")
            same("tasks", tasks["tasks"], [{"goal": 3}, {"goal": 5}, {"goal": 8}])
            task = await client.post("/counter/task", json={"split": "train", "index": 1})
            same("task", task, {"task": {"goal": 5}})
            part = {"split": "train", "start": 1, "stop": None}
            found = await client.post("/counter/task_range", json=part)
            same("task_range", found, {"tasks": [{"goal": 5}, {"goal": 8}]})
            with raises("index", ServerError, "Invalid task index", "400"):
                await client.post("/counter/task", json={"split": "train", "index": 3})
            with raises("environment", ServerError, "404"):
                await client.get("/other/splits")


@check("a task: reset(split=…, index=…)")
async def task(theirs: str, ours: str) -> None:
    """Begin the second task."""
    for url in (theirs, ours):
        async with GenericEnvClient(url) as client:
            await client.reset(split="train", index=1)
            await client.call_tool("add", a=5)
            same("finish", (await client.call_tool("finish")).text, "reached")


@check("MCP's client on our server: initialize, list, call, an error as a result, the end")
async def official(theirs: str, ours: str) -> None:
    """Play with the official client."""
    for mode in ("auto", "legacy"):
        async with mcp.Client(f"{ours}/mcp", mode=mode) as client:
            names = [each.name for each in (await client.list_tools()).tools]
            same("names", names, ["add", "undocumented", "boom", "finish"])
            added = await client.call_tool("add", {"a": 2, "b": 1})
            same("add", added.structured_content, {"result": 3})
            failed = await client.call_tool("boom", {})
            same("boom", (failed.is_error, failed.content[0].text), (True, "kaboom"))
            done = await client.call_tool("finish", {})
            same("finish", (done.is_error, done.content[0].text), (False, "reached"))
    async with HTTPEnvClient(ours) as http:
        true("no session is left", ours, "guerdon_sessions 0.0" in await http.get("/metrics"))


if __name__ == "__main__":
    main(*sys.argv[1:])
