"""`FunctionPool`: calls of one function, which each worker imports once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from guerdon.errors import SandboxError
from guerdon.sandbox.levels import local_level
from guerdon.sandbox.pool import Pool
from guerdon.sandbox.protocol import Execution, Limits
from guerdon.sandbox.task import Task, limits_message, sealed_file
from guerdon.sandbox.worker import ReusedWorker, Worker

# The lowest limits of importing a function, which is done once, and may need much.
OPENING_SECONDS = 10.0
OPENING_MEMORY = 4 << 30
OPENING_PROCESSES = 64
OPENING_OUTPUT = 64 << 10
# How many times as long as a call it may take.
OPENING_CALLS = 5

# Bytes of an answer, and of a description.
MAX_ANSWER = 64 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a job.

    Attributes:
        content: The function's answer; None if it ended before it had answered.
        execution: How it ended, and what it printed.
    """

    content: bytes | None
    execution: Execution


class FunctionPool:
    """Workers that have imported a function. A call runs in a copy of one, or with `reuse` in it.

    Args:
        config: The configuration of the function, which `loader` reads.
        loader: The ``module:name`` of a trusted callable that takes `config` and returns a
            `Callee`. It is imported before the process is locked, and called after.
        level: ``strict``, ``process``, or ``auto``, which is ``strict`` or an error.
        workers: How many jobs are answered at the same time.
        limits: What a call may use.
        reuse: Whether calls run in the process that imported the function: faster, but each call
            sees the state that earlier ones left.
        read: What may be read beside Python's own.
        path: Where modules are found.

    Attributes:
        name: The level in force.
        promise: What it isolates, in a line.
        description: The description of the function by the `Callee`.

    Raises:
        SandboxUnavailableError: The level doesn't work on this machine.
        InvalidArgumentError: There is no such level here.
        SandboxError: A worker can't be started; its ``execution`` is how importing ended.
    """

    def __init__(
        self,
        config: bytes,
        loader: str,
        *,
        level: str,
        workers: int,
        limits: Limits,
        reuse: bool = False,
        read: Sequence[str] = (),
        path: Sequence[str] = (),
    ) -> None:
        local = local_level(level)
        self.name, self.promise = local.name, local.promise
        self._limits, self._reuse = limits, reuse
        opening = Limits(
            seconds=max(OPENING_SECONDS, OPENING_CALLS * limits.seconds),
            memory_bytes=max(OPENING_MEMORY, limits.memory_bytes),
            processes=max(OPENING_PROCESSES, limits.processes),
            output_bytes=max(OPENING_OUTPUT, limits.output_bytes),
        )
        settings = local.config(read=read) | {
            "kind": "functions",
            "loader": loader,
            "path": list(path),
            "reuse": reuse,
            # Without processor time: that of a template adds up over all its calls.
            "opening": limits_message(opening) | {"cpu": None},
            "limits": limits_message(limits),
        }

        # Not a method: it must not keep this pool alive, which is closed with its last reference.
        def start() -> Worker:
            with contextlib.ExitStack() as stack:
                file = sealed_file(config)
                stack.callback(os.close, file)
                task = Task(opening, before=[file], answer_bytes=MAX_ANSWER)
                if reuse:
                    return ReusedWorker(settings, task=task, seconds=opening.seconds)
                stack.callback(task.close)
                return Worker(settings, task=task, seconds=opening.seconds)

        self._pool = Pool(start, workers)
        with self._pool.worker() as worker:
            self.description = worker.description

    def call(self, job: bytes) -> Answer:
        """Answer a job in a free worker.

        Raises:
            SandboxError: The pool is closed, or no worker can be started.
        """
        with self._task(job) as task:
            [execution] = self._pool.run([task])
            return _answer(task, execution)

    async def call_async(self, job: bytes) -> Answer:
        """Like `call`, without blocking the event loop. If it is cancelled, the call is ended."""
        with self._task(job) as task:
            [execution] = await self._pool.run_async([task])
            return _answer(task, execution)

    def close(self) -> None:
        """End all workers."""
        self._pool.close()

    @contextlib.contextmanager
    def _task(self, job: bytes) -> Iterator[Task]:
        """Make the task of a worker, and close its descriptors at the end."""
        if self._reuse:
            yield Task(self._limits, answer_bytes=MAX_ANSWER, job=job, piped=False)
            return
        with contextlib.ExitStack() as stack:
            try:
                file = sealed_file(job)
                stack.callback(os.close, file)
                task = Task(self._limits, after=[file], answer_bytes=MAX_ANSWER)
                stack.callback(task.close)
            except OSError as error:
                raise SandboxError(f"a job can't be sent to its worker: {error}") from error
            yield task


def _answer(task: Task, execution: Execution) -> Answer:
    whole = execution.ending == "ok" and task.answer.content
    return Answer(bytes(task.answer.content) if whole else None, execution)
