"""`ToolEnvironment` with tools of MCP servers: real programs, one for each episode."""

import os
import sys

import pytest

from guerdon import EnvPool, ToolEnvironment, ToolErrors, tool
from guerdon.errors import EnvError, InvalidArgumentError
from guerdon.types import CallToolAction

pytestmark = pytest.mark.edge  # programs that are servers

SERVER = """
import os
import anyio
from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("notes", log_level="CRITICAL")
notes = []

@server.tool()
async def write(text: str) -> int:
    "Write a note, and return how many there are."
    notes.append(text)
    return len(notes)

@server.tool()
async def process() -> int:
    return os.getpid()

@server.tool()
async def draw() -> Image:
    return Image(data=b"...", format="png")

@server.tool()
async def die() -> str:
    os._exit(3)

@server.tool()
async def hang() -> str:
    await anyio.sleep_forever()

server.run("stdio")
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    path = tmp_path_factory.mktemp("server") / "notes.py"
    path.write_text(SERVER)
    return [sys.executable, str(path)]


@pytest.fixture
def notes(command):
    class Notes(ToolEnvironment):
        """Takes notes."""

        tool_timeout_s = 1.0

        def __init__(self):
            super().__init__(rubric=ToolErrors(), tool_servers={"notes": command})

        @tool
        def count(self, text: str) -> int:
            """Count letters."""
            return len(text)

    return Notes


def call(name, **arguments):
    return CallToolAction(tool_name=name, arguments=arguments)


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_tool_environment_has_the_tools_of_a_server_beside_its_own(notes):
    with notes() as environment:
        assert [each.name for each in environment.list_tools()] == ["count"]
        environment.reset()
        names = [each.name for each in environment.list_tools()]
        assert names == ["count", "write", "process", "draw", "die", "hang"]
        written = environment.step(call("write", text="first"))
        assert (written.text, written.result.data, written.reward) == ("1", {"result": 1}, 1.0)
        assert environment.step(call("count", text="four")).result.data == 4
        [image] = environment.step(call("draw")).result.content
        assert (image["type"], image["mimeType"], image["data"]) == ("image", "image/png", "Li4u")
        assert environment.call_tool("write", text="second").text == "2"


def test_tool_environment_a_server_is_started_for_each_episode_and_ends_with_it(notes):
    with notes() as environment:
        processes = []
        for _ in range(2):
            environment.reset()
            assert environment.step(call("write", text="first")).text == "1"
            processes.append(environment.step(call("process")).result.data["result"])
        assert not is_running(processes[0])
        assert is_running(processes[1])
    assert not is_running(processes[1])


def test_tool_environment_errors_of_a_server_are_results_for_the_agent(notes):
    with notes() as environment:
        environment.reset()
        refused = environment.step(call("write", note="first"))
        assert (refused.is_error, refused.reward, refused.done) == (True, 0.0, False)
        assert "text" in refused.text
        late = environment.step(call("hang"))
        assert (late.error.error_type, late.text) == ("timeout", "hang took longer than 1 s")
        assert environment.step(call("write", text="first")).text == "1"


def test_tool_environment_a_server_that_dies_fails_the_step_and_not_the_next_episode(notes):
    with notes() as environment:
        environment.reset()
        with pytest.raises(EnvError, match="die: service"):
            environment.step(call("die"))
        environment.reset()
        assert environment.step(call("write", text="first")).text == "1"


def test_env_pool_slots_with_tool_servers_have_programs_of_their_own(notes):
    with EnvPool(notes, n=3).sync() as pool:
        pool.reset_batch()
        seen = pool.step_batch([call("process"), call("die"), call("process")])
        assert [each.reward for each in seen] == [1.0, None, 1.0]
        assert seen[0].text != seen[2].text
        assert "EnvError: die: service 'notes'" in seen[1].metadata["error"]
        pool.reset_batch(slots=[1])
        assert pool.step_batch([None, call("write", text="first"), None])[1].text == "1"


def test_tool_environment_a_server_that_cannot_be_reached_fails_the_reset():
    class Nowhere(ToolEnvironment):
        """Has no tools."""

        def __init__(self):
            command = [sys.executable, "-c", "raise SystemExit(3)"]
            super().__init__(rubric=ToolErrors(), tool_servers=command)

    with Nowhere() as environment, pytest.raises(EnvError, match="the tools of a server are miss"):
        environment.reset()


def test_tool_environment_refuses_two_tools_of_one_name(command):
    class Twice(ToolEnvironment):
        """Has a tool of the server's name."""

        def __init__(self):
            super().__init__(rubric=ToolErrors(), tool_servers=command)

        @tool
        def write(self) -> None:
            """Write."""

    with Twice() as environment, pytest.raises(EnvError, match="must have another name"):
        environment.reset()


def test_tool_environment_refuses_a_chat_model_as_a_server():
    model = {"type": "openai_llm", "endpoint": "http://localhost:1", "model": "m"}

    class Chatty(ToolEnvironment):
        """Names a model."""

        def __init__(self):
            super().__init__(rubric=ToolErrors(), tool_servers={"chat": model})

    with pytest.raises(InvalidArgumentError, match="'chat' must be an MCP server, got a chat"):
        Chatty()
