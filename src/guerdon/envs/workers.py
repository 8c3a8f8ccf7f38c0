"""`Workers`: threads in which sync environments run, so that none of them blocks an event loop.

Jobs are handed over in batches and come back in batches: the threads share one queue, from which
each wakes the next only while there is something left, and what they finish is collected by one
wake-up of the event loop. A thread whose job was given up is replaced; it ends when, and if, the
job does.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Protocol

from guerdon.errors import EnvError, EnvTimeoutError

__all__ = ["Alarm", "Job", "Workers", "settle"]

logger = logging.getLogger("guerdon.envs")

# Seconds between two looks at the alarms: how exact a time limit is.
TICK_S = 0.05
# Seconds after which a thread that nobody needs ends.
IDLE_S = 10.0


class Job:
    """One call to make in a thread, and what is to be done with its result in the event loop.

    Attributes:
        function: What to call, without arguments.
        finish: Called with the job in the event loop, unless the job was given up.
        result: What the call gave.
        error: What it raised; None where it gave a result.
        started_at: When a thread has taken it, on the monotonic clock; 0.0 before that.
        finished: Whether `finish` was called.
        abandoned: Whether the job was given up.
        stuck: Whether a thread hangs in it, for all that is known.
    """

    __slots__ = (
        "abandoned",
        "cleanup",
        "error",
        "finish",
        "finished",
        "function",
        "result",
        "started_at",
        "stuck",
    )

    def __init__(self, function: Callable[[], Any], finish: Callable[[Job], None]) -> None:
        self.function = function
        self.finish = finish
        self.result: Any = None
        self.error: BaseException | None = None
        self.started_at = 0.0
        self.finished = False
        self.abandoned = False
        self.stuck = False
        self.cleanup: Callable[[], None] | None = None

    def run(self) -> None:
        """Make the call; nothing that it raises gets out."""
        self.started_at = monotonic()
        try:
            if not self.abandoned:  # else its turn came too late
                self.result = self.function()
        except BaseException as error:  # sys.exit() too: it ends a step, not the thread
            self.error = error
        if self.abandoned:
            self.clean_up()

    def clean_up(self) -> None:
        """Run what was to be done once a job that was given up has ended after all."""
        cleanup, self.cleanup = self.cleanup, None
        if cleanup is not None:
            try:
                cleanup()
            except BaseException:
                logger.exception("an environment that was given up raised while it was closed")


class Alarm(Protocol):
    """Something that is looked at now and then, as long as it is in `Workers.alarms`."""

    def ring(self, now: float) -> None:
        """Look whether it is time.

        Args:
            now: On the monotonic clock.
        """


class Workers:
    """Threads that run jobs for one event loop. Made, used and closed in that loop.

    Args:
        size: How many jobs run at the same time.
        max_stuck: How many threads may hang in jobs that were given up.
        name: What the threads are called.

    Attributes:
        alarms: What to look at every `TICK_S`: one clock for all calls costs less than one each.
    """

    def __init__(self, size: int, *, max_stuck: int = 256, name: str = "guerdon-env") -> None:
        self.size = size
        self.max_stuck = max_stuck
        self.stuck = 0
        self.threads = 0
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._done: deque[Job] = deque()
        self._outstanding = 0
        self._told = False  # whether the loop knows that something is done
        self._closed = False
        self.alarms: set[Alarm] = set()
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that they work for."""
        return self._loop

    def watch(self, alarm: Alarm) -> None:
        """Look at an alarm from now on; whoever set it takes it out of `alarms`."""
        self.alarms.add(alarm)
        if self._ticker is None:
            self._ticker = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticker = None
        now = monotonic()
        for alarm in list(self.alarms):
            alarm.ring(now)
        if self.alarms:
            self._ticker = self._loop.call_later(TICK_S, self._tick)

    def submit(self, jobs: Iterable[Job]) -> None:
        """Have jobs run, in order, as many at a time as there are threads."""
        put = self._queue.put
        for job in jobs:
            self._outstanding += 1
            put(job)
        self._recruit()

    def _recruit(self) -> None:
        while self.threads < min(self._outstanding, self.size + self.stuck):
            self.threads += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _retire(self) -> None:
        """A thread has ended for want of work; some may have come meanwhile."""
        self.threads -= 1
        if not self._closed:
            self._recruit()

    def give_up(self, job: Job, cleanup: Callable[[], None] | None = None) -> None:
        """Leave a job that takes too long to itself, and let another thread take its place.

        Args:
            job: A job that was submitted and has not finished.
            cleanup: Called in a thread when the job ends after all.
        """
        job.cleanup = cleanup
        job.abandoned = True
        if job.started_at:
            job.stuck = True
            self.stuck += 1

    def check(self) -> None:
        """Refuse more work where too many threads hang.

        Raises:
            EnvTimeoutError: They do.
        """
        if self.stuck > self.max_stuck:
            raise EnvTimeoutError(
                f"{self.stuck} environments hang in their own code, more than {self.max_stuck}; "
                "mend what blocks them, and start anew"
            )

    def close(self) -> None:
        """End the threads: those at work when their job is done."""
        self._closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        for _ in range(self.threads):
            self._queue.put(None)

    def _work(self) -> None:
        take = self._queue.get
        while True:
            try:
                job = take(timeout=IDLE_S)
            except Empty:
                self._call_soon(self._retire)
                return
            if job is None:
                return
            job.run()
            self._done.append(job)
            if not self._told:
                self._told = True
                self._call_soon(self._collect)
            del job

    def _call_soon(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            logger.debug("the event loop is closed, and with it whoever waited")

    def _clean_up(self, job: Job) -> None:
        if self._closed:  # the threads are ending, and would pass it by
            threading.Thread(target=job.clean_up, name=self._name, daemon=True).start()
        else:
            self.submit((Job(job.clean_up, _nothing),))

    def _collect(self) -> None:
        """Finish, in the event loop, the jobs that are done."""
        self._told = False
        done = self._done
        while done:
            job = done.popleft()
            self._outstanding -= 1
            if not job.abandoned:
                job.finished = True
                job.finish(job)
                continue
            self.stuck -= job.stuck
            if job.cleanup is not None:  # it ended just before it was given up
                self._clean_up(job)
            if not self._closed and self.threads > self.size + self.stuck:
                self.threads -= 1
                self._queue.put(None)


def _nothing(job: Job) -> None:
    """What is done with the result of a cleanup."""


def settle(waiting: asyncio.Future[Any], job: Job) -> None:
    """Give what a job gave, or raised, to the future that waits for it.

    Example:
        >>> async def seven(workers):
        ...     waiting = workers.loop.create_future()
        ...     workers.submit([Job(lambda: 7, partial(settle, waiting))])
        ...     return await waiting
    """
    if waiting.done():
        return
    error = job.error
    if error is None:
        waiting.set_result(job.result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        waiting.set_exception(error)
    else:  # what an event loop would take for its own end, or a future can't carry
        failed = EnvError(f"the environment raised {error!r:.200}", exception=error)
        waiting.set_exception(failed)
