"""Where the calls of a reward function run: in a pool of workers, or in this process."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Any, Protocol

import anyio.to_thread

from guerdon.errors import AsyncRubricError, InvalidArgumentError, SandboxError
from guerdon.rubrics.functions.function import RewardFunction
from guerdon.sandbox.evaluating.endings import printed, say_ending
from guerdon.sandbox.evaluating.pools import CallAnswer, CallPool
from guerdon.sandbox.evaluating.source import Found
from guerdon.sandbox.evaluating.wire import read_reply, write_call
from guerdon.sandbox.limits import Limits
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message import Message

__all__ = ["Engine", "InProcess", "Pooled"]

Rollouts = list[list[Message]]
Results = list[EvaluateResult]

_NOT_FOUND = re.compile(r"ModuleNotFoundError: No module named '([\w.]{1,200})'")


class Engine(Protocol):
    """Runs calls.

    Attributes:
        level: What is in force.
        promise: What that is, in a line.
        sends: Whether what a call is given leaves this process, as JSON.
        parallel: How many calls run at the same time.
    """

    level: str
    promise: str
    sends: bool
    parallel: int

    def run(self, rollouts: Rollouts, ground_truth: Any, others: dict[str, Any]) -> Results:
        """Run a call; pointwise, it has one rollout."""
        ...

    async def run_async(
        self, rollouts: Rollouts, ground_truth: Any, others: dict[str, Any]
    ) -> Results:
        """The same; cancelled, it ends the call."""
        ...

    def close(self) -> None:
        """End all calls."""
        ...


class InProcess:
    """Runs calls in this process, as they are without a sandbox.

    Args:
        function: The function.
    """

    level = "none"
    promise = "nothing: it runs in this process, for code that you wrote"
    sends = False
    parallel = 1

    def __init__(self, function: RewardFunction) -> None:
        self._function = function

    def run(self, rollouts: Rollouts, ground_truth: Any, others: dict[str, Any]) -> Results:
        """See `Engine`.

        Raises:
            AsyncRubricError: The function is async and an event loop is running here.
        """
        function = self._function
        if function.is_async:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                raise AsyncRubricError(
                    f"{function.__name__} is async, and an event loop is running here already; "
                    "await evaluate_async or evaluate_batch_async"
                )
        batch = function.mode == "batch"
        found = function.evaluate(rollouts if batch else rollouts[0], ground_truth, others)
        if function.is_async:
            found = asyncio.run(found)
        return found if batch else [found]

    async def run_async(
        self, rollouts: Rollouts, ground_truth: Any, others: dict[str, Any]
    ) -> Results:
        """See `Engine`."""
        function = self._function
        if not function.is_async:
            return await anyio.to_thread.run_sync(self.run, rollouts, ground_truth, others)
        batch = function.mode == "batch"
        found = await function.evaluate(rollouts if batch else rollouts[0], ground_truth, others)
        return found if batch else [found]

    def close(self) -> None:
        """Nothing runs."""


class Pooled:
    """Runs calls in a pool of workers.

    Args:
        pool: The workers.
        found: What they were handed, for hints.
        limits: What each call may use, for the words.
        workers: How many there are.
        level: What they are.
        promise: What that promises, in a line.
    """

    sends = True

    def __init__(
        self,
        pool: CallPool,
        found: Found,
        *,
        limits: Limits,
        workers: int,
        level: str,
        promise: str,
    ) -> None:
        self._pool = pool
        self._found = found
        self._limits = limits
        self.parallel = workers
        self.level = level
        self.promise = promise

    def run(self, rollouts: Rollouts, ground_truth: Any, others: dict[str, Any]) -> Results:
        """See `Engine`."""
        job = write_call(rollouts, ground_truth, others)
        try:
            answer = self._pool.call(job)
        except SandboxError as error:
            return _invalid(f"sandbox_error: the sandbox failed: {error}", len(rollouts))
        return self._results(answer, len(rollouts))

    async def run_async(
        self, rollouts: Rollouts, ground_truth: Any, others: dict[str, Any]
    ) -> Results:
        """See `Engine`."""
        job = write_call(rollouts, ground_truth, others)
        try:
            answer = await self._pool.call_async(job)
        except SandboxError as error:
            return _invalid(f"sandbox_error: the sandbox failed: {error}", len(rollouts))
        return self._results(answer, len(rollouts))

    def close(self) -> None:
        """End all calls."""
        self._pool.close()

    def _results(self, answer: CallAnswer, count: int) -> Results:
        execution = answer.execution
        if answer.result is None or execution.ending != "ok":
            results = _invalid(say_ending(execution, self._limits), count)
        else:
            try:
                results = read_reply(answer.result, count)
            except InvalidArgumentError as error:
                results = _invalid(str(error), count)
        for result in results:
            # What the worker says that it printed is for the keeper to say.
            if result.log is not None:
                result.log = None
            self._help(result)
        log = printed(execution)
        if log is not None and results:
            results[0].log = log
        return results

    def _help(self, result: EvaluateResult) -> None:
        """Say what lets a module be found that wasn't."""
        missing = _NOT_FOUND.match(result.error) if result.error is not None else None
        hint = self._found.hint(missing[1]) if missing else None
        if hint is not None:
            result.error = f"{result.error}; {hint}"


def _invalid(why: str, count: int) -> Results:
    return [EvaluateResult(is_score_valid=False, error=why) for _ in range(count)]
