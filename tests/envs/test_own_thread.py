"""`own_thread`: every call of an environment in one thread that is its own."""

import asyncio
import sqlite3
import threading

import pytest
from starlette.testclient import TestClient

from guerdon import Environment, EnvPool, RLRolloutWorker, State, check_environment, create_app
from guerdon.envs.runner import EnvRunner, EnvThreads
from guerdon.errors import EnvError, EnvTimeoutError, EpisodeError, InvalidArgumentError
from guerdon.integrations.stepping import LocalEnvironment
from guerdon.rollouts import ScriptedPolicy
from tests.envs.worlds import SOON, Board, Half, Move


class Shared(Environment[Move, Board, State]):
    """Its database belongs to the thread that made it."""

    def __init__(self):
        super().__init__(rubric=Half())
        self.calls = [threading.get_ident()]
        self.database = sqlite3.connect(":memory:")
        self.database.execute("create table moves (value)")

    def reset(self, seed=None):
        self.calls.append(threading.get_ident())
        self.database.execute("delete from moves")
        return Board()

    def step(self, action):
        self.calls.append(threading.get_ident())
        (count,) = self.database.execute("select count(*) from moves").fetchone()
        if count == 3:
            raise EpisodeError("the episode is over")
        self.database.execute("insert into moves values (?)", (action.value,))
        return self.score(action, Board(done=count == 2))

    @property
    def state(self):
        self.calls.append(threading.get_ident())
        (count,) = self.database.execute("select count(*) from moves").fetchone()
        return State(step_count=count)

    def close(self):
        self.calls.append(threading.get_ident())
        self.database.close()


class Owned(Shared):
    own_thread = True


class OwnedAsync(Owned):
    """Its async methods run in an event loop of its thread."""

    async def reset_async(self, seed=None):
        self.loop = asyncio.get_running_loop()
        return self.reset(seed)

    async def step_async(self, action):
        assert asyncio.get_running_loop() is getattr(self, "loop", asyncio.get_running_loop())
        await asyncio.sleep(0)
        return self.step(action)


class Local(Shared):
    """What it keeps in its thread is missing in another, and no text says so."""

    def __init__(self):
        super().__init__()
        self.database.close()
        self.kept = threading.local()
        self.kept.count = 0

    def reset(self, seed=None):
        self.kept.count = 0
        return Board()

    def step(self, action):
        self.kept.count += 1
        return self.score(action, Board(done=self.kept.count == 3))

    state = State()


def make_owned():
    return Owned()


class Made:
    """A function that keeps what it has made."""

    def __init__(self, kind):
        self.kind, self.made = kind, []

    def __call__(self):
        self.made.append(self.kind())
        return self.made[-1]


@pytest.mark.parametrize("kind", [Owned, OwnedAsync])
def test_env_pool_calls_an_environment_in_a_thread_of_its_own(kind):
    factory = Made(kind)
    with EnvPool(factory, n=4).sync() as pool:
        for _ in range(2):
            pool.reset_batch(seeds=0)
            steps = [each for _ in range(3) for each in pool.step_batch([Move()] * 4)]
            assert [each.metadata.get("error") for each in steps] == [None] * 12
            assert [each.done for each in steps[-4:]] == [True] * 4
    threads = [set(each.calls) for each in factory.made]
    assert [len(each) for each in threads] == [1] * 4
    assert len(set.union(*threads)) == 4


@pytest.mark.edge
@pytest.mark.parametrize("kind", [Owned, make_owned, OwnedAsync])
def test_env_pool_in_processes_calls_an_environment_in_a_thread_of_its_own(kind):
    with EnvPool(kind, n=3, backend="processes").sync() as pool:
        assert [each.metadata for each in pool.reset_batch()] == [{}] * 3
        assert [each.reward for each in pool.step_batch([Move()] * 3)] == [0.5] * 3


@pytest.mark.parametrize("factory", [Owned, make_owned, OwnedAsync])
def test_create_app_calls_an_environment_in_a_thread_of_its_own(factory):
    with TestClient(create_app(factory)) as client:
        with client.websocket_connect("/ws") as socket:
            for message in [
                {"type": "reset"},
                {"type": "step", "data": {}},
                {"type": "step", "data": {}},
                {"type": "state"},
            ]:
                socket.send_json(message)
                answer = socket.receive_json()
            assert answer["data"]["step_count"] == 2
        assert client.post("/reset", json={}).status_code == 200
        assert client.post("/step", json={"action": {}}).json()["reward"] == 0.5


