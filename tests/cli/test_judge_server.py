"""guerdon judge-server: a real MCP server in a process, asked by the official SDK's client."""

import asyncio
import json
import select
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import httpx
import httpx2
import mcp
import pytest
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from examples.tau_chat.scripted_model import Failed, Replied, ScriptedModel
from guerdon import MCPClient
from tests.cli.conftest import COMMAND

pytestmark = pytest.mark.edge  # real servers, in processes of their own

PATIENCE = 20  # seconds after which what should happen is taken not to happen

TEMPLATE = 'Is {action} right for {observation.question}? Not {"so": 1}, {{nor so}}.\n'
ASKED = {"action": "42", "observation": {"question": "6 × 7?"}}
GOOD = '{"reasoning": "It is right.", "score": 0.8}'


@pytest.fixture
def environ(environ):
    return {name: value for name, value in environ.items() if name != "GUERDON_TOKEN"}


@pytest.fixture
def template(tmp_path):
    (tmp_path / "judge.txt").write_text(TEMPLATE, encoding="utf-8")
    return "judge.txt"


def words(model, *more):
    endpoint = model if isinstance(model, str) else model.endpoint
    return ["judge-server", "--endpoint", endpoint, "--model", "m", "-t", "judge.txt", *more]


@pytest.fixture
def serving(started, environ, template):
    """Starts a server; gives its process and its address."""

    def serving(model, *more, **variables):
        environ.update(variables)
        process = started(*words(model, "-p", "0", *more))
        assert select.select([process.stdout], [], [], PATIENCE)[0], "nothing was printed"
        process.line = process.stdout.readline().decode()
        return process, process.line.split()[-1]

    return serving


def ended(process, number=signal.SIGTERM):
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def over_http(url, token=None):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
        mcp.Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


@asynccontextmanager
async def on_stdio(arguments, cwd, environ, errlog):
    parameters = mcp.StdioServerParameters(
        command=COMMAND, args=arguments, env=dict(environ), cwd=str(cwd)
    )
    async with mcp.Client(stdio_client(parameters, errlog=errlog)) as client:
        yield client


async def use(connection):
    async with connection as client:
        tools = (await client.list_tools()).tools
        return client.server_info.name, tools, await client.call_tool("judge", ASKED)


def check_use(answer):
    name, (tool,), result = answer
    assert name == "style"
    assert tool.name == "judge"
    assert tool.input_schema["required"] == ["action", "observation"]
    assert set(tool.output_schema["required"]) == {"score", "reasoning"}
    assert result.structured_content == {"score": 0.8, "reasoning": "It is right."}
    assert json.loads(result.content[0].text) == result.structured_content


# Serving ----------------------------------------------------------------------------------------


def test_judge_server_answers_the_sdk_client_over_http(serving):
    with ScriptedModel([GOOD]) as model:
        process, url = serving(model, "--name", "style")
        assert process.line.startswith("judging with m at http://127.0.0.1:")
        check_use(asyncio.run(use(over_http(url))))
        assert httpx.get(url.replace("/mcp", "/health")).text == "ok"
        code, out, err = ended(process)
    assert (code, out, err) == (0, "", "")
    (asked,) = model.asked
    assert (asked["model"], asked["temperature"]) == ("m", 0.0)
    prompt = asked["messages"][-1]["content"]
    assert "42\n</action" in prompt
    assert 'Not {"so": 1}, {{nor so}}.' in prompt


def test_judge_server_answers_the_sdk_client_on_stdio(tmp_path, environ, template):
    with ScriptedModel([GOOD]) as model, open(tmp_path / "err", "w") as errlog:
        arguments = words(model, "--stdio", "--name", "style")
        check_use(asyncio.run(use(on_stdio(arguments, tmp_path, environ, errlog))))
    assert (tmp_path / "err").read_text() == ""


def test_judge_server_answers_mcp_client_by_name(serving):
    with ScriptedModel([GOOD]) as model:
        _, url = serving(model)
        with MCPClient({"style_judge": {"type": "mcp", "endpoint": url}}) as client:
            client.check()
            assert client.call_tool("style_judge", **ASKED)["score"] == 0.8


def test_judge_server_passes_settings_to_the_model(serving):
    with ScriptedModel([Failed(500), GOOD]) as model:
        settings = ["--temperature", "0.5", "--max-tokens", "99", "--api-key-env", "THE_KEY"]
        _, url = serving(model, *settings, THE_KEY="sk-1")
        check = asyncio.run(use(over_http(url)))[2]
    assert check.structured_content["score"] == 0.8  # at the second attempt
    assert (model.asked[0]["temperature"], model.asked[0]["max_tokens"]) == (0.5, 99)
    assert model.headers[0]["authorization"] == "Bearer sk-1"


