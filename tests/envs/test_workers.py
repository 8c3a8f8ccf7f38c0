"""Workers: threads for jobs of which some never come back."""

import asyncio
import threading
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.envs.workers import Job, Workers, settle
from guerdon.errors import EnvError, EnvTimeoutError
from tests.envs.worlds import SOON


class Desk:
    """Collects what is finished, and lets a test wait for it."""

    def __init__(self):
        self.finished = []
        self._changed = asyncio.Event()

    def finish(self, job):
        self.finished.append(job)
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
            thread.join(SOON)
            assert not thread.is_alive(), thread
    return result


async def heard(event):
    """Wait for a thread without blocking the loop."""
    assert await asyncio.to_thread(event.wait, SOON)


def test_jobs_run_off_the_loop_and_are_finished_in_it():
    async def main():
        workers, desk = Workers(2), Desk()
        places = []

        def here():
            places.append(threading.current_thread())
            return "given"

        class Thread(Desk):
            def finish(self, job):
                places.append(threading.current_thread())
                super().finish(job)

        desk = Thread()
        job = Job(here, desk.finish)
        workers.submit([job])
        await desk.have(1)
        workers.close()
        assert (job.result, job.error, job.finished) == ("given", None, True)
        assert places[0] is not threading.current_thread()
        assert places[1] is threading.current_thread()

    played(main)


