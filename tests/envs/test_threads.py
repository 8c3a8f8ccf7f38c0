"""EnvThreads and EnvCall: threads for calls of which some never end."""

import asyncio
import threading
import time
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.envs.runner import EnvCall, EnvThreads, settle
from guerdon.errors import EnvError, EnvTimeoutError
from tests.envs.worlds import SOON


def call_of(function, finish):
    """A call; `finish` is called with it and its result once that was delivered."""
    return EnvCall(function, "the call", lambda call: finish(call, call.result))


class Closes:
    """What an abandoned call leaves to be closed."""

    def __init__(self, close):
        self.close = close


def submit(threads, jobs):
    for job in jobs:
        threads.start(job)


class Collector:
    """Collects what is finished, and lets a test wait for it."""

    def __init__(self):
        self.finished = []
        self.results = []
        self._changed = asyncio.Event()

    def finish(self, job, result):
        self.finished.append(job)
        self.results.append(result)
        self._changed.set()

    async def have(self, count):
        async with asyncio.timeout(SOON):
            while len(self.finished) < count:
                self._changed.clear()
                await self._changed.wait()


def played(main):
    """Run a test in a loop, and see that its threads end."""
    before = set(threading.enumerate())
    result = asyncio.run(main())
    for thread in set(threading.enumerate()) - before:
        if not thread.name.startswith("asyncio"):
            while thread.ident is None:  # another thread is starting it
                time.sleep(0.001)
            thread.join(SOON)
            assert not thread.is_alive(), thread
    return result


async def heard(event):
    """Wait for a thread without blocking the loop."""
    assert await asyncio.to_thread(event.wait, SOON)


def test_env_threads_jobs_run_off_the_loop_and_are_finished_in_it():
    async def main():
        threads, collector = EnvThreads(2), Collector()
        places = []

        def here():
            places.append(threading.current_thread())
            return "given"

        class Thread(Collector):
            def finish(self, job, result):
                places.append(threading.current_thread())
                super().finish(job, result)

        collector = Thread()
        job = call_of(here, collector.finish)
        submit(threads, [job])
        await collector.have(1)
        threads.close()
        assert (collector.results, job.error, job.has_ended) == (["given"], None, True)
        assert places[0] is not threading.current_thread()
        assert places[1] is threading.current_thread()

    played(main)


