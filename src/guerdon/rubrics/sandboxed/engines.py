"""Running the calls of a reward: in a pool of workers, in a plug-in's sandbox, or in process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import secrets
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import anyio.to_thread

from guerdon._logging import shortened
from guerdon.errors import AsyncRubricError, InvalidArgumentError, LoadError, SandboxError
from guerdon.rubrics.functions.conversion import as_reward_function
from guerdon.rubrics.functions.function import Mode, RewardFunction
from guerdon.rubrics.sandboxed.inside import describe, load_function
from guerdon.rubrics.sandboxed.messages import (
    MAX_REPLY,
    Description,
    read_message,
    read_reply,
    write_call,
)
from guerdon.rubrics.sandboxed.source import (
    Found,
    RewardSource,
    check_requirements,
    find_source,
    wanted_of,
)
from guerdon.sandbox.function_pool import FunctionPool
from guerdon.sandbox.levels import LEVELS
from guerdon.sandbox.opening import open_plug_in
from guerdon.sandbox.protocol import Execution, Limits, Sandbox
from guerdon.sandbox.worker import Answer
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message import Message

# What loads the reward in its process.
LOADER = "guerdon.rubrics.sandboxed.inside:load"

# Bytes of a description.
MAX_DESCRIPTION = 1 << 20

# How many characters are shown of what a reward reports or prints while it is loaded.
MAX_SHOWN = 4000

_NOT_FOUND = re.compile(r"ModuleNotFoundError: No module named '([\w.]{1,200})'")

Results = list[EvaluateResult]


class Arguments(NamedTuple):
    """The arguments of a call.

    Attributes:
        rollouts: The conversations; pointwise, there is one.
        ground_truth: Of one conversation its own, of a batch the list of them.
        others: The function's other arguments, by name.
    """

    rollouts: list[list[Message]]
    ground_truth: Any
    others: dict[str, Any]


class InProcess:
    """Runs calls in this process, without a sandbox.

    Args:
        function: The function.

    Attributes:
        level: The level in force.
        promise: What it isolates, in a line.
        sends: Whether the arguments of a call leave this process, as JSON.
        parallel: How many calls run at the same time.
    """

    level = "none"
    promise = "nothing: it runs in this process, for code that you wrote"
    sends = False
    parallel = 1

    def __init__(self, function: RewardFunction) -> None:
        self._function = function

    def run(self, call: Arguments) -> Results:
        """Run a call.

        Raises:
            AsyncRubricError: The function is async and an event loop is running here.
        """
        if self._function.is_async:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                raise AsyncRubricError(
                    f"{self._function.__name__} is async, and an event loop is running here "
                    "already; await evaluate_async or evaluate_batch_async"
                )
            return asyncio.run(self.run_async(call))
        return self._results(self._evaluate(call))

    def run_each(self, calls: Sequence[Arguments]) -> list[Results]:
        """Run calls one after the other."""
        return [self.run(call) for call in calls]

    async def run_async(self, call: Arguments) -> Results:
        """Like `run`, without blocking the event loop."""
        if not self._function.is_async:
            return await anyio.to_thread.run_sync(self.run, call)
        return self._results(await self._evaluate(call))

    def _evaluate(self, call: Arguments) -> Any:
        batch = self._function.mode == "batch"
        given = call.rollouts if batch else call.rollouts[0]
        return self._function.evaluate(given, call.ground_truth, call.others)

    def _results(self, found: Any) -> Results:
        return found if self._function.mode == "batch" else [found]

    def close(self) -> None:
        """Do nothing."""


class PluginPool:
    """Calls of one reward, each a program of its own in a sandbox of another package.

    Each call loads the reward again: a sandbox that runs programs has no warm workers.

    Args:
        sandbox: The sandbox, with guerdon installed in it; it is closed with the pool.
        config: A `RewardSpec` as JSON.
        limits: What each call may use.
        path: Where modules are found, in addition to the sandbox's own path.

    Raises:
        SandboxError: The reward's process ended before it described the reward.
    """

    # What runs in the sandbox. The marker separates the answer from the output of the reward. It
    # prevents accidents; the reward may forge its own answer anyway.
    WRAPPER = f"""\
