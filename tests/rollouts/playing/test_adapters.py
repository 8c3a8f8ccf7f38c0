"""Playing in environments of every kind: those that hang, those of others, those on a server."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio
import pytest

from guerdon import EnvClient, GenericEnvClient, HTTPEnvClient, create_app
from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.playing.worker import RLRolloutWorker
from tests.envs.client.servers import SOON, Echo, Echoed, EchoState, Say, Served
from tests.rollouts.playing.guessing import (
    Guess,
    Guessing,
    Hangs,
    Hint,
    Makes,
    begun,
    guesses,
    play,
    run,
    sayings,
    texts,
)

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")


# Hanging and closing


def test_rollout_worker_hanging_environment_ends_the_episode_and_is_closed_later():
    factory = Makes(Hangs)
    record = play(factory, guesses(1), step_timeout=0.1)
    assert record.ended == "error"
    assert "step 0: EnvTimeoutError: step took longer than 0.1 s" in record.error
    [made] = factory.made
    assert made.closed == 0
    made.gate.set()
    assert made.freed.wait(SOON)
    assert made.closed == 1


def test_rollout_worker_hanging_environment_of_the_caller_is_not_used_again():
    environment = Hangs()
    worker = RLRolloutWorker(environment, guesses(1), max_steps=1, step_timeout=0.1)
    assert "EnvTimeoutError" in run(worker.run()).error
    with pytest.raises(InvalidArgumentError, match="or hangs in an abandoned one"):
        run(worker.run())
    environment.gate.set()
    environment.gate.wait()
    for thread in threading.enumerate():
        if thread.name == "guerdon-rollout":
            thread.join(SOON)
    assert run(worker.run()).ended == "max_steps"
    assert environment.closed == 0


def test_rollout_worker_cancels_and_closes_a_hanging_async_environment():
    class AsyncHangs(Guessing):
        async def step_async(self, action, **kwargs):
            await asyncio.Event().wait()

    factory = Makes(AsyncHangs)
    record = play(factory, guesses(1), step_timeout=0.05)
    assert "step took longer than 0.05 s" in record.error
    assert factory.made[0].closed == 1


def test_rollout_worker_logs_a_failed_close_and_keeps_the_record(caplog):
    class Sticky(Guessing):
        def close(self):
            raise OSError("stuck")

    assert play(Sticky, guesses(7)).ended == "done"
    assert "closing Sticky failed: OSError: stuck" in caplog.text


# Cancellation


def test_rollout_worker_cancelled_episode_closes_its_environment():
    class Waits:
        def __init__(self):
            self.asked = asyncio.Event()

        async def get_action(self, observation, available_tools_specs=None):
            self.asked.set()
            await asyncio.Event().wait()

    async def main():
        policy, factory = Waits(), Makes(Guessing)
        task = asyncio.ensure_future(RLRolloutWorker(factory, policy, max_steps=1).run())
        await policy.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert factory.made[0].closed == 1

    run(main())


def test_rollout_worker_cancelled_scope_closes_its_environments():
    async def main():
        factory = Makes(Guessing)
        asked = asyncio.Barrier(4)  # all three wait for their policy: no thread is in the middle

        class Waits:
            async def get_action(self, observation, available_tools_specs=None):
                await asked.wait()
                await asyncio.Event().wait()

        worker = RLRolloutWorker(factory, Waits(), max_steps=1)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run_group, None, 3)
            await asked.wait()
            group.cancel_scope.cancel()
        assert [made.closed for made in factory.made] == [1] * len(factory.made)

    run(main())


def test_rollout_worker_cancelled_in_a_blocking_step_leaves_nothing_open():
    async def main():
        factory = Makes(Hangs)
        task = asyncio.ensure_future(RLRolloutWorker(factory, guesses(1), max_steps=1).run())
        while not factory.made:
            await asyncio.sleep(0)
        [made] = factory.made
        await begun(made.begun)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert made.closed == 0
        made.gate.set()
        await begun(made.freed)

    run(main())


def test_rollout_worker_cancelled_while_making_an_environment_closes_it():
    async def main():
        begin, go, made = threading.Event(), threading.Event(), []

        def factory():
            begin.set()
            assert go.wait(SOON)
            made.append(Hangs())
            return made[0]

        task = asyncio.ensure_future(RLRolloutWorker(factory, guesses(1), max_steps=1).run())
        await begun(begin)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        while not made:
            await asyncio.sleep(0)
        await begun(made[0].freed)

    run(main())


# Environments of others


class TheirEnvironment(Generic[ActT, ObsT]):
    """What others' environments inherit from."""


TheirEnvironment.__name__ = "Environment"


class OpenEnvLike:
    """As OpenEnv has them: sync, with keywords."""

    def __init__(self):
        self.calls = []

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.calls.append(("reset", seed, kwargs, threading.current_thread().name))
        return {"text": "begin"}

    def step(self, action, timeout_s=None, **kwargs):
        self.calls.append(("step", action, timeout_s))
        return {"text": "end", "reward": True, "done": True, "metadata": {"k": 1}}

    def close(self):
        self.calls.append("close")


