"""Host: one environment with threads and a clock around it."""

import asyncio
import gc
import logging
import threading
import time
import weakref

import pytest

from guerdon import Environment, Observation
from guerdon.envs.runner import EnvRunner, EnvThreads
from guerdon.errors import (
    EnvDefinitionError,
    EnvError,
    EnvTimeoutError,
    EpisodeError,
    InvalidArgumentError,
)
from guerdon.types import CallToolAction
from tests.envs.server.worlds import AsyncCounter, Counter
from tests.envs.worlds import SOON, Board, Half, Move, World

SHORT = 0.05


class Hangs(World):
    """Hangs where the test sets it to, until the test ends it; counts what is made and closed."""

    hangs_in = ()

    def __init__(self):
        super().__init__()
        self.note("make")

    def reset(self, seed=None, **kwargs):
        self.note("reset")
        return super().reset(seed, **kwargs)

    def step(self, action, timeout_s=None, **kwargs):
        self.note("step")
        return super().step(action)

    def close(self):
        self.note("close")

    def note(self, what):
        self.notes.append(what)
        if what in self.hangs_in:
            self.hanging.set()
            assert self.go.wait(SOON)
            self.notes.append(f"{what} ended")
        if what == "close":
            self.was_closed.set()


@pytest.fixture
def hanging():
    """Makes a class of environments that hang until the test is over."""
    events = []

    def make(*hangs_in):
        go, was_closed = threading.Event(), threading.Event()
        events.append(go)
        return type(
            "Hangs",
            (Hangs,),
            {
                "hangs_in": hangs_in,
                "notes": [],
                "go": go,
                "hanging": threading.Event(),
                "was_closed": was_closed,
            },
        )

    yield make
    for event in events:
        event.set()


def hosting(play, kind, *, size=2, **limits):
    """Have a test play with a runner, in a loop of its own."""

    async def main():
        threads = EnvThreads(size)
        try:
            async with asyncio.timeout(SOON):
                return await play(EnvRunner(kind, threads, **limits))
        finally:
            threads.close()

    return asyncio.run(main())


async def heard(event):
    assert await asyncio.to_thread(event.wait, SOON)


class AsyncWorld(World):
    reset, step = Environment.reset, Environment.step

    async def reset_async(self, seed=None, episode_id=None, **kwargs):
        await asyncio.sleep(0)
        return World.reset(self, seed, episode_id, **kwargs)

    async def step_async(self, action, timeout_s=None, **kwargs):
        await asyncio.sleep(0)
        return await self.score_async(action, Board(value=action.value))


class Mixed(World):
    step = Environment.step
    step_async = AsyncWorld.step_async


@pytest.mark.parametrize("kind", [World, AsyncWorld, Mixed])
def test_env_runner_an_episode_is_played(kind):
    async def play(runner):
        await runner.open()
        first = await runner.reset(3, "e", {"task": 1})
        assert first.metadata == {"seed": 3, "task": 1}
        board = await runner.step(Move(value=2))
        assert (board.reward, board.value) == (2.0, 2.0)
        assert (await runner.state()).episode_id == "e"
        assert await runner.call(lambda adapter: type(adapter.environment), "asking") is kind
        await runner.close(1)
        assert runner.adapter is None

    hosting(play, kind)


def test_env_runner_a_sync_environment_never_runs_in_the_thread_of_the_loop():
    where = set()

    class Where(World):
        def __init__(self):
            super().__init__()
            self.note()

        def note(self):
            where.add(threading.current_thread())

        def reset(self, seed=None, **kwargs):
            self.note()
            return super().reset(seed)

        def step(self, action, timeout_s=None, **kwargs):
            self.note()
            return super().step(action)

        def close(self):
            self.note()

    async def play(runner):
        await runner.reset(None, None, None)
        await runner.step(Move())
        await runner.close(1)

    hosting(play, Where)
    assert where
    assert threading.current_thread() not in where


def test_env_runner_a_reset_makes_the_environment_if_needed(hanging):
    kind = hanging()

    async def play(runner):
        await runner.reset(None, None, None)
        await runner.reset(None, None, None)

    hosting(play, kind)
    assert kind.notes == ["make", "reset", "reset"]


