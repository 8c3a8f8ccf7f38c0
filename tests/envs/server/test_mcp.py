"""JSON-RPC: the methods of tools, over HTTP, over a WebSocket, and in frames of a session."""

import asyncio
import json
import threading

import httpx
import mcp
import pytest
from websockets.exceptions import ConnectionClosedOK
from websockets.sync.client import connect

from guerdon import create_app
from guerdon.envs import ASGITransport
from guerdon.envs.server.mcp import answer_content, answer_text
from tests.envs.server.worlds import RESET, STATE, AsyncCounter, Counter, Raw


@pytest.mark.parametrize(
    ("body", "code", "number"),
    [
        (b"{}", -32600, None),
        (b"[]", -32600, None),
        (b"5", -32600, None),
        (b"", -32700, None),
        (b"{", -32700, None),
        (b"\xff", -32700, None),
        (b"[" * 5000, -32700, None),
        (b'{"jsonrpc": "1.0", "id": 3, "method": "tools/list"}', -32600, 3),
        (b'{"jsonrpc": "2.0", "id": 3}', -32600, 3),
        (b'{"jsonrpc": "2.0", "id": 3, "method": 5}', -32600, 3),
        (b'{"jsonrpc": "2.0", "id": "x", "method": "dance"}', -32601, "x"),
        (b'{"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {}}', None, 4),
    ],
)
def test_mcp_answers_invalid_requests_with_status_200(play, body, code, number):
    answer = play().http.post("/mcp", content=body)
    assert answer.status_code == 200
    reply = answer.json()
    assert reply["jsonrpc"] == "2.0"
    assert reply["id"] == number
    assert reply["error"]["message"]
    if code is not None:
        assert reply["error"]["code"] == code


def test_mcp_lists_no_tools(play):
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = play().http.post("/mcp", json=asked)
    assert answer.json() == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 5000], ids=["infinite", "long"])
