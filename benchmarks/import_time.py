"""The time of ``import guerdon; guerdon.Rubric`` in a new interpreter, including its start.

It is compared with ``import openenv.core.rubrics``. Each runs once before it is timed, so that
bytecode exists and files are cached. The time of a bare interpreter is printed below the table and
isn't subtracted.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from time import perf_counter

from benchmarks.openenv_home import VERSION
from benchmarks.timing import Findings, Measured, seconds, take_turns

ROUNDS = 12
THEIR_ROUNDS = 2  # each takes several seconds


def run(openenv: str, missing: str) -> Findings:
    """Run the benchmark. For the arguments see `benchmarks.rubric_calls`."""
    line = Measured(
        "import guerdon; guerdon.Rubric",
        f"import openenv.core.rubrics, {VERSION}",
        0.2,
        absolute=True,
        missing=missing,
    )
    ours = _fresh(sys.executable, "import guerdon; guerdon.Rubric")
    theirs = (lambda: 0.0) if missing else _fresh(openenv, "import openenv.core.rubrics")
    ours(), theirs()
    line.pairs = take_turns(ours, theirs, THEIR_ROUNDS)
    line.pairs += take_turns(ours, lambda: 0.0, ROUNDS - THEIR_ROUNDS)
    bare = _fresh(sys.executable, "pass")
    fastest = min(bare() for _ in range(ROUNDS))
    return Findings([line], [f"import: a bare interpreter takes {seconds(fastest)}"])


def _fresh(python: str, code: str) -> Callable[[], float]:
    def run() -> float:
        start = perf_counter()
        subprocess.run([python, "-c", code], check=True)
        return perf_counter() - start

    return run
