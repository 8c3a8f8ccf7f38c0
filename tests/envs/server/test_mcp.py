"""JSON-RPC, over HTTP and over a WebSocket."""

import json

import pytest
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK
from websockets.sync.client import connect

from guerdon.envs.server.mcp import answer_content


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


def test_answer_json_rpc_shortens_a_long_method():
    answer = answer_json_rpc({"jsonrpc": "2.0", "id": 1, "method": "x" * 10_000})
    assert len(answer["error"]["message"]) < 200


def test_mcp_websocket_answers_requests_in_order(play):
    with connect(f"{play().url.replace('http', 'ws')}/mcp") as socket:
        for text, code in (("{", -32700), (b"binary", -32700), ("{}", -32600)):
            socket.send(text)
            assert json.loads(socket.recv(timeout=5))["error"]["code"] == code
        socket.send('{"jsonrpc": "2.0", "id": 7, "method": "tools/list"}')
        assert json.loads(socket.recv(timeout=5))["result"] == {"tools": []}
        socket.send('{"jsonrpc": "2.0", "id": 8, "method": "tools/call"}')
        assert json.loads(socket.recv(timeout=5))["error"]["code"] == -32602


def test_mcp_websocket_closes_if_idle(serve):
    url = f"{serve(idle_timeout_s=0.05).url.replace('http', 'ws')}/mcp"
    with connect(url) as socket, pytest.raises(ConnectionClosedOK):
        socket.recv(timeout=5)


def test_unknown_paths_and_methods_are_answered_as_json(play):
    http = play().http
    assert http.get("/nowhere").json() == {"detail": "Not Found"}
    answer = http.get("/step")
    assert (answer.status_code, answer.json()) == (405, {"detail": "Method Not Allowed"})
    assert answer.headers["allow"]


def test_mcp_websocket_takes_the_place_of_a_session(serve):
    served = serve(max_sessions=1)
    url = served.url.replace("http", "ws")
    with connect(f"{url}/mcp") as first:
        first.send("{}")
        first.recv(timeout=5)
        with connect(f"{url}/mcp") as second, pytest.raises(ConnectionClosedError) as closed:
            second.recv(timeout=5)
        assert closed.value.rcvd.code == 1013
        with connect(f"{url}/ws") as session:
            assert json.loads(session.recv(timeout=5))["data"]["code"] == "CAPACITY_REACHED"
