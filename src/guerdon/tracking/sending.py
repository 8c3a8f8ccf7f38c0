"""One tracker's thread: it takes records from the spool and sends them, until they are taken."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from guerdon.errors import TrackerError
from guerdon.tracking.protocol import TrackedRun, TrackerBackend
from guerdon.tracking.records import record_of
from guerdon.tracking.spool import Spool, left_behind

__all__ = ["Sender", "TrackerStatus"]

logger = logging.getLogger(__name__)

RETRY_AT_MOST_S = 30.0


@dataclass(frozen=True, slots=True)
class TrackerStatus:
    """How one tracker is doing.

    Example:
        >>> from guerdon.tracking import RewardLogger
        >>> with RewardLogger("jsonl", path="logs") as logger:
        ...     logger.log_step(1, 0, 0.7, {"tests": 1.0})
        ...     all_there = logger.flush()
        ...     logger.status()["jsonl"].sent
        1

    Attributes:
        sent: Records that it has taken since the logger was made.
        waiting: Bytes on disk that it hasn't taken yet.
        lost: Records for which there was no room, in the spool or in the queue, that couldn't be
            written, or whose spool somebody removed.
        refused: Records that it will never take; they are kept in ``refused.jsonl`` of its spool.
        error: What went wrong at the last attempt; None where that worked.
        busy_s: Seconds that the present attempt takes already; 0 where there is none.
    """

    sent: int
    waiting: int
    lost: int
    refused: int
    error: str | None
    busy_s: float


class Sender:
    """Sends what waits in a tracker's spool: what others left behind there, then its own.

    Args:
        tracker: Where it goes.
        run: The run.
        spool: Its own session, new.
        retry_s: Seconds before the first new attempt; each takes twice as long as the last.
        opened: Called when the tracker has been opened.
    """

    def __init__(
        self,
        tracker: TrackerBackend,
        run: TrackedRun,
        spool: Spool,
        *,
        retry_s: float,
        opened: Callable[[], None],
    ) -> None:
        self.tracker, self.run, self.retry_s = tracker, run, retry_s
        self.spool, self.left = spool, left_behind(spool.folder.parent)
        self.lost = self.refused = 0
        self.error: str | None = None
        self.progress = threading.Condition()
        self._opened, self._is_open = opened, False
        self._since = 0.0
        self._attempts = self._failed = 0
        self._singly = 0  # lines that are sent one by one, as one among them isn't taken
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._stopping = self._given_up = False
        self._thread = threading.Thread(
            target=self._live, name=f"guerdon-tracker-{tracker.name}", daemon=True
        )
        self._thread.start()

    # For others

    def wake(self) -> None:
        """There is something to send."""
        self._wake.set()

    def hurry(self) -> None:
        """It is time to try again."""
        self._hurry.set()
        self._wake.set()

    def status(self, lost: int) -> TrackerStatus:
        """How it is doing.

        Args:
            lost: Records that were lost before they came here.
        """
        since = self._since
        return TrackerStatus(
            sent=sum(each.taken - each.gone for each in (self.spool, *self.left)) - self.refused,
            waiting=self.waiting(),
            lost=lost + self.lost + self.spool.gone,
            refused=self.refused,
            error=self.error,
            busy_s=time.monotonic() - since if since else 0.0,
        )

    def waiting(self) -> int:
        """Bytes that wait, those that others left behind included."""
        return self.spool.bytes_waiting + sum(each.bytes_waiting for each in self.left)

    def wait_until(self, count: int, deadline: float) -> bool:
        """Wait until as many of its own records, and all that were left, have been taken.

        It doesn't wait for a tracker that fails again.
        """
        attempt = self._attempts

        def done() -> bool:
            left = any(each.bytes_waiting for each in self.left)
            return self.spool.taken >= count and not left

        self.hurry()
        with self.progress:
            self.progress.wait_for(
                lambda: done() or self._failed > attempt, max(0.0, deadline - time.monotonic())
            )
            return done()

    def stop(self) -> None:
        """Have its thread end when all is sent, or with the next attempt that fails."""
        self._stopping = True
        self.hurry()

    def join(self, deadline: float) -> bool:
        """Wait for its thread; whether all was sent. One that is blocked ends with the process."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._given_up = True
        return not self._thread.is_alive() and self.waiting() == 0

    def forget(self) -> None:
        """Let go of all files, in a forked process."""
        for spool in (self.spool, *self.left):
            spool.forget()

    # Its thread

    def _live(self) -> None:
        for spool in [*self.left, self.spool]:
            if not self._drain(spool):
                break
        ends = [self.tracker.close] if self._is_open else []
        for end in [*ends, *(spool.close for spool in [*self.left, self.spool])]:
            try:
                end()
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # of a tracker's own code
                self.error = repr(error)
                logger.warning("tracker %r can't be closed: %r", self.tracker.name, error)

    def _drain(self, spool: Spool) -> bool:
        """Send what is there, and of its own what comes; False where it was stopped before."""
        pause = self.retry_s
        while not self._given_up:
            self._wake.clear()
            stopping, found = self._stopping, False  # what is there when it is stopped is sent

            def one_batch() -> None:
                nonlocal found
                found = self._send_batch(spool)

            if not self._attempt(one_batch):
                if self._stopping:
                    break
                self._hurry.wait(pause)
                self._hurry.clear()
                pause = min(2 * pause, RETRY_AT_MOST_S)
            elif found:
                pause = self.retry_s
            elif stopping or spool is not self.spool:
                return True
            else:
                self._wake.wait()
        return False

    def _send_batch(self, spool: Spool) -> bool:
        """Send the next lines; whether it did anything. It raises what the tracker raises."""
        lines = spool.read(1 if self._singly else None)
        if not self._is_open and (lines or spool is self.spool):
            self.tracker.open(self.run)
            self._is_open = True
            self._opened()
            return True
        why = self._write(lines) if lines else None
        if why is not None and len(lines) > 1:
            self._singly = len(lines)  # which of them is it that isn't taken?
            return True
        if why is not None:
            self._refuse(lines[0], why)
        self._singly = max(0, self._singly - 1)
        with self.progress:
            spool.advance(lines)
            self.progress.notify_all()
        return bool(lines)

    def _write(self, lines: list[bytes]) -> str | None:
        """Have the tracker take lines; why it never will, or None where it has."""
        try:
            records = [record_of(line) for line in lines]
        except ValueError as error:
            return f"it is no record, as its writer was killed: {error}"
        try:
            self.tracker.write(records)
        except TrackerError as error:
            return str(error)
        return None

    def _attempt(self, call: Callable[[], None]) -> bool:
        """Call what may fail; whether it worked."""
        self._since = time.monotonic()
        self._attempts += 1
        try:
            call()
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # of a tracker's own code
            if self.error is None:
                logger.warning(
                    "tracker %r failed, its records wait in %s: %r",
                    self.tracker.name, self.spool.folder.parent, error,
                )  # fmt: skip
            with self.progress:
                self.error, self._failed = repr(error), self._attempts
                self.progress.notify_all()
            return False
        finally:
            self._since = 0.0
        if self.error is not None:
            logger.warning("tracker %r works again", self.tracker.name)
        self.error = None
        return True

    def _refuse(self, line: bytes, why: str) -> None:
        kept = self.spool.keep_aside(line)
        self.refused += 1
        logger.error("tracker %r: a record was kept in %s: %s", self.tracker.name, kept, why)
