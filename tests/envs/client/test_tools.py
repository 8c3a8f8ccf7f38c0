"""Clients that list and call the tools of an environment on a server."""

import json

import pytest

from guerdon import EnvClient, GenericEnvClient, HTTPEnvClient, create_app
from guerdon.envs import ASGITransport
from guerdon.errors import ConnectionLostError, InvalidObservationError, ServerError
from tests.envs.client.servers import answering, run
from tests.envs.server.worlds import Counter


@pytest.fixture
def counter():
    """The arguments of a client of an environment with tools, in the same process."""
    return {"base_url": "http://localhost", "transport": ASGITransport(create_app(Counter))}


def test_env_client_calls_tools_in_its_session(counter):
    async def play():
        async with EnvClient(**counter) as client:
            await client.reset()
            tools = {each.name: each for each in await client.list_tools()}
            results = [await client.call_tool("add", number=2) for _ in range(2)]
            step = {"type": "call_tool", "tool_name": "add", "arguments": {"number": 1}}
            return tools, results, await client.step(step), await client.state()

    tools, results, result, state = run(play())
    assert tools["add"].input_schema["required"] == ["number"]
    assert tools["plain"].description == ""
    assert [each.data for each in results] == [2, 4]
    assert results[0].text == "2"
    assert (result.observation.result["data"], result.reward) == (5, 1.0)
    assert state.step_count == 1


def test_http_env_client_calls_tools_of_fresh_environments(counter):
    async def play():
        async with HTTPEnvClient(**counter) as client:
            assert "add" in [each.name for each in await client.list_tools()]
            return [(await client.call_tool("add", number=2)).data for _ in range(2)]

    assert run(play()) == [2, 2]


def test_sync_clients_call_tools(counter):
    for kind in (GenericEnvClient, HTTPEnvClient):
        with kind(**counter).sync() as client:
            assert "add" in [each.name for each in client.list_tools()]
            assert client.call_tool("plain").text == "plain"


@pytest.mark.parametrize("kind", [EnvClient, HTTPEnvClient])
@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("nope", {}, "there is no tool 'nope'"),
        ("add", {"number": "x"}, "number"),
        ("fail", {}, "kaboom"),
    ],
)
def test_call_tool_raises_what_the_server_reports(counter, kind, name, arguments, text):
    async def play():
        async with kind(**counter) as client:
            await client.call_tool(name, **arguments)

    with pytest.raises(ServerError, match=text) as caught:
        run(play())
    assert caught.value.code == "-32603"
    assert caught.value.details["error_type"]


def answered(ask, answer):
    """Ask a server with one answer to a request of JSON-RPC."""

    async def play():
        server = answering(json.dumps({"type": "mcp", "data": answer}))
        async with server, GenericEnvClient(server.url, environment_id="scripted") as client:
            return await ask(client)

    return run(play())


def test_list_tools_accepts_either_spelling_and_no_description():
    tools = [
        {"name": "a", "description": None, "inputSchema": {"type": "object"}, "icons": None},
        {"name": "b", "input_schema": {}},
    ]
    found = answered(lambda client: client.list_tools(), {"result": {"tools": tools}})
    assert [(each.name, each.description) for each in found] == [("a", ""), ("b", "")]
    assert found[0].input_schema == {"type": "object"}


def test_call_tool_accepts_an_observation_as_the_result():
    result = {"tool_name": "a", "result": {"seats": 3}, "error": None, "done": True}
    found = answered(lambda client: client.call_tool("a"), {"result": result, "error": None})
    assert found.data == {"seats": 3}
    result = {"tool_name": "a", "error": {"error_type": "timeout", "message": "too slow"}}
    with pytest.raises(ServerError, match="too slow") as caught:
        answered(lambda client: client.call_tool("a"), {"result": result})
    assert caught.value.code == "timeout"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, ConnectionLostError),
        ([], ConnectionLostError),
        ({}, ConnectionLostError),
        ({"error": "text"}, ConnectionLostError),
        ({"result": None}, ConnectionLostError),
        ({"result": {"tools": 5}}, ConnectionLostError),
        ({"result": {"tools": [5]}}, ConnectionLostError),
        ({"result": {"tools": [{"name": 5}]}}, InvalidObservationError),
        ({"error": {}}, ServerError),
    ],
)
def test_list_tools_rejects_another_answer(answer, error):
    with pytest.raises(error):
        answered(lambda client: client.list_tools(), answer)


def test_call_tool_rejects_content_of_another_type():
    with pytest.raises(InvalidObservationError, match="content"):
        answered(lambda client: client.call_tool("a"), {"result": {"content": 5}})