def test_rollout_worker_plays_in_a_thread_of_its_own():
    worker = RLRolloutWorker(Owned, ScriptedPolicy([{}] * 3), max_steps=5)
    record = worker.run_sync()
    assert (record.error, record.env_rewards) == (None, [0.5] * 3)


def test_rollout_worker_refuses_an_environment_that_belongs_to_another_thread():
    with Owned() as environment, pytest.raises(InvalidArgumentError, match="pass its class"):
        RLRolloutWorker(environment, ScriptedPolicy([{}]), max_steps=5)


@pytest.mark.parametrize("factory", [Owned, make_owned])
def test_local_environment_calls_an_environment_in_a_thread_of_its_own(factory):
    game = LocalEnvironment(factory)
    answers = []

    def play():
        answers.append(game.reset(3, {"unknown": 1}).done)
        answers.append(game.step({}).reward)

    caller = threading.Thread(target=play)
    caller.start()
    caller.join()
    assert answers == [False, 0.5]
    assert set(game.close().calls) & {threading.get_ident(), caller.ident} == set()


def test_an_environment_with_own_thread_can_be_awaited_where_it_was_made():
    async def main():
        with Owned() as environment:
            await environment.reset_async()
            return (await environment.step_async(Move())).reward

    assert asyncio.run(main()) == 0.5


# Endings --------------------------------------------------------------------------------------


class Hanging(Owned):
    def __init__(self, gate):
        super().__init__()
        self.gate, self.closed = gate, threading.Event()

    def step(self, action):
        self.gate.wait()
        return super().step(action)

    def close(self):
        super().close()
        self.closed.set()


class HangingAsync(Owned):
    def __init__(self, gate):
        super().__init__()
        self.closed = threading.Event()

    async def step_async(self, action):
        await asyncio.Event().wait()

    def close(self):
        super().close()
        self.closed.set()


@pytest.mark.parametrize("kind", [Hanging, HangingAsync])
def test_env_runner_abandons_an_own_thread_that_hangs(kind):
    gate = threading.Event()
    factory = Made(lambda: kind(gate))

    async def main():
        threads = EnvThreads(1)
        runner = EnvRunner(factory, threads, timeout_s=SOON)
        await runner.reset()
        runner.timeout_s = 0.1
        with pytest.raises(EnvTimeoutError, match="step took longer"):
            await runner.step(Move())
        runner.timeout_s = SOON
        assert (await runner.reset()).done is False  # in another environment
        gate.set()
        assert await asyncio.to_thread(factory.made[0].closed.wait, SOON)
        await runner.close(SOON)
        assert factory.made[1].closed.is_set()
        threads.close()

    asyncio.run(main())
    assert [len(set(each.calls)) for each in factory.made] == [1, 1]


def test_env_threads_end_own_threads_when_they_are_closed():
    async def main():
        threads = EnvThreads(1)
        runner = EnvRunner(Owned, threads)
        await runner.open()
        [ident] = runner.adapter.environment.calls
        [thread] = [each for each in threading.enumerate() if each.ident == ident]
        threads.close()
        await asyncio.to_thread(thread.join, SOON)
        assert not thread.is_alive()

    asyncio.run(main())


# The remedy -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        sqlite3.ProgrammingError(
            "SQLite objects created in a thread can only be used in that same thread."
        ),
        RuntimeError("cannot switch to a different thread (which happens to have exited)"),
        RuntimeError("It looks like you are using Playwright Sync API inside the asyncio loop."),
        RuntimeError("There is no current event loop in thread 'guerdon-env'."),
        RuntimeError("<Queue> is bound to a different event loop"),
    ],
)
def test_env_runner_an_error_about_threads_has_the_remedy(error):
    class Raises(Owned):
        own_thread = False

        def reset(self, seed=None):
            try:
                raise error
            except Exception as cause:
                raise ValueError("the shop is closed") from cause

    async def main():
        threads = EnvThreads(1)
        runner = EnvRunner(Raises, threads)
        try:
            await runner.reset()
        finally:
            threads.close()

    with pytest.raises(EnvError, match=r"the shop is closed.*set `own_thread = True` in the class"):
        asyncio.run(main())


def test_check_environment_reports_that_an_environment_needs_a_thread():
    assert "own_thread = True" in check_environment(Shared).problems[0].detail
    assert "set `own_thread = True` in Local" in check_environment(Local).problems[0].detail
    assert check_environment(Owned).ok
