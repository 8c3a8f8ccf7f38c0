"""Programs of every kind for a task, without a model: for demonstrations and tests."""

from __future__ import annotations

import ast
import textwrap

from examples.coding_env.tasks import Task

__all__ = ["candidates"]

HALF = '''\
def reference():
    """Define the reference solution, out of the way of what counts its calls."""
{solution}
    return {name}


CALLS = []


def {name}(*args, **kwargs):
    """Answer rightly as long as patience lasts."""
    CALLS.append(args)
    if len(CALLS) > {patience}:
        raise NotImplementedError("out of patience")
    return reference()(*args, **kwargs)
'''

WRONG = '''\
def {name}(*args, **kwargs):
    """Give the same answer to everything."""
    return "guess"
'''

ENDLESS = '''\
def {name}(*args, **kwargs):
    """Never come to an end."""
    while True:
        pass
'''


def candidates(task: Task) -> dict[str, str]:
    """Programs for a task, by their kind.

    Example:
        >>> from examples.coding_env.candidates import candidates
        >>> from examples.coding_env.tasks import load_tasks
        >>> sorted(candidates(load_tasks()[0]))
        ['broken', 'endless', 'half', 'right', 'wrong']

    Args:
        task: One of this example's own: with several tests, each of which calls the entry point.

    Returns:
        ``"right"``, the reference; ``"half"``, which passes at least half of the tests and not
        all; ``"wrong"``, which passes less than half; ``"broken"``, which doesn't compile;
        ``"endless"``, whose function never returns.
    """
    patience = sum(_calls(test, task.entry_point) for test in task.tests[: _half(task)])
    half = HALF.format(
        name=task.entry_point,
        solution=textwrap.indent(task.solution.rstrip(), "    "),
        patience=patience,
    )
    return {
        "right": task.solution,
        "half": half,
        "wrong": WRONG.format(name=task.entry_point),
        "broken": task.solution.rstrip() + "\n    return ((\n",
        "endless": ENDLESS.format(name=task.entry_point),
    }


def _half(task: Task) -> int:
    return -(-len(task.tests) // 2)


def _calls(test: str, name: str) -> int:
    """How often a test calls the entry point, as it is written."""
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        for node in ast.walk(ast.parse(test))
    )
