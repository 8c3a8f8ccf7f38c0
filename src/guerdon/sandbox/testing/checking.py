"""`check_program`: whether an untrusted program passes tests.

There are two processes, each in a sandbox of its own: one runs the program and serves its entry
point, the other runs the tests and calls the entry point through a proxy. The tests, what they
expect, and their results are never in the program's process.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from guerdon._validation import check_list, check_type
from guerdon.errors import InvalidArgumentError, SandboxError, TestsError
from guerdon.sandbox.protocol import Ending, Execution, Limits, Program, Sandbox
from guerdon.sandbox.testing.inside import program_of
from guerdon.sandbox.testing.link import GONE
from guerdon.sandbox.testing.units import units_of

__all__ = ["Verdict", "check_program", "check_program_async"]

OVERHEAD = 4 << 10  # bytes of the checker's report beside two for each test

# A number with more digits than Python reads here. It is read in the sandbox.
_LONG_NUMBER = re.compile(r"\b[0-9][0-9_]{4000,}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of testing a program.

    Example:
        >>> from guerdon.sandbox import Verdict
        >>> Verdict(compiled=True, passed=6, total=8).fraction
        0.75

    Attributes:
        compiled: Whether it is a valid Python program.
        passed: How many tests it passed.
        total: How many there are.
        ended: How its process ended; ``ok`` if it ran until the last test, whether or not tests
            failed, or if it exited with code 0 before, which passes no test.
        compile_error: Why it doesn't compile.
        failure: The first failure, in a line. It may quote what a test expects.
        feedback: The same for the author of the program: without what a test expects.
        seconds: How long it took.
        output: What it printed, up to the limit.
        tests: For each test, whether it passed.
    """

    compiled: bool
    passed: int
    total: int
    ended: Ending = "ok"
    compile_error: str | None = None
    failure: str | None = None
    feedback: str | None = None
    seconds: float = 0.0
    output: str = ""
    tests: tuple[bool, ...] = ()

    @property
    def fraction(self) -> float:
        """The share of tests that it passed; 0 without tests."""
        return self.passed / self.total if self.total else 0.0


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

    A test is Python source. It may consist of statements; of classes of ``unittest``, whose methods
    are counted one by one, with their fixtures; of functions ``test_*``, which are counted one by
    one, too; or of HumanEval's ``check(candidate)``. Calls of ``unittest.main`` do nothing.

    Each test runs with a fresh copy of its names: its own, what `starter` defines, Python's, and
    the program's for what none of these defines. The starter runs before the program, too.

    The two processes share one folder. What the tests change around the program reaches it: patches
    of ``unittest.mock``, seeds, the environment, the working directory, ``sys.argv`` and
    ``sys.stdin``. What it prints while the tests have replaced ``sys.stdout`` or ``sys.stderr``,
    and its warnings, reach the tests.

    Values go by three rules:

    - Plain values are copied: those of Python's built-in types, namedtuples, `Decimal`, `Fraction`,
      dates, times, `UUID`, paths, and numpy's numbers, as plain ones. A value of a class that the
      program derives from one of these, or from a container, is the plain value, and has the
      attributes and methods that plain ones lack.
    - Lists, dictionaries, sets, deques, and objects of classes without methods (`ListNode`) that
      both the starter and the program define, keep their identity: both sides have a copy, and
      what one side changes is changed in the other's, too.
    - Everything else stays where it is, and is used through a proxy. A function of the standard
      library that a test passes is the program's own. Exceptions keep their class, attributes and
      cause.

    Objects that stay in the program don't decide about plain values:

    - They never equal one, and have no order with one. An object that the tests have made by the
      tested class equals a plain value if its items or its conversion do, and its ``__eq__``
      agrees; only such an object can be added to a plain value, or subtracted from one.
    - Whether they contain a plain value is found by reading their items, and the methods that a
      text or a set would have (``find``, ``issubset``) aren't called, unless the object is the
      result of a call of the tested class.
    - Their conversions to a number, a text or a list are called once and kept until the tests
      change the object.
    - `StopIteration` out of a call is a `RuntimeError`, and a failed assertion of a test can't be
      suppressed.

    An entry point is a class if the starter defines it by ``class``, or if the starter doesn't
    define it and its name begins with a capital letter.

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
        program: Python source, which is untrusted.
        tests: Python source of at least one test; statements pass if they raise nothing.
        entry_point: The function or class that the program must define.
        starter: The trusted code that the task begins with; its last function may lack a body.
        limits: What each of the two processes may use, and the time for both together; None takes
            the sandbox's own.

    Returns:
        The verdict, which reports whatever the program did wrong.

    Raises:
        TestsError: A test doesn't use the program, whatever the program is.
        InvalidArgumentError: The tests or the starter are not valid Python, or there are no tests.
        SandboxError: The sandbox failed, or the tests did, and the program isn't the cause.
    """
    check = _Check(sandbox, program, tests, entry_point=entry_point, starter=starter, limits=limits)
    ran = sandbox.run_pair(*check.programs, limits=check.run_limits)
    if check.suspects_tests(*ran):
        check.blame_tests(*sandbox.run_pair(*check.control, limits=check.run_limits))
    return check.verdict(*ran)


async def check_program_async(
    sandbox: Sandbox,
    program: str,
    tests: Sequence[str],
    *,
    entry_point: str,
    starter: str = "",
    limits: Limits | None = None,
) -> Verdict:
    """The same as `check_program`; if it is cancelled, it ends both processes.

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
    check = _Check(sandbox, program, tests, entry_point=entry_point, starter=starter, limits=limits)
    ran = await sandbox.run_pair_async(*check.programs, limits=check.run_limits)
    if check.suspects_tests(*ran):
        check.blame_tests(*await sandbox.run_pair_async(*check.control, limits=check.run_limits))
    return check.verdict(*ran)


