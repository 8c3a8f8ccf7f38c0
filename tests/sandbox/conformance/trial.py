"""`check_sandbox` and `Trial`: running abuse cases in a sandbox that has stopped the canaries."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from textwrap import dedent
from typing import Any, Self

from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.sandbox.protocol import Execution, Program, Sandbox
from tests.sandbox.conformance.case import Case, summary
from tests.sandbox.conformance.cases import CASES
from tests.sandbox.conformance.cases.cheating import CHEATING_TESTS
from tests.sandbox.conformance.host import Host
from tests.sandbox.conformance.report import Outcome, Report, Result

#: The cases that must pass before any other runs: files, the network and processes are shut off.
CANARIES = tuple(
    next(case for case in CASES if case.name == name)
    for name in ("a foreign file", "TCP connection", "killing the host")
)

#: The levels that run functions too; plug-ins run programs.
_LOCAL_LEVELS = ("strict", "process")

#: Seconds that a sandbox may take beyond a call's limit.
_SLACK = 2.0


def check_sandbox(factory: Callable[[], Sandbox], *, only: Collection[str] | None = None) -> Report:
    """Attack a sandbox with each abuse case, and report the results.

    The attacks target this machine, in forms that do no harm. Three canaries go first; if one
    succeeds, the sandbox isolates too little, and no case is run.

    Example:
        >>> from guerdon import open_sandbox
        >>> from tests.sandbox.conformance import check_sandbox
        >>> check_sandbox(lambda: open_sandbox("strict"), only=["the networks"])
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: unknown case or group 'the networks' in only; \
did you mean 'network'?

    Args:
        factory: Opens the sandbox; it is closed at the end.
        only: Groups or names of cases; None runs all.

    Returns:
        The result of each case. Printed, it is a table; `Report.raise_for_failures` raises if a
        case failed.

    Raises:
        SandboxError: A canary failed or was skipped.
        InvalidArgumentError: A name in `only` is not a case or a group.
    """
    known = {name for case in CASES for name in (case.name, case.group)}
    for name in only or ():
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise InvalidArgumentError(f"unknown case or group {name!r} in only{hint}")
    chosen = [case for case in CASES if only is None or {case.name, case.group}.intersection(only)]
    with Trial(factory) as trial:
        outcomes = [trial.outcome_of(case) for case in chosen]
        return Report(trial.name, (*outcomes, trial.close()))


class Trial:
    """A sandbox and the targets of cases; `check_sandbox` runs all cases through one.

    When it is entered, three canaries try to read a file, to reach a server and to signal a
    process. If one succeeds, no case is run.

    Example:
        >>> from guerdon import open_sandbox
        >>> from tests.sandbox.conformance import CASES, Trial
        >>> with Trial(lambda: open_sandbox("strict")) as trial:  # doctest: +SKIP
        ...     trial.outcome_of(CASES[0]).result
        'passed'

    Args:
        factory: Opens the sandbox; it is closed with the trial.

    Raises:
        SandboxError: When it is entered: a canary failed or was skipped.
    """

    def __init__(self, factory: Callable[[], Sandbox]) -> None:
        self._factory = factory
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack as stack:
            self._host = stack.enter_context(Host())
            self._opened = time.monotonic()
            self._sandbox = stack.enter_context(self._factory())
            self.name = self._sandbox.level
            for canary in CANARIES:
                outcome = self.outcome_of(canary)
                if outcome.result != "passed":
                    raise SandboxError(
                        f"{self.name} isolates too little to run abuse cases in it: "
                        f"{canary.name}: {outcome.detail}"
                    )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def outcome_of(self, case: Case) -> Outcome:
        """Run a case and return its result."""
        started = time.monotonic()
        result, detail = self._judge(case)
        seconds = time.monotonic() - started
        return Outcome(case.name, case.group, case.proves, result, detail, seconds)

    def close(self) -> Outcome:
        """Close the sandbox, and return whether it left anything."""
        self._sandbox.close()
        left = self._host.left_open()
        return Outcome(
            "closing",
            "closing",
            "a closed sandbox leaves no process and no descriptor",
            "failed" if left else "passed",
            left or "nothing is left",
            time.monotonic() - self._opened,
        )

    def _judge(self, case: Case) -> tuple[Result, str]:
        if case.way == "function" and self._sandbox.level not in _LOCAL_LEVELS:
            return "skipped", "functions run in the local levels"
        started = time.monotonic()
        try:
            execution = execute(case, self._sandbox, self._host.facts)
        except Exception as error:
            # A plug-in may fail in any way, and the other cases are still worth trying.
            self._host.disturbed()  # so that it isn't attributed to the next case
            kind = "" if isinstance(error, SandboxError) else f"{type(error).__name__}: "
            return "failed", f"the sandbox failed: {kind}{error}"
        seconds = time.monotonic() - started
        reason = case.skip_reason(execution)
        leaked = self._host.secret in execution.stdout + execution.stderr
        failures = [
            None if reason else case.failure(execution),
            _overrun(case, execution, seconds=seconds),
            # What this side sees, whatever the program printed.
            "the host's secret was printed" if leaked else None,
            self._host.disturbed(),
            self._host.left_running(),
        ]
        if any(failures):
            return "failed", "; ".join(failure for failure in failures if failure)
        if reason:
            return "skipped", reason
        return "passed", _evidence(execution) or summary(execution)


def execute(case: Case, sandbox: Sandbox, facts: Mapping[str, Any]) -> Execution:
    """Run the program of a case in its way.

    Args:
        case: The case.
        sandbox: The sandbox, which must have stopped the canaries.
        facts: What the program receives about the host.

    Raises:
        SandboxError: The sandbox failed.
    """
    if case.way in ("checked", "right"):
        return _check(case, sandbox)
    if case.way == "function":
        return _call(case, sandbox, facts)
    stdin = json.dumps(facts)
    if case.way == "beside":
        companion, program = (
            Program(source, stdin.encode()) for source in (case.companion_source, case.source)
        )
        return sandbox.run_pair(companion, program, limits=case.limits)[1]
    if case.way == "after":
        before = sandbox.run(case.companion_source, stdin=stdin, limits=case.limits)
        if not _evidence(before):
            return replace(before, ending="nonzero", stdout="FAILED: the call before it failed")
        stdin = json.dumps({**facts, "before": _evidence(before)})
    return sandbox.run(case.source, stdin=stdin, limits=case.limits)


def _check(case: Case, sandbox: Sandbox) -> Execution:
    from guerdon.sandbox.testing.checking import check_program

    verdict = check_program(
        sandbox, case.source, CHEATING_TESTS, entry_point="combine", limits=case.limits
    )
    wanted = len(CHEATING_TESTS) if case.way == "right" else 0
    word = "passed" if verdict.passed == wanted else "FAILED"
    output = f"{word}: {verdict.passed} of {verdict.total} tests passed ({verdict.failure})"
    return Execution("ok", 0, stdout=" ".join(output.split()), seconds=verdict.seconds)


def _call(case: Case, sandbox: Sandbox, facts: Mapping[str, Any]) -> Execution:
    from guerdon.sandbox.function_pool import FunctionPool

    loader = f"{__name__}:{load_function.__name__}"
    pool = FunctionPool(
        dedent(case.program).encode(),
        loader,
        level=sandbox.level,
        workers=1,
        limits=case.limits,
        path=[str(Path(__file__).parents[3])],
    )
    try:
        for task in ("leave", [facts["secret"], facts["tcp"], facts["pid"]]):
            answer = pool.call(json.dumps(task).encode())
    finally:
        pool.close()
    if answer.content is None:
        return answer.execution
    return Execution("ok", 0, stdout=" ".join(answer.content.decode().split()))


class _CaseFunction:
    """The ``call(task)`` of a case, as a `FunctionPool` calls it."""

    description = b"the function of a case"

    def __init__(self, call: Callable[[object], object]) -> None:
        self._call = call

    def answer(self, job: bytes) -> bytes:
        """Call it with a task, given as JSON."""
        return str(self._call(json.loads(job))).encode()

    def warm_up(self) -> None:
        """Do nothing: the function was made by running its program."""


def load_function(config: bytes) -> _CaseFunction:
    """Run the program of a case in the sandbox, and return its function."""
    names: dict[str, Any] = {}
    exec(compile(config, "<function>", "exec"), names)
    return _CaseFunction(names["call"])


def _evidence(execution: Execution) -> str:
    """Return what the program printed after ``passed: ``."""
    _, marker, evidence = execution.stdout.rpartition("passed: ")
    return evidence.strip() if marker else ""


def _overrun(case: Case, execution: Execution, *, seconds: float) -> str | None:
    """Return which limit was exceeded, although the sandbox enforces it; None if none was."""
    limits = case.limits
    calls = 2 if case.way in ("after", "function") else 1
    if seconds > calls * limits.seconds + _SLACK:
        return f"it took {seconds:.1f} s, the limit is {limits.seconds} s"
    printed = len(execution.stdout.encode()) + len(execution.stderr.encode())
    # What isn't UTF-8 takes up to three times its size when it is decoded.
    if printed > 3 * limits.output_bytes + 4096:
        return f"{printed} bytes came out, the limit is {limits.output_bytes}"
    return None