@pytest.mark.parametrize(
    "error", [OSError("down"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_env_threads_survive_any_exception_of_a_job(error):
    def raises():
        raise error

    async def main():
        threads, collector = EnvThreads(1), Collector()
        submit(
            threads, [call_of(raises, collector.finish), call_of(lambda: "next", collector.finish)]
        )
        await collector.have(2)
        threads.close()
        found = collector.finished[0].error
        assert error in (found, getattr(found, "exception", None))
        assert collector.results[1] == "next"
        assert threads.threads == 1

    played(main)


def test_env_threads_as_many_run_at_a_time_as_there_are_threads():
    async def main():
        threads, collector = EnvThreads(3), Collector()
        barrier = threading.Barrier(3, timeout=SOON)
        submit(threads, [call_of(barrier.wait, collector.finish) for _ in range(12)])
        await collector.have(12)
        threads.close()
        assert [job.error for job in collector.finished] == [None] * 12
        assert threads.threads == 3

    played(main)


def test_env_threads_no_more_threads_are_started_than_there_are_jobs():
    async def main():
        threads, collector = EnvThreads(64), Collector()
        assert threads.threads == 0
        for count in (1, 2):
            submit(threads, [call_of(lambda: None, collector.finish)])
            await collector.have(count)
        assert threads.threads == 1
        threads.close()

    played(main)


def test_env_threads_jobs_begin_in_the_order_in_which_they_were_handed_over():
    async def main():
        threads, collector, begun = EnvThreads(1), Collector(), []
        submit(
            threads,
            [
                call_of(lambda place=place: begun.append(place), collector.finish)
                for place in range(50)
            ],
        )
        await collector.have(50)
        threads.close()
        assert begun == list(range(50))

    played(main)


def test_env_threads_a_thread_that_hangs_is_replaced_and_what_it_returns_is_dropped():
    async def main():
        threads, collector = EnvThreads(1), Collector()
        started, go, cleaned = threading.Event(), threading.Event(), threading.Event()
        where = []

        def hangs():
            started.set()
            assert go.wait(SOON)
            return "too late"

        def clean():
            where.append(threading.current_thread())
            cleaned.set()

        hanging = call_of(hangs, collector.finish)
        submit(threads, [hanging])
        await heard(started)
        threads.abandon(hanging, Closes(clean))
        assert threads.stuck == 1
        submit(threads, [call_of(lambda: "next", collector.finish)])
        await collector.have(1)
        assert collector.results[0] == "next"
        assert not cleaned.is_set()  # its code hasn't come back
        go.set()
        await heard(cleaned)
        assert where[0] is not threading.current_thread()
        submit(threads, [call_of(lambda: "after", collector.finish)])
        await collector.have(2)
        assert hanging not in collector.finished
        assert (threads.stuck, hanging.has_ended) == (0, False)
        threads.close()

    played(main)


def test_env_threads_never_run_an_abandoned_call_that_was_waiting_for_a_thread():
    async def main():
        threads, collector = EnvThreads(1), Collector()
        started, go = threading.Event(), threading.Event()
        ran = []

        def blocks():
            started.set()
            assert go.wait(SOON)

        late = call_of(lambda: ran.append(True), collector.finish)
        submit(threads, [call_of(blocks, collector.finish), late])
        await heard(started)
        assert not threads.abandon(late, Closes(lambda: ran.append(False)))
        assert threads.stuck == 0
        go.set()
        await collector.have(1)
        submit(threads, [call_of(lambda: None, collector.finish)])
        await collector.have(2)
        assert ran == []
        assert threads.stuck == 0
        threads.close()

    played(main)


def test_env_threads_a_job_that_ended_just_before_it_was_abandoned_is_cleaned_up_too():
    async def main():
        threads, collector = EnvThreads(1), Collector()
        cleaned, ended = threading.Event(), threading.Event()

        class Ends(EnvCall):
            def run(self):
                super().run()
                ended.set()

        job = Ends(lambda: None, "the call")
        submit(threads, [job])
        assert ended.wait(SOON)  # this blocks the loop, so that nothing has collected it
        threads.abandon(job, Closes(cleaned.set))
        await heard(cleaned)
        submit(threads, [call_of(lambda: None, collector.finish)])
        await collector.have(1)
        assert job not in collector.finished
        assert threads.stuck == 0
        threads.close()

    played(main)


def test_env_threads_clean_up_after_closing_a_call_that_ended_before_it_was_abandoned():
    before = set(threading.enumerate())

    async def main():
        threads, collector = EnvThreads(1), Collector()
        cleaned, ended = threading.Event(), threading.Event()

        class Ends(EnvCall):
            def run(self):
                super().run()
                ended.set()

        job = Ends(lambda: None, "the call")
        submit(threads, [job])
        assert ended.wait(SOON)  # this blocks the loop, so that nothing has collected it
        [thread] = [
            each for each in set(threading.enumerate()) - before if each.name == "guerdon-env"
        ]
        threads.abandon(job, Closes(cleaned.set))
        threads.close()
        thread.join(SOON)  # it has taken leave before the cleanup could come to it
        await heard(cleaned)
        assert collector.finished == []

    played(main)


def test_env_threads_a_cleanup_that_raises_is_logged_and_the_thread_continues(caplog):
    async def main():
        threads, collector = EnvThreads(1), Collector()
        started, go = threading.Event(), threading.Event()

        def hangs():
            started.set()
            assert go.wait(SOON)

        def clean():
            raise SystemExit(3)

        job = call_of(hangs, collector.finish)
        submit(threads, [job])
        await heard(started)
        threads.abandon(job, Closes(clean))
        go.set()
        submit(threads, [call_of(lambda: "next", collector.finish)])
        await collector.have(1)
        threads.close()

    played(main)
    assert "closing an abandoned environment failed" in caplog.text


def test_env_threads_replace_a_thread_that_hangs_in_a_cleanup():
    async def main():
        threads, collector = EnvThreads(1), Collector()
        ended, closing, go = threading.Event(), threading.Event(), threading.Event()

        class Ends(EnvCall):
            def run(self):
                super().run()
                ended.set()

        def close():
            closing.set()
            assert go.wait(SOON)

        job = Ends(lambda: None, "the call")
        submit(threads, [job])
        assert ended.wait(SOON)  # this blocks the loop, so that nothing has collected it
        threads.abandon(job, Closes(close))
        await heard(closing)
        assert threads.stuck == 1
        submit(threads, [call_of(lambda: "next", collector.finish)])
        await collector.have(1)
        go.set()
        while threads.stuck:
            submit(threads, [call_of(lambda: None, collector.finish)])
            await collector.have(len(collector.finished) + 1)
        threads.close()

    played(main)


def test_env_threads_too_many_that_hang_are_refused_until_they_end():
    async def main():
        threads, collector = EnvThreads(1, max_stuck=1), Collector()
        go, cleaned = threading.Event(), threading.Semaphore(0)
        for _ in range(2):
            threads.check()
            started = threading.Event()

            def hangs(started=started):
                started.set()
                assert go.wait(SOON)

            job = call_of(hangs, collector.finish)
            submit(threads, [job])
            await heard(started)
            threads.abandon(job, Closes(cleaned.release))
        with pytest.raises(EnvTimeoutError, match="2 environments hang in their own code, more"):
            threads.check()
        go.set()
        for _ in range(2):
            assert await asyncio.to_thread(cleaned.acquire, timeout=SOON)
        submit(threads, [call_of(lambda: None, collector.finish)])
        await collector.have(1)
        threads.check()
        threads.close()

    played(main)


def test_env_threads_threads_that_end_are_not_one_too_many():
    async def main():
        threads, collector = EnvThreads(2), Collector()
        go = threading.Event()
        for _ in range(3):
            started = threading.Event()

            def hangs(started=started):
                started.set()
                assert go.wait(SOON)

            job = call_of(hangs, collector.finish)
            submit(threads, [job])
            await heard(started)
            threads.abandon(job, None)
        submit(threads, [call_of(lambda: None, collector.finish) for _ in range(4)])
        await collector.have(4)
        go.set()
        while threads.stuck:
            submit(threads, [call_of(lambda: None, collector.finish)])
            await collector.have(len(collector.finished) + 1)
        barrier = threading.Barrier(2, timeout=SOON)
        done = len(collector.finished)
        submit(threads, [call_of(barrier.wait, collector.finish) for _ in range(8)])
        await collector.have(done + 8)
        assert threads.threads <= 2
        threads.close()

    played(main)


def test_env_threads_closing_lets_a_job_at_work_end():
    ended = threading.Event()

    async def main():
        threads, collector = EnvThreads(2), Collector()
        started, go = threading.Event(), threading.Event()

        def works():
            started.set()
            assert go.wait(SOON)
            ended.set()

        submit(threads, [call_of(works, collector.finish)])
        await heard(started)
        threads.close()
        assert not ended.is_set()
        go.set()

    played(main)
    assert ended.wait(SOON)


def test_env_threads_a_thread_that_ends_when_its_loop_is_gone_ends():
    go = threading.Event()
    cleaned = threading.Event()

    async def main():
        threads, collector = EnvThreads(1), Collector()
        started = threading.Event()

        def hangs():
            started.set()
            assert go.wait(SOON)

        job = call_of(hangs, collector.finish)
        submit(threads, [job])
        await heard(started)
        threads.abandon(job, Closes(cleaned.set))
        threads.close()

    before = set(threading.enumerate())
    asyncio.run(main())
    left = [each for each in set(threading.enumerate()) - before if each.name == "guerdon-env"]
    assert len(left) == 1
    go.set()
    left[0].join(SOON)
    assert not left[0].is_alive()
    assert cleaned.is_set()


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from(["normal", "raises", "hangs", "waits"]), max_size=25),
    st.integers(1, 4),
)
def test_env_threads_every_job_finishes_once_or_is_cleaned_up_once(kinds, size):
    """Whatever is given up while it runs, or before, or not at all."""

    async def main():
        threads, collector = EnvThreads(size), Collector()
        go, cleaned, begun = threading.Event(), [], []

        def call(place, kind):
            begun.append(place)
            if kind == "raises":
                raise OSError(place)
            if kind in ("hangs", "waits"):
                assert go.wait(SOON)
            return place

        jobs = [
            call_of(lambda place=place, kind=kind: call(place, kind), collector.finish)
            for place, kind in enumerate(kinds)
        ]
        submit(threads, jobs)
        running = set()  # the code of the other abandoned calls was never called
        given_up = {place for place, kind in enumerate(kinds) if kind == "hangs"}
        for place in given_up:
            closes = Closes(lambda place=place: cleaned.append(place))
            if threads.abandon(jobs[place], closes):
                running.add(place)
        go.set()
        await collector.have(len(jobs) - len(given_up))
        while len(cleaned) < len(running):  # each turn lets a thread have come further
            submit(threads, [call_of(lambda: None, collector.finish)])
            await collector.have(len(collector.finished) + 1)
        threads.close()
        finished = [job for job in collector.finished if job in jobs]
        assert sorted(map(jobs.index, finished)) == sorted(set(range(len(jobs))) - given_up)
        assert sorted(cleaned) == sorted(running)
        assert len(begun) == len(set(begun))
        assert set(begun).isdisjoint(given_up - running)
        for job in finished:
            place = jobs.index(job)
            if kinds[place] == "raises":
                assert job.error.args == (place,)
            else:
                result = collector.results[collector.finished.index(job)]
                assert (result, job.error) == (place, None)

    played(main)


# What waits for a job


def waited(function):
    """What a future gives that waits for a job."""

    async def main():
        threads = EnvThreads(1)
        waiting = threads.loop.create_future()
        threads.start(EnvCall(function, "the call", partial(settle, waiting)))
        try:
            async with asyncio.timeout(SOON):
                return await waiting
        finally:
            threads.close()

    return played(main)


def test_env_threads_a_future_gets_what_the_job_returned():
    given = object()
    assert waited(lambda: given) is given


def test_env_threads_a_future_gets_what_the_job_raised():
    error = OSError("down")

    def raises():
        raise error

    with pytest.raises(OSError, match="down") as raised:
        waited(raises)
    assert raised.value is error


class Mine(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(),
     StopIteration(7), Mine("mine")],
    ids=repr,
)  # fmt: skip
def test_env_threads_report_exceptions_that_would_end_the_loop_with_their_cause(
    error,
):
    def raises():
        raise error

    with pytest.raises(EnvError, match=r"the call (raised|called sys.exit)") as raised:
        waited(raises)
    assert raised.value.exception is error


@pytest.mark.parametrize("fails", [False, True])
def test_env_threads_a_future_that_was_cancelled_is_left_unchanged(fails):
    async def main():
        loop = asyncio.get_running_loop()
        cancelled, answered = loop.create_future(), loop.create_future()
        cancelled.cancel()
        answered.set_result("before")
        for waiting in (cancelled, answered):
            call = EnvCall(lambda: 1 / 0 if fails else 7, "the call", partial(settle, waiting))
            call.run()
            call.deliver()
        assert cancelled.cancelled()
        assert answered.result() == "before"

    asyncio.run(main())


def test_env_call_in_a_loop_that_is_blocked_again_and_again_has_twice_its_limit():
    call = EnvCall(lambda: None, "step", limit_s=10.0)
    call.started_at = 100.0
    for now in range(101, 121):
        assert call.late(float(now), 0.9) is None
    assert isinstance(call.late(121.0, 0.9), EnvTimeoutError)
