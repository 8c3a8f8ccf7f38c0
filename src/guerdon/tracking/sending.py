"""One tracker's thread: it sends what is in the log after the tracker's cursor."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from guerdon._logging import step_logger
from guerdon.errors import TrackerError
from guerdon.tracking.log import Cursor, TrackedRun, unsent
from guerdon.tracking.records import record_of
from guerdon.tracking.trackers import TrackerBackend

__all__ = ["TrackerStatus"]

logger = step_logger(__name__)

LONGEST_PAUSE_S = 30.0
# How often it looks for records of other processes, and whether another process still sends.
POLL_S = 1.0
FLUSH_POLL_S = 0.05
# What the code of a tracker may raise.
RAISED = (Exception, SystemExit, KeyboardInterrupt)


@dataclass(frozen=True, slots=True)
class TrackerStatus:
    """The state of one tracker, or of the log.

    Example:
        >>> from guerdon.tracking import RewardLogger
        >>> with RewardLogger("jsonl", path="logs") as logger:
        ...     logger.log_step(1, 0, 0.7, {"tests": 1.0})
        ...     in_log = logger.flush()
        ...     logger.status()["jsonl"].sent
        1

    Attributes:
        sent: Records sent since the logger was created, those of other processes included.
        waiting: Bytes of the log that haven't been sent yet.
        lost: Records of this logger that are not in the log: the queue or the log was full, they
            couldn't be encoded, or another thread closed the logger meanwhile.
        refused: Records that the tracker will never accept; they are in
            ``trackers/{name}.refused.jsonl``.
        error: What went wrong at the last attempt; None if it succeeded.
        busy_s: Seconds that the current attempt has taken so far; 0 if there is none.
    """

    sent: int
    waiting: int
    lost: int
    refused: int
    error: str | None
    busy_s: float


class Sender:
    """Sends the records of a run's log to one tracker, in a thread.

    Args:
        tracker: The tracker.
        run: The run.
        log: The path of its log.
        retry_s: Seconds before the first retry; each pause is twice as long as the last.
        on_open: Called when the tracker has been opened.
    """

    def __init__(
        self,
        tracker: TrackerBackend,
        run: TrackedRun,
        log: Path,
        *,
        retry_s: float,
        on_open: Callable[[], None],
    ) -> None:
        self.tracker, self.run, self.log, self.retry_s = tracker, run, log, retry_s
        self.sent = self.refused = 0
        self.error: str | None = None
        self._on_open, self._is_open = on_open, False
        self._cursor: Cursor | None = None
        self._is_owner = False  # of the cursor; otherwise another process sends
        self._progress = threading.Condition()
        self._since = 0.0
        self._attempts = self._failed = 0
        self._singly = 0  # lines to send one by one, because one of them isn't accepted
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._stopping = self._abandoned = False
        self._thread = threading.Thread(
            target=self._run, name=f"guerdon-tracker-{tracker.name}", daemon=True
        )
        self._thread.start()

    # Called by other threads

    def wake(self) -> None:
        """Signal that there are new records."""
        self._wake.set()

    def _retry_now(self) -> None:
        self._hurry.set()
        self._wake.set()

    def waiting(self) -> int:
        """Return the number of bytes that haven't been sent, by whichever process sends them."""
        cursor = self._cursor
        return unsent(self.log, self.tracker.name) if cursor is None else cursor.waiting()

    def status(self, lost: int) -> TrackerStatus:
        """Return the tracker's state, with the number of records that the log has lost."""
        since = self._since
        return TrackerStatus(
            sent=self.sent,
            waiting=self.waiting(),
            lost=lost,
            refused=self.refused,
            error=self.error,
            busy_s=time.monotonic() - since if since else 0.0,
        )

    def flush(self, deadline: float) -> bool:
        """Wait until all that is in the log has been sent, or an attempt fails."""
        attempt = self._attempts
        self._retry_now()
        with self._progress:
            while self.waiting() and self._failed <= attempt:
                left = deadline - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    break
                self._progress.wait(min(left, FLUSH_POLL_S))
        return self.waiting() == 0

    def stop(self) -> None:
        """End the thread when all is sent, or at the next attempt that fails."""
        self._stopping = True
        self._retry_now()

    def join(self, deadline: float) -> bool:
        """Wait for the thread; returns whether nothing is left for this process to send."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._abandoned = True
        return not self._thread.is_alive() and not (self._is_owner and self.waiting())

    def forget(self) -> None:
        """Close the files; after a fork, the parent process keeps its lock."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.close()

    # The thread

    def _run(self) -> None:
        self._send_all()
        if self._is_open:
            try:
                self.tracker.close()
            except RAISED as error:
                self.error = repr(error)
                logger.warning("tracker %r can't be closed: %r", self.tracker.name, error)
        self.forget()

    def _send_all(self) -> None:
        pause = self.retry_s
        while not self._abandoned:
            self._wake.clear()
            stopping = self._stopping  # what is in the log when it is stopped is sent
            found = self._attempt()
            if found is None:
                if self._stopping:
                    return
                self._hurry.wait(pause)
                self._hurry.clear()
                pause = min(2 * pause, LONGEST_PAUSE_S)
            elif found:
                pause = self.retry_s
            elif stopping:
                return
            else:
                self._wake.wait(POLL_S)

    def _attempt(self) -> bool | None:
        """Send one batch; returns whether there was anything to do, None if it failed."""
        self._since = time.monotonic()
        self._attempts += 1
        had_failed = self.error is not None
        found: bool | None = None
        try:
            found = self._send_batch()
            self.error = None
        except RAISED as error:
            self.error = repr(error)
            if not had_failed:
                logger.warning(
                    "tracker %r failed, its records stay in %s: %r",
                    self.tracker.name, self.log, error,
                )  # fmt: skip
        self._since = 0.0
        with self._progress:
            if found is None:
                self._failed = self._attempts
            self._progress.notify_all()
        if found is not None and had_failed:
            logger.warning("tracker %r works again", self.tracker.name)
        return found

    def _send_batch(self) -> bool:
        if self._cursor is None:
            self._cursor = Cursor.open(self.log, self.tracker.name)
            self._is_owner = self._cursor is not None
            return self._is_owner
        if not self._is_open:
            self.tracker.open(self.run)
            self._is_open = True
            self._on_open()
            return True
        lines = self._cursor.read(1 if self._singly else None)
        if not lines:
            return False
        problem = self._write(lines)
        if problem is not None and len(lines) > 1:
            self._singly = len(lines)  # to find the one that isn't accepted
            return True
        if problem is not None:
            kept = self._cursor.refuse(lines[0])
            self.refused += 1
            logger.error(
                "tracker %r: a record was moved to %s: %s", self.tracker.name, kept, problem
            )
        else:
            self.sent += len(lines)
        self._singly = max(0, self._singly - 1)
        self._cursor.advance(lines)
        return True

    def _write(self, lines: list[bytes]) -> str | None:
        """Send lines; returns None, or why they will never be accepted."""
        try:
            records = [record_of(line) for line in lines]
        except ValueError as error:
            return str(error)
        try:
            self.tracker.write(records)
        except TrackerError as error:
            return str(error)
        return None
