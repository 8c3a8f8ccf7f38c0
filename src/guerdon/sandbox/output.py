"""`check_output`: whether an untrusted program prints the expected output for each input.

Each case is a separate run. The program receives the input; the expected output, the comparison and
the result stay in this process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from guerdon._validation import check_choice, check_type, shown
from guerdon.errors import InvalidArgumentError
from guerdon.sandbox.protocol import Ending, Execution, Limits, Sandbox
from guerdon.sandbox.testing.checking import Verdict

__all__ = ["check_output", "check_output_async"]

#: The absolute and the relative error that ``compare="float"`` accepts.
TOLERANCE = 1e-6

LONGEST = 300  # characters of an error in a verdict

_INTEGER = re.compile(r"[+-]?[0-9]+")
# Narrower than what `float` accepts, which includes ``nan``, ``1_000`` and digits of all scripts.
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

# Whether a program compiles, in a sandbox: a hostile one can exhaust or crash the compiler.
_COMPILE = """
import sys
source = sys.stdin.buffer.read().decode("utf-8", "surrogatepass").removeprefix("\\ufeff")
try:
    compile(source, "<program>", "exec", dont_inherit=True)
except SyntaxError as error:
    sys.exit(f"line {error.lineno}: {error.msg}" if error.lineno else error.msg)