def test_judge_server_reports_a_failed_call_and_continues(serving):
    with ScriptedModel(["It is lovely.", GOOD]) as model:
        process, url = serving(model)

        async def twice():
            async with over_http(url) as client:
                return [await client.call_tool("judge", ASKED) for _ in range(2)]

        failed, fine = asyncio.run(twice())
        code, _, err = ended(process)
    assert failed.is_error
    assert "has no verdict" in failed.content[0].text
    assert fine.structured_content["score"] == 0.8
    assert (code, "Traceback" in err) == (0, False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_judge_server_ends_on_signals_on_stdio(number, started, template):
    with ScriptedModel([]) as model:
        process = started(*words(model, "--stdio"), stdin=subprocess.PIPE)
        hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        process.stdin.write(json.dumps(hello).encode() + b"\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], PATIENCE)[0], "it didn't answer"
        process.stdout.readline()
        code, out, err = ended(process, number)
    assert (code, out, err) == (0, "", "")


def test_judge_server_ends_on_signals_while_a_call_runs(serving):
    with ScriptedModel([Replied(GOOD, is_held=True)]) as model:
        process, url = serving(model)

        with MCPClient(url) as client, ThreadPoolExecutor(1) as pool:
            call = pool.submit(client.call_tool, "judge", **ASKED)
            model.wait_for(lambda model: len(model.asked) == 1)
            process.send_signal(signal.SIGTERM)
            model.release()
            assert call.result(PATIENCE)["score"] == 0.8
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_judge_server_requires_its_token(serving):
    with ScriptedModel([GOOD]) as model:
        _, url = serving(model, GUERDON_TOKEN="s3cret")
        assert httpx.post(url, json={}).status_code == 401
        assert asyncio.run(use(over_http(url, "s3cret")))[2].structured_content["score"] == 0.8


# Warnings and refusals --------------------------------------------------------------------------


def test_judge_server_warns_of_an_unavailable_model_at_start(serving):
    process, url = serving("http://127.0.0.1:1", "--retries", "0")
    result = asyncio.run(use(over_http(url)))[2]
    code, _, err = ended(process)
    assert result.is_error
    assert "can't be reached" in result.content[0].text
    assert code == 0
    assert "warning: service 'm' can't be reached" in err
    assert "http://127.0.0.1:1" in err


def test_judge_server_warns_beyond_loopback_without_a_token(serving):
    with ScriptedModel([]) as model:
        process, _ = serving(model, "--host", "0.0.0.0")
        assert "warning: anyone who can reach 0.0.0.0 can use this server" in ended(process)[2]
        process, _ = serving(model, "--host", "0.0.0.0", "--token", "s3cret")
        assert ended(process)[2] == ""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["-t", "none.txt"], "--template none.txt: No such file"),
        (["-t", "."], "--template .: Is a directory"),
        (["-t", "empty.txt"], "--template empty.txt: a template must be a non-empty string"),
        (["-t", "plain.txt"], "--template plain.txt must have at least one placeholder"),
        (["-t", "latin.txt"], "--template latin.txt is not UTF-8"),
        (["--endpoint", "localhost:8000"], "endpoint: invalid address; expected one like"),
        (
            ["--endpoint", "http://ada:pw@host"],
            "endpoint: an address must not contain a user or password",
        ),
        (["--api-key-env", "NO_SUCH_KEY"], "the environment variable NO_SUCH_KEY, which isn't set"),
        (["--temperature", "nan"], "temperature: "),
        (["--timeout", "0"], "timeout_s: "),
        (["--retries", "-1"], "retries: "),
        (["--stdio", "--port", "8001"], "--port can't be used with --stdio"),
        (["--stdio", "--token", "s3cret"], "--token can't be used with --stdio"),
        (["--token", "two words"], "`token` must be printable ASCII"),
        (["--host", "203.0.113.1"], "can't listen on 203.0.113.1:"),
    ],
    ids=lambda value: "_".join(value).replace("/", "") if isinstance(value, list) else "",
)
def test_judge_server_rejects_invalid_options(more, message, guerdon, tmp_path, template):
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "plain.txt").write_text("Is it right?")
    (tmp_path / "latin.txt").write_bytes(b"\xe9 {action}")
    port = [] if "--stdio" in more else ["-p", "0"]
    with ScriptedModel([]) as model:
        done = guerdon(*words(model, *port, *more), stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert message in done.stderr
    assert "ada:pw" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_judge_server_rejects_an_empty_token(guerdon, environ, template):
    environ["GUERDON_TOKEN"] = ""
    done = guerdon(*words("http://127.0.0.1:1"))
    assert done.returncode == 2
    assert "GUERDON_TOKEN is set and empty" in done.stderr
