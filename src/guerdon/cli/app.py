"""The ``guerdon`` command: what it offers, and how it says what went wrong."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

import guerdon
from guerdon.cli.score import score
from guerdon.cli.tree import tree
from guerdon.errors import GuerdonError, SpecError

__all__ = ["app", "main"]

HELP = """
Rewards for agents that learn, with every number traceable.

A reward is a tree of small rubrics. Write it in Python, and name it as [bold]file.py:name[/bold]
or [bold]module:name[/bold]: a rubric, a rubric class, a factory, or a function
f(action, observation) -> float.

[bold]See what a reward is made of[/bold]
  guerdon tree reward.py:reward

[bold]Score what a model has written[/bold]
  guerdon score rollouts.jsonl --reward reward.py:reward --out scored.jsonl

A failure is never a score of 0: rows that fail say why, are counted apart, and make the command
exit with 1.
"""

app = typer.Typer(
    name="guerdon",
    help=HELP,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(no_args_is_help=True)(score)
app.command(no_args_is_help=True)(tree)


def _version(asked: bool) -> None:
    if asked:
        print(f"guerdon {guerdon.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Take the options of the command itself."""


app.info.help = HELP


def main() -> NoReturn:
    """Run the command, and exit: 0 done, 1 rows failed, 2 it could not be done, 130 ctrl-C."""
    try:
        app(standalone_mode=True)
    except BrokenPipeError:
        # The reader has left (`| head`): nothing more to say, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except GuerdonError as error:
        _tell(error)
        sys.exit(2)
    sys.exit(0)


def _tell(error: GuerdonError) -> None:
    console = Console(stderr=True, soft_wrap=True)
    if isinstance(error, SpecError) and error.traceback:
        console.print(error.traceback, markup=False, highlight=False, end="")
    line = getattr(error, "line", None)
    where = f"line {line}: " if line is not None else ""
    console.print(f"[bold red]error:[/] {escape(where + str(error))}", highlight=False)