@pytest.mark.parametrize("what", ["reset", "step"])
def test_env_runner_an_environment_that_hangs_is_abandoned_and_the_next_reset_makes_another(
    hanging, what
):
    kind = hanging(what)

    async def play(runner):
        runner.timeout_s = SHORT

        async def call():
            await runner.reset(None, None, None)
            await runner.step(Move())

        with pytest.raises(EnvTimeoutError, match=rf"{what} took longer than 0\.05 s") as caught:
            await call()
        assert caught.value.seconds == SHORT
        with pytest.raises(EpisodeError, match="reset it to make a new one"):
            await runner.step(Move())
        with pytest.raises(EpisodeError):
            await runner.state()
        assert "close" not in kind.notes  # its code hasn't come back
        runner.timeout_s = SOON
        kind.hangs_in = ()
        await runner.reset(None, None, None)
        assert (await runner.step(Move(value=2))).reward == 2.0
        kind.go.set()
        await heard(kind.was_closed)

    hosting(play, kind)
    assert kind.notes.count("make") == 2
    assert kind.notes.count("close") == 1
    assert kind.notes.index("close") > kind.notes.index(f"{what} ended")


def test_env_runner_a_step_may_be_given_less_time_than_the_host_has_but_not_more(hanging):
    kind = hanging("step")

    async def play(runner):
        for timeout_s, limit in ((SHORT, 0.05), (100, 0.1)):
            await runner.reset(None, None, None)
            with pytest.raises(EnvTimeoutError) as caught:
                await runner.step(Move(), timeout_s)
            assert caught.value.seconds == limit

    hosting(play, kind, timeout_s=0.1)


def test_env_runner_the_callers_patience_is_reported_to_the_environment():
    received = []

    class Recording(World):
        def step(self, action, timeout_s=None, **kwargs):
            received.append((timeout_s, kwargs))
            return super().step(action)

    async def play(runner):
        await runner.reset(None, None, None)
        await runner.step(Move())
        await runner.step(Move(), 0.5, {"hint": 1})

    hosting(play, Recording)
    assert received == [(None, {}), (0.5, {"hint": 1})]


def test_env_runner_an_environment_that_is_made_too_late_is_closed(hanging):
    kind = hanging("make")

    async def play(runner):
        with pytest.raises(EnvTimeoutError, match="making the environment took longer"):
            await runner.open()
        assert runner.adapter is None
        kind.go.set()
        await heard(kind.was_closed)

    hosting(play, kind, timeout_s=SHORT)
    assert kind.notes == ["make", "make ended", "close"]


def test_env_runner_a_constructor_that_raises_too_late_closes_nothing(hanging, caplog):
    go, over = threading.Event(), threading.Event()

    def fails():
        try:
            assert go.wait(SOON)
            raise OSError("no display")
        finally:
            over.set()

    async def play(runner):
        with pytest.raises(EnvTimeoutError):
            await runner.open()
        go.set()
        await heard(over)

    hosting(play, fails, timeout_s=SHORT)
    assert caplog.text == ""


@pytest.mark.parametrize("what", ["make", "reset", "step"])
def test_env_runner_closes_the_environment_of_a_cancelled_caller_once_its_code_ends(hanging, what):
    kind = hanging(what)

    async def play(runner):
        async def call():
            await runner.reset(None, None, None)
            await runner.step(Move())

        task = asyncio.ensure_future(call())
        await heard(kind.hanging)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert runner.adapter is None
        kind.go.set()
        await heard(kind.was_closed)

    hosting(play, kind)
    assert kind.notes.index("close") > kind.notes.index(f"{what} ended")
    assert kind.notes.count("close") == 1


def test_env_runner_one_that_hangs_does_not_delay_the_others(hanging):
    """One thread for all: it is replaced."""
    kind = hanging("step")

    async def play(runner):
        other = EnvRunner(World, runner.threads)
        await runner.reset(None, None, None)
        with pytest.raises(EnvTimeoutError):
            await runner.step(Move(), SHORT)
        await other.reset(None, None, None)
        assert (await other.step(Move(value=3))).reward == 3.0

    hosting(play, kind, size=1)


def test_env_runner_creates_no_environments_while_too_many_hang(hanging):
    kind = hanging("step")

    async def play(runner):
        runner.threads.max_stuck = 0
        await runner.reset(None, None, None)
        with pytest.raises(EnvTimeoutError):
            await runner.step(Move(), SHORT)
        with pytest.raises(EnvTimeoutError, match="hang in their own code"):
            await runner.reset(None, None, None)

    hosting(play, kind)
    assert kind.notes.count("make") == 1


