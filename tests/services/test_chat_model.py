"""`ChatModel` at a real server with scripted replies."""

import asyncio
import copy
import gc
import itertools
import os
import pickle
import socket
import subprocess
import sys
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest

from examples.tau_chat.scripted_model import Broken, Dropped, Failed, Replied, ScriptedModel
from guerdon._background import run
from guerdon._http import MAX_ANSWER
from guerdon.errors import (
    InvalidArgumentError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnavailableError,
)
from guerdon.services import ChatModel, Prices, Usage
from guerdon.types import Message

HELLO = [{"role": "user", "content": "hello you"}]


@pytest.fixture(autouse=True)
def retrying_at_once(monkeypatch):
    """Shorten the pauses before retries."""
    monkeypatch.setattr("guerdon.services.retries.PAUSE_S", 0.001)


def chat_with(model, **settings):
    return ChatModel(model.endpoint, "m", **settings)


def ask(chat, **arguments):
    return run(chat.complete(HELLO, **arguments))


def is_left(model):
    return model.open == 0


def test_chat_model_asks_and_counts():
    with ScriptedModel(["one two three"]) as model:
        with chat_with(model, prices=Prices(1.0, 10.0)) as chat:
            reply = ask(chat)
        model.wait_for(is_left)
    assert (reply.text, reply.finish_reason, reply.is_structured) == (
        "one two three",
        "stop",
        False,
    )
    usage = chat.usage
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (1, 2, 3)
    assert (usage.cost, usage.retries, usage.failures) == (32 / 1_000_000, 0, 0)
    assert model.asked == [{"model": "m", "messages": HELLO, "temperature": 0.0}]


def test_chat_model_sends_its_settings():
    with ScriptedModel(["a", "b"]) as model:
        settings = {"temperature": 0.7, "max_tokens": 9, "extra_body": {"top_k": 5}}
        with chat_with(model, **settings) as chat:
            ask(chat)
            ask(chat, temperature=0.1, max_tokens=3, seed=7)
    first, second = model.asked
    assert (first["temperature"], first["max_tokens"], first["top_k"]) == (0.7, 9, 5)
    assert (second["temperature"], second["max_tokens"], second["seed"]) == (0.1, 3, 7)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(Failed(429), id="429"),
        pytest.param(Failed(429, retry_after="0.01"), id="429_with_retry_after"),
        pytest.param(Failed(429, retry_after="nan"), id="429_with_nan_seconds"),
        pytest.param(Failed(500), id="500"),
        pytest.param(Broken(), id="broken_json"),
        pytest.param(Broken("<html>proxy</html>"), id="html"),
        pytest.param(Broken("[1]"), id="a_list"),
        pytest.param(Dropped(), id="dropped"),
        pytest.param(Dropped(within=True), id="dropped_within"),
    ],
)
def test_chat_model_retries(failure):
    with ScriptedModel([failure, "fine"]) as model:
        with chat_with(model) as chat:
            assert ask(chat).text == "fine"
        model.wait_for(is_left)
    assert (chat.usage.calls, chat.usage.retries, chat.usage.failures) == (1, 1, 0)


