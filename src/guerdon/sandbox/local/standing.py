"""`StandingWorker`: a worker whose calls are answered where the function was imported."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Sequence
from time import monotonic
from typing import Any

from guerdon.sandbox.execution import Execution
from guerdon.sandbox.local.endings import execution_of
from guerdon.sandbox.local.task import Task
from guerdon.sandbox.local.worker import GRACE, Worker
from guerdon.sandbox.server.frames import send

__all__ = ["StandingWorker"]

_LENGTH = struct.Struct("!Q")


class StandingWorker(Worker):
    """A worker that keeps one process, which answers one job after the other.

    What a call leaves behind, the next one finds. A call that reaches a limit ends the worker.

    Args:
        config: What it keeps.
        task: Where what happens when it is set up goes. Its outputs are those of all calls, and
            closed with the worker.
        seconds: How long setting it up may take.
    """

    def __init__(self, config: dict[str, Any], *, task: Task, seconds: float) -> None:
        self._stream, theirs = socket.socketpair()
        self._outputs = task
        with theirs:
            task.after.append(theirs.fileno())
            try:
                super().__init__(config, task=task, seconds=seconds)
            except BaseException:
                self._stream.close()
                raise
        self._stream.setblocking(False)

    def run(self, tasks: Sequence[Task]) -> list[Execution]:
        """Have a job answered."""
        self._check_owner()
        [task] = tasks
        began = monotonic()
        report: dict[str, Any] = {"status": 0}
        try:
            self._forget_outputs()
            if not self._exchange(task, began + task.limits.seconds):
                self.broken = True
                report = self._how_it_ended()
                task.cause = task.cause or self._too_much(task)  # what was still in the pipes
        except OSError as error:
            report = {"problem": f"its worker is gone: {error}"}
        except BaseException:  # ctrl-C: whatever runs there isn't wanted any more
            self.broken = True
            raise
        self.broken |= task.cause is not None or "problem" in report
        task.out.content = self._outputs.out.content
        task.err.content = self._outputs.err.content
        return [execution_of(report | {"seconds": monotonic() - began}, task)]

    def _forget_outputs(self) -> None:
        """Have new places for what is printed; what came between two calls is nobody's."""
        for capture in (self._outputs.out, self._outputs.err):
            capture.read(self._outputs.limits.output_bytes)
            capture.content = bytearray()

    def _exchange(self, task: Task, deadline: float) -> bool:
        """Send the job, and read the answer and what is printed meanwhile.

        Returns:
            Whether the process is still there; what ended the call is noted in the task.
        """
        job = memoryview(_LENGTH.pack(len(task.job)) + task.job)
        reader = _Answer(task)
        poller = select.poll()
        poller.register(self._stream, select.POLLIN | select.POLLOUT)
        for capture in (self._outputs.out, self._outputs.err):
            poller.register(capture.reading, select.POLLIN)
        while not reader.whole:
            left = deadline - monotonic()
            events = dict(poller.poll(left * 1000)) if left > 0 else {}
            happened = events.get(self._stream.fileno(), 0)
            if not events:
                task.cause = "timeout"
            if happened & select.POLLOUT:
                job = job[self._stream.send(job) :]
                if not job:
                    poller.modify(self._stream, select.POLLIN)
            if happened & (select.POLLIN | select.POLLHUP) and not reader.read(self._stream):
                return False
            task.cause = task.cause or self._too_much(task)
            for capture in (self._outputs.out, self._outputs.err):
                if capture.reading in events and capture.ended:
                    poller.unregister(capture.reading)  # the function has closed it
            if task.cause is not None:
                return True
        task.cause = self._too_much(task)
        return True

    def _too_much(self, task: Task) -> str | None:
        """Read what was printed; say whether that is too much."""
        self._outputs.limits = task.limits
        return self._outputs.read_printed()

    def _how_it_ended(self) -> dict[str, Any]:
        """What the keeper knows of the process that has closed its stream."""
        send(self._channel, {"ask": "template"})
        told = self._listen([], monotonic() + GRACE)
        reports = told.get("ended")
        return dict(reports[0]) if reports else {"problem": told.get("failed")}

    def close(self) -> None:
        """End all its processes."""
        self._stream.close()
        super().close()
        self._outputs.close()


class _Answer:
    """An answer as it comes: its length, then itself."""

    def __init__(self, task: Task) -> None:
        assert task.answer is not None
        self._task, self._content, self._length = task, task.answer.content, -1

    @property
    def whole(self) -> bool:
        """Whether all of it is there."""
        return self._length >= 0 and len(self._content) >= self._length

    def read(self, stream: socket.socket) -> bool:
        """Read what is there; False where nothing more will come."""
        part = stream.recv(1 << 20)
        self._content += part
        if self._length < 0 and len(self._content) >= _LENGTH.size:
            (self._length,) = _LENGTH.unpack_from(self._content)
            del self._content[: _LENGTH.size]
            if self._length > (self._task.answer_bytes or 0):
                self._task.cause = "answer"
        return bool(part)