class _Check:
    """A check of a program: its arguments, and then what its two processes have left.

    Attributes:
        run_limits: The limits with enough output for the checker's report.
        programs: The program and its checker, as the sandbox runs them.
        control: The same with a program that does nothing.
        lines: The checker's report, which marks each test with ``+`` or ``-``.
        report: What else it reported.
        tests: For each test that ended, whether it passed.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        program: str,
        tests: Sequence[str],
        *,
        entry_point: str,
        starter: str,
        limits: Limits | None,
    ) -> None:
        tests = [
            check_type(f"tests[{i}]", test, str)
            for i, test in enumerate(check_list("tests", tests))
        ]
        if not tests:
            raise InvalidArgumentError("`tests` must have at least one test, got none")
        if not entry_point.isidentifier():
            raise InvalidArgumentError(f"`entry_point` must be a name, got {entry_point!r:.60}")
        units = [
            _checked_units(test, entry_point, f"test {number} of {len(tests)}")
            for number, test in enumerate(tests, start=1)
        ]
        self.entry_point = entry_point
        self.limits = check_type("limits", limits or getattr(sandbox, "limits", Limits()), Limits)
        self.names = [name for found in units for name in found]
        self.total = len(self.names)
        output = max(self.limits.output_bytes, OVERHEAD + 2 * self.total)
        self.run_limits = replace(self.limits, output_bytes=output)
        starter = _completed(starter)
        defined = dict(_defined(starter))
        what = defined.pop(entry_point, "class" if entry_point[0].isupper() else "function")
        shared = {"entry_point": entry_point, "is_class": what == "class", "starter": starter}
        classes = [name for name, how in defined.items() if how != "function"]
        preloaded = frozenset(getattr(sandbox, "preloaded", ()))

        def run(side: str, job: dict[str, Any]) -> Program:
            stdin = json.dumps(shared | job).encode("ascii")
            return Program(program_of(side, preloaded), stdin=stdin)

        checker = run("checker", {"tests": list(zip(tests, units, strict=True))})
        nothing = f"def {entry_point}(*args, **kwargs): pass"
        self.programs, self.control = (
            (run("candidate", {"program": each, "classes": classes}), checker)
            for each in (program, nothing)
        )

    def read(self, candidate: Execution, checker: Execution) -> None:
        """Read what the processes have left."""
        self.candidate, self.checker = candidate, checker
        self.lines = checker.stdout.splitlines()
        self.report: dict[str, Any] = {}
        for line in self.lines:
            if line.startswith("{") and line.endswith("}"):
                self.report = json.loads(line) | self.report  # the first of each counts

    def suspects_tests(self, candidate: Execution, checker: Execution) -> bool:
        """Return whether a test hasn't used the program, which may be the program's fault."""
        self.read(candidate, checker)
        return "untouched" in self.report

    def blame_tests(self, candidate: Execution, checker: Execution) -> None:
        """Raise if a test hasn't used a program that does nothing, either."""
        self.read(candidate, checker)
        if "untouched" in self.report:
            raise TestsError(self.untouched(*self.report["untouched"]))

    def verdict(self, candidate: Execution, checker: Execution) -> Verdict:
        """Return the verdict."""
        self.read(candidate, checker)
        self.tests = [line == "+" for line in self.lines if line in ("+", "-")][: self.total]
        if "starter" in self.report:
            raise InvalidArgumentError(f"the starter fails: {self.report['starter']}")
        ended = self.ended()
        error = self.report.get("compile")
        # How many tests passed before it had printed too much depends on the machine.
        passed = [] if ended == "output_limit" else self.tests
        tests = (*passed, *(False,) * (self.total - len(passed)))
        printed = (candidate.stdout + candidate.stderr).encode("utf-8", "replace")
        return Verdict(
            compiled=error is None,
            passed=sum(tests),
            total=self.total,
            ended=ended,
            compile_error=None if error is None else _printable(error),
            failure=self.failure(ended, sum(tests)) if error is None else None,
            feedback=self.failure(ended, sum(tests), for_author=True) if error is None else None,
            seconds=max(candidate.seconds, checker.seconds),
            output=printed[: self.limits.output_bytes].decode("utf-8", "ignore"),
            tests=tests,
        )

    def ended(self) -> Ending:
        """Return how the program ended, or how the checker did if the program ended it."""
        program, checker = self.candidate, self.checker
        printed = len((program.stdout + program.stderr).encode("utf-8", "replace"))
        if program.ending == "output_limit" or printed > self.limits.output_bytes:
            return "output_limit"
        if "timeout" in (program.ending, checker.ending):
            return "timeout"
        if "lost" in self.report:
            killed = self.report["lost"] != GONE and program.ending in ("nonzero", "signal")
            return "ok" if killed else program.ending
        if "done" not in self.lines:
            return self.unfinished()
        if program.ending == "memory" or "memory" in self.lines or self.report.get("memory"):
            return "memory"
        return "ok"

    def unfinished(self) -> Ending:
        """Return how the tests' process ended, if it didn't finish the tests."""
        checker = self.checker
        if "answered" not in self.lines:  # the tests failed before the program had answered
            why = checker.detail or checker.stderr[-500:].strip() or "it printed nothing"
            raise SandboxError(
                f"the tests didn't finish ({checker.ending}): {why}", execution=checker
            )
        return checker.ending

    def failure(self, ended: Ending, passed: int, *, for_author: bool = False) -> str | None:
        """Return the first failure in a line, for the author without what a test expects."""
        if ended == "output_limit":
            return self.reason(ended)
        if passed == self.total:
            return None
        number = self.tests.index(False) if False in self.tests else len(self.tests)
        where = self.where(number)
        if "loaded" not in self.lines:
            where = "before the first test"
        error = self.report.get("load") or self.report.get("failed")
        if error and for_author and self.report.get("own") is False:
            error = self.report["kind"]
        return f"{where}: {_printable(error) if error else self.reason(ended)}"

    def where(self, number: int) -> str:
        """Return the number and the name of a test."""
        name = self.names[number]
        return f"test {number + 1} of {self.total}" + (f" ({name})" if name else "")

    def untouched(self, number: int, failure: str | None) -> str:
        """Return what is wrong with a test that hasn't used the program."""
        if failure is None:
            return (
                f"{self.where(number - 1)} doesn't use `{self.entry_point}`: "
                "it would pass for every program"
            )
        return f"{self.where(number - 1)} fails before it uses `{self.entry_point}`: {failure}"

    def reason(self, ended: Ending) -> str:
        """Return why a program didn't run to the end."""
        limits, lost = self.limits, self.report.get("lost")
        exceeded = {
            "timeout": f"it was not done within {limits.seconds:g} s",
            "output_limit": f"it printed more than {limits.output_bytes} bytes",
            "memory": f"it used more than {limits.memory_bytes >> 20} MiB",
        }
        details = (self.candidate.detail, self.checker.detail)
        if ended == "output_limit" and (found := [each for each in details if _in_files(each)]):
            return str(found[0])
        if ended in exceeded:
            return exceeded[ended]
        if lost is None:
            return f"what it returned ended the tests' process ({self.checker.ending})"
        if lost != GONE:
            return str(lost)
        code = self.candidate.exit_code
        if code is None:
            return f"{GONE} (exit code unknown)"
        return f"{GONE} (exit code {code})" if code >= 0 else f"{GONE} (signal {-code})"


