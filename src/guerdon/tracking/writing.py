"""The thread between the training loop and the spools: from a queue in memory to lines on disk."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from guerdon.tracking.records import line_of
from guerdon.tracking.sending import Sender

__all__ = ["Writer"]

logger = logging.getLogger(__name__)

# Seconds that records are gathered before they are written: with the time that writing takes, well
# within the second that a killed process may cost.
GATHER_S = 0.1
SYNC_S = 1.0
RETRY_S = 0.5
TOLD_S = 60.0
MANY = 1000  # different names, of which trackers with a chart for each are no help any more
AT_ONCE = 2000  # records in one go, so that a long queue holds no lock and no disk for long


class _Mark:
    """A place in the queue that somebody waits for."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.counts: list[int] = []


class Writer:
    """Takes what is queued, and appends it to every sender's spool.

    Args:
        senders: Where it goes.
        size: How many records the queue takes.
        full: Called with why records are lost, and with None when there is room again.
    """

    def __init__(
        self, senders: Sequence[Sender], *, size: int, full: Callable[[str | None], None]
    ) -> None:
        self.queue: deque[dict[str, Any] | _Mark] = deque()
        self.size, self.lost = size, 0
        self._senders, self._full = senders, full
        self._session = f"{time.time_ns():x}{os.urandom(3).hex()}"
        self._count = 0
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._room = threading.Condition()
        self._names: dict[str, set[Any]] = {"components": set(), "environments": set()}
        self._chunk: list[tuple[Sender, bytes, int]] = []  # who hasn't got which lines yet
        self._stuck = self._stopping = self._dirty = self._is_full = self._ended = False
        self._synced = self._told = 0.0
        self._thread = threading.Thread(
            target=self._live, name="guerdon-reward-writer", daemon=True
        )
        self._thread.start()

    # For the threads that log

    def put(self, row: dict[str, Any]) -> bool:
        """Queue a record, waiting for room; False where the disk makes none, and it is lost."""
        if len(self.queue) >= self.size and not self._wait_for_room():
            return False
        self.queue.append(row)
        if not self._wake.is_set():
            self._wake.set()
        return True

    def _wait_for_room(self) -> bool:
        self._hurry.set()
        with self._room:
            self._room.wait_for(lambda: len(self.queue) < self.size or self._stuck or self._ended)
            if len(self.queue) < self.size:
                return True
            self.lost += 1
            if self.lost == 1:
                logger.error("the disk can't be written and the queue is full: records are lost")
        return False

    def count_late(self) -> None:
        """Count what was queued when its thread had ended as lost."""
        self.lost += len(self.queue) + sum(count for *_, count in self._chunk[:1])

    def mark(self, deadline: float) -> list[int] | None:
        """Wait until all that is queued is on disk.

        Returns:
            How many records each sender has been given; None where the time ran out.
        """
        mark = _Mark()
        self.queue.append(mark)
        self._wake.set()
        self._hurry.set()
        in_time = mark.reached.wait(max(0.0, deadline - time.monotonic()))
        return mark.counts if in_time else None

    def stop(self, deadline: float) -> bool:
        """End its thread, with all on disk; whether that was done in time."""
        self._stopping = True
        self._wake.set()
        self._hurry.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    # Its thread

    def _live(self) -> None:
        try:
            self._work()
        finally:  # whatever happened, nobody waits for room any more
            self._ended = True
            with self._room:
                self._room.notify_all()

    def _work(self) -> None:
        while not (self._stopping and (self._stuck or not (self.queue or self._chunk))):
            # Where nothing is to be looked after, it sleeps until there is something.
            self._wake.wait(SYNC_S if self._dirty or self._is_full else None)
            self._hurry.wait(RETRY_S if self._stuck else GATHER_S)
            self._wake.clear()
            self._hurry.clear()
            while self._write() and self.queue:
                pass
            if self._is_full and not self._stuck and all(s.spool.has_room for s in self._senders):
                self._is_full = False
                self._full(None)
            self._sync()
        self._sync(now=True)

    def _write(self) -> bool:
        """Write what is at the head of the queue; False where the disk doesn't take it."""
        lines: list[bytes] = []
        marks: list[_Mark] = []
        while not self._chunk and self.queue and len(lines) < AT_ONCE:
            row = self.queue.popleft()
            if isinstance(row, _Mark):
                marks.append(row)
                break
            self._count += 1
            self._look_at_names("components", row.get("components", ()))
            self._look_at_names("environments", [row.get("env_id")])
            try:
                lines.append(line_of({"id": f"{self._session}-{self._count}", **row}))
            except (TypeError, ValueError) as error:  # such as an id of thousands of digits
                with self._room:
                    self.lost += 1
                logger.error("a record can't be written, and is lost: %s", error)
        if lines:
            self._chunk = [(each, b"".join(lines), len(lines)) for each in self._senders]
        self._stuck = not self._append()
        if self._stuck:
            self.queue.extendleft(marks)
        for mark in () if self._stuck else marks:
            mark.counts = [each.spool.appended for each in self._senders]
            mark.reached.set()
        if self._stuck:
            self._wake.set()
        with self._room:
            self._room.notify_all()
        return not self._stuck

    def _look_at_names(self, kind: str, names: Iterable[Any]) -> None:
        """Warn once where there are ever more names, such as an id in each; all are logged."""
        seen = self._names.get(kind)
        if seen is None:
            return
        seen.update(names)
        if len(seen) > MANY:
            del self._names[kind]
            logger.warning(
                "over %s %s with different names were logged, such as %r: each is a metric of its "
                "own in a tracker, which will be slow; is there an id in the names?",
                f"{MANY:,}", kind, next(iter(names)),
            )  # fmt: skip

    def _append(self) -> bool:
        """Append the present chunk to each spool that hasn't got it; whether that worked."""
        left = []
        for sender, lines, count in self._chunk:
            try:
                room = sender.spool.append(lines, count)
            except OSError as error:
                left.append((sender, lines, count))
                self._tell(f"records can't be spooled, and are kept in memory: {error!r}")
                continue
            self._dirty = True
            if room:
                sender.wake()
            else:
                sender.lost += count
                self._tell(
                    f"the spool of tracker {sender.tracker.name!r} is full "
                    f"({sender.spool.max_bytes:,} bytes wait): {sender.lost:,} records are lost"
                )
        self._chunk = left
        return not left

    def _tell(self, what: str) -> None:
        self._is_full = True
        self._full(what)
        if not self._told or time.monotonic() - self._told > TOLD_S:
            logger.error("%s", what)
            self._told = time.monotonic()

    def _sync(self, *, now: bool = False) -> None:
        if not self._dirty or not (now or time.monotonic() - self._synced >= SYNC_S):
            return
        self._synced = time.monotonic()
        try:
            for sender in self._senders:
                sender.spool.sync()
        except OSError as error:
            self._tell(f"the disk doesn't keep what is spooled: {error!r}")
            return
        self._dirty = False
