"""Steps over ``/ws`` in one session and in 64: guerdon's server and client, and openenv's.

Each server and each client is a separate process; each client connects to the server of the same
library. Both serve the same echo environment (`benchmarks.echo_guerdon`). Rounds alternate.
"""

from __future__ import annotations

import contextlib
import sys
from statistics import median

from benchmarks.contestant import Contestant
from benchmarks.echo_client import SESSIONS
from benchmarks.openenv_home import VERSION
from benchmarks.server_process import ServerProcess
from benchmarks.timing import Findings, Measured, take_turns

ROUNDS = 15
STEPS = 1_600
# The name of each task, and how many times as many steps per second as openenv's are required.
TASKS = {
    "one": ("1 session over /ws, a step", 1.3),
    "many": (f"{SESSIONS} sessions over /ws, a step", 1.5),
}


def run(openenv: str, missing: str) -> Findings:
    """Run the benchmark. For the arguments see `benchmarks.rubric_calls`."""
    against = f"openenv {VERSION}, server and client"
    lines = [
        Measured(name, against, 1 / bar, per=STEPS, unit="step", missing=missing)
        for name, bar in TASKS.values()
    ]
    with contextlib.ExitStack() as stack:
        ours = client(stack, sys.executable, "guerdon", "benchmarks.echo_guerdon")
        theirs = None if missing else client(stack, openenv, "openenv", "benchmarks.echo_openenv")
        for task, line in zip(TASKS, lines, strict=True):
            measure(task, line, ours, theirs, ROUNDS)
        pool = ours.seconds("pool", STEPS)
        pool()
        fastest = min(pool() for _ in range(ROUNDS))
    notes = [_steps(line, bar) for line, (_, bar) in zip(lines, TASKS.values(), strict=True)]
    notes.append(
        f"EnvPool(url, n={SESSIONS}).step_batch, over the same wire: {STEPS / fastest:,.0f} steps/s"
    )
    return Findings(lines, notes)


def client(
    stack: contextlib.ExitStack, python: str, library: str, server: str, *arguments: str
) -> Contestant:
    """Start a server, a module, and a client of the same library that is connected to it."""
    served = stack.enter_context(ServerProcess(python, server))
    contestant = Contestant(python, library, "benchmarks.echo_client", served.url, *arguments)
    return stack.enter_context(contestant)


def measure(
    task: str, line: Measured, ours: Contestant, theirs: Contestant | None, rounds: int
) -> None:
    """Measure a task of two clients in alternating rounds; without theirs, of ours alone."""
    other = theirs.seconds(task, line.per) if theirs is not None else lambda: 0.0
    mine = ours.seconds(task, line.per)
    mine(), other()  # the first calls open the sessions
    line.pairs = take_turns(mine, other, rounds)


def _steps(line: Measured, bar: float) -> str:
    name = line.name.removesuffix(", a step")
    assert line.ours
    text = f"{name}: {1 / line.ours:,.0f} steps/s"
    if not line.theirs:
        return text
    middle = median(theirs for _, theirs in line.pairs) / median(ours for ours, _ in line.pairs)
    return (
        f"{text}, openenv's {1 / line.theirs:,.0f}: {line.theirs / line.ours:.2f} times as many "
        f"({middle:.2f} in the median rounds), required {bar:g}"
    )
