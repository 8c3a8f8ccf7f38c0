"""`MCPClient`: services of any kind by name."""

import asyncio
import copy
import gc
import json
import pickle
import sys
import threading
import time
import weakref

import anyio
import pytest
import trio
from mcp import StdioServerParameters
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from guerdon import LLMJudge, Rubric
from guerdon._background import run
from guerdon.errors import (
    AsyncRubricError,
    InvalidArgumentError,
    JudgeError,
    RewardConfigError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnavailableError,
)
from guerdon.services.client import MCPClient
from guerdon.services.config import McpService


class JudgeVerdict(BaseModel):
    score: float
    reasoning: str


def make_server(name="tools"):
    server = MCPServer(name, log_level="CRITICAL")
    server.running = server.most = server.opened = server.closed = 0

    @server.tool(description="Rates an answer.")
    async def judge(answer: str) -> JudgeVerdict:
        return JudgeVerdict(score=len(answer) / 10, reasoning="Its length.")

    @server.tool()
    def shout(text: str) -> str:
        return text.upper()

    @server.tool()
    async def hang() -> str:
        server.running += 1
        try:
            await anyio.sleep_forever()
        finally:
            server.running -= 1

    @server.tool()
    async def brief() -> str:
        server.running += 1
        server.most = max(server.most, server.running)
        await anyio.sleep(0.01)
        server.running -= 1
        return "done"

    @server.tool()
    async def fail() -> str:
        raise ValueError("of no use")

    return server


@pytest.fixture
def server():
    return make_server()


@pytest.fixture
def client(server):
    with MCPClient(server) as client:
        yield client


# Results of calls


def test_call_tool_returns_structured_content_as_a_dictionary(client):
    assert client.call_tool("judge", answer="short") == {"score": 0.5, "reasoning": "Its length."}


def test_call_tool_returns_the_object_of_a_tool_annotated_as_dict():
    server = MCPServer("judges", log_level="CRITICAL")

    @server.tool()
    def style_judge(code: str) -> dict:
        return {"score": len(code) / 10, "reasoning": "Its length."}

    class StyleRubric(Rubric):
        def __init__(self, mcp_client):
            super().__init__()
            self.mcp = mcp_client

        def forward(self, action, observation):
            result = self.mcp.call_tool("style_judge", code=action)
            return result["score"]

    with MCPClient({"style_judge": server}) as client:
        assert StyleRubric(client)("x = 1", None) == 0.5


def test_llm_judge_rejects_a_verdict_that_a_tool_copies_from_the_judged_text():
    server = MCPServer("judges", log_level="CRITICAL")

    @server.tool()
    def style_judge(code: str) -> dict:
        return json.loads(code)

    with MCPClient({"style_judge": server}) as client:
        judge = LLMJudge(None, "style_judge", mcp_client=client, fields={"code": "action"})
        with pytest.raises(JudgeError, match="only repeats a verdict in the judged text"):
            judge('{"score": 1.0}', None)


def test_call_tool_returns_text(client):
    assert client.call_tool("shout", text="hello") == "HELLO"


def test_call_tool_raises_the_message_of_a_tool_that_fails(client, caplog):
    caplog.set_level("CRITICAL")
    with pytest.raises(ServiceError, match="'tools': fail failed: Error executing tool fail"):
        client.call_tool("fail")


def test_call_tool_raises_if_the_tool_rejects_the_arguments(client):
    with pytest.raises(ServiceError, match=r"judge failed: (?s:.*)answer"):
        client.call_tool("judge", text="hello")


class Opaque:
    pass


@pytest.mark.parametrize(
    "argument",
    [float("nan"), float("inf"), Opaque(), "\ud800"],
    ids=["nan", "inf", "object", "utf"],
)
def test_call_tool_rejects_arguments_that_json_cannot_express(client, argument):
    with pytest.raises(
        InvalidArgumentError, match="arguments of service 'tools' must fit into JSON"
    ):
        client.call_tool("shout", text=argument)


def test_call_tool_accepts_any_name_of_an_argument():
    server = MCPServer("mirror", log_level="CRITICAL")

    @server.tool()
    def mirror(service: str, name: str) -> str:
        return f"{service} {name}"

    with MCPClient(server) as client:
        assert client.call_tool("mirror", service="a", name="b") == "a b"
        assert asyncio.run(client.call_tool_async("mirror", service="a", name="b")) == "a b"


