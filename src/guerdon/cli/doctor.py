"""``guerdon doctor``: which sandboxes work on this machine."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from guerdon.cli import options
from guerdon.cli.console import cell, print_json, print_parts, table

if TYPE_CHECKING:
    from guerdon.sandbox import Probe

NONE = "nothing: the code runs in this process; for code that you wrote"


def doctor(as_json: options.AsJson = False) -> None:
    """Check which sandboxes for untrusted code work on this machine.

    It attacks the machine from inside a sandbox, harmlessly and as the current user, and reports
    which attacks were blocked.

    [bold]Exit codes[/bold]: 0, strict works, which --sandbox auto uses. 1, it doesn't, and the
    table shows how to fix that.
    """  # fmt: skip
    from guerdon.sandbox.levels import PROCESS, STRICT
    from guerdon.sandbox.opening import PLUG_INS, Probe

    levels = {"none": (NONE, Probe("none", True))}
    levels |= {each.name: (each.promise, _probed(each.name)) for each in (PROCESS, STRICT)}
    levels |= {name: _plug_in(name) for name in PLUG_INS.names()}
    _, strict = levels["strict"]
    user = os.geteuid() if hasattr(os, "geteuid") else None  # absent on Windows
    machine = {} if user is None else {"you are": "root" if user == 0 else f"user {user}"}
    machine["Python"] = f"{platform.python_version()}, {sys.executable}"
    machine |= strict.facts
    if as_json:
        data = {
            name: {"promise": promise, **asdict(found)} for name, (promise, found) in levels.items()
        }
        print_json({"ok": strict.works, "machine": machine, "levels": data})
    else:
        print_parts(_tables(levels, machine))
    if not strict.works:
        raise typer.Exit(options.ExitCode.FAILED)


def _probed(name: str) -> Probe:
    from guerdon.sandbox.opening import probe

    found = probe(name)
    open_ways = [f"{each.name}: {each.detail}" for each in found.findings if not each.blocked]
    return replace(found, missing=(*found.missing, *open_ways))


def _plug_in(name: str) -> tuple[str, Probe]:
    """The promise of a level of another package, which works if a program runs in it."""
    from guerdon.sandbox.opening import Probe, open_sandbox

    try:
        with open_sandbox(name) as sandbox:
            ran = sandbox.run("print(6 * 7)")
    except Exception as error:  # another package may raise anything
        return "", Probe(name, False, (f"{type(error).__name__}: {error}",))
    if (ran.ending, ran.stdout) != ("ok", "42\n"):
        why = f"a program ended with {ran.ending}: {ran.detail}"
        return sandbox.promise, Probe(name, False, (why,))
    return sandbox.promise, Probe(name, True)


def _tables(levels: Mapping[str, tuple[str, Probe]], machine: Mapping[str, str]) -> Iterator[Table]:
    found = table("level", "works", "promise")
    for name, (promise, level) in levels.items():
        works = "[green]yes[/]" if level.works else "[bold red]no[/]"
        found.add_row(cell(name), works, cell(promise))
        for line in level.missing:
            found.add_row("", "", cell(line))
    yield found
    for name, (_, level) in levels.items():
        if not level.findings:
            continue
        attacks = table(f"tried in {name}", "", "detail")
        for each in level.findings:
            mark = "[green]blocked[/]" if each.blocked else "[bold red]OPEN[/]"
            attacks.add_row(cell(each.name), mark, cell(each.detail))
        yield attacks
    facts = table("this machine", "")
    for name, value in machine.items():
        facts.add_row(cell(name), cell(value))
    yield facts
