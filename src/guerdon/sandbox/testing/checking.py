"""`check_program`: whether a program that nobody trusts passes tests.

Two processes, each in a sandbox of its own: one runs the program and serves its entry point, the
other runs the tests and calls the entry point through a proxy. The tests, what they expect, and the
word on each of them never are where the program is.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.sandbox.protocol import Ending, Execution, Limits, Program, Sandbox
from guerdon.sandbox.testing.inside import program_of
from guerdon.sandbox.testing.stream import GONE
from guerdon.sandbox.testing.verdict import Verdict

__all__ = ["check_program", "check_program_async"]

OVERHEAD = 4 << 10  # bytes that the checker says beside a few for each test


def check_program(
    sandbox: Sandbox,
    program: str,
    tests: Sequence[str],
    *,
    entry_point: str,
    starter: str = "",
    limits: Limits | None = None,
) -> Verdict:
    r"""Run tests against a program that may try to cheat.

    Each test runs in a fresh copy of the names: the entry point, as a proxy of the program's; what
    `starter` defines; Python's own. All else that a program defines is not seen by the tests.

    What goes through the proxy: plain values of Python's built-in types, containers, namedtuples,
    `Decimal`, `Fraction`, dates, times and `UUID`, by value; a value of a class derived from one of
    these (a text that equals everything) as the plain one. Enumerations, dataclasses, namedtuples,
    exceptions and classes without methods (`ListNode`) that the starter defines, and the program
    too, travel by value as well, each side using its own class. Functions of the standard library
    that the tests hand over are the program's own. Any other object stays where it is, and is asked
    from afar. What a call changes in its arguments is changed in the test's too, when the call is
    over.

    An object of the program never equals a plain value, and has no order with one. Unless the tests
    have made it by the class that is tested, it can't be added to or subtracted from one either;
    whether it contains one is found by going through it; what it tells as a number, a text, or a
    list is asked once and kept until the tests change it; and it isn't asked as a text or a set is
    (``find``, ``issubset``). `StopIteration` out of a call is a `RuntimeError`. An entry point is a
    class where the starter defines it by ``class``, or where there is no starter and its name has a
    capital first.

    Example:
        >>> from guerdon import check_program, open_sandbox
        >>> program = "def double(n):\n    return n + n if n > 0 else 0"
        >>> tests = ["assert double(2) == 4", "assert double(-1) == -2"]
        >>> with open_sandbox("process") as sandbox:
        ...     verdict = check_program(sandbox, program, tests, entry_point="double")
        >>> verdict.passed, verdict.total, verdict.failure
        (1, 2, 'test 2 of 2: AssertionError')

    Args:
        sandbox: Where both processes run.
        program: Python source, which may be anything.
        tests: Pieces of Python, at least one; each passes where it raises nothing.
        entry_point: The function or class that the program must define.
        starter: The trusted code that the task begins with; its last function may lack a body.
        limits: What each of the two processes may use, and the time for both together; None takes
            the sandbox's own.

    Returns:
        The verdict; whatever the program did wrong is in there.

    Raises:
        InvalidArgumentError: The tests or the starter are no Python, or there are no tests.
        SandboxError: The sandbox failed, or the tests did, without the program's doing.
    """
    job = _Job.of(program, tests, entry_point, starter, limits or _own(sandbox))
    pair = sandbox.run_pair(*job.programs(sandbox), limits=job.given)
    return _Reading(job, *pair).verdict()


async def check_program_async(
    sandbox: Sandbox,
    program: str,
    tests: Sequence[str],
    *,
    entry_point: str,
    starter: str = "",
    limits: Limits | None = None,
) -> Verdict:
    """The same as `check_program`; cancelled, it ends both processes.

    Example:
        >>> import asyncio
        >>> from guerdon import open_sandbox
        >>> from guerdon.sandbox import check_program_async
        >>> async def passed(program):
        ...     with open_sandbox("process") as sandbox:
        ...         tests = ["assert double(2) == 4"]
        ...         verdict = await check_program_async(
        ...             sandbox, program, tests, entry_point="double"
        ...         )
        ...     return verdict.passed
        >>> asyncio.run(passed("def double(n): return 2 * n"))
        1
    """
    job = _Job.of(program, tests, entry_point, starter, limits or _own(sandbox))
    pair = await sandbox.run_pair_async(*job.programs(sandbox), limits=job.given)
    return _Reading(job, *pair).verdict()


@dataclass(frozen=True, slots=True)
class _Job:
    """What is to be run.

    Attributes:
        limits: What was asked for.
        given: What the sandbox is given: enough output for the checker's own words.
    """

    program: str
    tests: tuple[str, ...]
    entry_point: str
    starter: str
    limits: Limits
    given: Limits

    @classmethod
    def of(
        cls, program: str, tests: Sequence[str], entry_point: str, starter: str, limits: Limits
    ) -> _Job:
        """Check what the caller, who is trusted, has given."""
        if isinstance(tests, str) or not tests:
            raise InvalidArgumentError(f"tests is {tests!r:.60}; it takes a list of at least one")
        if not entry_point.isidentifier():
            raise InvalidArgumentError(f"entry_point is {entry_point!r:.60}; it takes a name")
        for number, test in enumerate(tests, start=1):
            _compiles(test, f"test {number} of {len(tests)}")
        room = max(limits.output_bytes, OVERHEAD + 2 * len(tests))
        given = replace(limits, output_bytes=room)
        return cls(program, tuple(tests), entry_point, _completed(starter), limits, given)

    def is_class(self) -> bool:
        """Whether the task takes its entry point for a class."""
        if not self.starter.strip():
            return self.entry_point[0].isupper()
        return self.entry_point in _defined(self.starter)[0]

    def classes(self) -> list[str]:
        """Names that may be those of the starter's classes: ``class X``, ``X = make(...)``."""
        return [
            name for each in _defined(self.starter) for name in each if name != self.entry_point
        ]

    def programs(self, sandbox: Sandbox) -> tuple[Program, Program]:
        """The program and its checker, as the sandbox runs them."""
        there: frozenset[str] = getattr(sandbox, "preloaded", frozenset())
        shared = {"entry_point": self.entry_point, "is_class": self.is_class()}
        jobs = {
            "candidate": shared | {"program": self.program, "classes": self.classes()},
            "checker": shared | {"tests": self.tests, "starter": self.starter},
        }
        candidate, checker = (
            Program(program_of(side, there), stdin=json.dumps(job).encode("ascii"))
            for side, job in jobs.items()
        )
        return candidate, checker