@pytest.mark.parametrize(
    ("failure", "kind", "why"),
    [
        pytest.param(Failed(429), ServiceUnavailableError, "answered 429", id="429"),
        pytest.param(Failed(500), ServiceError, "answered 500", id="500"),
        pytest.param(Failed(503), ServiceUnavailableError, "answered 503", id="503"),
        pytest.param(Broken(), ServiceError, "invalid JSON", id="broken_json"),
        pytest.param(Dropped(), ServiceUnavailableError, "can't be reached", id="dropped"),
    ],
)
def test_chat_model_raises_after_its_retries(failure, kind, why):
    with (
        ScriptedModel(lambda body: failure) as model,
        chat_with(model) as chat,
        pytest.raises(kind, match=f"m at {model.endpoint}.*{why}") as raised,
    ):
        ask(chat)
    assert raised.value.__notes__ == ["after 4 attempts"]
    assert (len(model.asked), chat.usage.retries, chat.usage.failures) == (4, 3, 1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_chat_model_does_not_retry_a_rejected_request(status):
    with (
        ScriptedModel([Failed(status, text="no way")]) as model,
        chat_with(model) as chat,
        pytest.raises(ServiceError, match=f"answered {status}.*no way"),
    ):
        ask(chat)
    assert len(model.asked) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_chat_model_does_not_follow_redirects(status):
    with ScriptedModel(["10/10"]) as other:
        there = Failed(status, location=f"{other.endpoint}/chat/completions")
        with (
            ScriptedModel([there]) as model,
            chat_with(model) as chat,
            pytest.raises(
                ServiceError, match=f"answered {status}: redirects, here to .*{there.location}"
            ),
        ):
            ask(chat)
    assert (len(model.asked), other.asked) == (1, [])


class Refusing(BaseHTTPRequestHandler):
    """Fails, and repeats in a redirect where it was asked."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.server.paths.append(self.path)
        self.send_response(self.server.status)
        self.send_header("location", f"http://other{self.path}")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.mark.parametrize("status", [204, 307, 500])
def test_chat_model_sends_the_query_of_its_endpoint_and_does_not_show_it(status, caplog):
    caplog.set_level("INFO")
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        server.paths, server.status = [], status
        threading.Thread(target=server.serve_forever).start()
        endpoint = f"http://127.0.0.1:{server.server_port}/v1?key=s3cret&version=1"
        with ChatModel(endpoint, "m", retries=0) as chat, pytest.raises(ServiceError) as raised:
            ask(chat)
        server.shutdown()
    assert server.paths == ["/v1/chat/completions?key=s3cret&version=1"]
    shown = [*traceback.format_exception(raised.value), repr(chat), chat.name, caplog.text]
    assert "s3cret" not in "".join(shown)


def test_chat_model_rejects_an_answer_that_is_too_large():
    with (
        ScriptedModel([Broken('{"choices": "%s"}' % ("a" * MAX_ANSWER))]) as model,
        chat_with(model, retries=0) as chat,
        pytest.raises(ServiceError, match=f"answered with more than {MAX_ANSWER} bytes"),
    ):
        ask(chat)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param('{"error": "x"}', "without choices", id="an_error_as_200"),
        pytest.param('{"choices": []}', "without choices", id="none"),
        pytest.param('{"choices": [{"message": null}]}', "without choices", id="no_message"),
        pytest.param(
            '{"choices": [{"message": {"content": 5}}]}', "without choices", id="a_number"
        ),
    ],
)
def test_chat_model_raises_on_an_answer_without_choices(body, why):
    with (
        ScriptedModel([Broken(body)]) as model,
        chat_with(model) as chat,
        pytest.raises(ServiceError, match=why),
    ):
        ask(chat)


def test_chat_model_raises_on_a_refusal_and_a_filter():
    script = [
        Replied("", choice={"message": {"content": None, "refusal": "I won't"}}),
        Replied("part of", finish_reason="content_filter"),
    ]
    with ScriptedModel(script) as model, chat_with(model) as chat:
        with pytest.raises(ServiceError, match="refused: I won't"):
            ask(chat)
        with pytest.raises(ServiceError, match="filtered"):
            ask(chat)


def test_chat_model_joins_content_in_parts():
    parts = [{"type": "thinking", "thinking": "c"}, {"type": "text", "text": "a"},
             {"type": "image"}, {"type": "text", "text": "b"}]  # fmt: skip
    script = [Replied(choice={"message": {"content": parts}}),
              Replied(choice={"message": {"content": None}}, finish_reason="length")]  # fmt: skip
    with ScriptedModel(script) as model, chat_with(model) as chat:
        assert ask(chat).text == "a\nb"
        assert (ask(chat).text, chat.usage.calls) == ("", 2)


def test_chat_model_retries_after_a_timeout():
    answers = itertools.chain([Replied("late", is_held=True)], itertools.repeat("in time"))
    with ScriptedModel(answers) as model:
        with chat_with(model, timeout_s=0.5) as chat:
            assert ask(chat).text == "in time"
        model.wait_for(is_left)
    assert chat.usage.retries >= 1


def test_chat_model_times_out():
    with ScriptedModel(lambda body: Replied(is_held=True)) as model:
        with (
            chat_with(model, timeout_s=0.02, retries=1) as chat,
            pytest.raises(ServiceTimeoutError, match=r"in 0\.02 s"),
        ):
            ask(chat)
        model.wait_for(is_left)
    assert (chat.usage.retries, chat.usage.failures) == (1, 1)


def test_chat_model_reports_a_port_without_a_server():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with (
        ChatModel(f"http://127.0.0.1:{port}", "m", retries=0) as chat,
        pytest.raises(ServiceUnavailableError, match="can't be reached"),
    ):
        ask(chat)


def test_chat_model_limits_the_requests_at_once():
    with ScriptedModel(lambda body: Replied("x", is_held=True)) as model:
        with chat_with(model, concurrency=20) as chat:

            async def many():
                asking = asyncio.gather(*(chat.complete(HELLO) for _ in range(100)))
                await asyncio.to_thread(model.wait_for, lambda model: len(model.asked) == 20)
                model.release()
                await asking

            asyncio.run(many())
        model.wait_for(is_left)
    assert model.at_once == 20
    assert model.connections == 20


def test_chat_model_reuses_a_connection():
    with ScriptedModel(lambda body: "x") as model, chat_with(model) as chat:
        for _ in range(5):
            ask(chat)
        assert model.connections == 1


@pytest.mark.anyio
async def test_complete_works_on_any_loop():
    with ScriptedModel(lambda body: "x") as model:
        async with chat_with(model) as chat:
            assert (await chat.complete(HELLO)).text == "x"
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(chat.complete, HELLO)
        await anyio.to_thread.run_sync(model.wait_for, is_left)
    assert chat.usage.calls == 6


def test_complete_frees_its_turn_when_cancelled():
    with ScriptedModel([Replied(is_held=True), "next"]) as model:
        with chat_with(model, concurrency=1) as chat:

            async def main():
                asking = asyncio.ensure_future(chat.complete(HELLO))
                await asyncio.to_thread(model.wait_for, lambda model: len(model.asked) == 1)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                return await chat.complete(HELLO)

            assert asyncio.run(main()).text == "next"
        model.wait_for(is_left)


SCHEMA = {"type": "object", "properties": {"score": {"type": "number"}}}


def test_complete_sends_a_schema():
    with ScriptedModel(['{"score": 1}']) as model, chat_with(model) as chat:
        assert ask(chat, schema=SCHEMA).is_structured
    sent = model.asked[0]["response_format"]
    assert (sent["type"], sent["json_schema"]["schema"]) == ("json_schema", SCHEMA)


def test_complete_stops_sending_a_schema_that_the_endpoint_rejects():
    with ScriptedModel(["a", "b"], takes_schema=False) as model, chat_with(model) as chat:
        assert not ask(chat, schema=SCHEMA).is_structured
        assert ask(chat, schema=SCHEMA).text == "b"
    assert ["response_format" in body for body in model.asked] == [True, False, False]


def test_chat_model_without_structured_output_sends_no_schema():
    with ScriptedModel(["a"]) as model, chat_with(model, structured=False) as chat:
        assert not ask(chat, schema=SCHEMA).is_structured
    assert "response_format" not in model.asked[0]


def test_complete_sends_a_schema_again_after_another_rejection():
    with ScriptedModel([Failed(400), Failed(400), "a"]) as model, chat_with(model) as chat:
        with pytest.raises(ServiceError, match="answered 400"):
            ask(chat, schema=SCHEMA)
        assert ask(chat, schema=SCHEMA).is_structured


def test_chat_model_sends_its_key_and_never_shows_it(monkeypatch):
    monkeypatch.setenv("MODEL_KEY", "sk-from-env")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-others")
    failure = Failed(401, text="wrong key sk-secret")
    with ScriptedModel([failure, "a", "b"]) as model:
        with chat_with(model, api_key="sk-secret") as chat:
            with pytest.raises(ServiceError) as raised:
                ask(chat)
            assert "sk-secret" not in f"{raised.value!r}{chat!r}{vars(raised.value)}"
        with chat_with(model, api_key_env="MODEL_KEY") as chat:
            ask(chat)
            assert "sk-from-env" not in str(pickle.dumps(chat))
        with chat_with(model) as chat:
            ask(chat)
    keys = [headers["authorization"] for headers in model.headers]
    assert keys == ["Bearer sk-secret", "Bearer sk-from-env", "Bearer none"]


def test_chat_model_replaces_half_a_surrogate_pair():
    refused = Replied(choice={"message": {"content": None, "refusal": "no \ud800"}})
    with ScriptedModel(["a \ud800", refused]) as model, chat_with(model) as chat:
        assert ask(chat).text == "a \ufffd"
        with pytest.raises(ServiceError, match="refused: no \ufffd"):
            ask(chat)


@pytest.mark.parametrize(
    "content", ["half \ud800", {"a", "set"}, float("nan")], ids=["surrogate", "set", "nan"]
)
def test_complete_rejects_messages_that_json_cannot_express(content):
    with ScriptedModel(["a"]) as model, chat_with(model) as chat:
        with pytest.raises(InvalidArgumentError, match="must fit into JSON in UTF-8"):
            run(chat.complete([{"role": "user", "content": content}]))
        assert ask(chat).text == "a"
    assert len(model.asked) == 1
    assert chat.usage.retries == 0


def test_complete_takes_messages_as_objects():
    with ScriptedModel(["a"]) as model, chat_with(model) as chat:
        assert run(chat.complete([Message(**HELLO[0])])).text == "a"
    assert model.asked[0]["messages"] == HELLO


def test_complete_reports_an_unset_key(monkeypatch):
    monkeypatch.delenv("MODEL_KEY", raising=False)
    with (
        ChatModel("http://localhost:1", "m", api_key_env="MODEL_KEY") as chat,
        pytest.raises(ServiceError, match="the environment variable MODEL_KEY, which isn't set"),
    ):
        ask(chat)


def test_chat_model_connects_again_after_close():
    with ScriptedModel(["a", "b"]) as model, chat_with(model) as chat:
        ask(chat)
        chat.close()
        model.wait_for(is_left)
        assert ask(chat).text == "b"


def test_chat_model_closes_its_connections_when_collected():
    with ScriptedModel(["a"]) as model:
        chat = chat_with(model)
        ask(chat)
        assert model.open == 1
        del chat
        gc.collect()
        model.wait_for(is_left)


def test_chat_model_can_be_copied_and_pickled():
    with ScriptedModel(["a", "b"]) as model, chat_with(model, max_tokens=5) as chat:
        ask(chat)
        assert copy.copy(chat) is copy.deepcopy(chat) is chat
        with pickle.loads(pickle.dumps(chat)) as again:
            assert ask(again).text == "b"
        assert model.connections == 2
        assert (again.max_tokens, again.fingerprint(), again.usage.calls) == (
            5, chat.fingerprint(), 1)  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_chat_model_in_a_forked_process_opens_its_own_connections():
    with ScriptedModel(["a", "b", "c"]) as model, chat_with(model) as chat:
        ask(chat)
        child = os.fork()
        if child == 0:
            os._exit(0 if ask(chat).text == "b" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert ask(chat).text == "c"
        assert model.connections == 2


PROGRAM = """
import sys
from guerdon._background import run
from guerdon.services import ChatModel
chat = ChatModel(sys.argv[1], "m")
print(run(chat.complete([{"role": "user", "content": "x"}])).text)
"""


@pytest.mark.edge
def test_chat_model_is_closed_at_exit():
    with ScriptedModel(["a"]) as model:
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM, model.endpoint],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert (ended.stdout, ended.stderr, ended.returncode) == ("a\n", "", 0)


@pytest.mark.parametrize(
    ("endpoint", "base"),
    [
        pytest.param("http://localhost:8000", "http://localhost:8000/v1", id="no_path"),
        pytest.param("http://localhost:8000/", "http://localhost:8000/v1", id="a_slash"),
        pytest.param("http://[::1]:8000/v1/", "http://[::1]:8000/v1", id="v1"),
        pytest.param("https://host/api/v3", "https://host/api/v3", id="another_path"),
        pytest.param("https://host/v1/chat/completions", "https://host/v1", id="the_whole"),
    ],
)
def test_chat_model_adds_v1_to_an_address_without_a_path(endpoint, base):
    assert ChatModel(endpoint, "m").endpoint == base


@pytest.mark.parametrize(
    "endpoint", ["localhost:8000", "ftp://host", "", "http://", "http://[::1", 5, None]
)
def test_chat_model_rejects_an_invalid_address(endpoint):
    with pytest.raises(InvalidArgumentError, match=r"^endpoint: "):
        ChatModel(endpoint, "m")


def test_chat_model_rejects_an_address_with_a_password():
    with pytest.raises(InvalidArgumentError, match="api_key_env") as raised:
        ChatModel("http://user:hunter2@host/v1", "m")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "settings",
    [{"model": ""}, {"temperature": 2.1}, {"temperature": float("nan")}, {"max_tokens": 0},
     {"max_tokens": True}, {"timeout_s": 0}, {"timeout_s": float("inf")}, {"retries": -1},
     {"concurrency": 0}, {"concurrency": 10_001}, {"extra_body": {"messages": []}}],
    ids=lambda settings: "-".join(map(str, *settings.items())),
)  # fmt: skip
def test_chat_model_rejects_an_invalid_argument(settings):
    with pytest.raises(InvalidArgumentError, match=next(iter(settings))):
        ChatModel("http://localhost", **{"model": "m", **settings})
    with pytest.raises(InvalidArgumentError, match="not both"):
        ChatModel("http://localhost", "m", api_key="a", api_key_env="A")


def test_usage_counts_tokens_and_cost():
    usage = Usage(prices=Prices(prompt=2.0, completion=8.0))
    usage.count(1000, 500)
    usage.count(1000, 0)
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (2, 2000, 500)
    assert usage.cost == (2000 * 2.0 + 500 * 8.0) / 1_000_000


def test_usage_has_no_cost_without_prices():
    usage = Usage()
    usage.count(1000, 500)
    assert usage.cost is None


def test_usage_counts_replies_without_tokens():
    usage = Usage()
    usage.count(None, None)
    assert (usage.calls, usage.without_usage, usage.prompt_tokens) == (1, 1, 0)
