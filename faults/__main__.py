"""``python -m faults``: inject faults, print the five counts; exits with 1 if one isn't 0."""

from __future__ import annotations

import argparse
import ctypes
import importlib
import logging
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from faults.counts import COUNTS, Ledger, watched

SUBJECTS = ("pool", "server", "command", "logger")
SUBREAPER = 36  # Linux: processes whose parent has ended become children of this one
SHOWN = 9  # problems of each count


def main() -> int:
    """Run the subjects."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("subjects", nargs="*", default=SUBJECTS, choices=[*SUBJECTS, SUBJECTS])
    parser.add_argument("--size", type=float, default=1.0, help="1.0 takes minutes")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args()
    logging.getLogger("guerdon").setLevel(logging.CRITICAL + 1)  # failures are expected
    console = Console(width=None if Console().is_terminal else 160, highlight=False)
    console.print(f"seed {given.seed}, size {given.size:g}")
    start, ledgers = time.monotonic(), []
    for name in given.subjects:
        with tempfile.TemporaryDirectory(prefix="guerdon-faults-") as folder:
            ledgers.append(run(name, given.seed, given.size, Path(folder)))
        console.print(f"{name}: {ledgers[-1].seconds:.0f} s")
    console.print(table(ledgers))
    for ledger in ledgers:
        injected = ", ".join(f"{count} × {name}" for name, count in ledger.injected.most_common())
        console.print(f"{ledger.name}: {injected}\n", markup=False)
    found = [
        f"{ledger.name}: {count}: {problem}"
        for ledger in ledgers
        for count, problems in ledger.problems().items()
        for problem in problems[:SHOWN]
    ]
    console.print(*found, sep="\n", markup=False)
    verdict = "some counts are not 0" if found else "all counts are 0"
    console.print(f"{verdict}; {time.monotonic() - start:.0f} s")
    return 1 if found else 0


def run(name: str, seed: int, size: float, folder: Path) -> Ledger:
    """Inject the faults of one subject."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    ledger = Ledger(name, seed, folder)
    subject = importlib.import_module(f"faults.{name}")
    with watched(ledger):
        subject.run(ledger, size)
    return ledger


def table(ledgers: list[Ledger]) -> Table:
    """Return the five counts of each subject."""
    shown = Table(box=None, pad_edge=False)
    for title in ("", "steps", "per second", "faults", *COUNTS):
        shown.add_column(title, justify="right" if title else "left")
    for ledger in ledgers:
        counts = [len(problems) for problems in ledger.problems().values()]
        row = [ledger.steps, round(ledger.steps / ledger.seconds), ledger.injected.total(), *counts]
        shown.add_row(ledger.name, *[f"{each:,}" for each in row])
    return shown


if __name__ == "__main__":
    sys.exit(main())
