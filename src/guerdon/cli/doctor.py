"""``guerdon doctor``: what this machine holds untrusted code by."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from guerdon.cli.consoles import console, plain

if TYPE_CHECKING:
    from guerdon.sandbox.finding import Finding

__all__ = ["doctor"]

NONE = "nothing: the code runs in this process; for code that you wrote"


@dataclass(frozen=True, slots=True)
class Level:
    """What was found out about a level.

    Attributes:
        works: Whether it does, here.
        promise: What it holds.
        missing: Why it doesn't work, with what mends it.
        findings: What was tried, and how it ended.
        facts: What was found out about the machine.
    """

    works: bool
    promise: str
    missing: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was found as JSON, for scripts.")
    ] = False,
) -> None:
    """Probe what this machine can hold untrusted code by.

    It attacks the machine from inside a sandbox, without harm and as the user that you are, and
    tells which attacks were held.

    [bold]Exit codes[/bold]: 0, strict works, which --sandbox auto takes. 1, it doesn't, and the
    table tells what mends it.
    """  # fmt: skip
    from guerdon.sandbox.local.levels import PROCESS, STRICT

    levels = {"none": Level(True, NONE)}
    levels |= {each.name: _probed(each.name, each.promise) for each in (PROCESS, STRICT)}
    levels |= {name: _plug_in(name) for name in _plug_ins()}
    works, machine = levels["strict"].works, _asking() | dict(levels["strict"].facts)
    if as_json:
        told = {name: asdict(level) for name, level in levels.items()}
        print(json.dumps({"ok": works, "machine": machine, "levels": told}, indent=2))
    else:
        out = console()
        for table in (*_tables(levels), _facts(machine)):
            out.print(table)
    if not works:
        raise typer.Exit(1)


def _probed(name: str, promise: str) -> Level:
    from guerdon.sandbox.probing import probe

    found = probe(name)
    open_ways = [f"{each.name}: {each.said}" for each in found.findings if not each.held]
    missing = (*found.missing, *open_ways)
    return Level(found.works, promise, missing, found.findings, found.facts)


def _asking() -> dict[str, str]:
    """Who asks, and with which Python: what works for one need not work for another."""
    user = os.geteuid() if hasattr(os, "geteuid") else None  # Windows has none
    told = {} if user is None else {"you are": "root" if user == 0 else f"user {user}"}
    return told | {"Python": f"{platform.python_version()}, {sys.executable}"}


def _plug_ins() -> list[str]:
    from importlib.metadata import entry_points

    from guerdon.sandbox.opening import PLUG_INS

    return sorted(entry_points(group=PLUG_INS).names)


def _plug_in(name: str) -> Level:
    """A level of another package: it works where a program runs in it."""
    from guerdon.sandbox.opening import open_sandbox

    try:
        with open_sandbox(name) as sandbox:
            ran = sandbox.run("print(6 * 7)")
    except Exception as error:  # whatever another package raises
        return Level(False, "", (f"{type(error).__name__}: {error}",))
    if (ran.ending, ran.stdout) != ("ok", "42\n"):
        return Level(False, sandbox.promise, (f"a program ended with {ran.ending}: {ran.detail}",))
    return Level(True, sandbox.promise)


def _tables(levels: Mapping[str, Level]) -> Iterator[Table]:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("level", "works", "holds"):
        table.add_column(heading, overflow="fold")
    for name, level in levels.items():
        works = "[green]yes[/]" if level.works else "[bold red]no[/]"
        table.add_row(Text(plain(name)), works, Text(plain(level.promise)))
        for line in level.missing:
            table.add_row("", "", Text(plain(line)))
    yield table
    for name, level in levels.items():
        if level.findings:
            yield _attacks(name, level.findings)


def _attacks(name: str, findings: tuple[Finding, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in (f"tried in {name}", "", "it says"):
        table.add_column(heading, overflow="fold")
    for each in findings:
        mark = "[green]held[/]" if each.held else "[bold red]OPEN[/]"
        table.add_row(Text(plain(each.name)), mark, Text(plain(each.said)))
    return table


def _facts(facts: Mapping[str, str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("this machine")
    table.add_column("", overflow="fold")
    for name, said in facts.items():
        table.add_row(Text(plain(name)), Text(plain(said)))
    return table
