"""Sessions with an ID, which HTTP requests and a WebSocket share."""

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from websockets.exceptions import ConnectionClosedOK

from tests.envs.server.worlds import CLOSE, RESET, SOON, STATE, Client, Counter

STEP = {"type": "step", "data": {"type": "call_tool", "tool_name": "add"}}


def rpc(served, method, **params):
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return served.http.post("/mcp", json=request).json()


def create(served):
    return rpc(served, "openenv/session/create")["result"]["session_id"]


def call(served, session, name, **arguments):
    answer = rpc(served, "tools/call", name=name, arguments=arguments, session_id=session)
    return answer["result"]["data"]


def step(number):
    return {**STEP, "data": {**STEP["data"], "arguments": {"number": number}}}


@pytest.fixture
def counter(serve):
    return serve(Counter, max_sessions=2)


@pytest.fixture
def attach():
    """Attaches WebSockets to a session, until the test ends."""
    opened = []

    def attach(served, session):
        url = f"{served.url.replace('http', 'ws')}/ws?session_id={session}"
        opened.append(Client(url))
        return opened[-1]

    yield attach
    for client in opened:
        client.close()


def test_shared_session_has_one_environment_for_calls_and_the_websocket(counter, attach):
    session = create(counter)
    client = attach(counter, session)
    assert client.ask({"type": "reset", "data": {"episode_id": "one"}})["type"] == "observation"
    assert call(counter, session, "add", number=2) == 2
    answer = client.ask(step(3))["data"]
    assert (answer["observation"]["result"]["data"], answer["reward"]) == (5, 1.0)
    assert client.ask(STATE)["data"] == {"episode_id": "one", "step_count": 1}
    created = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create"}
    answer = client.ask({"type": "mcp", "data": created})["data"]
    assert answer["result"] == {"session_id": session}
    assert counter.sessions() == 1


def attach_again(attach, served, session):
    """Attach a WebSocket once the one before has left, and return it."""
    deadline = time.monotonic() + SOON
    while True:
        client = attach(served, session)
        with contextlib.suppress(ConnectionClosedOK):
            if client.ask(STATE)["type"] == "state":
                return client
        assert time.monotonic() < deadline


@pytest.mark.parametrize("leave", [Client.close, lambda client: client.say(CLOSE)])
def test_shared_session_outlives_its_websocket(counter, attach, leave):
    session = create(counter)
    client = attach(counter, session)
    client.ask(RESET)
    client.ask(step(1))
    leave(client)
    assert call(counter, session, "add", number=1) == 2
    client = attach_again(attach, counter, session)
    assert client.ask(step(1))["data"]["observation"]["result"]["data"] == 3


@pytest.mark.parametrize("session", ["x", "00000000-0000-0000-0000-000000000000"])
def test_shared_session_that_is_unknown_is_refused(counter, attach, session):
    client = attach(counter, session)
    answer = client.hear()["data"]
    assert (answer["code"], session in answer["message"]) == ("SESSION_ERROR", True)
    assert client.ended() == 1000


def test_websocket_with_an_empty_session_id_has_a_session_of_its_own(counter, attach):
    assert attach(counter, "").ask(RESET)["type"] == "observation"
    assert counter.sessions() == 1


def test_shared_session_accepts_one_websocket(counter, attach):
    session = create(counter)
    create(counter)  # attaching takes no further place
    first = attach(counter, session)
    first.ask(RESET)
    second = attach(counter, session)
    assert "already has an attached WebSocket" in second.hear()["data"]["message"]
    assert second.ended() == 1000
    assert first.ask(step(1))["type"] == "observation"


def test_shared_session_that_is_closed_while_attached_ends_with_the_websocket(counter, attach):
    session = create(counter)
    client = attach(counter, session)
    client.ask(RESET)
    closed = rpc(counter, "openenv/session/close", session_id=session)["result"]
    assert closed == {"session_id": session, "closed": False, "closing": True}
    assert call(counter, session, "add", number=1) == 1
    client.close()
    counter.empty()


def test_shared_session_makes_one_call_at_a_time(serve, attach, eventually):
    begun, go_on = threading.Event(), threading.Event()
    order = []

    class Slow(Counter):
        def work(self):
            begun.set()
            go_on.wait(SOON)
            order.append("step")

        def reset(self, seed=None, episode_id=None, **kwargs):
            order.append("reset")
            return super().reset()

    served = serve(Slow)
    session = create(served)
    client = attach(served, session)
    client.ask(RESET)
    client.say({"type": "step", "data": {"type": "call_tool", "tool_name": "wait"}})
    assert begun.wait(SOON)
    (shared,) = served.app.sessions.sessions
    with ThreadPoolExecutor(1) as threads:
        adding = threads.submit(call, served, session, "add", number=1)
        eventually(lambda: len(shared.calls) == 2)
        assert not adding.done()
        go_on.set()
        assert adding.result(SOON) == 101
    assert client.hear()["data"]["observation"]["result"]["data"] == 100
    assert order == ["reset", "step"]


def test_shared_session_refuses_a_call_if_too_many_wait(serve, eventually, monkeypatch):
    monkeypatch.setattr("guerdon.envs.server.shared_sessions.MAX_WAITING", 1)
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Counter):
        def work(self):
            begun.set()
            go_on.wait(SOON)

    served = serve(Slow)
    session = create(served)
    (shared,) = served.app.sessions.sessions
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(call, served, session, "wait") for _ in range(2)]
        eventually(lambda: len(shared.calls) == 2)
        refused = rpc(served, "tools/list", session_id=session)["error"]
        go_on.set()
        assert sorted(each.result(SOON) for each in waiting) == [100, 200]
    assert "waiting" in refused["message"]


def test_shared_session_that_is_idle_ends_with_its_websocket(serve, attach):
    served = serve(Counter, idle_timeout_s=0.3)
    client = attach(served, create(served))
    client.ask(RESET)
    last = client.hear()
    assert last["data"]["code"] == "SESSION_ERROR"
    assert client.ended() == 1000
    served.empty()


def test_shared_session_has_its_own_reward_configuration(serve, attach):
    served = serve(Counter)
    session = create(served)
    client = attach(served, session)
    before = client.ask({"type": "config"})["data"]["version"]
    changed = client.ask({"type": "config", "data": {"training_step": 5}})["data"]["config"]
    client.close()
    again = attach_again(attach, served, session)
    assert again.ask({"type": "config"})["data"]["version"] == changed["version"]
    assert before == served.http.get("/config").json()["version"]


def test_shared_session_ends_when_the_server_stops(serve, attach):
    closed = []

    class Closing(Counter):
        def close(self):
            closed.append(self)

    served = serve(Closing)
    made = len(closed)
    client = attach(served, create(served))
    create(served)
    client.ask(RESET)
    served.join()
    assert json.loads(client.socket.recv(timeout=SOON))["data"]["code"] == "SESSION_ERROR"
    assert len(closed) == made + 2


def test_shared_session_ends_at_once_if_its_call_outlasts_the_grace(serve):
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Counter):
        def work(self):
            begun.set()
            go_on.wait(SOON)

    served = serve(Slow, grace_s=0.05)
    session = create(served)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(rpc, served, "tools/call", name="wait", session_id=session)
        assert begun.wait(SOON)
        served.stop()
        assert "the session has ended" in waiting.result(SOON)["error"]["message"]
        go_on.set()