class _Reading:
    """What the two processes have left, and what it means."""

    def __init__(self, job: _Job, candidate: Execution, checker: Execution) -> None:
        self.job, self.candidate, self.checker = job, candidate, checker
        self.total = len(job.tests)
        self.words = checker.stdout.splitlines()
        self.told: dict[str, Any] = {}
        for line in self.words:
            if line.startswith("{") and line.endswith("}"):
                self.told |= json.loads(line)
        self.tests = [word == "+" for word in self.words if word in ("+", "-")][: self.total]

    def verdict(self) -> Verdict:
        """What it all means."""
        if "starter" in self.told:
            raise InvalidArgumentError(f"the starter doesn't run: {self.told['starter']}")
        ended = self.ended()
        seconds = max(self.candidate.seconds, self.checker.seconds)
        output = self.candidate.stdout + self.candidate.stderr
        output = output.encode("utf-8", "replace")[: self.job.limits.output_bytes].decode(
            "utf-8", "ignore"
        )
        if "compile" in self.told:
            error = _tidy(self.told["compile"])
            none = (False,) * self.total
            return Verdict(False, 0, self.total, ended, error, None, seconds, output, none)
        # How far it came before it had printed too much depends on the machine.
        passed = [] if ended == "output_limit" else self.tests
        tests = (*passed, *(False,) * (self.total - len(passed)))
        failure = self.failure(ended, sum(tests))
        return Verdict(True, sum(tests), self.total, ended, None, failure, seconds, output, tests)

    def ended(self) -> Ending:
        """How the program ended; where the checker came to no end by it, that."""
        program, checker = self.candidate, self.checker
        said = len(program.stdout.encode("utf-8", "replace")) + len(
            program.stderr.encode("utf-8", "replace")
        )
        if program.ending == "output_limit" or said > self.job.limits.output_bytes:
            return "output_limit"
        if "timeout" in (program.ending, checker.ending):
            return "timeout"
        if "lost" in self.told:
            killed = self.told["lost"] != GONE and program.ending in ("nonzero", "signal")
            return "ok" if killed else program.ending
        if "done" not in self.words:
            if checker.ending != "output_limit" and program.ending in ("memory", "signal"):
                return program.ending
            self.blame()
            return checker.ending
        if program.ending == "memory" or "memory" in self.words or self.told.get("memory"):
            return "memory"
        return "ok"

    def blame(self) -> None:
        """Refuse to judge where the tests failed by themselves, before the program had a say."""
        if "heard" not in self.words:
            said = self.checker.detail or self.checker.stderr[-500:].strip() or "it said nothing"
            raise SandboxError(
                f"the tests came to no end ({self.checker.ending}): {said}", execution=self.checker
            )

    def failure(self, ended: Ending, passed: int) -> str | None:
        """What was wrong first, in a line."""
        if ended == "output_limit":
            return self.how(ended)
        if "load" in self.told:
            return f"before the first test: {_tidy(self.told['load'])}"
        if "failed" in self.told:
            first = self.tests.index(False) + 1 if False in self.tests else len(self.tests) + 1
            return f"test {first} of {self.total}: {_tidy(self.told['failed'])}"
        if passed == self.total:
            return None
        if "loaded" not in self.words:
            return f"before the first test: {self.how(ended)}"
        return f"test {len(self.tests) + 1} of {self.total}: {self.how(ended)}"

    def how(self, ended: Ending) -> str:
        """In words, what a program did that didn't come to its end."""
        limits, program = self.job.limits, self.candidate
        if ended == "timeout":
            return f"it was not done within {limits.seconds:g} s"
        if ended == "output_limit":
            return f"it printed more than {limits.output_bytes} bytes"
        if ended == "memory":
            return f"it used more than {limits.memory_bytes >> 20} MiB"
        lost = self.told.get("lost")
        if lost is None:
            return f"what it gave ended the tests' process ({self.checker.ending})"
        if lost != GONE:
            return str(lost)
        code = program.exit_code
        by = "exit code unknown" if code is None else f"exit code {code}"
        by = f"signal {-code}" if code is not None and code < 0 else by
        return f"{GONE} ({by})"


