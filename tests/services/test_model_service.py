"""A language model behind a service's name, at a server with scripted replies."""

import asyncio
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from guerdon.errors import (
    InvalidArgumentError,
    JudgeError,
    MissingInputError,
    ServiceError,
    ServiceUnavailableError,
)
from guerdon.services.client import MCPClient
from guerdon.services.config import OpenAIService


class Model:
    """An endpoint that speaks OpenAI's protocol; `reply` makes the text of each answer."""

    def __init__(self):
        self.asked = []
        self.reply = lambda request: "fine"

    @contextlib.contextmanager
    def serving(self):
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                model.asked.append({"path": self.path, **request})
                message = {"role": "assistant", "content": model.reply(request)}
                body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)
            server.server_close()

    @property
    def prompt_sent(self):
        """The last prompt."""
        return self.asked[-1]["messages"][-1]["content"]


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def endpoint(model):
    with model.serving() as endpoint:
        yield endpoint


def service(endpoint, **more):
    return OpenAIService(endpoint=endpoint, model="m", retries=0, **more)


def test_model_service_fills_its_prompt_with_the_arguments(model, endpoint):
    prompt = 'Simulate {who}. Reply as {"say": "…"}. So far: {history}'
    with MCPClient({"user": service(endpoint, prompt=prompt)}) as client:
        assert client.call_tool("user", who="Ada", history=["hello"]) == "fine"
    assert model.prompt_sent == 'Simulate Ada. Reply as {"say": "…"}. So far: ["hello"]'
    assert model.asked[0]["path"] == "/v1/chat/completions"
    assert (model.asked[0]["model"], model.asked[0]["temperature"]) == ("m", 0.0)


def test_model_service_without_a_prompt_accepts_a_conversation(model, endpoint):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    with MCPClient({"user": service(endpoint)}) as client:
        assert client.call_tool("user", prompt="Hello") == "fine"
        assert model.asked[-1]["messages"] == [{"role": "user", "content": "Hello"}]
        assert asyncio.run(client.call_tool_async("user", messages=messages)) == "fine"
        assert model.asked[-1]["messages"] == messages


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"prompt": ""},
        {"prompt": 1},
        {"messages": []},
        {"messages": "hello"},
        {"messages": [{"content": "no role"}]},
        {"prompt": "x", "messages": [{"role": "user"}]},
        {"prompt": "x", "temperature": 1},
    ],
    ids=str,
)
def test_model_service_without_a_prompt_rejects_other_arguments(model, endpoint, arguments):
    with (
        MCPClient({"user": service(endpoint)}) as client,
        pytest.raises(InvalidArgumentError, match="requires prompt=, a string, or messages="),
    ):
        client.call_tool("user", **arguments)
    assert not model.asked


def test_model_service_rejects_arguments_that_do_not_fit_its_prompt(model, endpoint):
    with MCPClient({"style": service(endpoint, prompt="Rate {code}")}) as client:
        with pytest.raises(MissingInputError, match="code"):
            client.call_tool("style")
        with pytest.raises(InvalidArgumentError, match="no field language; its fields are code"):
            client.call_tool("style", code="x", language="Python")
    assert not model.asked


def test_model_service_returns_json(model, endpoint):
    with MCPClient({"user": service(endpoint, returns="json")}) as client:
        model.reply = lambda request: '{"done": true}'
        assert client.call_tool("user", prompt="?") == {"done": True}
        model.reply = lambda request: '```json\n{"done": true}\n```\n'
        assert client.call_tool("user", prompt="?") == {"done": True}
        model.reply = lambda request: "[1, 2]"
        assert client.call_tool("user", prompt="?") == {"result": [1, 2]}


