"""`Task`: a programming task with hidden tests.

The tasks are in ``problems/``, in files whose names begin with the difficulty. Each task is a
heading with the name that a program must define, the prompt, a reference solution, and tests
separated by empty lines.
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
        id: The unique ID.
        prompt: The text for the agent.
        entry_point: The function or class that a program must define.
        tests: At least one piece of Python code, as `check_program` runs it.
        solution: A program that passes all tests.
        difficulty: The difficulty, from 1.
        starter: The code that a program begins with.

    Raises:
        InvalidArgumentError: `tests` is empty.
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
            raise InvalidArgumentError(f"task {self.id!r} must have at least one test")


@functools.cache
def load_tasks() -> tuple[Task, ...]:
    """Return the tasks of this example, easy ones first.

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
                f"the section {section[:40]!r} of level {difficulty} must consist of "
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
