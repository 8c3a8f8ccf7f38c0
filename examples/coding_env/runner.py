"""`run_tests`: runs a program against a task's tests in a sandbox."""

from __future__ import annotations

from examples.coding_env.tasks import Task
from guerdon import Limits, Sandbox, check_program
from guerdon.sandbox import Verdict

__all__ = ["run_tests"]


def run_tests(sandbox: Sandbox, program: str, task: Task, limits: Limits | None = None) -> Verdict:
    """Run a program against a task's tests; thread-safe.

    Example:
        >>> from examples.coding_env.runner import run_tests
        >>> from examples.coding_env.tasks import load_tasks
        >>> from guerdon import open_sandbox
        >>> task = load_tasks()[0]
        >>> with open_sandbox("process") as sandbox:  # only for a trusted program
        ...     verdict = run_tests(sandbox, task.solution, task)
        >>> verdict.passed == verdict.total, verdict.ended
        (True, 'ok')

    Args:
        sandbox: The sandbox that runs the program.
        program: The program's source, which need not be valid.
        task: The task with the tests.
        limits: The resource limits; by default the sandbox's.

    Returns:
        The verdict, which includes the program's own failures.

    Raises:
        SandboxError: The program couldn't be run.
        InvalidArgumentError: The task's tests or its starter are not valid Python.
    """
    return check_program(
        sandbox,
        program,
        task.tests,
        entry_point=task.entry_point,
        starter=task.starter,
        limits=limits,
    )
