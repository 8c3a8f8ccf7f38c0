"""`lock_watch`: logs which environment held the interpreter lock, so that no other one could run.

Python code releases the lock every few milliseconds, and well-written C code while it computes.
Other C code, such as a regular expression that backtracks, holds it until it ends: no other thread
runs, and no event loop. Afterwards the processor time of each thread shows which one computed. The
thread of an event loop also runs other code, such as a trainer's: its calls are measured instead.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from time import monotonic, process_time, sleep
from typing import Any
from weakref import WeakSet

try:
    from time import clock_gettime, pthread_getcpuclockid
except ImportError:  # not on this platform: no environment is named
    pthread_getcpuclockid = None  # type: ignore[assignment]

logger = logging.getLogger("guerdon.envs")

# Seconds between two measurements.
TICK_S = 0.1
# The shortest time for which the lock is held, or an event loop blocked, that is reported.
LONG_S = 1.0


class WatchedThread:
    """A thread that calls environments; created and changed in that thread.

    Attributes:
        owner: The name of the environment that it called last.
        what: What it called.
        began: When that call began, or was resumed, on the monotonic clock; 0.0 while the event
            loop runs something else.
    """

    def __init__(self, *, runs_loop: bool = False) -> None:
        self.owner = self.what = ""
        self.began = 0.0
        self._runs_loop = runs_loop
        self._clock: Any = None
        if pthread_getcpuclockid is not None and not runs_loop:
            self._clock = pthread_getcpuclockid(threading.get_ident())
        self._computed = self._reported = 0.0
        self.computed()

    def begin(self, owner: str, what: str) -> None:
        """Record that a call begins."""
        now = monotonic()
        if self.began and now - self.began > LONG_S:
            lock_watch.since(now)  # measures, while this thread has the name of the call before
        self.owner, self.what, self.began = owner, what, now

    def end(self) -> None:
        """Record that a call of an event loop has ended, or waits."""
        now = monotonic()
        if self.blocks_loop(now):  # while it held the lock: else it would be reported already
            lock_watch.report(f"{self} blocked the event loop for {now - self.began:.1f} s", now)
        self.began = 0.0

    def computed(self) -> float:
        """Return the seconds of processor time that it used since the last call of this method."""
        if self._clock is None:
            return 0.0
        now = clock_gettime(self._clock)
        used, self._computed = now - self._computed, now
        return used

    def blocks_loop(self, now: float) -> bool:
        """Whether a call blocks the event loop for long; True once for each call."""
        began = self.began
        if not self._runs_loop or not began or now - began < LONG_S or began == self._reported:
            return False
        self._reported = began
        return True

    def __str__(self) -> str:
        return f"{self.what} of {self.owner}" if self.owner else self.what


class LockWatch:
    """Measures the threads that call environments, in another thread, which ends with the last one.

    Example:
        >>> lock_watch.since(monotonic())
        ''
    """

    def __init__(self) -> None:
        # Weak, because a stopped event loop doesn't end its calls.
        self._threads: WeakSet[WatchedThread] = WeakSet()
        self._lock = threading.RLock()
        self._watcher: threading.Thread | None = None
        # The latest reports, and when each was made.
        self._reports: deque[tuple[str, float]] = deque(maxlen=16)
        # When it measured last, and the processor time of the process then.
        self._measured = self._used = 0.0

    def add(self, thread: WatchedThread) -> None:
        """Add a thread."""
        with self._lock:
            self._threads.add(thread)
            if self._watcher is None:
                watcher = threading.Thread(target=self._watch, name="guerdon-watch", daemon=True)
                try:
                    watcher.start()
                except RuntimeError:  # no further thread can be started
                    return
                self._watcher = watcher
                self._measured, self._used = monotonic(), process_time()

    def discard(self, thread: WatchedThread) -> None:
        """Remove a thread."""
        with self._lock:
            self._measure()  # it may have held the lock until now
            self._threads.discard(thread)

    def since(self, began: float) -> str:
        """Return what blocked other environments after a time, for error messages; else empty."""
        with self._lock:
            self._measure()
            return "; ".join(text for text, ended in self._reports if ended > began)

    def _watch(self) -> None:
        while True:
            sleep(TICK_S)
            with self._lock:
                if not self._threads:
                    self._watcher = None
                    return
                self._measure()

    def _measure(self) -> None:
        if self._watcher is None:
            return
        now, used = monotonic(), process_time()
        late, used_since = now - self._measured - TICK_S, used - self._used
        self._measured, self._used = now, used
        for thread in self._threads:
            computed = thread.computed()
            # This thread is late on a busy machine, too: then none of the others computed for long.
            if late > LONG_S and computed > max(late / 10, used_since / 2):
                self.report(f"{thread} held the interpreter lock for {late:.1f} s", now)
            elif thread.blocks_loop(now):
                self.report(f"{thread} blocks the event loop", now)

    def report(self, text: str, now: float) -> None:
        """Log what blocked the other environments until now."""
        with self._lock:
            self._reports.append((text, now))
        logger.warning("%s: meanwhile no other environment of this process runs", text)


lock_watch = LockWatch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lock_watch.__init__)  # type: ignore[misc]
