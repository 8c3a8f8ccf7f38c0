"""HumanEval's problems with their canonical solutions: `check_program`, ``strict``, two at a time.

It is compared with running a file of the solution and its test without a sandbox, with
``subprocess.run([python, file])``, also two at a time.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.timing import Counted, Findings, Measured
from examples.coding_env.humaneval import problems_path, read_problems
from examples.coding_env.tasks import Task
from guerdon import Limits, check_program, open_sandbox

ROUNDS = 7
WORKERS = 2
LIMITS = Limits(seconds=30)


def run() -> Findings:
    """Run the benchmark."""
    path = problems_path()
    missing = "" if path else "HumanEval is missing; set $GUERDON_DATA to its folder"
    tasks = [] if path is None else list(read_problems(path))
    name = f"HumanEval, {len(tasks)} problems, strict" if tasks else "HumanEval, strict"
    line = Measured(name, "python FILE for each", 1, missing=missing)
    failed = Counted("HumanEval, solutions that don't pass", "", 0, missing=missing)
    if tasks:
        failed.ours = _measure(tasks, line)
        line.per, line.unit = len(tasks), "problem"
    return Findings([line, failed])


def _measure(tasks: list[Task], line: Measured) -> int:
    """Add rounds to the line; return the number of problems that failed in any round."""
    failed = set()
    with (
        TemporaryDirectory() as folder,
        ThreadPoolExecutor(WORKERS) as threads,
        open_sandbox("strict", workers=WORKERS, limits=LIMITS) as sandbox,
    ):
        files = {task.id: Path(folder, f"{number}.py") for number, task in enumerate(tasks)}
        for task in tasks:
            files[task.id].write_text("\n".join([task.solution, *task.tests]), encoding="utf-8")

        def ours(task: Task) -> bool:
            verdict = check_program(
                sandbox,
                task.solution,
                task.tests,
                entry_point=task.entry_point,
                starter=task.starter,
                limits=LIMITS,
            )
            return verdict.passed == verdict.total

        def theirs(task: Task) -> bool:
            return not subprocess.run([sys.executable, files[task.id]]).returncode

        def timed(passes: Callable[[Task], bool]) -> float:
            start = perf_counter()
            done = list(threads.map(passes, tasks))
            seconds = perf_counter() - start
            failed.update(task.id for task, each in zip(tasks, done, strict=True) if not each)
            return seconds

        for _ in range(ROUNDS):
            line.pairs.append((timed(ours), timed(theirs)))
    return len(failed)
