"""``python -m benchmarks``: run all or some benchmarks, and print one table."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable

from rich.console import Console

from benchmarks import (
    batches,
    configuration_updates,
    credit_assignment,
    environment_pool,
    environment_serving,
    environment_step,
    gymnasium_vector,
    import_time,
    judgements,
    openenv_home,
    page,
    process_pool,
    ray_cluster,
    reward_composer,
    reward_functions,
    reward_logging,
    reward_normalizer,
    rollout_scoring,
    rubric_calls,
    sandbox_calls,
    sandbox_endurance,
    sandbox_programs,
    sessions_dropped,
    sessions_idle,
    tool_calls,
    viewer,
    wire,
)
from benchmarks import score_command as command
from benchmarks.timing import Counted, Findings, table
from guerdon.errors import SandboxUnavailableError

NAMES = (
    "calls",
    "rollouts",
    "command",
    "batch",
    "import",
    "step",
    "serving",
    "tools",
    "wire",
    "pool",
    "processes",
    "gymnasium",
    "idle",
    "dropped",
    "functions",
    "credit",
    "sandbox",
    "composer",
    "configuration",
    "judgements",
    "normalizer",
    "logging",
    "viewer",
    "page",
    "ray",
)


def main() -> None:
    arguments = _arguments()
    console = Console(width=None if Console().is_terminal else 150)
    names = arguments.only or NAMES
    openenv = missing = ""
    if {"calls", "rollouts", "import", "serving", "tools", "wire"} & set(names):
        openenv, missing = openenv_home.make()
        missing = missing and f"not installed: {missing}"
    groups: dict[str, Callable[[], Findings]] = {
        "calls": lambda: rubric_calls.run(openenv, missing),
        "rollouts": lambda: rollout_scoring.run(openenv, missing),
        "command": lambda: command.run(arguments.rows),
        "batch": batches.run,
        "import": lambda: import_time.run(openenv, missing),
        "step": environment_step.run,
        "serving": lambda: environment_serving.run(openenv, missing),
        "tools": lambda: tool_calls.run(openenv, missing),
        "wire": lambda: wire.run(openenv, missing),
        "pool": environment_pool.run,
        "processes": process_pool.run,
        "gymnasium": gymnasium_vector.run,
        "idle": sessions_idle.run,
        "dropped": lambda: sessions_dropped.run(arguments.sessions),
        "functions": reward_functions.run,
        "credit": credit_assignment.run,
        "sandbox": _sandbox,
        "composer": reward_composer.run,
        "configuration": configuration_updates.run,
        "judgements": judgements.run,
        "normalizer": reward_normalizer.run,
        "logging": reward_logging.run,
        "viewer": lambda: viewer.run(arguments.megabytes),
        "page": page.run,
        "ray": lambda: ray_cluster.run(arguments.rows),
    }
    found = Findings()
    for name in names:
        with Console(stderr=True).status(f"measuring {name}"):
            part = groups[name]()
        found.lines += part.lines
        found.notes += part.notes
    console.print(table(found.lines))
    for note in [*found.notes, _machine()]:
        console.print(note, style="dim", highlight=False, markup=False)
    if arguments.json:
        _write(arguments.json, found)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, help="run only this benchmark")
    parser.add_argument(
        "--rows",
        type=int,
        default=command.ROWS,
        help="number of rows for `guerdon score` (%(default)s)",
    )
    parser.add_argument(
        "--sessions",
        type=int,
        default=sessions_dropped.SESSIONS,
        help="number of dropped sessions (%(default)s)",
    )
    parser.add_argument(
        "--megabytes",
        type=int,
        default=viewer.MEGABYTES,
        help="size of the rows for `guerdon view` (%(default)s)",
    )
    parser.add_argument("--json", metavar="FILE", help="also write the results to a file")
    arguments = parser.parse_args()
    if arguments.rows < 1:
        parser.error("--rows must be at least 1")
    if arguments.sessions < 1:
        parser.error("--sessions must be at least 1")
    return arguments


def _sandbox() -> Findings:
    found = Findings()
    for each in (sandbox_calls, sandbox_programs, sandbox_endurance):
        try:
            part = each.run()
        except SandboxUnavailableError as error:
            return Findings([Counted("strict sandbox", "", 0, missing=str(error))])
        found.lines += part.lines
        found.notes += part.notes
    return found


def _machine() -> str:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {load:.1f} at the end; ratios compare the fastest rounds"
    )


def _write(path: str, found: Findings) -> None:
    report = {
        "machine": _machine(),
        "notes": found.notes,
        "results": [line.as_json() for line in found.lines],
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=2, ensure_ascii=False)
        file.write("\n")


if __name__ == "__main__":
    main()
