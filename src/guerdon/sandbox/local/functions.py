"""`FunctionPool`: one reward function, imported once in each worker, that answers jobs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.sandbox.execution import Execution
from guerdon.sandbox.limits import Limits
from guerdon.sandbox.local.endings import terms_of
from guerdon.sandbox.local.levels import local_level
from guerdon.sandbox.local.papers import paper_of
from guerdon.sandbox.local.pool import Pool
from guerdon.sandbox.local.standing import StandingWorker
from guerdon.sandbox.local.task import Task
from guerdon.sandbox.local.worker import Worker

__all__ = ["Answer", "FunctionPool"]

# What importing a function may use at least: that is done once, and imports are large.
OPENING_SECONDS = 60.0
OPENING_MEMORY = 4 << 30
OPENING_PROCESSES = 64
OPENING_OUTPUT = 1 << 20

# Bytes that a function may answer, and tell of itself.
MAX_ANSWER = 64 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a job.

    Attributes:
        result: What was answered; None where it ended before it had answered.
        execution: How it ended, and what it printed.
    """

    result: bytes | None
    execution: Execution


class FunctionPool:
    """Workers that have imported a function; each call is a copy of one, or with `reuse` it itself.

    Args:
        config: Which function, as its own side reads it.
        level: ``strict``, ``process``, or ``auto``, which is ``strict`` or an error.
        workers: How many jobs are answered at the same time.
        limits: What a call may use.
        reuse: Whether calls are answered where the function was imported: faster, and what one
            call leaves behind the next one finds.
        read: What may be read beside Python's own.
        path: Where modules are found.

    Attributes:
        name: The level in force.
        promise: What that is, in a line.
        described: What the function's side tells about it.

    Raises:
        SandboxUnavailableError: The level doesn't work on this machine.
        InvalidArgumentError: There is no such level here.
        SandboxError: A worker can't be started; its ``execution`` tells how importing ended.
    """

    def __init__(
        self,
        config: bytes,
        *,
        level: str,
        workers: int,
        limits: Limits,
        reuse: bool = False,
        read: Sequence[str] = (),
        path: Sequence[str] = (),
    ) -> None:
        local = local_level(level)
        if local is None:
            raise InvalidArgumentError(f"{level!r:.60} is no level of this machine's own")
        self.name, self.promise = local.name, local.promise
        self._limits, self._reuse = limits, reuse
        opening = Limits(
            seconds=max(OPENING_SECONDS, limits.seconds),
            memory_bytes=max(OPENING_MEMORY, limits.memory_bytes),
            processes=max(OPENING_PROCESSES, limits.processes),
            output_bytes=OPENING_OUTPUT,
        )
        settings = local.config(read=read) | {
            "kind": "functions",
            "path": list(path),
            "reuse": reuse,
            # Without processor time: that of a template adds up over all its calls.
            "opening": terms_of(opening) | {"cpu": None},
            "limits": terms_of(limits),
        }
        opener = _Opener(config, opening, settings)
        self._pool = Pool(opener.open, workers)
        self._pool.start_one()
        self.described = opener.described

    def call(self, job: bytes) -> Answer:
        """Have a job answered by a free worker.

        Raises:
            SandboxError: The pool is closed, or no worker can be started.
        """
        with self._task(job) as task:
            [execution] = self._pool.run([task])
            return _answer(task, execution)

    async def call_async(self, job: bytes) -> Answer:
        """The same without blocking the event loop; cancelled, it ends the call."""
        with self._task(job) as task:
            [execution] = await self._pool.run_async([task])
            return _answer(task, execution)

    def close(self) -> None:
        """End all workers."""
        self._pool.close()

    @contextlib.contextmanager
    def _task(self, job: bytes) -> Iterator[Task]:
        """What a worker is asked for, with descriptors that are closed at the end."""
        if self._reuse:
            yield Task(self._limits, answer_bytes=MAX_ANSWER, job=job, piped=False)
            return
        with contextlib.ExitStack() as stack:
            try:
                paper = paper_of(job)
                stack.callback(os.close, paper)
                task = Task(self._limits, after=[paper], answer_bytes=MAX_ANSWER)
                stack.callback(task.close)
            except OSError as error:
                raise SandboxError(f"a job can't be handed over: {error}") from error
            yield task


@dataclass(slots=True)
class _Opener:
    """Starts workers, and has a function imported in each."""

    job: bytes
    limits: Limits
    settings: dict[str, Any]
    described: bytes = b""

    def open(self) -> Worker:
        """Start one."""
        with contextlib.ExitStack() as stack:
            paper = paper_of(self.job)
            stack.callback(os.close, paper)
            task = Task(self.limits, before=[paper], answer_bytes=MAX_ANSWER)
            closing = stack.enter_context(contextlib.ExitStack())
            closing.callback(task.close)
            assert task.answer is not None
            reuse = self.settings["reuse"]
            kind = StandingWorker if reuse else Worker
            worker = kind(self.settings, task=task, seconds=self.limits.seconds)
            self.described = self.described or bytes(task.answer.content)
            if reuse:  # its outputs are those of all calls
                closing.pop_all()
        return worker


def _answer(task: Task, execution: Execution) -> Answer:
    assert task.answer is not None
    whole = execution.ending == "ok" and task.answer.content
    return Answer(bytes(task.answer.content) if whole else None, execution)