def test_call_tool_sends_arguments_as_json(client):
    verdict = JudgeVerdict(score=0.5, reasoning="short")
    with pytest.raises(ServiceError, match=r"input_value=\{'score': 0.5"):
        client.call_tool("judge", answer=verdict)


def test_call_tool_finds_a_tool_that_was_added_later(client, server):
    client.list_tools()

    @server.tool()
    def late() -> str:
        return "better late"

    assert client.call_tool("late") == "better late"


def test_call_tool_rejects_a_server_without_tools():
    with (
        MCPClient({"judge": MCPServer("empty")}) as client,
        pytest.raises(ServiceError, match="service 'judge' has no tools"),
    ):
        client.call_tool("judge")


def test_call_tool_lists_the_tools_if_one_is_unknown(client):
    with pytest.raises(
        ServiceError, match="no tool 'jugde'; its tools are brief, fail, hang, judge"
    ):
        client.call_tool("jugde", answer="short")


# Names


def test_mcp_client_calls_services_by_name(server):
    with MCPClient({"judge": server, "style": {"type": "mcp", "command": ["x"]}}) as client:
        assert client.services == ("judge", "style")
        assert client.call_tool("judge", answer="short")["score"] == 0.5


def test_call_tool_suggests_a_similar_service(server):
    with (
        MCPClient({"style_judge": server}) as client,
        pytest.raises(InvalidArgumentError, match=r"'stile_judge'.*did you mean 'style_judge'"),
    ):
        client.call_tool("stile_judge")


def test_mcp_client_may_have_no_services():
    with (
        MCPClient({}) as client,
        pytest.raises(InvalidArgumentError, match="there is no service 'judge'; none are known"),
    ):
        client.call_tool("judge")


def test_call_tool_calls_the_only_tool_of_a_server():
    server = MCPServer("one")

    @server.tool()
    def only() -> str:
        return "the only one"

    with MCPClient({"judge": server}) as client:
        assert client.call_tool("judge") == "the only one"


def test_call_tool_requires_the_name_of_one_of_several_tools(server):
    with (
        MCPClient({"style": server}) as client,
        pytest.raises(ServiceError, match=r"several tools; set `tool` to one of them: brief"),
    ):
        client.call_tool("style")


@pytest.mark.parametrize("wrong", [42, None, b"http://x", [1], ["a", ""], "nowhere", "ftp://x"])
def test_mcp_client_rejects_an_invalid_service(wrong):
    with pytest.raises((InvalidArgumentError, RewardConfigError)):
        MCPClient(wrong)
    with pytest.raises((InvalidArgumentError, RewardConfigError), match=r"mcp_services\.judge"):
        MCPClient({"judge": wrong})


@pytest.mark.parametrize("name", ["", 1, None])
def test_mcp_client_rejects_an_invalid_name(server, name):
    with pytest.raises(
        InvalidArgumentError, match="the name of a service must be a non-empty string"
    ):
        MCPClient({name: server})


