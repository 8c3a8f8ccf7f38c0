"""`lock_watch`: finds the environment that stops all others by holding the interpreter lock.

Python code releases the lock every few milliseconds, and well-written C code while it computes.
Other C code, such as a regular expression that backtracks, holds it until it ends: no other thread
runs, and no event loop. Afterwards it is known which thread computed in that time. The thread of an
event loop also runs other code, such as a trainer's: for its calls only their time counts.
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
except ImportError:  # not available on this platform: nobody is found
    pthread_getcpuclockid = None  # type: ignore[assignment]

__all__ = ["LockWatch", "WatchedThread", "lock_watch"]

logger = logging.getLogger("guerdon.envs")

# Seconds between two looks.
TICK_S = 0.1
# Seconds for which a lock is held, or an event loop is blocked, that are reported.
LONG_S = 1.0


class WatchedThread:
    """A thread that calls environments; made and changed in that thread.

    Attributes:
        owner: Whose environment it called last.
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

    def begin(self, owner: str, what: str, now: float) -> None:
        """Note that a call begins."""
        self.owner, self.what, self.began = owner, what, now

    def end(self) -> None:
        """Note that a call of an event loop has ended, or waits."""
        now = monotonic()
        if self.blocks_loop(now):  # and held the lock, otherwise it would have been seen before
            lock_watch.report(f"{self} blocked the event loop for {now - self.began:.1f} s", now)
        self.began = 0.0

    def computed(self) -> float:
        """Return the processor time that it used since the last call of this, in seconds."""
        if self._clock is None:
            return 0.0
        now = clock_gettime(self._clock)
        used, self._computed = now - self._computed, now
        return used

    def blocks_loop(self, now: float) -> bool:
        """Whether one call blocks the event loop for long; once for each such call."""
        began = self.began
        if not self._runs_loop or not began or now - began < LONG_S or began == self._reported:
            return False
        self._reported = began
        return True

    def __str__(self) -> str:
        return f"{self.what} of {self.owner}" if self.owner else self.what


class LockWatch:
    """Looks after the threads that call environments, in a thread of its own while there are any.

    Example:
        >>> lock_watch.since(monotonic())  # what ended later than now
        ''
    """

    def __init__(self) -> None:
        # Weak, because a stopped event loop doesn't end its calls.
        self._threads: WeakSet[WatchedThread] = WeakSet()
        self._lock = threading.RLock()
        self._watcher: threading.Thread | None = None
        self._holds: deque[tuple[str, float]] = deque(maxlen=16)  # who did what, and its end
        self._looked = self._used = 0.0  # at the last look: the time, and the process's computing

    def add(self, thread: WatchedThread) -> None:
        """Watch a thread."""
        with self._lock:
            self._threads.add(thread)
            if self._watcher is None:
                watcher = threading.Thread(target=self._watch, name="guerdon-watch", daemon=True)
                try:
                    watcher.start()
                except RuntimeError:  # no further thread can be started
                    return
                self._watcher = watcher
                self._looked, self._used = monotonic(), process_time()

    def discard(self, thread: WatchedThread) -> None:
        """Watch a thread no longer."""
        with self._lock:
            if self._watcher is not None:
                self._look()  # it may have held the lock until now
            self._threads.discard(thread)

    def since(self, began: float) -> str:
        """Return who stopped the others since a time, for error messages; empty if nobody did."""
        with self._lock:
            if self._watcher is not None:
                self._look()
            return "; ".join(text for text, ended in self._holds if ended > began)

    def _watch(self) -> None:
        while True:
            sleep(TICK_S)
            with self._lock:
                if not self._threads:
                    self._watcher = None
                    return
                self._look()

    def _look(self) -> None:
        now, used = monotonic(), process_time()
        late, used_since = now - self._looked - TICK_S, used - self._used
        self._looked, self._used = now, used
        for thread in self._threads:
            computed = thread.computed()
            # This thread is also late if the machine is busy: then nobody has computed for long.
            if late > LONG_S and computed > max(late / 10, used_since / 2):
                self.report(f"{thread} held the interpreter lock for {late:.1f} s", now)
            elif thread.blocks_loop(now):
                self.report(f"{thread} blocks the event loop", now)

    def report(self, text: str, now: float) -> None:
        """Log who stopped the others until now."""
        with self._lock:
            self._holds.append((text, now))
        logger.warning("%s: meanwhile no other environment of this process runs", text)


lock_watch = LockWatch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lock_watch.__init__)  # type: ignore[misc]