@pytest.mark.parametrize(
    "error", [OSError("down"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_whatever_a_job_raises_ends_the_job_and_not_the_thread(error):
    def raises():
        raise error

    async def main():
        workers, desk = Workers(1), Desk()
        workers.submit([Job(raises, desk.finish), Job(lambda: "next", desk.finish)])
        await desk.have(2)
        workers.close()
        assert desk.finished[0].error is error
        assert desk.finished[1].result == "next"
        assert workers.threads == 1

    played(main)


def test_as_many_run_at_a_time_as_there_are_threads():
    async def main():
        workers, desk = Workers(3), Desk()
        barrier = threading.Barrier(3, timeout=SOON)
        workers.submit([Job(barrier.wait, desk.finish) for _ in range(12)])
        await desk.have(12)
        workers.close()
        assert [job.error for job in desk.finished] == [None] * 12
        assert workers.threads == 3

    played(main)


def test_no_more_threads_are_started_than_there_are_jobs():
    async def main():
        workers, desk = Workers(64), Desk()
        assert workers.threads == 0
        for count in (1, 2):
            workers.submit([Job(lambda: None, desk.finish)])
            await desk.have(count)
        assert workers.threads == 1
        workers.close()

    played(main)


def test_jobs_begin_in_the_order_in_which_they_were_handed_over():
    async def main():
        workers, desk, begun = Workers(1), Desk(), []
        workers.submit(
            [Job(lambda place=place: begun.append(place), desk.finish) for place in range(50)]
        )
        await desk.have(50)
        workers.close()
        assert begun == list(range(50))

    played(main)


def test_a_thread_that_hangs_is_replaced_and_what_it_gives_is_dropped():
    async def main():
        workers, desk = Workers(1), Desk()
        started, go, cleaned = threading.Event(), threading.Event(), threading.Event()
        where = []

        def hangs():
            started.set()
            assert go.wait(SOON)
            return "too late"

        def clean():
            where.append(threading.current_thread())
            cleaned.set()

        hanging = Job(hangs, desk.finish)
        workers.submit([hanging])
        await heard(started)
        workers.give_up(hanging, clean)
        assert (workers.stuck, hanging.stuck) == (1, True)
        workers.submit([Job(lambda: "next", desk.finish)])
        await desk.have(1)
        assert desk.finished[0].result == "next"
        assert not cleaned.is_set()  # its code hasn't come back
        go.set()
        await heard(cleaned)
        assert where[0] is not threading.current_thread()
        workers.submit([Job(lambda: "after", desk.finish)])
        await desk.have(2)
        assert hanging not in desk.finished
        assert (workers.stuck, hanging.finished) == (0, False)
        workers.close()

    played(main)


def test_a_job_whose_turn_came_too_late_never_runs_but_is_cleaned_up_after():
    async def main():
        workers, desk = Workers(1), Desk()
        started, go, cleaned = threading.Event(), threading.Event(), threading.Event()
        ran = []

        def blocks():
            started.set()
            assert go.wait(SOON)

        late = Job(lambda: ran.append(True), desk.finish)
        workers.submit([Job(blocks, desk.finish), late])
        await heard(started)
        workers.give_up(late, cleaned.set)
        assert workers.stuck == 0
        go.set()
        await heard(cleaned)
        await desk.have(1)
        workers.submit([Job(lambda: None, desk.finish)])
        await desk.have(2)
        assert ran == []
        assert workers.stuck == 0
        workers.close()

    played(main)


def test_a_job_that_ended_just_before_it_was_given_up_is_cleaned_up_too():
    async def main():
        workers, desk = Workers(1), Desk()
        cleaned, ended = threading.Event(), threading.Event()

        class Ends(Job):
            __slots__ = ()

            def run(self):
                super().run()
                ended.set()

        job = Ends(lambda: None, desk.finish)
        workers.submit([job])
        assert ended.wait(SOON)  # this holds the loop, so that nobody has collected it
        workers.give_up(job, cleaned.set)
        await heard(cleaned)
        workers.submit([Job(lambda: None, desk.finish)])
        await desk.have(1)
        assert job not in desk.finished
        assert workers.stuck == 0
        workers.close()

    played(main)


def test_a_job_that_ended_just_before_it_was_given_up_is_cleaned_up_after_closing_too():
    before = set(threading.enumerate())

    async def main():
        workers, desk = Workers(1), Desk()
        cleaned, ended = threading.Event(), threading.Event()

        class Ends(Job):
            __slots__ = ()

            def run(self):
                super().run()
                ended.set()

        job = Ends(lambda: None, desk.finish)
        workers.submit([job])
        assert ended.wait(SOON)  # this holds the loop, so that nobody has collected it
        [thread] = set(threading.enumerate()) - before
        workers.give_up(job, cleaned.set)
        workers.close()
        thread.join(SOON)  # it has taken leave before the cleanup could come to it
        await heard(cleaned)
        assert desk.finished == []

    played(main)


def test_a_cleanup_that_raises_is_logged_and_the_thread_goes_on(caplog):
    async def main():
        workers, desk = Workers(1), Desk()
        started, go = threading.Event(), threading.Event()

        def hangs():
            started.set()
            assert go.wait(SOON)

        def clean():
            raise SystemExit(3)

        job = Job(hangs, desk.finish)
        workers.submit([job])
        await heard(started)
        workers.give_up(job, clean)
        go.set()
        workers.submit([Job(lambda: "next", desk.finish)])
        await desk.have(1)
        workers.close()

    played(main)
    assert "was given up raised while it was closed" in caplog.text


def test_too_many_that_hang_are_refused_until_they_come_back():
    async def main():
        workers, desk = Workers(1, max_stuck=1), Desk()
        go, cleaned = threading.Event(), threading.Semaphore(0)
        for _ in range(2):
            workers.check()
            started = threading.Event()

            def hangs(started=started):
                started.set()
                assert go.wait(SOON)

            job = Job(hangs, desk.finish)
            workers.submit([job])
            await heard(started)
            workers.give_up(job, cleaned.release)
        with pytest.raises(EnvTimeoutError, match="2 environments hang in their own code, more"):
            workers.check()
        go.set()
        for _ in range(2):
            assert await asyncio.to_thread(cleaned.acquire, timeout=SOON)
        workers.submit([Job(lambda: None, desk.finish)])
        await desk.have(1)
        workers.check()
        workers.close()

    played(main)


def test_threads_that_come_back_are_not_one_too_many():
    async def main():
        workers, desk = Workers(2), Desk()
        go = threading.Event()
        for _ in range(3):
            started = threading.Event()

            def hangs(started=started):
                started.set()
                assert go.wait(SOON)

            job = Job(hangs, desk.finish)
            workers.submit([job])
            await heard(started)
            workers.give_up(job)
        workers.submit([Job(lambda: None, desk.finish) for _ in range(4)])
        await desk.have(4)
        go.set()
        for _ in range(100):
            if not workers.stuck:
                break
            workers.submit([Job(lambda: None, desk.finish)])
            await desk.have(len(desk.finished) + 1)
        barrier = threading.Barrier(2, timeout=SOON)
        done = len(desk.finished)
        workers.submit([Job(barrier.wait, desk.finish) for _ in range(8)])
        await desk.have(done + 8)
        assert workers.threads <= 2
        workers.close()

    played(main)


def test_closing_lets_a_job_at_work_end():
    ended = threading.Event()

    async def main():
        workers, desk = Workers(2), Desk()
        started, go = threading.Event(), threading.Event()

        def works():
            started.set()
            assert go.wait(SOON)
            ended.set()

        workers.submit([Job(works, desk.finish)])
        await heard(started)
        workers.close()
        assert not ended.is_set()
        go.set()

    played(main)
    assert ended.wait(SOON)


def test_a_thread_that_comes_back_when_its_loop_is_gone_ends():
    go = threading.Event()
    cleaned = threading.Event()

    async def main():
        workers, desk = Workers(1), Desk()
        started = threading.Event()

        def hangs():
            started.set()
            assert go.wait(SOON)

        job = Job(hangs, desk.finish)
        workers.submit([job])
        await heard(started)
        workers.give_up(job, cleaned.set)
        workers.close()

    before = set(threading.enumerate())
    asyncio.run(main())
    left = [each for each in set(threading.enumerate()) - before if "guerdon" in each.name]
    assert len(left) == 1
    go.set()
    left[0].join(SOON)
    assert not left[0].is_alive()
    assert cleaned.is_set()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(["normal", "raises", "hangs", "waits"]), max_size=25),
    st.integers(1, 4),
)
def test_every_job_finishes_once_or_is_cleaned_up_once(kinds, size):
    """Whatever is given up while it runs, or before, or not at all."""

    async def main():
        workers, desk = Workers(size), Desk()
        go, cleaned, begun = threading.Event(), [], []

        def call(place, kind):
            begun.append(place)
            if kind == "raises":
                raise OSError(place)
            if kind in ("hangs", "waits"):
                assert go.wait(SOON)
            return place

        jobs = [
            Job(lambda place=place, kind=kind: call(place, kind), desk.finish)
            for place, kind in enumerate(kinds)
        ]
        workers.submit(jobs)
        given_up = {place for place, kind in enumerate(kinds) if kind == "hangs"}
        for place in given_up:
            workers.give_up(jobs[place], lambda place=place: cleaned.append(place))
        go.set()
        await desk.have(len(jobs) - len(given_up))
        last = Job(lambda: None, desk.finish)
        while len(cleaned) < len(given_up):  # each turn lets a thread have come further
            workers.submit([last])
            await desk.have(len(desk.finished) + 1)
        workers.close()
        finished = [job for job in desk.finished if job is not last]
        assert sorted(map(jobs.index, finished)) == sorted(set(range(len(jobs))) - given_up)
        assert sorted(cleaned) == sorted(given_up)
        assert len(begun) == len(set(begun))
        for job in finished:
            place = jobs.index(job)
            if kinds[place] == "raises":
                assert job.error.args == (place,)
            else:
                assert (job.result, job.error) == (place, None)

    played(main)


# What waits for a job


def waited(function):
    """What a future gives that waits for a job."""

    async def main():
        workers = Workers(1)
        waiting = workers.loop.create_future()
        workers.submit([Job(function, partial(settle, waiting))])
        try:
            async with asyncio.timeout(SOON):
                return await waiting
        finally:
            workers.close()

    return played(main)


def test_a_future_gets_what_the_job_gave():
    given = object()
    assert waited(lambda: given) is given


def test_a_future_gets_what_the_job_raised():
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
def test_what_would_end_the_loop_or_no_future_can_carry_is_a_failure_with_its_cause(error):
    def raises():
        raise error

    with pytest.raises(EnvError, match="the environment raised") as raised:
        waited(raises)
    assert raised.value.exception is error


@pytest.mark.parametrize("fails", [False, True])
def test_a_future_that_nobody_waits_for_any_more_is_left_as_it_is(fails):
    async def main():
        job = Job(lambda: 1 / 0 if fails else 7, lambda job: None)
        job.run()
        loop = asyncio.get_running_loop()
        cancelled, answered = loop.create_future(), loop.create_future()
        cancelled.cancel()
        answered.set_result("before")
        settle(cancelled, job)
        settle(answered, job)
        assert cancelled.cancelled()
        assert answered.result() == "before"

    asyncio.run(main())
