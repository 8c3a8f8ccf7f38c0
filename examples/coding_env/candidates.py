"""Right, wrong and broken programs for a task, for demos and tests without a model."""

from __future__ import annotations

import ast
import textwrap

from examples.coding_env.tasks import Task

__all__ = ["candidates"]

HALF = '''\
def reference():
    """Define the reference solution in its own scope: recursive calls aren't counted."""
{solution}
    return {name}


CALLS = []


def {name}(*args, **kwargs):
    """Answer rightly for the first calls only."""
    CALLS.append(args)
    if len(CALLS) > {patience}:
        raise NotImplementedError("out of patience")
    return reference()(*args, **kwargs)
'''

WRONG = '''\
def {name}(*args, **kwargs):
    """Give the same answer to all arguments."""
    return "guess"
'''

ENDLESS = '''\
def {name}(*args, **kwargs):
    """Run forever."""
    while True:
        pass
'''


def candidates(task: Task) -> dict[str, str]:
    """Return programs for a task, by kind.

    Example:
        >>> from examples.coding_env.candidates import candidates
        >>> from examples.coding_env.tasks import load_tasks
        >>> sorted(candidates(load_tasks()[0]))
        ['broken', 'endless', 'half', 'right', 'wrong']

    Args:
        task: A task of this example, with several tests that each call the entry point.

    Returns:
        ``"right"`` is the reference solution, ``"half"`` passes at least half of the tests but not
        all, ``"wrong"`` passes less than half, ``"broken"`` doesn't compile, and ``"endless"``
        never returns.
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
    """Count the calls of the entry point in the source of a test."""
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        for node in ast.walk(ast.parse(test))
    )
