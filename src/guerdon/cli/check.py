"""``guerdon check``: what an environment's author runs first."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from guerdon.cli.consoles import console
from guerdon.errors import LoadError

__all__ = ["check"]

MARKS = {"ok": "[green]ok[/]", "problem": "[bold red]problem[/]", "note": "[yellow]note[/]"}


def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="ENV",
            show_default=False,
            help="A folder with an environment.py, [bold]file.py:name[/bold], "
            "[bold]module:name[/bold], or a registered name.",
        ),
    ],
    actions: Annotated[
        Path | None,
        typer.Option(
            "--actions",
            metavar="F.jsonl",
            show_default=False,
            help="Actions to play, one a line; by default they are made up from the action class.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="What to reset with.")] = 0,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps to play at most.")] = 20,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", help="Seconds that each call may take.")
    ] = 60.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was found as JSON, for scripts.")
    ] = False,
) -> None:
    """Look for what makes an environment unfit for training.

    A missing rubric; a reward outside its declared range; a seed that doesn't make it repeatable;
    an observation that doesn't survive JSON; state that two instances share; a reset that keeps
    the old trajectory; a step after the end that is neither refused nor documented.

    [bold]Exit codes[/bold]: 0, nothing to mend. 1, there are problems. 2, there is no such
    environment.
    """  # fmt: skip
    from guerdon.envs.checking import check_environment
    from guerdon.envs.finding import find_environment

    given = _read(actions) if actions is not None else None
    with contextlib.redirect_stdout(sys.stderr):  # what the environment prints is no report
        factory = find_environment(target)
        report = check_environment(
            factory, actions=given, seed=seed, steps=steps, timeout_s=timeout
        )
    if as_json:
        lines = [
            {"check": line.name, "status": line.status, "said": line.detail}
            for line in report.lines
        ]
        print(json.dumps({"ok": report.ok, "checks": lines}, indent=2))
    else:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_header=False)
        for line in report.lines:
            table.add_row(MARKS[line.status], escape(line.name), escape(line.detail))
        console().print(table)
    if not report.ok:
        raise typer.Exit(1)


def _read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}", spec=str(path)) from error
    except UnicodeDecodeError as error:
        raise LoadError(f"{path} isn't UTF-8: {error}", spec=str(path)) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            action = json.loads(line)
        except ValueError as error:
            raise LoadError(f"{path}, line {number}: {error}", spec=str(path)) from error
        if not isinstance(action, dict):
            raise LoadError(f"{path}, line {number}: an action is an object", spec=str(path))
        found.append(action)
    return found
