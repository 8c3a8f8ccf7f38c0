"""The tasks: small projects of which some files are wrong, with tests for each file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from guerdon import Limits, Sandbox, check_program

__all__ = ["SOLUTIONS", "TASKS", "Results", "SourceFile", "Task", "run_tests"]


@dataclass(frozen=True, slots=True)
class SourceFile:
    r"""A file of a task.

    Example:
        >>> from examples.plan_mode.tasks import SourceFile
        >>> tests = ("assert double(2) == 4",)
        >>> source = "def double(n):\n    return n\n"
        >>> SourceFile("double", source, tests, solution=source.replace("n\n", "2 * n\n")).is_wrong
        True

    Attributes:
        function: The function that it defines.
        content: Its content when an episode begins.
        tests: Tests of the function, as `check_program` runs them.
        solution: A content that passes them; None if the file is right.
    """

    function: str
    content: str
    tests: tuple[str, ...]
    solution: str | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether the file has to be changed."""
        return self.solution is not None


@dataclass(frozen=True, slots=True)
class Task:
    """A task.

    Example:
        >>> from examples.plan_mode.tasks import TASKS
        >>> [task.id for task in TASKS]
        ['shop', 'calendar']

    Attributes:
        id: Its ID.
        instructions: What its files should do.
        files: The files by path.
    """

    id: str
    instructions: str
    files: Mapping[str, SourceFile]


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a task's tests.

    Example:
        >>> from examples.plan_mode.tasks import Results
        >>> Results(passed=6, total=8, feedback="6 of 8 tests passed").passed
        6

    Attributes:
        passed: How many tests passed.
        total: How many there are.
        feedback: The result of all files and of each, without what the tests expect.
    """

    passed: int
    total: int
    feedback: str


def run_tests(
    sandbox: Sandbox, task: Task, files: Mapping[str, str], *, limits: Limits | None = None
) -> Results:
    """Run the tests of a task on its files, each in the sandbox.

    Example:
        >>> from examples.plan_mode.tasks import SOLUTIONS, TASKS, run_tests
        >>> from guerdon import open_sandbox
        >>> with open_sandbox("process") as sandbox:  # only for trusted files
        ...     results = run_tests(sandbox, TASKS[0], SOLUTIONS)
        >>> results.passed == results.total
        True

    Args:
        sandbox: Where the files and their tests run.
        task: The task.
        files: The content of each file, by path.
        limits: The limits of each file; by default the sandbox's.

    Raises:
        SandboxError: A file couldn't be run, for a reason outside of it.
    """
    verdicts = {
        path: check_program(
            sandbox, files[path], file.tests, entry_point=file.function, limits=limits
        )
        for path, file in task.files.items()
    }
    passed = sum(verdict.passed for verdict in verdicts.values())
    total = sum(verdict.total for verdict in verdicts.values())
    lines = [f"{passed} of {total} tests passed"]
    for path, verdict in verdicts.items():
        reason = verdict.compile_error or verdict.feedback or "passed"
        lines.append(f"{path}: {verdict.passed} of {verdict.total}; {reason}")
    return Results(passed, total, "\n".join(lines))


SHOP = Task(
    "shop",
    "`discount` takes percent off a price in cents, and rounds down to whole cents. "
    "`total` adds up price times quantity of all items. "
    "`label` writes cents as an amount with two decimals.",
    {
        "prices.py": SourceFile(
            "discount",
            "def discount(price, percent):\n    return price - percent\n",
            (
                "assert discount(1000, 10) == 900",
                "assert discount(999, 50) == 499",
                "assert discount(80, 0) == 80",
            ),
            "def discount(price, percent):\n    return price * (100 - percent) // 100\n",
        ),
        "receipt.py": SourceFile(
            "total",
            "def total(items):\n    return sum(price for price, quantity in items)\n",
            (
                "assert total([(100, 2), (50, 1)]) == 250",
                "assert total([(100, 0)]) == 0",
                "assert total([]) == 0",
            ),
            "def total(items):\n    return sum(price * quantity for price, quantity in items)\n",
        ),
        "labels.py": SourceFile(
            "label",
            'def label(cents):\n    return f"{cents // 100}.{cents % 100:02}"\n',
            ("assert label(1205) == '12.05'", "assert label(7) == '0.07'"),
        ),
    },
)

CALENDAR = Task(
    "calendar",
    "`is_leap` follows the Gregorian calendar. "
    "`weeks` is the number of weeks that a number of days begins. "
    "`quarter` is the quarter of a month, both counted from 1.",
    {
        "leap.py": SourceFile(
            "is_leap",
            "def is_leap(year):\n    return year % 4 == 0 and year % 100 != 0\n",
            (
                "assert is_leap(2024)",
                "assert not is_leap(1900)",
                "assert is_leap(2000)",
                "assert not is_leap(2023)",
            ),
            "def is_leap(year):\n"
            "    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)\n",
        ),
        "weeks.py": SourceFile(
            "weeks",
            "def weeks(days):\n    return days // 7\n",
            ("assert weeks(14) == 2", "assert weeks(15) == 3", "assert weeks(1) == 1"),
            "def weeks(days):\n    return (days + 6) // 7\n",
        ),
        "quarters.py": SourceFile(
            "quarter",
            "def quarter(month):\n    return month // 3\n",
            ("assert quarter(1) == 1", "assert quarter(3) == 1", "assert quarter(12) == 4"),
            "def quarter(month):\n    return (month + 2) // 3\n",
        ),
    },
)

TASKS = (SHOP, CALENDAR)

# A right content of every file, by path.
SOLUTIONS = {
    path: file.solution or file.content for task in TASKS for path, file in task.files.items()
}