"""


def check_output(
    sandbox: Sandbox,
    program: str,
    cases: Iterable[tuple[str, str]],
    *,
    compare: str | Callable[[str, str, str], bool] = "whitespace",
    limits: Limits | None = None,
) -> Verdict:
    r"""Run a program once for each input, and compare its output with the expected one.

    For tasks that read standard input and write standard output, such as those of APPS without
    ``fn_name`` and of CodeContests; `check_program` is for tasks with a function or a class.

    Each case runs the program as a script in a new process and a new folder, one case after the
    other. A case passes if the program exits with code 0 within the limits and its output is
    accepted. All cases run, except those of a program that doesn't compile.

    Example:
        >>> from guerdon import check_output, open_sandbox
        >>> program = "print(sum(map(int, input().split())))"
        >>> with open_sandbox("process") as sandbox:
        ...     verdict = check_output(sandbox, program, [("1 2\n", "3\n"), ("2 2\n", "5\n")])
        >>> verdict.tests, verdict.failure
        ((True, False), 'case 2 of 2: wrong output')

    Args:
        sandbox: Where the program runs.
        program: Python source, which is untrusted.
        cases: At least one pair of texts: the standard input, and the expected standard output.
        compare: How the output is compared.

            - ``whitespace``: by its words; blanks and line breaks between them don't matter.
            - ``exact``: by its characters, except that each of the two may lack the line break
              at the end.
            - ``float``: as ``whitespace``, but two numbers are equal up to an absolute or relative
              error of 1e-6. Two integers must be equal. ``nan`` and ``inf`` are words.
            - ``lines``: by its lines in any order, each as often as expected; blanks are compared
              as in ``whitespace``, and empty lines don't count.
            - A function ``(stdin, expected, printed) -> bool``, for tasks with several right
              answers. It is called in this process with what the program printed, which may be
              any text, and returns False for a text that it can't read.
        limits: What each case may use; None takes the sandbox's own. A case may print
            ``output_bytes`` more than is expected.

    Returns:
        The verdict, with a test for each case. Its `failure` never contains the expected output.

    Raises:
        InvalidArgumentError: `cases` or `compare` is invalid, or the function raised an error or
            returned something other than True or False.
        SandboxError: The sandbox failed, and the program isn't the cause.
    """
    check = _Check(sandbox, program, cases, compare=compare, limits=limits)
    for run in check.runs():
        check.execution = sandbox.run(**run)
    return check.verdict()


async def check_output_async(
    sandbox: Sandbox,
    program: str,
    cases: Iterable[tuple[str, str]],
    *,
    compare: str | Callable[[str, str, str], bool] = "whitespace",
    limits: Limits | None = None,
) -> Verdict:
    r"""The same as `check_output`; if it is cancelled, it ends the program.

    The outputs are compared on the event loop, also by a function.

    Example:
        >>> import asyncio
        >>> from guerdon import open_sandbox
        >>> from guerdon.sandbox import check_output_async
        >>> async def passed(programs):
        ...     with open_sandbox("process") as sandbox:
        ...         cases = [("1 2\n", "3\n")]
        ...         checks = [check_output_async(sandbox, each, cases) for each in programs]
        ...         return [verdict.passed for verdict in await asyncio.gather(*checks)]
        >>> asyncio.run(passed(["print(sum(map(int, input().split())))", "print(4)"]))
        [1, 0]
    """
    check = _Check(sandbox, program, cases, compare=compare, limits=limits)
    for run in check.runs():
        check.execution = await sandbox.run_async(**run)
    return check.verdict()


class _Check:
    """The check of a program: its arguments, and the results of its cases so far.

    Attributes:
        execution: The result of the last run of `runs`.
    """

    execution: Execution

    def __init__(
        self,
        sandbox: Sandbox,
        program: str,
        cases: Iterable[tuple[str, str]],
        *,
        compare: str | Callable[[str, str, str], bool],
        limits: Limits | None,
    ) -> None:
        self.program = check_type("program", program, str)
        self.cases = list(cases)
        if not self.cases:
            raise InvalidArgumentError("`cases` must have at least one case, got none")
        for number, case in enumerate(self.cases):
            pair = isinstance(case, (tuple, list)) and len(case) == 2
            if not pair or not all(isinstance(text, str) for text in case):
                raise InvalidArgumentError(
                    f"`cases[{number}]` must be two strings, the input and the expected output, "
                    f"got {shown(case)}"
                )
        self.compare = compare
        if not callable(compare):
            check_choice("compare", compare, COMPARISONS)
        self.limits = check_type("limits", limits or getattr(sandbox, "limits", Limits()), Limits)
        self.tests: list[bool] = []
        self.ended: Ending = "ok"
        self.compile_error: str | None = None
        self.failure: str | None = None
        self.seconds = 0.0
        self.output = b""

    def runs(self) -> Iterator[Mapping[str, Any]]:
        """Yield the arguments of each run; `execution` is its result before the next one."""
        most = self.limits.output_bytes
        for stdin, expected in self.cases:
            room = most + len(expected.encode(errors="replace"))
            limits = replace(self.limits, output_bytes=room)
            yield {"program": self.program, "stdin": stdin, "limits": limits}
            execution = self.execution
            # Programs that don't compile exit with 1, and others may, too.
            if not self.tests and execution.exit_code == 1:
                source = self.program.encode("utf-8", "surrogatepass")
                yield {"program": _COMPILE, "stdin": source, "limits": self.limits}
                if self.execution.exit_code == 1:
                    self.compile_error = _last_line(self.execution.stderr)
                    return
            passed = execution.ending == "ok" and self.accepts(stdin, expected, execution.stdout)
            self.tests.append(passed)
            self.seconds += execution.seconds
            if len(self.output) < most:
                self.output += (execution.stdout + execution.stderr).encode(errors="replace")
            if self.ended == "ok":
                self.ended = execution.ending
            if self.failure is None and not passed:
                self.failure = f"{self.where()}: {_reason(execution)}"

    def where(self) -> str:
        """Return which case ran last."""
        return f"case {len(self.tests)} of {len(self.cases)}"

    def accepts(self, stdin: str, expected: str, printed: str) -> bool:
        """Return whether an output is right."""
        if not callable(self.compare):
            return COMPARISONS[self.compare](expected, printed)
        where = f"`compare` failed on case {len(self.tests) + 1} of {len(self.cases)}"
        try:
            accepted = self.compare(stdin, expected, printed)
            if accepted in (True, False):  # numpy's, too
                return bool(accepted)
        except Exception as error:
            raise InvalidArgumentError(f"{where}: {type(error).__name__}: {error}") from error
        raise InvalidArgumentError(f"{where}: it must return True or False, got {shown(accepted)}")

    def verdict(self) -> Verdict:
        """Return the verdict."""
        total = len(self.cases)
        return Verdict(
            compiled=self.compile_error is None,
            passed=sum(self.tests),
            total=total,
            ended=self.ended,
            compile_error=self.compile_error,
            failure=self.failure,
            seconds=self.seconds,
            output=self.output[: self.limits.output_bytes].decode("utf-8", "ignore"),
            tests=(*self.tests, *(False,) * (total - len(self.tests))),
        )


def _reason(execution: Execution) -> str:
    """Return why a case failed."""
    if execution.ending == "ok":
        return "wrong output" if execution.stdout.strip() else "it printed nothing"
    error = _last_line(execution.stderr) if execution.ending == "nonzero" else ""
    return f"{execution.detail}: {error}" if error else str(execution.detail)


def _last_line(text: str) -> str:
    """Return the last line of a traceback, in printable characters."""
    line = text.rstrip().rpartition("\n")[2]
    return "".join(filter(str.isprintable, line))[:LONGEST]


# Comparisons of expected and printed output ------------------------------------------------------


def _same_characters(expected: str, printed: str) -> bool:
    return expected.removesuffix("\n") == printed.removesuffix("\n")


def _same_words(expected: str, printed: str) -> bool:
    return expected.split() == printed.split()


def _same_lines(expected: str, printed: str) -> bool:
    one, other = (
        sorted(line.split() for line in text.split("\n") if line.strip())
        for text in (expected, printed)
    )
    return one == other


def _close_words(expected: str, printed: str) -> bool:
    one, other = expected.split(), printed.split()
    return len(one) == len(other) and all(map(_close, one, other))


def _close(expected: str, printed: str) -> bool:
    if expected == printed:
        return True
    if _INTEGER.fullmatch(expected) and _INTEGER.fullmatch(printed):
        return Decimal(expected) == Decimal(printed)  # `int` refuses more than 4300 digits
    if not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(printed)):
        return False
    one, other = float(expected), float(printed)
    close = math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return close and math.isfinite(one)  # False if both are too large for a float


COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "whitespace": _same_words,
    "exact": _same_characters,
    "float": _close_words,
    "lines": _same_lines,
}
