"""Connections to real MCP servers, programs and over HTTP, and how they fail."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from guerdon._background import run
from guerdon.errors import ServiceError, ServiceTimeoutError, ServiceUnavailableError
from guerdon.services.client import MCPClient
from guerdon.services.config import McpService

pytestmark = pytest.mark.edge  # real servers, in separate processes

SERVER = """
import os, socket, sys, time
import anyio
from mcp.server.mcpserver import MCPServer

server = MCPServer("tools", log_level="CRITICAL")

@server.tool()
async def echo(text: str) -> str:
    return text

@server.tool()
async def process() -> str:
    return str(os.getpid())

@server.tool()
async def environment(name: str) -> str:
    return os.environ.get(name, "unset")

@server.tool()
async def die() -> str:
    print("the last words", file=sys.stderr, flush=True)
    os._exit(3)

@server.tool()
async def hang() -> str:
    await anyio.sleep_forever()

@server.tool()
async def deaf() -> str:
    time.sleep(1000)

if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    import uvicorn
    app = server.streamable_http_app(json_response=sys.argv[2] == "json")
    listening = socket.create_server(("127.0.0.1", int(sys.argv[3])))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listening])
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "server.py"
    path.write_text(SERVER)
    return str(path)


@pytest.fixture
def command(program):
    return [sys.executable, program, "stdio"]


class HttpServer:
    """A server in a separate process, which can be killed and started again."""

    def __init__(self, program, kind="sse"):
        self.program, self.kind, self.port = program, kind, 0
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, self.program, "http", self.kind, str(self.port)],
            stdout=subprocess.PIPE,
        )
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def kill(self):
        self.process.kill()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture(scope="module", params=["sse", "json"])
def http_server(request, program):
    server = HttpServer(program, request.param)
    yield server
    server.kill()


@pytest.fixture
def mortal(program):
    server = HttpServer(program)
    yield server
    server.kill()


def in_a_hurry(client, seconds=0.3):
    """Set the timeout of further calls, but not that of starting a program."""
    (service,) = client._services.values()
    service._timeout_s = seconds


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def until_gone(process):
    give_up = time.monotonic() + 10
    while is_running(process):
        assert time.monotonic() < give_up
        os.sched_yield()


# A program on stdin and stdout


def test_mcp_client_starts_calls_and_stops_a_program(command):
    with MCPClient(command) as client:
        assert client.call_tool("echo", text="hello") == "hello"
        process = int(client.call_tool("process"))
        assert int(client.call_tool("process")) == process
    until_gone(process)


def test_mcp_client_stops_its_program_when_collected(command):
    client = MCPClient(command)
    process = int(client.call_tool("process"))
    del client
    until_gone(process)


def test_mcp_service_program_has_only_its_environment(command, monkeypatch):
    monkeypatch.setenv("GUERDON_GIVEN", "given")
    monkeypatch.setenv("GUERDON_SECRET", "secret")
    service = McpService(command=tuple(command), env=("GUERDON_GIVEN",))
    with MCPClient(service) as client:
        assert client.call_tool("environment", name="GUERDON_GIVEN") == "given"
        assert client.call_tool("environment", name="GUERDON_SECRET") == "unset"


def test_call_tool_restarts_a_program_that_died_during_a_call(command):
    with MCPClient(command) as client:
        process = client.call_tool("process")
        with pytest.raises(ServiceUnavailableError, match="Connection closed") as caught:
            client.call_tool("die")
        assert "the last words" in caught.value.__notes__[0]
        assert client.call_tool("process") != process


def test_check_reports_the_last_line_of_a_program_that_dies():
    died = "print('reading', file=__import__('sys').stderr); raise SystemExit('dead at once')"
    with MCPClient({"x": [sys.executable, "-c", died]}) as client:
        with pytest.raises(ServiceUnavailableError) as caught:
            client.check()
        assert str(caught.value).endswith(
            "Connection closed; the last line of its program's stderr: dead at once"
        )
        assert caught.value.__notes__ == ["the end of its program's stderr:\nreading\ndead at once"]
        with pytest.raises(ServiceUnavailableError) as caught:
            client.call_tool("x")  # which other users may read
        assert str(caught.value).endswith("Connection closed")
        assert "dead at once" in caught.value.__notes__[0]


