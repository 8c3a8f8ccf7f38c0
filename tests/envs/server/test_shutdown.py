"""How a server ends: running steps end, and those that hang are abandoned."""

import asyncio
import threading

import pytest

from tests.envs.server.worlds import RESET, STATE, Echo, Raw, Said, counted, step

pytestmark = pytest.mark.edge  # real servers that end


def waiting(hold, inside):
    def slow(self, action, **kwargs):
        if action.text == "wait":
            inside.set()
            hold.wait()
        return Echo.step(self, action)

    return counted(step=slow)


def test_shutdown_lets_a_running_step_end(serve, hold, eventually):
    inside = threading.Event()
    world = waiting(hold, inside)
    served = serve(world)
    busy, idle = served.client(), served.client()
    idle.ask(RESET)
    busy.say(step("wait"))
    assert inside.wait(10)
    served.stop()
    reply = idle.hear()  # at once
    assert reply["data"]["code"] == "SESSION_ERROR"
    assert "shutting down" in reply["data"]["message"]
    assert idle.ended() == 1001
    hold.set()
    assert busy.hear()["data"]["observation"]["text"] == "wait"
    assert busy.hear()["data"]["code"] == "SESSION_ERROR"
    assert busy.ended() == 1001
    eventually(lambda: not served.running)
    assert world.made == world.closed


def connects(served):
    try:
        Raw(served.port).close()
    except OSError:
        return False
    return True


def test_shutdown_refuses_new_sessions(serve, hold, eventually):
    inside = threading.Event()
    served = serve(waiting(hold, inside))
    busy, other = served.client(), served.raw()
    busy.say(step("wait"))
    assert inside.wait(10)
    assert served.http.get("/health").status_code == 200
    served.stop()
    eventually(lambda: not connects(served))
    assert other.upgrade() == 101  # it was connected before
    assert other.hear()["data"]["code"] == "CAPACITY_REACHED"
    assert other.close_code() == 1000


def test_shutdown_abandons_a_step_after_the_grace_period(serve, hold, eventually):
    inside = threading.Event()
    served = serve(waiting(hold, inside), grace_s=0.3)
    client = served.client()
    client.say(step("wait"))
    assert inside.wait(10)
    served.stop()
    assert client.hear()["data"]["code"] == "SESSION_ERROR"
    assert client.ended() == 1001
    eventually(lambda: not served.running)


def test_shutdown_abandons_an_async_step_after_the_grace_period(serve, eventually):
    inside = threading.Event()

    async def slow(self, action, **kwargs):
        inside.set()
        await asyncio.Event().wait()

    world = counted(step_async=slow)
    served = serve(world, grace_s=0.3)
    client = served.client()
    client.say(step("wait"))
    assert inside.wait(10)
    served.stop()
    assert client.hear()["data"]["code"] == "SESSION_ERROR"
    eventually(lambda: not served.running)
    eventually(lambda: world.made == world.closed)


def test_shutdown_lets_a_running_http_call_end(serve, hold, eventually):
    inside = threading.Event()
    served = serve(waiting(hold, inside))
    answers = []
    body = {"action": {"text": "wait"}}
    calling = threading.Thread(target=lambda: answers.append(served.http.post("/step", json=body)))
    calling.start()
    assert inside.wait(10)
    served.stop()
    eventually(lambda: served.app.sessions.draining)
    hold.set()
    calling.join(10)
    assert answers[0].json()["observation"]["text"] == "wait"


def test_shutdown_does_not_wait_for_a_client_that_does_not_read(serve, eventually):
    class Talkative(Echo):
        def reset(self, **kwargs):
            return Said(text="x" * 2**25)

    served = serve(Talkative, grace_s=0.5, send_timeout_s=0.5)
    raw = served.raw(receive_buffer=4096)
    raw.upgrade()
    raw.frame(RESET)
    raw.frame(RESET)
    eventually(lambda: served.sessions() == 1)
    served.stop()
    eventually(lambda: not served.running)


def test_shutdown_does_not_wait_for_a_hanging_close(serve, hold, eventually):
    hold.set()
    served = serve(counted(close=lambda self: hold.wait()), close_timeout_s=0.2, grace_s=0.5)
    client = served.client()
    client.ask(STATE)
    hold.clear()
    served.stop()
    eventually(lambda: not served.running)


def test_shutdown_ends_many_sessions_together(serve, eventually):
    world = counted()
    served = serve(world)
    clients = [served.client() for _ in range(30)]
    for client in clients:
        client.ask(RESET)
    served.stop()
    assert [client.hear()["data"]["code"] for client in clients] == ["SESSION_ERROR"] * 30
    assert {client.ended() for client in clients} == {1001}
    eventually(lambda: not served.running)
    assert world.made == world.closed == 31


def test_shutdown_ends_the_threads(serve, eventually):
    def workers():
        return {each for each in threading.enumerate() if each.name.startswith("guerdon-env")}

    before = workers()
    served = serve()
    served.client().ask(RESET)
    ours = workers() - before
    assert ours
    served.stop()
    eventually(lambda: not served.running)
    eventually(lambda: not any(each.is_alive() for each in ours))
