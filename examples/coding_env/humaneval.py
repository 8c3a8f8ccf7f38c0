"""Reads problems in HumanEval's format into tasks.

Each line is a problem with ``task_id``, ``prompt`` (the beginning of a program), ``entry_point``,
``canonical_solution`` (the rest of the program) and ``test``, which defines ``check(candidate)``.
The whole check is one test. The problems are not part of this repository.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from examples.coding_env.tasks import Task
from guerdon.errors import InvalidArgumentError

__all__ = ["complete", "problems_path", "read_problems"]

ASKED = (
    "Complete the function `{name}`. Submit the whole program, this beginning included.\n\n{code}"
)


def problems_path() -> Path | None:
    """Return the path of HumanEval's problems, or None if the file is missing.

    It is searched in ``$GUERDON_DATA/humaneval``, then in ``shared/data/humaneval`` beside
    the checkout.

    Example:
        >>> from examples.coding_env.humaneval import problems_path
        >>> path = problems_path()
        >>> path is None or path.name == "problems.jsonl"
        True
    """
    beside = Path(__file__).parents[3] / "shared" / "data"
    for folder in (os.environ.get("GUERDON_DATA"), beside):
        if folder and (found := Path(folder) / "humaneval" / "problems.jsonl").is_file():
            return found
    return None


def read_problems(path: Path) -> Iterator[Task]:
    r"""Read the tasks of a file in HumanEval's format.

    Example:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> from examples.coding_env.humaneval import read_problems
        >>> row = {
        ...     "task_id": "Mine/0",
        ...     "prompt": "def one():\n    '''Return 1.'''\n",
        ...     "entry_point": "one",
        ...     "canonical_solution": "    return 1\n",
        ...     "test": "def check(candidate):\n    assert candidate() == 1\n",
        ... }
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "problems.jsonl")
        ...     _ = path.write_text(json.dumps(row))
        ...     task, = read_problems(path)
        >>> task.id, len(task.tests)
        ('Mine/0', 1)

    Args:
        path: The file.

    Yields:
        A task for each line; `Task.starter` is the prompt in the file.

    Raises:
        InvalidArgumentError: A line is not a problem in this format.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                problem = json.loads(line)
                name, prompt = problem["entry_point"], problem["prompt"]
                yield Task(
                    id=problem["task_id"],
                    prompt=ASKED.format(name=name, code=prompt),
                    entry_point=name,
                    tests=(f"{problem['test']}\n\ncheck({name})\n",),
                    solution=prompt + problem["canonical_solution"],
                    starter=prompt,
                )
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidArgumentError(
                    f"{path}, line {number} is not a problem in HumanEval's format: {error!r}"
                ) from error


def complete(task: Task, text: str) -> str:
    r"""Return a whole program: add the starter to a model's text unless it is included.

    Example:
        >>> from dataclasses import replace
        >>> from examples.coding_env.humaneval import complete
        >>> from examples.coding_env.tasks import load_tasks
        >>> task = replace(load_tasks()[0], starter="def add(a, b):\n")
        >>> complete(task, "    return a + b\n")
        'def add(a, b):\n    return a + b\n'

    Args:
        task: The task.
        text: The model's text: a whole program, or the part after the starter.
    """
    whole = any(line.startswith(f"def {task.entry_point}(") for line in text.splitlines())
    return text if whole else task.starter + text
