"""The one seam behind which programs run: `run_tests`."""

from __future__ import annotations

from examples.coding_env.tasks import Task
from guerdon import Limits, Sandbox, check_program
from guerdon.sandbox import Verdict

__all__ = ["run_tests"]


def run_tests(sandbox: Sandbox, program: str, task: Task, limits: Limits | None = None) -> Verdict:
    """Run a program against a task's tests; several threads may do so at the same time.

    Example:
        >>> from examples.coding_env.runner import run_tests
        >>> from examples.coding_env.tasks import load_tasks
        >>> from guerdon import open_sandbox
        >>> task = load_tasks()[0]
        >>> with open_sandbox("process") as sandbox:  # for a program that is known
        ...     verdict = run_tests(sandbox, task.solution, task)
        >>> verdict.passed == verdict.total, verdict.ended
        (True, 'ok')

    Args:
        sandbox: Where it runs.
        program: Python source, which may be anything.
        task: Whose tests.
        limits: What it may use; None takes the sandbox's own.

    Returns:
        The verdict; what the program did wrong is in there.

    Raises:
        SandboxError: The program couldn't be run.
        InvalidArgumentError: The task's tests or its starter are no Python.
    """
    return check_program(
        sandbox,
        program,
        task.tests,
        entry_point=task.entry_point,
        starter=task.starter,
        limits=limits,
    )
