"""WorkClock: the time that work takes, without its waits in queues of the library."""

import asyncio
import threading

import anyio
import anyio.to_thread
import pytest

from examples.tau_chat.scripted_model import Replied, ScriptedModel
from guerdon import LLMJudge, open_sandbox
from guerdon._work_clock import Turn, WorkClock, WorkTimeoutError
from guerdon.rubrics.evaluation import in_thread
from guerdon.services import ChatModel, MCPClient


@pytest.fixture
def time(monkeypatch):
    """A clock that a test moves."""

    class Time:
        now = 0.0

        def __call__(self):
            return self.now

    time = Time()
    monkeypatch.setattr("guerdon._work_clock.monotonic", time)
    return time


def test_work_clock_runs_while_nothing_waits(time):
    with WorkClock.limiting(10.0) as clock:
        time.now += 3
        assert clock.left() == 7.0
        with Turn() as turn:
            time.now += 100
            assert clock.left() == 7.0
            turn.begin()
            time.now += 2
            assert clock.left() == 5.0
        time.now += 6
        assert clock.left() == -1.0


def test_work_clock_stands_until_the_last_has_its_turn(time):
    with WorkClock.limiting(10.0) as clock, Turn() as one:
        with Turn() as other:
            one.begin()
            time.now += 4
            assert clock.left() == 6.0  # of `one`, which may take 10 s as well
            other.begin()
            time.now += 4
            assert clock.left() == 2.0
        assert clock.left() == 2.0


def test_work_clock_of_a_turn_stands_while_what_it_started_waits(time):
    with WorkClock.limiting(10.0) as clock, Turn() as outer:
        outer.begin()
        with Turn():
            time.now += 100
            assert clock.left() == 10.0
        time.now += 10
        assert clock.left() == 0.0


def test_work_clock_notices_what_hangs_before_a_queue(time):
    with WorkClock.limiting(10.0) as clock, Turn() as hanging, Turn():
        hanging.begin()
        time.now += 10
        assert clock.left() == 0.0


def test_work_clock_ignores_a_turn_that_was_given_up(time):
    with WorkClock.limiting(10.0) as clock:
        with Turn() as turn:
            pass
        turn.begin()  # too late, in a thread that was abandoned
        time.now += 4
        assert clock.left() == 6.0


def test_work_clocks_are_independent(time):
    with WorkClock.limiting(10.0) as outer:
        time.now += 5
        with WorkClock.limiting(10.0) as inner, Turn():
            time.now += 5
            assert (outer.left(), inner.left()) == (5.0, 10.0)
    with Turn():
        time.now += 5
    assert (outer.left(), inner.left()) == (0.0, 5.0)


@pytest.mark.anyio
async def test_work_clock_limit_returns_raises_and_cancels():
    async def answer():
        return 3

    async def fail():
        raise ValueError("no")

    clock = WorkClock(60.0)
    assert await clock.limit(answer) == 3
    with pytest.raises(ValueError, match="no"):
        await clock.limit(fail)
    with pytest.raises(WorkTimeoutError):
        await WorkClock(0.01).limit(anyio.sleep_forever)


async def second_waits(time, holds, waits):
    """The time left to a second piece of work, which waited 1,000 s for the end of the first."""
    first = asyncio.create_task(holds.start())
    await holds.begun()
    with WorkClock.limiting(60.0) as clock:
        second = asyncio.create_task(waits())
        while not clock._waiting:
            await asyncio.sleep(0)
        time.now += 1000
        holds.go()
        await first
        await second
        return clock.left()


class Thread:
    """Work in a thread that goes on when it is told to."""

    def __init__(self, run):
        self._begun, self._go = threading.Event(), threading.Event()
        self._run = run

    async def start(self):
        await self._run(self._work)

    def _work(self, *given):
        self._begun.set()
        assert self._go.wait(20)

    async def begun(self):
        await asyncio.to_thread(self._begun.wait, 20)

    def go(self):
        self._go.set()


def test_a_wait_for_a_thread_is_no_work(time):
    async def main():
        limiter = anyio.CapacityLimiter(1)
        holds = Thread(lambda work: in_thread(limiter, work))
        return await second_waits(time, holds, lambda: in_thread(limiter, int))

    assert asyncio.run(main()) == 60.0


def test_a_wait_for_a_model_is_no_work(time):
    with ScriptedModel(lambda body: Replied('{"score": 1}', is_held=True)) as endpoint:

        class Held:
            def __init__(self, judge):
                self._judge = judge

            async def start(self):
                assert await self._judge.evaluate("first", None) == 1.0

            async def begun(self):
                while not endpoint.asked:
                    await asyncio.sleep(0)

            def go(self):
                endpoint.release()

        async def main():
            judge = LLMJudge("Polite? {action}", ChatModel(endpoint.endpoint, "m", concurrency=1))
            return await second_waits(time, Held(judge), lambda: judge.evaluate("second", None))

        assert asyncio.run(main()) == 60.0


def test_a_wait_for_a_tool_is_no_work(time):
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("tools", log_level="WARNING")
    tool = Thread(None)

    @server.tool()
    async def judge(text: str) -> str:
        if text == "first":
            await asyncio.to_thread(tool._work)
        return "1.0"

    async def main():
        async with MCPClient({"judge": server}, concurrency=1) as client:
            tool._run = lambda work: client.call_tool_async("judge", text="first")
            waits = lambda: client.call_tool_async("judge", text="second")  # noqa: E731
            return await second_waits(time, tool, waits)

    assert asyncio.run(main()) == 60.0


@pytest.mark.edge  # real processes
def test_a_wait_for_a_worker_of_a_sandbox_is_no_work(time, tmp_path):
    ready = tmp_path / "ready"

    class Program:
        async def start(self):
            program = f"""
import threading
open({str(ready)!r}, "w").close()
threading.Event().wait()  # until it is ended
"""
            self.ended = asyncio.ensure_future(sandbox.run_async(program))
            await self.ended

        async def begun(self):
            while not ready.exists():
                await asyncio.sleep(0.01)

        def go(self):
            self.ended.cancel()

    async def main():
        waiting = Program()

        async def run():
            await sandbox.run_async("1")

        first = asyncio.create_task(waiting.start())
        await waiting.begun()
        with WorkClock.limiting(60.0) as clock:
            second = asyncio.create_task(run())
            while not clock._waiting:
                await asyncio.sleep(0)
            time.now += 1000
            waiting.go()
            with pytest.raises(asyncio.CancelledError):
                await first
            await second
            return clock.left()

    with open_sandbox("process", workers=1) as sandbox:
        assert asyncio.run(main()) == 60.0
