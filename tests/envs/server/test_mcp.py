"""JSON-RPC, over HTTP."""

import json

import pytest

from guerdon.envs.server import mcp


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
def test_what_is_no_request_is_an_error_with_status_200(play, body, code, number):
    answer = play().http.post("/mcp", content=body)
    assert answer.status_code == 200
    said = answer.json()
    assert said["jsonrpc"] == "2.0"
    assert said["id"] == number
    assert said["error"]["message"]
    if code is not None:
        assert said["error"]["code"] == code


def test_no_tools_are_listed(play):
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = play().http.post("/mcp", json=asked)
    assert answer.json() == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 5000], ids=["infinite", "long"])
def test_an_id_that_cannot_be_said_again_is_no_server_error(play, number):
    body = f'{{"jsonrpc":"2.0","id":{number},"method":"tools/list"}}'
    answer = play().http.post("/mcp", content=body)
    assert answer.status_code == 200
    json.loads(answer.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_body_too_large_is_refused(serve):
    answer = serve(max_message_bytes=100).http.post("/mcp", content=b" " * 101)
    assert answer.status_code == 413


def test_a_long_method_is_not_said_again_in_full():
    answer = mcp.answer({"jsonrpc": "2.0", "id": 1, "method": "x" * 10_000})
    assert len(answer["error"]["message"]) < 200
