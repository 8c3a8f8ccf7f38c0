"""Calls of a tool over ``/ws`` in one session and in 64, of guerdon and of openenv.

Both environments repeat a text: guerdon's is a `ToolEnvironment` with a rubric, openenv's an
``MCPEnvironment`` without a reward. Each server and each client is a separate process; rounds
alternate.
"""

from __future__ import annotations

import contextlib
import sys

from benchmarks.contestant import Contestant
from benchmarks.echo_client import SESSIONS
from benchmarks.openenv_home import VERSION
from benchmarks.server_process import ServerProcess
from benchmarks.timing import Findings, Measured, take_turns

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
        ours = _client(stack, sys.executable, "guerdon")
        theirs = None if missing else _client(stack, openenv, "openenv")
        for task, line in zip(TASKS, lines, strict=True):
            other = theirs.seconds(task, CALLS) if theirs is not None else lambda: 0.0
            mine = ours.seconds(task, CALLS)
            mine(), other()  # the first calls open the sessions
            line.pairs = take_turns(mine, other, ROUNDS)
    return Findings(list(lines))


def _client(stack: contextlib.ExitStack, python: str, library: str) -> Contestant:
    server = stack.enter_context(ServerProcess(python, f"benchmarks.tools_{library}"))
    client = Contestant(python, library, "benchmarks.echo_client", server.url, "tool")
    return stack.enter_context(client)