# What is raised -------------------------------------------------------------------------------


class Mine(BaseException):
    pass


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("method", ["reset", "step"])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError, OSError),
        (EnvTimeoutError, EnvTimeoutError),
        (SystemExit, EnvError),
        (StopIteration, (EnvError, RuntimeError)),
        (asyncio.CancelledError, EnvError),
        (GeneratorExit, EnvError),
        (Mine, EnvError),
    ],
)
def test_env_runner_what_an_environment_raises_is_reported_and_leaves_it_where_it_is(
    method, is_async, error, raised
):
    class Raises(AsyncWorld if is_async else World):
        armed = False

        def fail(self, name):
            if self.armed and name == method:
                type(self).armed = False
                raise error("mine")

        if is_async:

            async def reset_async(self, seed=None, **kwargs):
                self.fail("reset")
                return await super().reset_async(seed)

            async def step_async(self, action, timeout_s=None, **kwargs):
                self.fail("step")
                return await super().step_async(action)

        else:

            def reset(self, seed=None, **kwargs):
                self.fail("reset")
                return super().reset(seed)

            def step(self, action, timeout_s=None, **kwargs):
                self.fail("step")
                return super().step(action)

    async def play(runner):
        await runner.reset(None, None, None)
        Raises.armed = True
        with pytest.raises(raised):
            await (runner.reset(None, None, None) if method == "reset" else runner.step(Move()))
        await runner.reset(None, None, None)  # whether in a new one or the old
        assert (await runner.step(Move(value=2))).reward == 2.0

    hosting(play, Raises)


@pytest.mark.parametrize(
    ("factory", "error"),
    [
        (lambda: 1 / 0, ZeroDivisionError),
        (lambda: None, EnvDefinitionError),
        (lambda: exit(3), EnvError),
    ],
)
def test_env_runner_a_constructor_that_fails_leaves_a_place_that_can_be_tried_again(factory, error):
    working = []

    def sometimes():
        return World() if working else factory()

    async def play(runner):
        for _ in range(2):
            with pytest.raises(error):
                await runner.reset(None, None, None)
        working.append(True)
        await runner.reset(None, None, None)
        assert (await runner.step(Move())).reward == 1.0

    hosting(play, sometimes)


def test_env_runner_a_step_before_anything_is_refused():
    async def play(runner):
        asking = runner.call(lambda adapter: None, "asking")
        for ask in (runner.step(Move()), runner.state(), asking):
            with pytest.raises(EpisodeError):
                await ask

    hosting(play, World)


# Async environments ---------------------------------------------------------------------------


class Awaits(AsyncWorld):
    """Awaits for ever; `stubborn` ones don't even listen to being cancelled."""

    stubborn = False

    def __init__(self):
        super().__init__()
        self.here = []

    async def step_async(self, action, timeout_s=None, **kwargs):
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def close(self):
        self.was_closed.set()


@pytest.fixture
def awaiting():
    names = ("started", "cancelled", "was_closed")
    return type("Awaits", (Awaits,), {name: threading.Event() for name in names})


def test_env_runner_an_async_environment_that_takes_too_long_is_cancelled_and_closed(awaiting):
    async def play(runner):
        await runner.reset(None, None, None)
        with pytest.raises(EnvTimeoutError, match=r"step took longer than 0.05 s"):
            await runner.step(Move(), SHORT)
        assert runner.adapter is None
        await heard(awaiting.cancelled)
        await heard(awaiting.was_closed)
        await runner.reset(None, None, None)

    hosting(play, awaiting)


def test_env_runner_cancels_and_closes_the_async_environment_of_a_cancelled_caller(awaiting):
    async def play(runner):
        await runner.reset(None, None, None)
        task = asyncio.ensure_future(runner.step(Move()))
        await heard(awaiting.started)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert runner.adapter is None
        await heard(awaiting.was_closed)

    hosting(play, awaiting)


