"""Calls of a tool over ``/ws`` in one session and in 64, of guerdon and of openenv.

Both environments repeat a text: guerdon's is a `ToolEnvironment` with a rubric, openenv's an
``MCPEnvironment`` without a reward. Each server and each client is a separate process; rounds
alternate.
"""

from __future__ import annotations

import contextlib
import sys

from benchmarks.echo_client import SESSIONS
from benchmarks.environment_serving import client, measure
from benchmarks.openenv_home import VERSION
from benchmarks.timing import Findings, Measured

ROUNDS = 9
CALLS = 640
# The name of each task, and how many times as many calls per second as openenv's are required.
TASKS = {
    "one": ("a tool call over /ws, 1 session", 1.5),
    "many": (f"a tool call over /ws, {SESSIONS} sessions", 2.0),
}


def run(openenv: str, missing: str) -> Findings:
    """Run the benchmark. For the arguments see `benchmarks.rubric_calls`."""
    against = f"openenv {VERSION}, MCPEnvironment"
    lines = [
        Measured(name, against, 1 / bar, per=CALLS, unit="call", missing=missing)
        for name, bar in TASKS.values()
    ]
    with contextlib.ExitStack() as stack:
        ours = client(stack, sys.executable, "guerdon", "benchmarks.tools_guerdon", "tool")
        theirs = None
        if not missing:
            theirs = client(stack, openenv, "openenv", "benchmarks.tools_openenv", "tool")
        for task, line in zip(TASKS, lines, strict=True):
            measure(task, line, ours, theirs, ROUNDS)
    return Findings(list(lines))
