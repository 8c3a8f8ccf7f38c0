"""A judge as a real MCP server, in memory, over HTTP and on stdin and stdout."""

import asyncio
import json
import logging
import signal
import socket
import subprocess
import sys

import httpx
import mcp
import pytest

import guerdon
from guerdon.errors import InvalidArgumentError, LaunchError, ServiceError
from guerdon.services.client import MCPClient
from guerdon.services.config import McpService
from guerdon.services.judge_server import make_judge_server, serve_mcp

pytestmark = pytest.mark.edge  # real servers and processes

TEMPLATE = "Is {action} a good answer to {observation.question}?"


class Chat:
    """A fake model with fixed replies."""

    name = "a model"
    temperature = max_tokens = None

    def __init__(self, text):
        self.text = text
        self.asked = []

    async def complete(self, messages, **settings):
        from guerdon.services.chat_model import Reply

        self.asked.append(messages)
        return Reply(self.text)


def judge(text="Good. Score: 0.8", template=TEMPLATE):
    return make_judge_server(Chat(text), template)


def test_judge_server_lists_its_tool_and_returns_a_verdict():
    with MCPClient(judge()) as client:
        (tool,) = client.list_tools()
        assert tool.name == "judge"
        assert tool.input_schema["required"] == ["action", "observation"]
        assert set(tool.output_schema["required"]) == {"score", "reasoning"}
        verdict = client.call_tool("judge", action="42", observation={"question": "6 × 7?"})
    assert verdict == {"score": 0.8, "reasoning": "Good. Score: 0.8"}


def test_judge_server_works_with_any_mcp_client():
    async def use():
        async with mcp.Client(judge()) as client:
            tools = (await client.list_tools()).tools
            arguments = {"action": "42", "observation": {"question": "6 × 7?"}}
            info = client.server_info
            return (info.name, info.version), tools, await client.call_tool("judge", arguments)

    info, (tool,), result = asyncio.run(use())
    assert info == ("judge", guerdon.__version__)
    assert tool.name == "judge"
    assert result.structured_content["score"] == 0.8
    assert json.loads(result.content[0].text) == result.structured_content


def test_judge_server_accepts_action_and_observation():
    with MCPClient(judge(template="Is {action} polite?")) as client:
        assert client.call_tool("judge", action="Hello", observation="x")["score"] == 0.8


def test_judge_server_arguments_are_the_fields_of_the_template():
    with MCPClient(judge(template="Rate this {lang}: {code}")) as client:
        (tool,) = client.list_tools()
        assert client.call_tool("judge", lang="C", code="x", action="unlisted")["score"] == 0.8
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "lang": {"type": "string", "description": "The value of {lang} in the prompt."},
            "code": {"type": "string", "description": "The value of {code} in the prompt."},
        },
        "required": ["lang", "code"],
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action": "42"}, "observation"),
        ({"action": "42", "observation": {}}, "question"),
        ({"action": "", "observation": {"question": ""}, "bonus": 1}, "no field bonus"),
    ],
    ids=["missing", "missing part", "unknown"],
)
def test_judge_server_tool_fails_if_the_arguments_do_not_fit(arguments, message):
    with MCPClient(judge()) as client, pytest.raises(ServiceError, match=message):
        client.call_tool("judge", **arguments)


def test_judge_server_tool_fails_without_a_verdict():
    with MCPClient(judge("Hard to say.")) as client, pytest.raises(ServiceError, match="failed"):
        client.call_tool("judge", action="42", observation={"question": "?"})


def test_make_judge_server_rejects_an_invalid_template():
    with pytest.raises(InvalidArgumentError, match="template"):
        judge(template="")


def test_make_judge_server_does_not_configure_logging():
    before = logging.root.handlers[:], logging.root.level
    judge()
    assert (logging.root.handlers, logging.root.level) == before


# Serving

PROGRAM = """
import sys
from guerdon.services.chat_model import ChatModel
from guerdon.services import make_judge_server, serve_mcp, serve_mcp_stdio

chat = ChatModel("http://127.0.0.1:1", "m", retries=0)
server = make_judge_server(chat, "Is {action} polite?")
if sys.argv[1] == "stdio":
    serve_mcp_stdio(server)
else:
    say = lambda url: print(url, flush=True)
    serve_mcp(server, port=0, token=sys.argv[2] or None, ready=say)
print("ended", file=sys.stderr)
"""


def test_serve_mcp_stdio_serves_on_stdin_and_stdout():
    with MCPClient([sys.executable, "-c", PROGRAM, "stdio"]) as client:
        assert [tool.name for tool in client.list_tools()] == ["judge"]
        with pytest.raises(ServiceError, match=r"judge failed: .*127"):
            client.call_tool("judge", action="Hello")


def test_serve_mcp_requires_the_token(monkeypatch):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "http", "s3cret"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        url = process.stdout.readline().strip()
        assert httpx.get(url.replace("/mcp", "/health")).text == "ok"
        monkeypatch.setenv("GUERDON_JUDGE_TOKEN", "s3cret")
        monkeypatch.setenv("GUERDON_WRONG_TOKEN", "guessed")
        with MCPClient(McpService(endpoint=url, token_env="GUERDON_JUDGE_TOKEN")) as client:
            assert [tool.name for tool in client.list_tools()] == ["judge"]
        for service in (url, McpService(endpoint=url, token_env="GUERDON_WRONG_TOKEN")):
            with MCPClient(service) as client, pytest.raises(ServiceError, match="HTTP 401"):
                client.call_tool("judge", action="Hello")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == "ended\n"


@pytest.mark.parametrize("token", ["", "two words", "new\nline", "ü"])
def test_serve_mcp_rejects_a_token_that_no_header_can_carry(token):
    with pytest.raises(InvalidArgumentError, match="printable ASCII"):
        serve_mcp(judge(), port=0, token=token)


def test_serve_mcp_reports_an_address_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=f"can't listen on 127.0.0.1:{port}"):
            serve_mcp(judge(), port=port)