def test_call_tool_restarts_a_program_that_was_killed(command):
    with MCPClient(command, retries=1) as client:
        process = int(client.call_tool("process"))
        os.kill(process, signal.SIGKILL)
        assert int(client.call_tool("process")) != process


def test_call_tool_times_out_alone(command):
    with MCPClient(command) as client:
        process = client.call_tool("process")

        async def both():
            hanging = asyncio.ensure_future(client.call_tool_async("hang"))
            results = [await client.call_tool_async("process") for _ in range(3)]
            hanging.cancel()
            await asyncio.wait({hanging})
            return [*results, await client.call_tool_async("process")]

        assert set(asyncio.run(both())) == {process}
        in_a_hurry(client)
        with pytest.raises(ServiceTimeoutError, match=r"gave no answer in 0\.3 s"):
            client.call_tool("hang")


def test_call_tool_restarts_a_program_that_no_longer_answers(command):
    with MCPClient(command) as client:
        process = int(client.call_tool("process"))
        in_a_hurry(client)
        with pytest.raises(ServiceTimeoutError):
            client.call_tool("deaf")
        in_a_hurry(client, 60.0)
        assert int(client.call_tool("process")) != process
    until_gone(process)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('no configuration')", "no configuration"),
        ("print('this is no JSON')", "Connection closed"),
        ("raise RuntimeError('at once')", "RuntimeError: at once"),
    ],
    ids=["exits", "prints", "raises"],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_call_tool_reports_why_a_program_is_not_a_server(code, message, caplog):
    caplog.set_level("CRITICAL")
    with (
        MCPClient([sys.executable, "-c", code]) as client,
        pytest.raises(ServiceUnavailableError, match="can't be reached") as caught,
    ):
        client.call_tool("echo", text="hello")
    assert message in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_call_tool_reports_a_missing_program():
    with (
        MCPClient({"judge": ["no-such-program"]}) as client,
        pytest.raises(ServiceUnavailableError, match=r"'judge' can't be reached: .*No such file"),
    ):
        client.call_tool("judge")


def test_call_tool_times_out_on_a_silent_program():
    silent = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with MCPClient(silent, timeout_s=0.5) as client:
        with pytest.raises(ServiceTimeoutError):
            client.call_tool("echo", text="hello")
        with pytest.raises(ServiceUnavailableError, match=r"wasn't ready after 0\.2 s"):
            client.check(timeout_s=0.2)


# Over HTTP


def test_call_tool_works_over_http(http_server):
    with MCPClient(http_server.url) as client:
        assert client.call_tool("echo", text="hello") == "hello"
        assert {tool.name for tool in client.list_tools()} >= {"echo", "hang"}


def test_call_tool_shares_connections(http_server):
    service = McpService(endpoint=http_server.url, tool="echo", connections=3, concurrency=9)
    with MCPClient({"echo": service}) as client:

        async def calls():
            asked = (client.call_tool_async("echo", text=str(number)) for number in range(50))
            return await asyncio.gather(*asked)

        assert asyncio.run(calls()) == [str(number) for number in range(50)]


def test_call_tool_over_http_times_out_alone(http_server):
    with MCPClient(McpService(endpoint=http_server.url, connections=1)) as client:

        async def both():
            hangs = asyncio.ensure_future(client.call_tool_async("hang"))
            results = await client.call_tool_async("echo", text="hello")
            hangs.cancel()
            await asyncio.wait({hangs})
            return results, await client.call_tool_async("echo", text="again")

        assert asyncio.run(both()) == ("hello", "again")
        in_a_hurry(client)
        with pytest.raises(ServiceTimeoutError):
            client.call_tool("hang")


def test_call_tool_reconnects_to_a_restarted_server(mortal):
    with MCPClient({"tools": {"type": "mcp", "endpoint": mortal.url, "tool": "echo"}}) as client:
        assert client.call_tool("tools", text="hello") == "hello"
        mortal.kill()
        for _ in range(2):
            with pytest.raises(ServiceUnavailableError, match="'tools'"):
                client.call_tool("tools", text="hello")
        mortal.start()
        assert client.call_tool("tools", text="hello") == "hello"