def test_rollout_worker_runs_a_sync_environment_in_a_thread():
    factory = Makes(OpenEnvLike)
    record = play(factory, guesses(3), {"reset": {"level": 2}}, seed=5, step_timeout=9)
    assert record.ended == "done"
    assert record.env_rewards == [1.0]
    assert record.steps[0].step_info["env_metadata"] == {"k": 1}
    assert factory.made[0].calls == [
        ("reset", 5, {"level": 2}, "guerdon-rollout"),
        ("step", {"number": 3}, 9.0),
        "close",
    ]


@dataclass
class Result:
    observation: object
    reward: float | None = None
    done: bool = False


class AsyncClientLike:
    """As clients are: async, with results around observations, and awaited to connect."""

    def __init__(self):
        self.closed = False

    async def reset(self, **kwargs):
        return Result({"board": [kwargs["seed"]]})

    async def step(self, action):
        return Result({"board": [1]}, 0.5, True)

    async def close(self):
        self.closed = True

    def __await__(self):
        raise AssertionError("it is never awaited")
        yield


async def connecting():
    return AsyncClientLike()


@pytest.mark.parametrize("factory", [AsyncClientLike, connecting], ids=["class", "async factory"])
def test_rollout_worker_awaits_an_async_client(factory):
    record = play(factory, guesses(3), seed=5)
    assert (record.ended, record.error, record.env_rewards) == ("done", None, [0.5])
    assert texts(record)[0] == ("user", '{"board": [5]}')


def test_rollout_worker_closes_an_async_client():
    factory = Makes(AsyncClientLike)
    play(factory, guesses(3), seed=5)
    assert factory.made[0].closed


def test_adapter_of_reads_the_action_type_of_a_generic_class():
    class Typed(TheirEnvironment[Guess, Hint]):
        def reset(self, **kwargs):
            return {}

        def step(self, action):
            assert isinstance(action, Guess)
            return {"done": True}

    assert play(Typed, guesses(7)).ended == "done"
    assert "is not a valid Guess" in play(Typed, sayings("hi")).error


def test_adapter_of_an_environment_without_keywords_passes_none():
    class Bare:
        def reset(self):
            return "begin"

        def step(self, action):
            return {"reward": None, "done": True, "echoed": action}

    record = play(Bare, guesses(3), seed=5)
    assert record.ended == "done"
    assert texts(record)[0] == ("user", "begin")
    assert record.steps[0].observation_data == "begin"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(None, "step must return an observation", id="nothing"),
        pytest.param({"reward": 1.0}, "with a bool `done`", id="no done"),
        pytest.param(
            {"done": True, "reward": float("nan")},
            "must be a finite number or None, got nan",
            id="NaN",
        ),
        pytest.param({"done": True, "metadata": [1]}, "metadata of step must", id="metadata"),
    ],
)
def test_rollout_worker_invalid_answer_ends_the_episode(answer, message):
    class Bare:
        def reset(self):
            return {}

        def step(self, action):
            return answer

    record = play(Bare, guesses(3))
    assert record.ended == "error"
    assert message in record.error


# Over the wire


@pytest.fixture(scope="module")
def echo():
    served = Served(create_app(Echo, env_name="the echo"))
    yield served.url
    served.stop()


class EchoClient(EnvClient[Say, Echoed, EchoState]):
    pass


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
def test_rollout_worker_plays_a_served_environment(echo, sync):
    def connect():
        client = GenericEnvClient(echo)
        return client.sync() if sync else client

    worker = RLRolloutWorker(connect, sayings("hi please", "bye"), max_steps=5)
    records = run(worker.run_group({"id": "e", "reset": {"level": 3}}, 2, seed=5))
    for record in records:
        assert (record.ended, record.error) == ("done", None)
        assert record.env_rewards == [1.0, 0.0]
        first = record.steps[0]
        assert first.observation_data["seed"] == 5
        assert first.observation_data["level"] == 3
        assert first.step_info["env_metadata"]["reward_components"] == {"polite": 1.0}


def test_rollout_worker_reports_an_error_of_the_server(echo):
    record = play(lambda: GenericEnvClient(echo), sayings("hi", "break"))
    assert record.ended == "error"
    assert "asked to break" in record.error
    assert len(record.steps) == 2


def test_rollout_worker_reports_a_missing_server():
    record = play(lambda: GenericEnvClient("http://127.0.0.1:1"), sayings("hi"))
    assert record.error.startswith("reset: ConnectionLostError")


def test_rollout_worker_typed_client_rejects_an_invalid_action(echo):
    record = play(lambda: EchoClient(echo), sayings(7))
    assert record.error.startswith("step 0: InvalidActionError")
    assert "is not a valid Say: message: Input should be a valid string" in record.error


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
def test_rollout_worker_reports_a_client_whose_calls_have_no_episode(echo, sync):
    def connect():
        client = HTTPEnvClient(echo)
        return client.sync() if sync else client

    record = play(connect, sayings("hi please"), max_steps=1)
    assert record.ended == "error"
    assert "step 0: EpisodeError" in record.error
    assert "EnvClient" in record.error
    assert record.env_rewards == [None]


def test_rollout_worker_does_not_close_a_client_of_the_caller(echo):
    async def main():
        async with GenericEnvClient(echo) as client:
            worker = RLRolloutWorker(client, sayings("bye"), max_steps=5)
            assert [(await worker.run()).ended for _ in range(2)] == ["done"] * 2
            await client.reset()

    run(main())