def _in_files(detail: str | None) -> bool:
    """Return whether it is the limit of what is written into files."""
    return detail is not None and " files" in detail


@functools.lru_cache(maxsize=1024)
def _checked_units(test: str, entry_point: str, what: str) -> list[str]:
    _compile(test, what)
    return units_of(_readable(test), entry_point)


def _readable(source: str) -> str:
    """Return a source of the same structure that is compiled here, and not run."""
    return _LONG_NUMBER.sub("1", source)


def _compile(source: str, what: str) -> None:
    try:
        compile(_readable(source), f"<{what}>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, TypeError) as error:
        raise InvalidArgumentError(f"{what} is not valid Python: {error}") from error


@functools.lru_cache(maxsize=1024)
def _completed(starter: str) -> str:
    """Return a starter that compiles: its last function may lack a body."""
    starter = starter.rstrip()
    last = starter.splitlines()[-1] if starter else ""
    indent = last[: len(last) - len(last.lstrip())]
    for body in ("", f"\n{indent}pass", f"\n{indent}    pass"):
        try:
            compile(_readable(f"{starter}{body}\n"), "<starter>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        return f"{starter}{body}\n"
    _compile(starter, "the starter")
    return starter


@functools.lru_cache(maxsize=1024)
def _defined(starter: str) -> dict[str, str]:
    """Return what a starter defines: its functions, and what may be classes.

    The latter by ``class X``, and by ``X = make(...)``.
    """
    found = {}
    for node in ast.parse(_readable(starter)).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = "class"
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[node.name] = "function"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            found |= dict.fromkeys(names, "call")
    return found


def _printable(text: str) -> str:
    """Return a message without addresses, which differ from run to run, in printable characters."""
    text = re.sub(r"\b0x[0-9a-f]{6,}", "0x…", text)
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