def test_call_tool_fails_if_its_server_dies(mortal):
    with MCPClient(mortal.url) as client:

        async def calls():
            hanging = [asyncio.ensure_future(client.call_tool_async("hang")) for _ in range(3)]
            dying = asyncio.ensure_future(client.call_tool_async("die"))
            return await asyncio.gather(*hanging, dying, return_exceptions=True)

        errors = asyncio.run(calls())
    assert {type(error) for error in errors} == {ServiceUnavailableError}


def test_call_tool_reports_a_port_without_a_server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    with MCPClient({"judge": url}) as client:
        with pytest.raises(ServiceUnavailableError, match="service 'judge' can't be reached"):
            client.call_tool("judge")
        with pytest.raises(ServiceUnavailableError, match="service 'judge' can't be reached"):
            client.check()


def test_call_tool_times_out_on_a_silent_server():
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        MCPClient(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", timeout_s=0.3) as client,
        pytest.raises(ServiceTimeoutError, match=r"in 0\.3 s"),
    ):
        client.call_tool("echo", text="hello")


def test_call_tool_reports_a_wrong_path(http_server):
    with (
        MCPClient(http_server.url + "/elsewhere") as client,
        pytest.raises(ServiceUnavailableError, match="HTTP 404"),
    ):
        client.call_tool("echo", text="hello")


def test_call_tool_and_check_report_an_unset_secret(http_server, monkeypatch):
    monkeypatch.delenv("GUERDON_JUDGE_TOKEN", raising=False)
    service = McpService(endpoint=http_server.url, token_env="GUERDON_JUDGE_TOKEN")
    with MCPClient({"judge": service}) as client:
        for ask in (lambda: client.call_tool("judge"), client.check):
            with pytest.raises(ServiceError, match="GUERDON_JUDGE_TOKEN, which isn't set"):
                ask()


# Closing


def tasks():
    async def count():
        return len(asyncio.all_tasks())

    return run(count())


def test_close_ends_running_calls(http_server):
    before, threads = tasks(), threading.active_count()
    client = MCPClient(http_server.url)

    async def close_in_the_middle():
        hanging = asyncio.ensure_future(client.call_tool_async("hang"))
        await client.call_tool_async("echo", text="hello")
        await client.close_async()
        return await asyncio.gather(hanging, return_exceptions=True)

    (error,) = asyncio.run(close_in_the_middle())
    assert isinstance(error, ServiceUnavailableError)
    assert tasks() <= before
    assert threading.active_count() <= threads + 1  # asyncio.run's own, of names


def test_close_ends_a_connection_that_is_being_opened():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = MCPClient(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")

        async def close_in_the_middle():
            opening = asyncio.ensure_future(client.call_tool_async("echo"))
            connection, _ = await asyncio.to_thread(listening.accept)
            with connection:
                await client.close_async()
            return await asyncio.gather(opening, return_exceptions=True)

        (error,) = asyncio.run(close_in_the_middle())
    assert isinstance(error, ServiceUnavailableError)


def test_mcp_client_connects_again_after_close(http_server):
    client = MCPClient(http_server.url)
    for _ in range(2):
        assert client.call_tool("echo", text="hello") == "hello"
        client.close()


AT_THE_END = """
import sys
from guerdon.services.client import MCPClient
client = MCPClient({service!r})
print(client.call_tool("process"))
"""


def test_mcp_client_is_closed_at_exit(command):
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", AT_THE_END.format(service=command)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    until_gone(int(ended.stdout))


HANGING = """
from pathlib import Path
from mcp.client import stdio
from guerdon.errors import ServiceTimeoutError
from guerdon.services.client import MCPClient
from guerdon.services.config import McpService

stdio.PROCESS_TERMINATION_TIMEOUT = 0.2
command = ["sh", "-c", "echo $$ > {process}; exec sleep 600"]
client = MCPClient(McpService(command=command, timeout_s=0.3))
try:
    client.call_tool("x")
except ServiceTimeoutError as error:
    print("too late")
{close}
"""


@pytest.mark.parametrize("close", ["", "client.close()"], ids=["at_the_end", "closed"])
def test_mcp_client_stops_a_silent_program_without_output(close, tmp_path):
    process = tmp_path / "process"
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c",
         HANGING.format(process=process, close=close)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    results = [line for line in ended.stderr.splitlines() if not line.startswith("Executing <")]
    assert (ended.returncode, ended.stdout, results) == (0, "too late\n", [])
    until_gone(int(process.read_text()))


FORKED = """
import os, sys
from guerdon.services.client import MCPClient
client = MCPClient({service!r})
ours = client.call_tool("process")
child = os.fork()
if not child:
    theirs = client.call_tool("process")
    client.close()
    os._exit(0 if theirs != ours and client.call_tool("echo", text="hi") == "hi" else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), client.call_tool("process") == ours)
client.close()
"""


def test_mcp_client_in_a_forked_process_opens_its_own_connections(command):
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED.format(service=command)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.stdout, ended.stderr) == ("0 True\n", "")