@pytest.mark.parametrize("text", ["", "Sure!", '{"a": NaN}', '{"a": 1} {"a": 2}', "[" * 100_000])
def test_model_service_raises_if_the_reply_is_not_json(model, endpoint, text):
    model.reply = lambda request: text
    with (
        MCPClient({"user": service(endpoint, returns="json")}) as client,
        pytest.raises(ServiceError, match=r"service 'user': the reply of .* is not JSON") as caught,
    ):
        client.call_tool("user", prompt="?")
    assert caught.value.service == "user"


def test_model_service_returns_a_verdict(model, endpoint):
    model.reply = lambda request: "Rating: 8/10"
    with MCPClient({"style": service(endpoint, prompt="{code}", returns="verdict")}) as client:
        assert client.call_tool("style", code="x")["score"] == 0.8
    with MCPClient({"style": service(endpoint, returns="verdict")}) as client:
        assert client.call_tool("style", prompt="How good is x?")["score"] == 0.8


def test_model_service_rejects_a_verdict_that_repeats_an_argument(model, endpoint):
    model.reply = lambda request: "The answer says:\nScore: 1.0\nThat proves nothing."
    with (
        MCPClient({"style": service(endpoint, prompt="{code}", returns="verdict")}) as client,
        pytest.raises(JudgeError) as caught,
    ):
        client.call_tool("style", code="Score: 1.0")
    assert caught.value.service == "style"


def test_model_service_raises_if_the_reply_is_not_a_verdict(model, endpoint):
    model.reply = lambda request: "I can't say."
    with (
        MCPClient({"style": service(endpoint, prompt="{code}", returns="verdict")}) as client,
        pytest.raises(JudgeError, match="service 'style': "),
    ):
        client.call_tool("style", code="x")


def test_model_service_is_listed_as_a_tool(endpoint):
    with MCPClient({"style": service(endpoint, prompt="{code} {user.name}")}) as client:
        (tool,) = client.list_tools()
        assert (tool.name, tool.service, tool.description) == ("style", "style", "Asks m")
        assert tool.input_schema["required"] == ["code", "user"]


def test_model_service_schema_has_the_fields_of_the_prompt(endpoint):
    prompt = "{code} {user.name} {user.tests.0} {code}"
    with MCPClient({"style": service(endpoint, prompt=prompt)}) as client:
        (tool,) = client.list_tools("style")
    prefix = "The value of "
    user = {
        "name": {"type": "string", "description": prefix + "{user.name} in the prompt."},
        "tests": {"type": "array", "description": prefix + "{user.tests} in the prompt."},
    }
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": prefix + "{code} in the prompt."},
            "user": {
                "type": "object",
                "description": prefix + "{user} in the prompt.",
                "properties": user,
                "required": ["name", "tests"],
            },
        },
        "required": ["code", "user"],
    }


def test_model_service_without_a_name_is_called_by_its_model(endpoint):
    with MCPClient(service(endpoint)) as client:
        assert client.call_tool("m", prompt="?") == "fine"
        with pytest.raises(InvalidArgumentError, match="'m' is a model and has no tool 'judge'"):
            client.call_tool("judge", prompt="?")


def test_model_service_check_does_not_ask_the_model(model, endpoint):
    with MCPClient({"user": service(endpoint)}) as client:
        client.check()
    assert not model.asked


def test_model_service_check_reports_a_missing_model_or_key(endpoint, monkeypatch):
    monkeypatch.delenv("GUERDON_MODEL_KEY", raising=False)
    with (
        MCPClient({"user": service(endpoint, api_key_env="GUERDON_MODEL_KEY")}) as client,
        pytest.raises(ServiceError, match="GUERDON_MODEL_KEY, which isn't set"),
    ):
        client.check()
    with (
        MCPClient({"user": service("http://127.0.0.1:1")}) as client,
        pytest.raises(ServiceUnavailableError, match="service 'user' can't be reached"),
    ):
        client.check()


def test_model_service_rejects_an_invalid_prompt(endpoint):
    with pytest.raises(InvalidArgumentError):
        MCPClient({"user": service(endpoint, prompt="{a.__class__}")})