@pytest.mark.parametrize("how", ["raises", "answers"])
def test_env_runner_an_async_environment_that_answers_its_cancelling_is_not_heard(
    awaiting, how, caplog
):
    class Answers(awaiting):
        async def step_async(self, action, timeout_s=None, **kwargs):
            try:
                return await super().step_async(action)
            except asyncio.CancelledError:
                if how == "raises":
                    raise OSError("mine") from None
                return Board()

    async def play(runner):
        await runner.reset(None, None, None)
        with pytest.raises(EnvTimeoutError):
            await runner.step(Move(), SHORT)
        await heard(awaiting.was_closed)

    with caplog.at_level(logging.INFO):
        hosting(play, Answers)
    assert caplog.text == ""


# Closing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError("stuck door"), SystemExit(3)])
def test_env_runner_what_closing_raises_is_logged(error, caplog):
    class Raises(World):
        def close(self):
            raise error

    async def play(runner):
        await runner.reset(None, None, None)
        await runner.close(1)
        assert runner.adapter is None

    hosting(play, Raises)
    assert "closing Raises failed" in caplog.text
    assert "stuck door" in caplog.text or "sys.exit(3)" in caplog.text


def test_env_runner_one_that_hangs_while_it_is_closed_is_left_behind(hanging, caplog):
    kind = hanging("close")

    async def play(runner):
        await runner.reset(None, None, None)
        await runner.close(SHORT)
        assert runner.adapter is None

    hosting(play, kind)
    assert "close took longer" in caplog.text
    assert kind.notes.count("close") == 1


def test_env_runner_closing_twice_or_what_was_never_made_does_nothing(hanging):
    kind = hanging()

    async def play(runner):
        await runner.close(1)
        await runner.reset(None, None, None)
        await runner.close(1)
        await runner.close(1)

    hosting(play, kind)
    assert kind.notes == ["make", "reset", "close"]


def test_env_runner_an_environment_that_was_abandoned_is_not_kept_alive():
    """Once its code has ended and it is closed, nothing refers to it."""
    go, closed = threading.Event(), threading.Event()
    alive = []

    class Heavy(World):
        def __init__(self):
            super().__init__(Half())
            alive.append(weakref.ref(self))

        def step(self, action, timeout_s=None, **kwargs):
            assert go.wait(SOON)
            return Observation()

        def close(self):
            closed.set()

    async def play(runner):
        await runner.reset(None, None, None)
        with pytest.raises(EnvTimeoutError):
            await runner.step(Move(), SHORT)
        go.set()
        await heard(closed)

    before = set(threading.enumerate())
    hosting(play, Heavy)
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("guerdon-env"):
            thread.join(SOON)
    gc.collect()
    assert [each() for each in alive] == [None]


def test_env_runner_keeps_no_observation_of_a_call_that_has_ended():
    class Large(Observation):
        pass

    class Plain(World):
        def reset(self, seed=None, **kwargs):
            return Large()

        def step(self, action, timeout_s=None, **kwargs):
            return Large()

    async def is_collected(observation):
        async with asyncio.timeout(SOON):
            while observation() is not None:  # the thread may be just about to drop it
                await asyncio.sleep(0.01)
                gc.collect()

    async def play(runner):
        await is_collected(weakref.ref(await runner.reset()))
        stepped = asyncio.get_running_loop().create_future()
        runner.start_step(Move(), lambda call: stepped.set_result(weakref.ref(call.result)))
        await is_collected(await stepped)

    hosting(play, Plain)


def test_env_runner_does_not_count_the_time_of_a_blocked_event_loop(hanging, monkeypatch):
    monkeypatch.setattr("guerdon.envs.runner.BLOCKED_S", 0.1)
    kind = hanging("step")

    async def main():
        threads = EnvThreads(1)
        runner = EnvRunner(kind, threads, timeout_s=0.4)
        try:
            await runner.reset()
            step = asyncio.ensure_future(runner.step(Move()))
            assert await asyncio.to_thread(kind.hanging.wait, SOON)
            time.sleep(0.6)
            kind.go.set()
            return await step
        finally:
            await runner.close(SOON)
            threads.close()

    assert asyncio.run(main()).reward == 1.0


def started(runner):
    """Start a step; return the calls with which `finish` was called, and an event for the first."""
    calls, ended = [], asyncio.Event()

    def finish(call):
        calls.append(call.error or call.result.reward)
        ended.set()

    runner.start_step(Move(), finish)
    return calls, ended