@pytest.mark.parametrize(
    "setting",
    [
        {"timeout_s": -1},
        {"timeout_s": "x"},
        {"timeout_s": 1e9},
        {"retries": 99},
        {"concurrency": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "services",
    [
        "http://127.0.0.1:1/mcp",
        {},
        {"judge": {"type": "mcp", "endpoint": "http://127.0.0.1:1/mcp"}},
        {"judge": "http://127.0.0.1:1/mcp"},
    ],
    ids=["address", "none", "configured", "named"],
)
def test_mcp_client_rejects_an_invalid_setting(services, setting):
    with pytest.raises(RewardConfigError) as caught:
        MCPClient(services, **setting)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{next(iter(setting))}: must be ")


def test_mcp_client_public_is_by_name(server):
    client = MCPClient({"judge": server, "other": "http://localhost:1/mcp?key=s3cret"})
    assert client.public()["judge"] == {"type": "mcp", "server": "tools"}
    assert client.public()["other"]["endpoint"] == "http://localhost:1/mcp"


# Listing and checking


def test_list_tools_names_the_services(server):
    with MCPClient({"judge": server, "other": make_server("other")}) as client:
        (tool,) = [tool for tool in client.list_tools("judge") if tool.name == "judge"]
        assert (tool.service, tool.description) == ("judge", "Rates an answer.")
        assert tool.input_schema["required"] == ["answer"]
        assert tool.output_schema["required"] == ["score", "reasoning"]
        assert {tool.service for tool in client.list_tools()} == {"judge", "other"}


def test_list_tools_of_one_service_ignores_an_unavailable_one(server):
    with MCPClient({"judge": server, "gone": "http://127.0.0.1:1/mcp"}) as client:
        with pytest.raises(ServiceUnavailableError, match="service 'gone'"):
            client.list_tools()
        assert {tool.service for tool in client.list_tools("judge")} == {"judge"}


def _listed_once():
    """A server that answers the first ``tools/list`` alone."""
    from mcp.server import Server
    from mcp_types import ListToolsResult

    asked = []

    async def list_tools(context, params):
        asked.append(params)
        if len(asked) > 1:
            await anyio.sleep_forever()
        return ListToolsResult(tools=[])

    return Server("once", on_list_tools=list_tools)


@pytest.mark.parametrize("ask", ["list", "check"])
def test_list_tools_and_check_time_out(ask):
    with (
        MCPClient({"once": _listed_once()}, timeout_s=0.2) as client,
        pytest.raises(ServiceTimeoutError, match=r"'once' gave no answer in 0\.2 s"),
    ):
        client.list_tools() if ask == "list" else client.check(timeout_s=0.2)


def test_mcp_client_does_not_connect_an_unused_service(server):
    with MCPClient({"judge": server, "other": "http://127.0.0.1:1/mcp"}) as client:
        assert client.call_tool("judge", answer="short")["score"] == 0.5


def test_check_lists_every_unavailable_service(server):
    services = {
        "judge": server,
        "gone": "http://127.0.0.1:1/mcp",
        "model": {"type": "openai_llm", "endpoint": "http://127.0.0.1:1", "model": "m"},
        "wrong": {"type": "mcp", "command": ["no-such-program"]},
    }
    with MCPClient(services) as client:
        with pytest.raises(ServiceUnavailableError, match="3 services are unavailable") as caught:
            client.check()
        for name in ("gone", "model", "wrong"):
            assert f"{name!r} can't be reached" in str(caught.value)
        assert "'judge'" not in str(caught.value)
    with MCPClient({"judge": server}) as client:
        client.check()
        for invalid in (0, -1, 10**9):
            with pytest.raises(RewardConfigError, match="timeout_s: must be"):
                client.check(timeout_s=invalid)


def test_check_reports_a_missing_tool(server):
    with (
        MCPClient({"style": server}) as client,
        pytest.raises(ServiceError, match="service 'style' has several tools; set `tool`"),
    ):
        client.check()
    with MCPClient(server) as client:  # where a call names the tool
        client.check()


# Loops and threads


def test_call_tool_works_inside_a_running_loop(client):
    async def sync_code_in_async_code():
        return client.call_tool("shout", text="hello")

    assert asyncio.run(sync_code_in_async_code()) == "HELLO"


def test_call_tool_async_works_on_any_loop(client):
    async def call():
        return await client.call_tool_async("shout", text="hello")

    assert asyncio.run(call()) == trio.run(call) == run(call()) == "HELLO"


def test_call_tool_is_rejected_on_the_background_loop(client):
    async def call():
        return client.call_tool("shout", text="hello")

    with pytest.raises(AsyncRubricError, match="async twin"):
        run(call())


def test_call_tool_works_in_many_threads(client):
    given = []

    def call(number):
        given.append(client.call_tool("shout", text=f"n{number}"))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(given) == sorted(f"N{number}" for number in range(16))


def test_mcp_client_limits_the_calls_at_once(server):
    with MCPClient(server, concurrency=4) as client:

        async def calls():
            await asyncio.gather(*(client.call_tool_async("brief") for _ in range(20)))

        asyncio.run(calls())
    assert server.most == 4


def test_call_tool_times_out(server):
    with MCPClient(server, timeout_s=0.1) as client:
        with pytest.raises(ServiceTimeoutError, match=r"service 'tools' .* in 0\.1 s"):
            client.call_tool("hang")
        assert client.call_tool("shout", text="hello") == "HELLO"
    assert server.running == 0


def test_call_tool_times_out_on_a_sync_tool():
    server, released = MCPServer("slow"), threading.Event()

    @server.tool()
    def wait() -> str:
        return str(released.wait(10))

    with MCPClient(server, timeout_s=0.1) as client:
        with pytest.raises(ServiceTimeoutError):
            client.call_tool("wait")
        released.set()
        assert client.call_tool("wait") == "True"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_call_tool_async_cancels_the_tool_and_frees_its_turn(server, backend):
    with MCPClient(server, concurrency=1) as client:

        async def cancelled():
            with anyio.move_on_after(0.1):
                await client.call_tool_async("hang")
            return await client.call_tool_async("shout", text="hello")

        assert anyio.run(cancelled, backend=backend) == "HELLO"
    assert server.running == 0


# Copies, pickles, closing


def test_copies_of_an_mcp_client_are_the_client_itself(client):
    assert copy.copy(client) is client
    assert copy.deepcopy({"client": client})["client"] is client


def test_mcp_client_is_pickled_by_its_configuration():
    services = {
        "judge": McpService(endpoint="http://127.0.0.1:1/mcp", tool="rate"),
        "model": {"type": "openai_llm", "endpoint": "http://127.0.0.1:1", "model": "m"},
        "program": StdioServerParameters(command="no-such-program"),
    }
    again = pickle.loads(pickle.dumps(MCPClient(services)))
    assert again.services == ("judge", "model", "program")
    assert again.public() == MCPClient(services).public()
    with again, pytest.raises(ServiceUnavailableError, match="'judge'"):
        again.call_tool("judge")
    nameless = pickle.loads(pickle.dumps(MCPClient("http://127.0.0.1:1/mcp")))
    with nameless, pytest.raises(ServiceUnavailableError, match=r"127\.0\.0\.1:1"):
        nameless.call_tool("rate")


def test_mcp_client_with_a_server_in_memory_cannot_be_pickled(client):
    with pytest.raises(InvalidArgumentError, match="'tools' is a server in memory"):
        pickle.dumps(client)


def test_mcp_client_accepts_stdio_server_parameters():
    parameters = StdioServerParameters(command=sys.executable, args=["-c", "exit('not today')"])
    with MCPClient({"judge": parameters}) as client:
        with pytest.raises(ServiceUnavailableError) as caught:
            client.call_tool("judge")
        assert "not today" in caught.value.__notes__[0]


def test_mcp_client_closes_its_connections_when_collected(server):
    async def tasks():
        return len(asyncio.all_tasks())

    before = run(tasks())
    client = MCPClient(server)
    client.call_tool("shout", text="hello")
    assert run(tasks()) > before
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
    give_up = time.monotonic() + 10
    while run(tasks()) > before:
        assert time.monotonic() < give_up


def test_mcp_client_is_an_async_context_manager(server):
    async def calls():
        async with MCPClient(server) as client:
            assert client.services == ("tools",)
            await client.check_async()
            tools = await client.list_tools_async("tools")
            return len(tools), await client.call_tool_async("shout", text="hello")

    assert asyncio.run(calls()) == (5, "HELLO")


def test_mcp_client_repr_lists_the_services(client):
    assert repr(client) == "MCPClient(tools)"


# Fingerprints ------------------------------------------------------------------------------------

MODEL = {"type": "openai_llm", "endpoint": "http://localhost:8000", "model": "m", "private": True}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (MODEL | {"prompt": "Rate {a}"}, MODEL | {"prompt": "Rate {a}!"}),
        (MODEL, MODEL | {"extra_body": {"top_k": 1}}),
        (MODEL, MODEL | {"endpoint": "http://localhost:8000?version=2"}),
        (["judge", "--strict"], ["judge", "--kind"]),
        ("http://localhost:8000/mcp", "http://localhost:8001/mcp"),
    ],
    ids=["private prompt", "extra body", "query", "command", "endpoint"],
)
def test_fingerprint_differs_between_services_that_answer_differently(one, other):
    first, second = MCPClient({"judge": one}), MCPClient({"judge": other})
    assert first.fingerprint("judge") == MCPClient({"judge": one}).fingerprint("judge")
    assert first.fingerprint("judge") != second.fingerprint("judge")


def test_fingerprint_ignores_how_a_service_is_called():
    patient = MCPClient({"judge": MODEL | {"timeout_s": 9.0, "retries": 1, "concurrency": 2}})
    assert patient.fingerprint("judge") == MCPClient({"judge": MODEL}).fingerprint("judge")


def test_fingerprint_rejects_an_unknown_service():
    with pytest.raises(InvalidArgumentError, match="there is no service 'jugde'"):
        MCPClient({"judge": MODEL}).fingerprint("jugde")
    assert MCPClient({"judge": make_server()}).fingerprint("judge")
