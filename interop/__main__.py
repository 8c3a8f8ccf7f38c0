"""``python -m interop``: run all checks, and print one table; exits with 1 if a check fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, TypeAlias

from rich.console import Console
from rich.table import Table

from benchmarks import openenv_home

ROOT = Path(__file__).resolve().parent.parent
SLOW_S = 180.0  # timeout of a process in seconds


class Finding(NamedTuple):
    """The result of a check; `problem` is ``""`` if it passed."""

    check: str
    problem: str


Finder: TypeAlias = Callable[[], list[Finding]]


def main() -> int:
    """Run all checks."""
    console = Console(width=None if Console().is_terminal else 160)
    with console.status("installing openenv"):
        python, missing = openenv_home.make()
    if missing:
        console.print(f"openenv {openenv_home.VERSION} is not installed: {missing}", markup=False)
        return 1
    start = perf_counter()
    with console.status("running checks"):
        groups = _run_groups(python)
    bad = sum(bool(finding.problem) for found in groups.values() for finding in found)
    console.print(_table(groups))
    count = sum(map(len, groups.values()))
    verdict = f"{bad} of {count} checks failed" if bad else f"all {count} checks passed"
    console.print(
        f"{verdict}; openenv {openenv_home.VERSION}, {perf_counter() - start:.0f} s",
        highlight=False,
    )
    return 1 if bad else 0


def _run_groups(python: str) -> dict[str, list[Finding]]:
    """Run all groups of checks, on servers of each library."""

    def on_their_python(module: str, *urls: str) -> Finder:
        source = {"PYTHONPATH": str(ROOT / "src")}
        return lambda: _run_checks([python, "-m", f"interop.theirs.{module}", *urls], **source)

    def on_our_python(module: str, *urls: str) -> Finder:
        return lambda: _run_checks([sys.executable, "-m", f"interop.{module}", *urls])

    def on_servers() -> dict[str, list[Finding]]:
        with (
            _served([sys.executable, "-m", "interop.echo_environment"]) as ours,
            _served([python, "-m", "interop.theirs.server"]) as theirs,
            _served([sys.executable, "-m", "interop.tool_environment"]) as our_tools,
            _served([sys.executable, "-m", "interop.tool_environment", "production"]) as production,
            _served([python, "-m", "interop.theirs.tool_server"]) as their_tools,
        ):
            # Some checks use a server's whole capacity, so concurrent groups use different servers.
            clients = {
                "their clients, our server": on_their_python("clients", ours),
                "our clients, their server": on_our_python("ours", theirs),
            }
            worker = {
                "their validator, our server": lambda: _validated(python, ours),
                "our worker, their clients and environments": on_their_python(
                    "rollouts", theirs, ours
                ),
            }
            rest = {
                "our worker, their server": on_our_python("rollouts", theirs),
                "their clients, our tools": on_their_python("tools", our_tools, production),
                "their validator, our production mode": lambda: _validated(python, production),
            }
            ours_on_tools = {
                "our clients, their tools": on_our_python("tools", their_tools, our_tools)
            }
            return _all_of(clients) | _all_of(worker) | _all_of(rest) | _all_of(ours_on_tools)

    with ThreadPoolExecutor(1) as thread:  # runs while the servers start
        alone = {"rubrics": on_their_python("trees"), "traces": on_their_python("traces")}
        serverless = thread.submit(_all_of, alone)
        try:
            found = on_servers()
        except (OSError, RuntimeError) as error:
            found = {"servers": [Finding("the servers start", str(error))]}
        return found | serverless.result()


def _all_of(groups: dict[str, Finder]) -> dict[str, list[Finding]]:
    """Run several groups concurrently."""
    with ThreadPoolExecutor(len(groups)) as threads:
        futures = {name: threads.submit(_safely, function) for name, function in groups.items()}
        return {name: future.result() for name, future in futures.items()}


def _safely(function: Finder) -> list[Finding]:
    try:
        return function()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return [Finding("the checks run", str(error))]


@contextmanager
def _served(command: list[str]) -> Iterator[str]:
    """Run a server for the duration of the block; yield the address that it prints."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    timeout = threading.Timer(SLOW_S, process.kill)
    timeout.start()
    try:
        url = process.stdout.readline().strip()
        if not url.startswith("http"):
            raise RuntimeError(f"{' '.join(command[1:])} printed no address: {url!r}")
        yield url
    finally:
        timeout.cancel()
        process.stdin.close()  # it exits at the end of its input
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _run_checks(command: list[str], **environment: str) -> list[Finding]:
    """Run a script of checks; return its findings."""
    done = _run(command, environment)
    found: list[Finding] = []
    finished = None
    for line in done.stdout.splitlines():
        result = json.loads(line) if line.startswith("{") else {}
        if "check" in result:
            found.append(Finding(result["check"], result["problem"]))
        finished = result.get("finished", finished)
    if finished is None or finished != len(found) or not found:
        last = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        found.append(Finding("all checks run", f"{command[2]} exited early: {last}"))
    return found


def _validated(python: str, url: str) -> list[Finding]:
    done = _run([str(Path(python).with_name("openenv")), "validate", "--url", url], {})
    lines = [line.strip() for line in done.stdout.splitlines()]
    wrong = [line for line in lines if line.startswith(("FAIL", "ERROR", "WARN"))]
    passed = sum(line.startswith("PASS") for line in lines)
    problem = ""
    if done.returncode or wrong or not passed:
        problem = "; ".join(wrong) or f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"
    return [Finding(f"openenv validate --url: {passed} criteria", problem)]


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=SLOW_S,
        check=False,
    )


def _table(groups: dict[str, list[Finding]]) -> Table:
    table = Table(title_justify="left", show_lines=False)
    table.add_column("")
    table.add_column("check", ratio=3)
    table.add_column("result", ratio=2)
    for name, found in groups.items():
        for number, finding in enumerate(found):
            result = f"[red]failed:[/] {_escape(finding.problem)}" if finding.problem else "passed"
            table.add_row("" if number else name, _escape(finding.check), result)
        table.add_section()
    return table


def _escape(text: str) -> str:
    return text.replace("[", r"\[")


if __name__ == "__main__":
    sys.exit(main())
