"""`FunctionPool`: calls of one function, which each worker imports once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from guerdon.sandbox.levels import local_level
from guerdon.sandbox.pool import Pool
from guerdon.sandbox.protocol import Limits
from guerdon.sandbox.task import Capture, Task, limits_message, sealed_file
from guerdon.sandbox.worker import MAX_ANSWER, Answer, FunctionWorker, Worker

# The lowest limits of importing a function, which is done once, and may need much.
OPENING_SECONDS = 10.0
OPENING_MEMORY = 4 << 30
OPENING_PROCESSES = 64
OPENING_OUTPUT = 64 << 10
# The time for it, in time limits of a call.
OPENING_CALLS = 5


class FunctionPool:
    """Workers that have imported a function, and answer jobs in copies of themselves.

    Args:
        config: The configuration of the function, which `loader` reads.
        loader: The ``module:name`` of a trusted callable that takes `config` and returns a
            `Callee`. It is imported before the process is locked, and called after.
        level: ``strict``, ``process``, or ``auto``, which is ``strict`` or an error.
        workers: How many jobs are answered at the same time.
        limits: What a call may use.
        reuse: Whether a copy answers one job after the other: faster, but each sees the state that
            earlier ones left.
        read: What may be read beside Python's own.
        path: Where modules are found.

    Attributes:
        level: The level in force.
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
        self.level, self.promise = local.name, local.promise
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
            # Without processor time: that of a template adds up over all its calls.
            "opening": limits_message(opening) | {"cpu": None},
            "limits": limits_message(limits) | {"cpu": None},
        }

        # Not a method: it must not keep this pool alive, which is closed with its last reference.
        def start() -> Worker:
            with contextlib.ExitStack() as stack:
                file = sealed_file(config)
                stack.callback(os.close, file)
                task = Task(opening, before=[file], answer_bytes=MAX_ANSWER, answer=Capture())
                stack.callback(task.close)
                return FunctionWorker(
                    settings, task=task, seconds=opening.seconds, limits=limits, keep=reuse
                )

        self._pool = Pool(start, workers)
        with self._pool.worker() as worker:
            self.description = worker.description

    def call(self, job: bytes) -> Answer:
        """Answer a job in a free worker.

        Raises:
            SandboxError: The pool is closed, or no worker can be started.
        """
        return self.call_each([job])[0]

    def call_each(self, jobs: Sequence[bytes]) -> list[Answer]:
        """Answer jobs one after the other in a copy, so that each sees the state of those before.

        A job that ends its copy is repeated in a new one, unless it was the first, and the rest
        follows there.
        """
        answers: list[Answer] = []
        while len(answers) < len(jobs):  # more than once if a worker breaks
            answers += self._pool.run(jobs[len(answers) :])
        return answers

    async def call_async(self, job: bytes) -> Answer:
        """Like `call`, without blocking the event loop. If it is cancelled, the call is ended."""
        answers: list[Answer] = []
        while not answers:
            answers = await self._pool.run_async([job])
        return answers[0]

    def close(self) -> None:
        """End all workers."""
        self._pool.close()