# What a server declares --------------------------------------------------------------------------

DECLARING = """
import json, sys

pages, schema = int(sys.argv[1]), json.loads(sys.argv[2])
each, size = int(sys.argv[3]), int(sys.argv[4])

def tools(page):
    names = ["echo"] if each == 1 else [f"tool{page}x{i}" for i in range(each)]
    listed = [{"name": name, "description": "x" * size, "inputSchema": {"type": "object"},
               **({"outputSchema": schema} if schema else {})} for name in names]
    return {"tools": listed, **({"nextCursor": str(page + 1)} if page + 1 < pages else {})}

for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    result = {}
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    elif method == "tools/list":
        result = tools(int((message.get("params") or {}).get("cursor") or 0))
    elif method == "tools/call":
        result = {"content": [], "structuredContent": {"a": "a" * 40 + "!"}}
    if number is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)
"""


@pytest.fixture
def declaring(tmp_path):
    """The command of a server with so many pages of tools, of so many bytes."""
    path = tmp_path / "declaring.py"
    path.write_text(DECLARING)

    def command(*, pages=1, schema=None, each=1, size=0):
        arguments = [str(pages), json.dumps(schema), str(each), str(size)]
        return [sys.executable, str(path), *arguments]

    return command


def branches(depth):
    """A schema of 2**depth branches."""
    inner = {f"d{k}": {"allOf": [{"$ref": f"#/$defs/d{k + 1}"}] * 2} for k in range(depth)}
    return {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": inner | {f"d{depth}": {"type": "string"}},
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
        {"type": "object", "patternProperties": {"^(a|a)*$": {"pattern": "^(a|aa)+$"}}},
        branches(40),
        {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema"}}},
        {"type": "object", "properties": {"a": {"type": 5}}},
        {"type": "object", "properties": {"a": {"type": "integer"}}},
    ],
    ids=["pattern", "names", "branches", "circle", "address", "invalid", "another type"],
)
def test_mcp_client_does_not_validate_results_by_the_schema_of_a_server(declaring, schema):
    # Validation by the first three would never end, and no time limit would apply.
    with MCPClient(declaring(schema=schema)) as client:
        assert client.call_tool("echo") == {"a": "a" * 40 + "!"}
        [tool] = client.list_tools()
    assert tool.output_schema == schema


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ({"each": 100_000}, "it has 100000 tools or more; at most 2000 are accepted"),
        ({"pages": 3, "each": 1000}, "it has 3000 tools or more; at most 2000 are accepted"),
        ({"each": 5, "size": 2**20}, r"its tools take \d+ bytes or more; at most 4194304"),
        ({"pages": 5, "size": 2**20}, r"its tools take \d+ bytes or more; at most 4194304"),
        ({"pages": 101}, "its list of tools has more than 100 pages"),
    ],
    ids=["many", "many in pages", "large", "large in pages", "pages"],
)
def test_mcp_client_refuses_too_many_or_too_large_tools(declaring, listed, message):
    with MCPClient(declaring(**listed)) as client, pytest.raises(ServiceError, match=message):
        client.call_tool("echo")


def test_mcp_client_accepts_2000_tools(declaring):
    with MCPClient(declaring(pages=2, each=1000)) as client:
        assert len(client.list_tools()) == 2000
