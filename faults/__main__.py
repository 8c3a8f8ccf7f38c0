"""``python -m faults``: inject faults, print the six counts; exits with 1 if one isn't 0."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from rich.console import Console
from rich.table import Table

from faults.counts import COUNTS, SUBJECTS, Report, run

AT_ONCE = 2
BY_DEFAULT = [each for each in SUBJECTS if each != "ray"]  # `make cluster` has Ray
SHOWN = 9  # problems of each count


def main() -> int:
    """Run the subjects, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="run only this subject")
    parser.add_argument("--size", type=float, default=1.0, help="1.0 takes minutes")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args()
    console = Console(width=None if Console().is_terminal else 160, highlight=False)
    console.print(f"seed {given.seed}, size {given.size:g}")
    start = time.monotonic()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(AT_ONCE, mp_context=spawn, max_tasks_per_child=1) as processes:
        running = partial(run, seed=given.seed, size=given.size)
        reports = list(processes.map(running, given.only or BY_DEFAULT))
    console.print(table(reports))
    for report in reports:
        injected = ", ".join(f"{count} × {name}" for name, count in report.injected.most_common())
        console.print(f"\n{report.name}: {injected}", markup=False)
    found = [
        f"{report.name}: {count}: {problem}"
        for report in reports
        for count, problems in report.problems.items()
        for problem in problems[:SHOWN]
    ]
    console.print("", *found, sep="\n", markup=False)
    verdict = "some counts are not 0" if found else "all counts are 0"
    console.print(f"{verdict}; {time.monotonic() - start:.0f} s")
    return 1 if found else 0


def table(reports: Sequence[Report]) -> Table:
    """Return the six counts of each subject."""
    shown = Table(box=None, pad_edge=False)
    for title in ("", "steps", "per second", "faults", *COUNTS):
        shown.add_column(title, justify="right" if title else "left")
    for report in reports:
        rate = round(report.steps / report.seconds)
        counts = [len(problems) for problems in report.problems.values()]
        row = [report.steps, rate, report.injected.total(), *counts]
        shown.add_row(report.name, *[f"{each:,}" for each in row])
    return shown


if __name__ == "__main__":
    sys.exit(main())
