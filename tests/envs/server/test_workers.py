"""`create_app(processes=N)`: the environments of a server in several processes."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from guerdon import EnvPool, RewardConfig
from guerdon.envs.pool.processes import ProcessLink
from guerdon.envs.pool.workers import Worker, WorkerLink
from guerdon.envs.server.app import create_app
from guerdon.errors import InvalidArgumentError, WorkerError
from tests.envs.server.worlds import RESET, STATE, Client, Echo, Said, step
from tests.envs.worlds import SOON, Half, Value, World

pytestmark = pytest.mark.edge


class Risky(Echo):
    """Does what its action's text names, also to its process."""

    def reset(self, seed=None, episode_id=None, **kwargs):
        super().reset(seed, episode_id)
        return Said(text=str(os.getpid()))

    def step(self, action, timeout_s=None, **kwargs):
        if action.text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if action.text == "raise":
            raise OSError("the game is down")
        if action.text == "hang":
            time.sleep(SOON)
        if action.text == "hold the lock":
            ctypes.PyDLL(None).sleep(SOON)
        return super().step(action)


class Measured(World):
    """Returns the value of its action, with a rubric from a configuration."""

    rubric_of = staticmethod(lambda: None)


def process(client):
    return int(client.ask(RESET)["data"]["observation"]["text"])


def moved(client, value=1.0):
    return client.ask({"type": "step", "data": {"value": value}})["data"]["reward"]


def message(answer):
    assert answer["type"] == "error", answer
    return answer["data"]["message"]


@pytest.fixture
def served(serve):
    return serve(Risky, processes=2, step_timeout_s=1.0)


def test_processes_sessions_are_spread_and_speak_the_protocol(served):
    clients = [served.client() for _ in range(4)]
    processes = [process(client) for client in clients]
    assert sorted(map(processes.count, set(processes))) == [2, 2]
    assert os.getpid() not in processes
    for client in clients:
        assert client.ask(step("hi"))["data"]["observation"]["text"] == "hi"
        assert client.ask(STATE)["data"]["step_count"] == 1
        assert client.error({"type": "step", "data": {"texd": 1}}) == "VALIDATION_ERROR"
        assert "OSError: the game is down" in message(client.ask(step("raise")))
        assert client.ask(step("hi"))["type"] == "observation"
    assert served.number("guerdon_sessions") == 4
    assert served.number("guerdon_failures_total", kind="step") == 4
    assert served.http.post("/reset", json={}).status_code == 200
    answer = served.http.post("/step", json={"action": {"text": "hello"}})
    assert answer.json()["observation"]["text"] == "hello"


def test_processes_one_that_dies_takes_its_own_sessions_alone_and_is_replaced(served):
    clients = [served.client() for _ in range(4)]
    before = [process(client) for client in clients]
    others = [each for each in clients if process(each) != before[0]]
    (neighbor,) = [each for each in clients[1:] if process(each) == before[0]]
    died = message(clients[0].ask(step("die")))
    assert "the worker process was killed by SIGKILL" in died
    assert "SIGKILL" in message(neighbor.ask(step("hi")))
    for client in others:
        assert client.ask(step("hi"))["data"]["observation"]["text"] == "hi"
    after = {process(clients[0]), process(neighbor)}
    assert len(after) == 1
    assert after.isdisjoint(before)
    assert clients[0].ask(step("hi"))["data"]["observation"]["text"] == "hi"


def test_processes_a_step_over_its_time_limit_does_not_disturb_its_process(served, eventually):
    clients = [served.client() for _ in range(4)]
    before = [process(client) for client in clients]
    assert "step took longer than 1 s" in message(clients[0].ask(step("hang")))
    eventually(lambda: served.number("guerdon_hanging_environments") == 1)
    assert [process(client) for client in clients] == before


def test_processes_one_that_does_not_respond_is_stopped(served):
    clients = [served.client() for _ in range(2)]
    before = [process(client) for client in clients]
    assert "didn't respond for 1 s" in message(clients[0].ask(step("hold the lock")))
    after = [process(client) for client in clients]
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_processes_one_that_cannot_start_again_gets_no_session(served, monkeypatch, eventually):
    clients = [served.client() for _ in range(4)]
    before = [process(client) for client in clients]

    async def start(link):
        raise WorkerError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(ProcessLink, "start", start)
        assert "SIGKILL" in message(clients[0].ask(step("die")))
        for client in [client for client, each in zip(clients, before, strict=True)
                       if each == before[0]]:  # fmt: skip
            client.close()
        eventually(lambda: served.number("guerdon_sessions") == 2)
        with contextlib.suppress(ConnectionClosed):  # it may wait for the start, which fails
            served.client().ask(RESET)
        running = {process(served.client()) for _ in range(4)}
        assert running < set(before)
        assert before[0] not in running
    # Nobody has to reset a session for it to be back.
    eventually(lambda: process(served.client()) not in before)


