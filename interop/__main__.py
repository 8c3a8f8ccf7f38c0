"""``python -m interop``: try everything, and print one table; 1 where something is wrong."""

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
SLOW_S = 90.0  # seconds after which what hangs is given up


class Finding(NamedTuple):
    """What came of a check; no problem is ``""``."""

    check: str
    problem: str


Finder: TypeAlias = Callable[[], list[Finding]]


def main() -> int:
    """Try everything."""
    console = Console(width=None if Console().is_terminal else 160)
    with console.status("installing openenv"):
        python, missing = openenv_home.make()
    if missing:
        console.print(f"openenv {openenv_home.VERSION} is not installed: {missing}", markup=False)
        return 1
    start = perf_counter()
    with console.status("trying"):
        groups = _try_all(python)
    bad = sum(bool(finding.problem) for found in groups.values() for finding in found)
    console.print(_table(groups))
    count = sum(map(len, groups.values()))
    verdict = f"{bad} of {count} are wrong" if bad else f"all {count} are right"
    console.print(
        f"{verdict}; openenv {openenv_home.VERSION}, {perf_counter() - start:.0f} s",
        highlight=False,
    )
    return 1 if bad else 0


def _try_all(python: str) -> dict[str, list[Finding]]:
    """Every group of checks, on one server of each kind."""

    def on_their_python(module: str, *urls: str) -> Finder:
        source = {"PYTHONPATH": str(ROOT / "src")}
        return lambda: _ask([python, "-m", f"interop.theirs.{module}", *urls], **source)

    def on_our_python(module: str, *urls: str) -> Finder:
        return lambda: _ask([sys.executable, "-m", f"interop.{module}", *urls])

    def on_servers() -> dict[str, list[Finding]]:
        with (
            _served([sys.executable, "-m", "interop.echo_environment"]) as ours,
            _served([python, "-m", "interop.theirs.server"]) as theirs,
        ):
            # Some fill a server up, so only those run side by side that use different ones.
            clients = {
                "their clients, our server": on_their_python("clients", ours),
                "our clients, their server": on_our_python("ours", theirs),
            }
            worker = {
                "their gate, our server": lambda: _validated(python, ours),
                "our worker, what is theirs": on_their_python("rollouts", theirs, ours),
            }
            rest = {"our worker, their server": on_our_python("rollouts", theirs)}
            return _all_of(clients) | _all_of(worker) | _all_of(rest)

    with ThreadPoolExecutor(1) as thread:  # needs no server, so it fills the time of their start
        rubrics = thread.submit(_all_of, {"rubrics": on_their_python("trees")})
        try:
            found = on_servers()
        except (OSError, RuntimeError) as error:
            found = {"servers": [Finding("they run at all", str(error))]}
        return found | rubrics.result()


def _all_of(groups: dict[str, Finder]) -> dict[str, list[Finding]]:
    """What several groups find, all at the same time."""
    with ThreadPoolExecutor(len(groups)) as threads:
        futures = {name: threads.submit(_safely, function) for name, function in groups.items()}
        return {name: future.result() for name, future in futures.items()}


def _safely(function: Finder) -> list[Finding]:
    try:
        return function()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return [Finding("it runs at all", str(error))]


@contextmanager
def _served(command: list[str]) -> Iterator[str]:
    """A server that prints its address, for as long as the block lasts."""
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
    late = threading.Timer(SLOW_S, process.kill)
    late.start()
    try:
        url = process.stdout.readline().strip()
        if not url.startswith("http"):
            raise RuntimeError(f"{' '.join(command[1:])} said no address: {url!r}")
        yield url
    finally:
        late.cancel()
        process.stdin.close()  # it ends with its input
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _ask(command: list[str], **environment: str) -> list[Finding]:
    """What a script of checks finds."""
    done = _run(command, environment)
    found: list[Finding] = []
    finished = None
    for line in done.stdout.splitlines():
        said = json.loads(line) if line.startswith("{") else {}
        if "check" in said:
            found.append(Finding(said["check"], said["problem"]))
        finished = said.get("finished", finished)
    if finished is None or finished != len(found) or not found:
        last = (done.stderr.strip().splitlines() or ["without a word"])[-1]
        found.append(Finding("it runs to its end", f"{command[2]} ended early: {last}"))
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
            result = f"[red]wrong:[/] {_plain(finding.problem)}" if finding.problem else "right"
            table.add_row("" if number else name, _plain(finding.check), result)
        table.add_section()
    return table


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


if __name__ == "__main__":
    sys.exit(main())
