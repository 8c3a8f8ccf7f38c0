"""`Task`: what is asked of an agent, and the hidden tests that judge its program.

The tasks stand in ``problems/``, a file for each level of difficulty: a heading with the name that
a program must define, the prompt, a reference solution, and tests with empty lines between them.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from guerdon.errors import InvalidArgumentError

__all__ = ["Task", "load_tasks"]

PROBLEMS = Path(__file__).with_name("problems")
LAYOUT = re.compile(
    r"(?P<name>\w+)\n(?P<prompt>.+?)```python\n(?P<solution>.+?)```\s*"
    r"```python tests\n(?P<tests>.+?)```\s*",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Task:
    r"""A programming task.

    Example:
        >>> from examples.coding_env.tasks import Task
        >>> task = Task(
        ...     id="double",
        ...     prompt="Write a function double(n) that returns twice n.",
        ...     entry_point="double",
        ...     tests=("assert double(2) == 4", "assert double(-1) == -2"),
        ...     solution="def double(n):\n    return 2 * n\n",
        ... )
        >>> len(task.tests)
        2

    Args:
        id: Its name among others.
        prompt: What the agent reads.
        entry_point: The function or class that a program must define.
        tests: Pieces of Python, at least one, that pass where they raise nothing. Each finds the
            entry point and what `starter` defines, and no other name of the program.
        solution: A program that passes them all.
        difficulty: From 1, the lowest.
        starter: Code that a program begins with, where the task gives any.

    Raises:
        InvalidArgumentError: It has no tests.
    """

    id: str
    prompt: str
    entry_point: str
    tests: tuple[str, ...]
    solution: str
    difficulty: int = 1
    starter: str = ""

    def __post_init__(self) -> None:
        if not self.tests:
            raise InvalidArgumentError(f"task {self.id!r} has no tests; it takes at least one")


@functools.cache
def load_tasks() -> tuple[Task, ...]:
    """The tasks of this example, the easy ones first.

    Example:
        >>> from examples.coding_env.tasks import load_tasks
        >>> load_tasks()[0].difficulty
        1
    """
    return tuple(
        task
        for path in sorted(PROBLEMS.glob("*.md"))
        for task in _read(path.read_text(encoding="utf-8"), int(path.stem.partition("_")[0]))
    )


def _read(text: str, difficulty: int) -> list[Task]:
    tasks = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        parts = LAYOUT.fullmatch(section)
        if parts is None:
            raise InvalidArgumentError(
                f"the section {section[:40]!r} of level {difficulty} is not laid out as "
                "name, prompt, ```python and ```python tests"
            )
        tasks.append(
            Task(
                id=parts["name"],
                prompt=parts["prompt"].strip(),
                entry_point=parts["name"],
                tests=tuple(test.strip("\n") for test in parts["tests"].strip().split("\n\n")),
                solution=parts["solution"],
                difficulty=difficulty,
            )
        )
    return tasks