def test_processes_pools_get_the_errors_of_each_slot(served):
    with EnvPool(served.url, n=4).sync() as pool:
        before = [each.text for each in pool.reset_batch()]
        hung, *others = pool.step_batch([{"text": each} for each in ("hang", "a", "b", "c")])
        assert "step took longer than 1 s" in hung.metadata["error"]
        assert [each.text for each in others] == ["a", "b", "c"]
        assert [each.text for each in pool.reset_batch()] == before
        stepped = pool.step_batch([{"text": each} for each in ("die", "a", "raise", "c")])
        errors = [each.metadata.get("error", "") for each in stepped]
        assert "SIGKILL" in errors[0]
        assert [error == "" for error in errors] == [False, True, False, True]
        assert pool.reset_batch(slots=[0, 2])[0].text not in before
        stepped = pool.step_batch([{"text": each} for each in "abcd"])
        assert [each.text for each in stepped] == ["a", "b", "c", "d"]


def test_processes_a_client_that_leaves_frees_its_environment(served, eventually):
    client = served.client()
    process(client)
    client.say(step("hang"))
    client.close()
    eventually(lambda: served.number("guerdon_sessions") == 0)


def config():
    entries = [
        {"name": "half", "rubric": Half, "weight": 1.0},
        {"name": "value", "rubric": Value, "weight": 1.0},
    ]
    data = {"schema_version": "1.0", "normalize": False, "per_turn": entries}
    return RewardConfig.from_dict(data)


def test_processes_one_configuration_scores_the_sessions_of_all(serve):
    served = serve(Measured, processes=2, reward=config())
    clients = [served.client() for _ in range(4)]

    def rewards():
        for client in clients:
            assert client.ask(RESET)["type"] == "observation"
        return [moved(client) for client in clients]

    assert rewards() == [1.5] * 4
    answer = served.http.post("/config", json={"weights": {"half": 4.0}, "by": "ann"}).json()
    assert [moved(client) for client in clients] == [1.5] * 4  # the episodes that run
    assert rewards() == [3.0] * 4
    assert served.http.get("/config").json()["version"] == answer["config"]["version"]
    assert served.http.get("/config").json()["progress"]["episode"] == 8
    assert json.dumps(served.http.get("/config/audit").json()).count("ann") == 1
    alone = clients[1].ask({"type": "config", "data": {"weights": {"half": 0.0}}})
    assert alone["data"]["status"] == "ok"
    assert rewards() == [3.0, 1.0, 3.0, 3.0]
    stepped = served.http.post("/step", json={"action": {"value": 1.0}}).json()
    assert stepped["reward"] == 3.0  # without a reset


def test_processes_must_be_at_least_1():
    with pytest.raises(InvalidArgumentError, match="`processes` must be"):
        create_app(Risky, processes=0)


class Starting(WorkerLink):
    """The connection to a worker that starts when it may."""

    def __init__(self):
        self.may_start, self.sent = asyncio.Event(), []

    async def start(self):
        await self.may_start.wait()

    def send(self, calls):
        self.sent += calls

    def kill(self):
        pass

    async def close(self, timeout_s):
        pass


class Caller:
    def finish(self, value, error=None):
        raise AssertionError("it has left")


def test_worker_closes_an_environment_whose_process_was_still_starting():
    async def life():
        link, left = Starting(), Caller()
        worker = Worker(lambda: link, "session")
        for call in ((1, "reset", ()), (2, "reset", ()), (1, "close", ())):
            worker.submit([(call, left)])
        link.may_start.set()
        while not link.sent:
            await asyncio.sleep(0)
        worker.pending.clear()
        await worker.close(1.0)
        return [call[:2] for call in link.sent]

    assert asyncio.run(life()) == [(1, "reset"), (2, "reset"), (1, "close")]


COMMAND = [sys.executable, "-m", "guerdon", "serve", f"{__file__}:Risky", "--processes", "2"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_serve_command_processes_end_with_the_server(number, eventually):
    with subprocess.Popen(
        [*COMMAND, "--port", "0"],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        url = server.stdout.readline().split()[-1]
        assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
        clients = [Client(url.replace("http", "ws") + "/ws") for _ in range(2)]
        processes = {process(client) for client in clients}
        assert len(processes) == 2
        server.send_signal(number)
        server.wait(SOON)
        for client in clients:
            client.close()
        eventually(lambda: not any(Path(f"/proc/{each}").exists() for each in processes))


def test_trees_of_a_session_come_from_its_process(serve):
    served = serve(Risky, processes=2)
    client = served.client("/ws?trees=1")
    client.ask(RESET)
    tree = client.ask(step("four"))["data"]["observation"]["metadata"]["reward_tree"]
    assert (tree["value"], tree["status"]) == (0.4, "scored")