def test_mcp_answers_an_id_that_json_cannot_represent(play, number):
    body = f'{{"jsonrpc":"2.0","id":{number},"method":"tools/list"}}'
    answer = play().http.post("/mcp", content=body)
    assert answer.status_code == 200
    json.loads(answer.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_mcp_rejects_a_body_that_is_too_large(serve):
    answer = serve(max_message_bytes=100).http.post("/mcp", content=b" " * 101)
    assert answer.status_code == 413


def test_mcp_websocket_answers_requests_in_order(play):
    with connect(f"{play().url.replace('http', 'ws')}/mcp") as socket:
        for text, code in (("{", -32700), (b"binary", -32700), ("{}", -32600)):
            socket.send(text)
            assert json.loads(socket.recv(timeout=5))["error"]["code"] == code
        socket.send('{"jsonrpc": "2.0", "id": 7, "method": "tools/list"}')
        assert json.loads(socket.recv(timeout=5))["result"] == {"tools": []}
        socket.send('{"jsonrpc": "2.0", "id": 8, "method": "tools/call"}')
        assert json.loads(socket.recv(timeout=5))["error"]["code"] == -32602


def test_unknown_paths_and_methods_are_answered_as_json(play):
    http = play().http
    assert http.get("/nowhere").json() == {"detail": "Not Found"}
    answer = http.get("/step")
    assert (answer.status_code, answer.json()) == (405, {"detail": "Method Not Allowed"})
    assert answer.headers["allow"]


# Methods ------------------------------------------------------------------------------------


def test_answer_content_shortens_a_long_method():
    request = {"jsonrpc": "2.0", "id": 1, "method": "x" * 10_000}
    answer = asyncio.run(answer_content(request, {}))
    assert answer["error"]["code"] == -32601
    assert len(answer["error"]["message"]) < 200


@pytest.mark.parametrize("text", ["", "{", b"\xff", "NaN", "[" * 5000])
def test_answer_text_reports_what_is_not_json(text):
    assert json.loads(asyncio.run(answer_text(text, {})))["error"]["code"] == -32700


@pytest.fixture
def counter(serve):
    return serve(Counter, env_name="counter", max_sessions=3)


def rpc(served, method, headers=None, **params):
    """The answer to a request, with its status."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return served.http.post("/mcp", json=request, headers=headers)


def result(served, method, **params):
    answer = rpc(served, method, **params).json()
    assert "error" not in answer, answer
    return answer["result"]


def error(served, method, **params):
    answer = rpc(served, method, **params)
    assert answer.status_code == 200
    assert "result" not in answer.json()
    return answer.json()["error"]


def create(served):
    return result(served, "openenv/session/create")["session_id"]


def add(served, number, **params):
    """Call a tool, and return its value."""
    return result(served, "tools/call", name="add", arguments={"number": number}, **params)["data"]


# Over HTTP ----------------------------------------------------------------------------------


def test_mcp_lists_tools_with_the_schema_under_both_names(counter):
    tools = {each["name"]: each for each in result(counter, "tools/list")["tools"]}
    assert tools["add"]["description"] == "Add a number."
    assert tools["add"]["inputSchema"] == tools["add"]["input_schema"]
    assert tools["add"]["inputSchema"]["required"] == ["number"]
    assert tools["plain"]["description"] == ""


@pytest.mark.parametrize("params", [{}, {"session_id": ""}, {"session_id": None}])
def test_mcp_calls_a_tool_of_a_fresh_environment(counter, params):
    for _ in range(2):
        assert add(counter, 2, **params) == 2
    counter.empty()


def test_mcp_returns_the_result_of_a_tool_as_openenv_does(counter):
    called = result(counter, "tools/call", name="add", arguments={"number": 2})
    assert called == {
        "content": [{"type": "text", "text": "2"}],
        "structured_content": {"result": 2},
        "data": 2,
        "meta": None,
        "is_error": False,
    }
    assert result(counter, "tools/call", name="plain", arguments=None)["data"] == "plain"


@pytest.mark.parametrize(
    ("params", "code", "text"),
    [
        ({}, -32602, "name"),
        ({"name": 5}, -32602, "name"),
        ({"name": "add", "arguments": [1]}, -32602, "arguments"),
        ({"name": "nope"}, -32603, "there is no tool 'nope'"),
        ({"name": "add"}, -32603, "number"),
        ({"name": "add", "arguments": {"number": "x"}}, -32603, "number"),
        ({"name": "add", "arguments": {"number": 1, "other": 2}}, -32603, "other"),
        ({"name": "fail"}, -32603, "kaboom"),
        ({"name": "break_down"}, -32603, "the database is down"),
        ({"name": "return_nan"}, -32603, "NaN"),
        ({"name": "plain", "session_id": "x"}, -32602, "Unknown session_id: 'x'"),
        ({"name": "plain", "session_id": [1]}, -32602, "Unknown session_id"),
    ],
)
def test_mcp_reports_what_is_wrong_with_a_call(counter, params, code, text):
    reported = error(counter, "tools/call", **params)
    assert reported["code"] == code
    assert text in reported["message"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"method": "dance"}, -32601),
        ({"method": "server/discover"}, -32601),
        ({"more": 1}, -32600),
        ({"params": None}, -32600),
        ({"params": [1]}, -32600),
        ({"id": 1.5}, -32600),
        ({"id": True}, -32600),
        ({"id": [1]}, -32600),
        ({"method": "openenv/session/close"}, -32602),
    ],
)
def test_mcp_rejects_a_request_that_is_not_valid(counter, changes, code):
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", **changes}
    answer = counter.http.post("/mcp", json=request)
    assert (answer.status_code, answer.json()["error"]["code"]) == (200, code)


def test_mcp_answers_a_request_without_an_id_with_null(counter):
    answer = counter.http.post("/mcp", json={"jsonrpc": "2.0", "method": "ping"})
    assert answer.json() == {"jsonrpc": "2.0", "id": None, "result": {}}


def test_mcp_accepts_a_notification(counter):
    sent = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    answer = counter.http.post("/mcp", json=sent)
    assert (answer.status_code, answer.content) == (202, b"")


def test_mcp_reports_an_environment_that_cannot_be_made(serve):
    class Broken(Counter):
        makes = 0

        def __init__(self):
            super().__init__()
            type(self).makes += 1
            if self.makes > 1:
                raise OSError("no disk")

    served = serve(Broken)
    for method, code in (("openenv/session/create", -32000), ("tools/list", -32603)):
        reported = error(served, method)
        assert (reported["code"], "no disk" in reported["message"]) == (code, True)
    served.empty()


def test_mcp_calls_async_tools(serve):
    served = serve(AsyncCounter)
    session = create(served)
    assert [add(served, 2, session_id=session) for _ in range(2)] == [2, 4]


def test_mcp_has_no_tools_of_another_environment(play):
    assert result(play(), "tools/list") == {"tools": []}
    reported = error(play(), "tools/call", name="add")
    assert (reported["code"], "Echo has no tools" in reported["message"]) == (-32603, True)


def test_mcp_initialize_works_without_a_lifespan():
    async def play():
        transport = ASGITransport(create_app(Counter, env_name="counter"))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
            return (await http.post("/mcp", json=request)).json()["result"]

    assert asyncio.run(play())["serverInfo"]["name"] == "counter"


# Sessions -----------------------------------------------------------------------------------


def test_mcp_calls_tools_in_a_session(counter):
    first, second = create(counter), create(counter)
    assert [add(counter, 2, session_id=first) for _ in range(3)] == [2, 4, 6]
    assert add(counter, 1, session_id=second) == 1
    assert result(counter, "openenv/session/close", session_id=first) == {
        "session_id": first,
        "closed": True,
    }
    assert error(counter, "openenv/session/close", session_id=first)["code"] == -32602
    assert error(counter, "tools/list", session_id=first)["code"] == -32602
    assert counter.sessions() == 1
    result(counter, "openenv/session/close", session_id=second)
    assert counter.number("guerdon_sessions_closed_total", reason="client closed") == 2


def test_mcp_refuses_a_session_too_many(counter):
    sessions = [create(counter) for _ in range(3)]
    refused = error(counter, "openenv/session/create")
    assert refused["code"] == -32000
    assert refused["data"] == {"active_sessions": 3, "max_sessions": 3}
    assert add(counter, 1, session_id=sessions[0]) == 1  # takes no further place
    result(counter, "openenv/session/close", session_id=sessions[0])
    create(counter)


def test_mcp_ends_an_idle_session(serve, eventually):
    served = serve(Counter, idle_timeout_s=0.05)
    session = create(served)
    eventually(lambda: served.sessions() == 0)
    assert error(served, "tools/list", session_id=session)["code"] == -32602
    assert served.number("guerdon_sessions_closed_total", reason="idle") == 1


def test_mcp_call_is_not_a_step_of_the_episode(counter):
    client = counter.client()
    client.ask(RESET)
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    request["params"] = {"name": "add", "arguments": {"number": 2}}
    called = client.ask({"type": "mcp", "data": request})
    assert called["data"]["result"]["data"] == 2
    assert client.ask(STATE)["data"]["step_count"] == 0
    step = {"type": "call_tool", "tool_name": "add", "arguments": {"number": 2}}
    answer = client.ask({"type": "step", "data": step})["data"]
    assert (answer["observation"]["result"]["data"], answer["reward"]) == (4, 1.0)
    assert client.ask(STATE)["data"]["step_count"] == 1


def test_mcp_call_that_takes_too_long_is_an_error(serve, hold):
    class Slow(Counter):
        def work(self):
            hold.wait()

    served = serve(Slow, step_timeout_s=0.1)
    session = create(served)
    slow = error(served, "tools/call", name="wait", session_id=session)
    assert slow["code"] == -32603
    assert "0.1 s" in slow["message"]


# A WebSocket --------------------------------------------------------------------------------


def socket_of(served):
    return connect(f"{served.url.replace('http', 'ws')}/mcp", proxy=None)


def asked(socket, method, **params):
    socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    return json.loads(socket.recv(timeout=5))


def test_mcp_websocket_has_an_environment_of_its_own(counter):
    with socket_of(counter) as first, socket_of(counter) as second:
        for expected in (2, 4):
            call = {"name": "add", "arguments": {"number": 2}, "session_id": "ignored"}
            assert asked(first, "tools/call", **call)["result"]["data"] == expected
        assert asked(second, "tools/call", **call)["result"]["data"] == 2
        created = asked(first, "openenv/session/create")["result"]["session_id"]
        assert asked(first, "openenv/session/create")["result"]["session_id"] == created
        assert asked(first, "openenv/session/close", session_id=created)["error"]["code"] == -32600
        assert counter.sessions() == 2
    counter.empty()


def test_mcp_websocket_takes_the_place_of_a_session(serve):
    served = serve(Counter, max_sessions=1)
    with socket_of(served) as first:
        asked(first, "tools/list")
        with socket_of(served) as second:
            refused = json.loads(second.recv(timeout=5))
            assert (refused["id"], refused["error"]["code"]) == (None, -32000)
            with pytest.raises(ConnectionClosedOK):
                second.recv(timeout=5)
        assert served.client().hear()["data"]["code"] == "CAPACITY_REACHED"


def test_mcp_websocket_ends_if_idle(serve):
    with socket_of(serve(Counter, idle_timeout_s=0.05)) as socket:
        assert "sent nothing" in json.loads(socket.recv(timeout=5))["error"]["message"]
        with pytest.raises(ConnectionClosedOK):
            socket.recv(timeout=5)


# A client of MCP ----------------------------------------------------------------------------


def initialize(served, version="2025-11-25"):
    """Begin a session of MCP, and return its header and the answer's result."""
    answer = rpc(served, "initialize", protocolVersion=version, capabilities={})
    return {"Mcp-Session-Id": answer.headers["mcp-session-id"]}, answer.json()["result"]


def test_mcp_initialize_begins_an_episode(counter):
    headers, begun = initialize(counter)
    assert begun["protocolVersion"] == "2025-11-25"
    assert begun["capabilities"] == {"tools": {}}
    assert begun["serverInfo"]["name"] == "counter"
    assert begun["instructions"] == "Be brief.\n\nAdd."
    called = rpc(counter, "tools/call", headers, name="add", arguments={"number": 2}).json()
    assert called["result"] == {
        "content": [{"type": "text", "text": "2"}],
        "structuredContent": {"result": 2},
        "isError": False,
    }
    assert rpc(counter, "ping", headers).json()["result"] == {}
    assert rpc(counter, "openenv/session/create", headers).json()["error"]["code"] == -32601


@pytest.mark.parametrize(("asked", "answered"), [("2025-06-18",) * 2, ("1.0", "2025-11-25")])
def test_mcp_initialize_chooses_a_version(counter, asked, answered):
    assert initialize(counter, asked)[1]["protocolVersion"] == answered


def test_mcp_reports_a_failed_tool_as_a_result_in_a_session_of_mcp(counter):
    headers, _ = initialize(counter)
    for call, text in (({"name": "fail"}, "kaboom"), ({"name": "add"}, "number")):
        failed = rpc(counter, "tools/call", headers, **call).json()["result"]
        assert failed["isError"] is True
        assert text in failed["content"][0]["text"]
    unknown = rpc(counter, "tools/call", headers, name="nope").json()["error"]
    assert unknown["code"] == -32602


def test_mcp_delete_ends_a_session(counter):
    headers, _ = initialize(counter)
    other = headers | {"MCP-Protocol-Version": "1.0"}
    assert rpc(counter, "tools/list", other).status_code == 400
    assert counter.sessions() == 1
    assert counter.http.delete("/mcp", headers=headers).status_code == 204
    assert counter.sessions() == 0
    assert counter.http.delete("/mcp", headers=headers).status_code == 404
    answer = rpc(counter, "tools/list", headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32600)


def test_mcp_initialize_reports_a_failed_reset_and_keeps_no_session(serve):
    class Unready(Counter):
        def reset(self, seed=None, episode_id=None, **kwargs):
            raise OSError("no data")

    served = serve(Unready)
    assert "no data" in error(served, "initialize")["message"]
    served.empty()


@pytest.mark.edge
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_mcp_client_lists_and_calls_tools(counter, mode):
    async def play():
        async with mcp.Client(f"{counter.url}/mcp", mode=mode) as client:
            names = [each.name for each in (await client.list_tools()).tools]
            called = await client.call_tool("add", {"number": 2})
            failed = await client.call_tool("fail", {})
            return names, called.structured_content, failed.is_error

    names, called, failed = asyncio.run(play())
    assert "add" in names
    assert (called, failed) == ({"result": 2}, True)
    counter.empty()


@pytest.mark.edge
def test_mcp_calls_tools_in_processes(serve):
    served = serve(Counter, processes=2)
    session = create(served)
    names = [each["name"] for each in result(served, "tools/list", session_id=session)["tools"]]
    assert "add" in names
    assert [add(served, 2, session_id=session) for _ in range(2)] == [2, 4]
    assert error(served, "tools/call", name="fail", session_id=session)["message"] == "kaboom"
    assert add(served, 1) == 1


def test_mcp_call_is_completed_if_its_caller_leaves(serve, eventually):
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Counter):
        def work(self):
            begun.set()
            go_on.wait(5)

    served = serve(Slow)
    session = create(served)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body = json.dumps(body | {"params": {"name": "wait", "session_id": session}}).encode()
    raw = Raw(served.port)
    raw.send(
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )
    assert begun.wait(5)
    raw.reset()
    go_on.set()
    assert add(served, 1, session_id=session) == 101