def _own(sandbox: Sandbox) -> Limits:
    own = getattr(sandbox, "limits", None)
    return own if isinstance(own, Limits) else Limits()


def _compiles(source: object, what: str) -> None:
    try:
        compile(source, f"<{what}>", "exec", dont_inherit=True)  # type: ignore[call-overload]
    except (SyntaxError, ValueError, TypeError) as error:
        raise InvalidArgumentError(f"{what} is no Python: {error}") from error


@functools.lru_cache(maxsize=1024)
def _completed(starter: str) -> str:
    """A starter that compiles: where its last function lacks a body it gets one."""
    lines = starter.rstrip().splitlines()
    last = lines[-1] if lines else ""
    indent = re.match(r"\s*", last)[0]  # type: ignore[index]
    for body in ("", f"\n{indent}pass", f"\n{indent}    pass"):
        try:
            compile(starter.rstrip() + body + "\n", "<starter>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        return starter.rstrip() + body + "\n"
    _compiles(starter, "the starter")
    return starter


@functools.lru_cache(maxsize=1024)
def _defined(starter: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a starter's classes, and those that stand for what a call gives."""
    body = ast.parse(starter).body
    made = [
        node.targets
        for node in body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    ]
    return (
        tuple(node.name for node in body if isinstance(node, ast.ClassDef)),
        tuple(each.id for targets in made for each in targets if isinstance(each, ast.Name)),
    )


def _tidy(text: str) -> str:
    """A message without what differs from run to run, and which can be printed anywhere."""
    text = re.sub(r"\b0x[0-9a-f]{6,}", "0x…", text)
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