import base64, json, sys
given = json.load(sys.stdin)
sys.path.extend(given["path"])
from {LOADER.replace(":", " import ")}
reward = load(base64.b64decode(given["config"]))
job = given["job"]
answer = reward.description if job is None else reward.answer(base64.b64decode(job))
sys.__stdout__.flush()
sys.__stdout__.buffer.write(b"\\n" + given["marker"].encode() + base64.b64encode(answer) + b"\\n")
sys.__stdout__.flush()
"""

    def __init__(
        self, sandbox: Sandbox, config: bytes, *, limits: Limits, path: Sequence[str] = ()
    ) -> None:
        self._sandbox = sandbox
        self._given = {"path": list(path), "config": base64.b64encode(config).decode()}
        self._limits = limits
        # An answer is printed as well, in base64.
        self._wider = replace(limits, output_bytes=limits.output_bytes + MAX_REPLY * 4 // 3 + 200)
        self.level = sandbox.level
        self.promise = sandbox.promise
        try:
            answer = self.call(None)
        except BaseException:
            self.close()
            raise
        if answer.content is None:
            self.close()
            last = answer.execution.stderr.strip().rpartition("\n")[2]
            raise SandboxError(
                f"{self.level}: the function could not be loaded; is guerdon installed in that "
                f"sandbox? {last}".rstrip(),
                execution=answer.execution,
            )
        self.description = answer.content

    def call(self, job: bytes | None) -> Answer:
        """Run a call; without a job, it describes the reward."""
        marker, stdin = self._job(job)
        execution = self._sandbox.run(self.WRAPPER, stdin=stdin, limits=self._wider)
        return self._read(execution, marker)

    def call_each(self, jobs: Sequence[bytes]) -> list[Answer]:
        """Run calls, each by itself."""
        return [self.call(job) for job in jobs]

    async def call_async(self, job: bytes) -> Answer:
        """Like `call`. If it is cancelled, the call is ended."""
        marker, stdin = self._job(job)
        execution = await self._sandbox.run_async(self.WRAPPER, stdin=stdin, limits=self._wider)
        return self._read(execution, marker)

    def close(self) -> None:
        """Close the sandbox."""
        self._sandbox.close()

    def _job(self, job: bytes | None) -> tuple[str, bytes]:
        marker = secrets.token_hex(16)
        coded = None if job is None else base64.b64encode(job).decode()
        return marker, json.dumps({**self._given, "marker": marker, "job": coded}).encode()

    def _read(self, execution: Execution, marker: str) -> Answer:
        """Extract the answer from the output."""
        before, found, after = execution.stdout.rpartition(f"\n{marker}")
        execution = replace(execution, stdout=before if found else execution.stdout)
        if len(execution.stdout) + len(execution.stderr) > self._limits.output_bytes:
            limit = f"it printed more than {self._limits.output_bytes:,} bytes"
            return Answer(None, replace(execution, ending="output_limit", detail=limit))
        if not found:
            return Answer(None, execution)
        try:
            return Answer(base64.b64decode(after.strip(), validate=True), execution)
        except ValueError:
            return Answer(b"", execution)


class Pooled:
    """Runs calls in a pool of workers; see `InProcess`.

    Args:
        pool: The workers.
        found: What they load, for hints.
        workers: How many there are.
    """

    sends = True

    def __init__(self, pool: FunctionPool | PluginPool, found: Found, *, workers: int) -> None:
        self._pool, self._found = pool, found
        self.parallel = workers
        self.level, self.promise = pool.level, pool.promise

    def run(self, call: Arguments) -> Results:
        """Run a call."""
        return self.run_each([call])[0]

    def run_each(self, calls: Sequence[Arguments]) -> list[Results]:
        """Run calls one after the other in one copy."""
        jobs = [write_call(*call) for call in calls]
        try:
            answers = self._pool.call_each(jobs)
        except SandboxError as error:
            answers = [_failed(error)] * len(jobs)
        pairs = zip(answers, calls, strict=True)
        return [self._results(answer, len(call.rollouts)) for answer, call in pairs]

    async def run_async(self, call: Arguments) -> Results:
        """Like `run`. If it is cancelled, the call is ended."""
        job = write_call(*call)
        try:
            answer = await self._pool.call_async(job)
        except SandboxError as error:
            answer = _failed(error)
        return self._results(answer, len(call.rollouts))

    def close(self) -> None:
        """End all calls and workers."""
        self._pool.close()

    def _results(self, answer: Answer, count: int) -> Results:
        execution = answer.execution
        if answer.content is None or execution.ending != "ok":
            results = _invalid(failure_of(execution), count)
        else:
            try:
                results = read_reply(answer.content, count)
            except InvalidArgumentError as error:
                results = _invalid(str(error), count)
        for result in results:
            missing = _NOT_FOUND.match(result.error or "")
            if missing and (hint := self._found.hint(missing[1])):
                result.error = f"{result.error}; {hint}"
            result.log = None  # only what the sandbox captured is trusted
        if results:
            results[0].log = printed(execution)
        return results


def open_engine(
    spec: str | RewardSource,
    mode: Mode | None,
    *,
    level: str,
    workers: int,
    limits: Limits,
    reuse: bool,
    allow_read: Sequence[str | Path],
) -> tuple[InProcess | Pooled, Description, RewardFunction | None]:
    """Load a reward where it is to run; see `EvalSandbox`.

    Returns:
        What runs its calls, its description, and, in process, the function itself.
    """
    here = level in LEVELS or level == "none"
    if here and isinstance(spec, RewardSource):
        check_requirements(spec.requirements, spec.spec)
    if level == "none":
        reward = load_function(wanted_of(spec, mode))
        function = as_reward_function(reward)
        return InProcess(function), describe(reward), function
    # Only code in a plug-in's sandbox knows what is installed there.
    found = find_source(
        spec, mode, allow_read=allow_read, keep_loop=reuse, requirements_inside=not here
    )
    config = found.reward.model_dump_json().encode()
    pool: FunctionPool | PluginPool
    if here:
        try:
            pool = FunctionPool(
                config,
                LOADER,
                level=level,
                workers=workers,
                limits=limits,
                reuse=reuse,
                read=found.read,
                path=found.path,
            )
        except SandboxError as error:
            ended = error.execution
            if ended is None or ended.ending == "sandbox_error":
                raise
            # The reward ended its process while it was imported.
            spec = found.reward.spec
            why = f"{spec}: importing it: {failure_of(ended)}"
            raise LoadError(why, spec=spec, traceback=_shortened(printed(ended))) from error
    else:
        if reuse:
            raise InvalidArgumentError(
                f"`reuse` requires one of the levels {', '.join(LEVELS)}, got {level!r}"
            )
        read = [str(each) for each in allow_read]
        sandbox = open_plug_in(level, workers=workers, limits=limits, allow_read=read)
        pool = PluginPool(sandbox, config, limits=limits, path=found.path)
    try:
        description = _accepted(pool.description, found)
    except BaseException:
        pool.close()
        raise
    return Pooled(pool, found, workers=workers), description, None


def _accepted(data: bytes, found: Found) -> Description:
    """Return the description of a reward, which isn't trusted.

    Raises:
        LoadError: The reward could not be loaded, or the description is invalid.
    """
    spec = found.reward.spec
    if len(data) > MAX_DESCRIPTION:
        raise LoadError(f"{spec}: its description has {len(data):,} bytes", spec=spec)
    try:
        description = read_message(Description, data, "its description")
    except InvalidArgumentError as error:
        raise LoadError(f"{spec}: {error}", spec=spec) from None
    refused = description.refused
    if refused is None:
        return description
    if description.missing is not None or "attempted relative import" in refused:
        hint = found.hint(description.missing)
        refused = f"{refused}; {hint}" if hint else refused
    trace = _shortened(description.traceback)
    raise LoadError(shortened(refused, MAX_SHOWN), spec=spec, traceback=trace)


def _shortened(trace: str | None) -> str | None:
    return trace and shortened(trace, MAX_SHOWN)


def _failed(error: SandboxError) -> Answer:
    return Answer(None, Execution("sandbox_error", detail=str(error)))


def _invalid(why: str, count: int) -> Results:
    return [EvaluateResult(is_score_valid=False, error=why) for _ in range(count)]


def failure_of(execution: Execution) -> str:
    """Return why a call had no result, in a line. Statistics use the first word.

    Example:
        >>> from guerdon.sandbox import Execution
        >>> failure_of(Execution("timeout", detail="it was not done within 5 s"))
        'timeout: it was not done within 5 s'
        >>> failure_of(Execution("ok", exit_code=0))
        'exited: it ended its process (exit code 0) before it had returned a result'
        >>> failure_of(Execution("signal", exit_code=-11))
        'signal: SIGSEGV (11), it ended before it had returned a result'

    Args:
        execution: How it ended.
    """
    code, ending, detail = execution.exit_code, execution.ending, execution.detail
    if ending == "sandbox_error":
        return f"sandbox_error: the sandbox failed: {detail or 'no reason is known'}"
    if ending in ("timeout", "memory", "output_limit"):
        return f"{ending}: {detail or 'it reached a limit'}"
    if ending == "signal" and code is not None:
        names = {each.value: each.name for each in signal.Signals}
        name = names.get(-code, "a signal without a name")
        return f"signal: {name} ({-code}), it ended before it had returned a result"
    if code is None or code < 0:
        reason = "it ended its process before it had returned a result"
        return f"exited: {detail or reason}"
    return f"exited: it ended its process (exit code {code}) before it had returned a result"


def printed(execution: Execution) -> str | None:
    """Return the output of both streams; None if there is none."""
    out, err = execution.stdout, execution.stderr
    if out and err and not out.endswith("\n"):
        out += "\n"
    return out + err or None
