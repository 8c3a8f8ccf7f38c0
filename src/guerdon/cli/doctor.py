"""``guerdon doctor``: which sandboxes work on this machine."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from guerdon.cli import options
from guerdon.cli.console import cell, print_parts, table

if TYPE_CHECKING:
    from guerdon.sandbox import Finding

__all__ = ["doctor"]

NONE = "nothing: the code runs in this process; for code that you wrote"


@dataclass(frozen=True, slots=True)
class Level:
    """An isolation level on this machine.

    Attributes:
        works: Whether it works.
        promise: What it protects against.
        missing: Why it doesn't work, and how to fix that.
        findings: What was tried, and the outcome.
        facts: Facts about the machine.
    """

    works: bool
    promise: str
    missing: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def doctor(as_json: options.AsJson = False) -> None:
    """Check which sandboxes for untrusted code work on this machine.

    It attacks the machine from inside a sandbox, harmlessly and as the current user, and reports
    which attacks were blocked.

    [bold]Exit codes[/bold]: 0, strict works, which --sandbox auto uses. 1, it doesn't, and the
    table shows how to fix that.
    """  # fmt: skip
    from guerdon.sandbox.levels import PROCESS, STRICT
    from guerdon.sandbox.opening import PLUG_INS

    levels = {"none": Level(True, NONE)}
    levels |= {each.name: _probed(each.name, each.promise) for each in (PROCESS, STRICT)}
    levels |= {name: _plug_in(name) for name in PLUG_INS.names()}
    works, machine = levels["strict"].works, _interpreter() | dict(levels["strict"].facts)
    if as_json:
        data = {name: asdict(level) for name, level in levels.items()}
        print(json.dumps({"ok": works, "machine": machine, "levels": data}, indent=2))
    else:
        print_parts(_tables(levels, machine))
    if not works:
        raise typer.Exit(options.ExitCode.FAILED)


def _probed(name: str, promise: str) -> Level:
    from guerdon.sandbox.opening import probe

    found = probe(name)
    open_ways = [f"{each.name}: {each.detail}" for each in found.findings if not each.held]
    missing = (*found.missing, *open_ways)
    return Level(found.works, promise, missing, found.findings, found.facts)


def _interpreter() -> dict[str, str]:
    """The user and the Python, on which it depends what works."""
    user = os.geteuid() if hasattr(os, "geteuid") else None  # absent on Windows
    facts = {} if user is None else {"you are": "root" if user == 0 else f"user {user}"}
    return facts | {"Python": f"{platform.python_version()}, {sys.executable}"}


def _plug_in(name: str) -> Level:
    """The level of another package, which works if a program runs in it."""
    from guerdon.sandbox.opening import open_sandbox

    try:
        with open_sandbox(name) as sandbox:
            ran = sandbox.run("print(6 * 7)")
    except Exception as error:  # another package may raise anything
        return Level(False, "", (f"{type(error).__name__}: {error}",))
    if (ran.ending, ran.stdout) != ("ok", "42\n"):
        return Level(False, sandbox.promise, (f"a program ended with {ran.ending}: {ran.detail}",))
    return Level(True, sandbox.promise)


def _tables(levels: Mapping[str, Level], machine: Mapping[str, str]) -> Iterator[Table]:
    found = table("level", "works", "holds")
    for name, level in levels.items():
        works = "[green]yes[/]" if level.works else "[bold red]no[/]"
        found.add_row(cell(name), works, cell(level.promise))
        for line in level.missing:
            found.add_row("", "", cell(line))
    yield found
    for name, level in levels.items():
        if not level.findings:
            continue
        attacks = table(f"tried in {name}", "", "detail")
        for each in level.findings:
            mark = "[green]held[/]" if each.held else "[bold red]OPEN[/]"
            attacks.add_row(cell(each.name), mark, cell(each.detail))
        yield attacks
    facts = table("this machine", "")
    for name, value in machine.items():
        facts.add_row(cell(name), cell(value))
    yield facts