@pytest.mark.parametrize("kind", [World, AsyncWorld, Mixed])
def test_env_runner_a_step_that_was_started_finishes_once(kind):
    async def play(runner):
        await runner.reset()
        calls, ended = started(runner)
        await ended.wait()
        await runner.close(SOON)
        assert calls == [1.0]

    hosting(play, kind)


def test_env_runner_a_step_that_was_started_without_an_environment_fails():
    async def play(runner):
        (error,), _ = started(runner)
        assert isinstance(error, EpisodeError)

    hosting(play, World)


def test_env_runner_a_step_that_was_started_and_exceeds_its_time_limit_fails_once(hanging):
    kind = hanging("step")

    async def play(runner):
        await runner.reset()
        calls, ended = started(runner)
        await ended.wait()
        assert isinstance(calls[0], EnvTimeoutError)
        assert runner.adapter is None
        kind.go.set()
        await heard(kind.was_closed)
        await asyncio.sleep(0)
        assert len(calls) == 1

    hosting(play, kind, timeout_s=SHORT)


def test_env_runner_closing_waits_for_an_async_step_that_is_cancelled_though_another_was_refused():
    tidied = []

    class Tidy(World):
        async def step_async(self, action: Move, timeout_s=None, **kwargs):
            try:
                await asyncio.sleep(SOON)
            finally:
                await asyncio.sleep(SHORT)
                tidied.append(action)

    async def play(runner):
        await runner.reset()
        _, ended = started(runner)
        await ended.wait()
        (error,), _ = started(runner)
        assert isinstance(error, EpisodeError)
        await runner.close(SOON)
        assert tidied

    hosting(play, Tidy, timeout_s=SHORT)


def test_env_runner_closing_abandons_a_step_that_was_started(hanging):
    kind = hanging("step")

    async def play(runner):
        await runner.reset()
        calls, _ = started(runner)
        await heard(kind.hanging)
        await runner.close(SOON)
        assert not kind.was_closed.is_set()
        kind.go.set()
        await heard(kind.was_closed)
        assert calls == []
        assert kind.notes.count("close") == 1

    hosting(play, kind)


def test_env_runner_a_started_step_that_raises_needs_a_new_environment():
    class Broken(World):
        def step(self, action, timeout_s=None, **kwargs):
            raise OSError("broken")

    async def play(runner):
        await runner.reset()
        for reason in ("broken", "the last step failed"):
            calls, ended = started(runner)
            await ended.wait()
            assert reason in str(calls[0])

    hosting(play, Broken, replaces_failed=True)


# Tools -----------------------------------------------------------------------------------------


def run_tools(factory, play):
    async def run():
        threads = EnvThreads(1)
        runner = EnvRunner(factory, threads, timeout_s=SOON)
        try:
            await runner.open()
            return await play(runner)
        finally:
            await runner.close(SOON)
            threads.close()

    return asyncio.run(run())


@pytest.mark.parametrize("factory", [Counter, AsyncCounter])
def test_runner_calls_tools_outside_of_a_step(factory):
    async def play(runner):
        names = [each.name for each in await runner.list_tools()]
        await runner.reset()
        call = CallToolAction(tool_name="add", arguments={"number": 2})
        outcomes = [await runner.call_tool(call) for _ in range(2)]
        return names, [each.result.data for each in outcomes], await runner.state()

    names, results, state = run_tools(factory, play)
    assert "add" in names
    assert (results, state.step_count) == ([2, 4], 0)


@pytest.mark.parametrize("factory", [World, AsyncWorld])
def test_runner_has_no_tools_of_another_environment(factory):
    async def play(runner):
        assert await runner.list_tools() == []
        await runner.call_tool(CallToolAction(tool_name="add"))

    with pytest.raises(InvalidArgumentError, match="has no tools"):
        run_tools(factory, play)


def test_env_runner_a_cancelled_reset_abandons_a_broken_environment_whose_close_hangs(hanging):
    kind = hanging("close")

    async def play(runner):
        await runner.reset()
        runner.step_failed(OSError("broken"))
        reset = asyncio.ensure_future(runner.reset())
        await heard(kind.hanging)
        reset.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reset
        assert runner.threads.stuck == 1
        await runner.reset()
        assert kind.notes == ["make", "reset", "close", "make", "reset"]

    hosting(play, kind, size=1, replaces_failed=True)
