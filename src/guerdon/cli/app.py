"""The ``guerdon`` command: what it offers, and how it says what went wrong."""

from __future__ import annotations

import inspect
import io
import logging
import os
import sys
from typing import Annotated, NoReturn, TextIO

import typer
from rich.markup import escape

import guerdon
from guerdon.cli.check import check
from guerdon.cli.consoles import console, plain
from guerdon.cli.diff import diff
from guerdon.cli.doctor import doctor
from guerdon.cli.judge_server import judge_server
from guerdon.cli.new import new
from guerdon.cli.schema import schema
from guerdon.cli.score import score
from guerdon.cli.serve import serve
from guerdon.cli.tree import tree
from guerdon.cli.validate import validate
from guerdon.errors import GuerdonError, LoadError, SandboxUnavailableError, ScoringError

__all__ = ["app", "main"]

HELP = """Rewards for agents that learn, with every number traceable.

A reward is a tree of small rubrics. Commands take it as [bold]file.py:name[/] or \
[bold]module:name[/], where the name is that of a rubric, a rubric class, a factory, or a function \
f(action, observation) -> float; or as [bold]reward.yaml[/], a pipeline of such rubrics with their \
weights.

[bold]See what a reward is made of[/]
  guerdon tree reward.py:reward

[bold]Score what models have written[/]
  guerdon score rollouts.jsonl --reward reward.py:reward --out scored.jsonl

[bold]Check a reward that is written in a file, and compare two[/]
  guerdon validate reward.yaml
  guerdon diff old.yaml new.yaml rollouts.jsonl

[bold]Build an environment, and serve it[/]
  guerdon new my_env
  guerdon check my_env
  guerdon serve my_env

[bold]See what untrusted code is held by on this machine[/]
  guerdon doctor

A failure is never a score of 0: rows that fail are counted apart, say why, and make the command \
exit with 1.
"""

app = typer.Typer(
    name="guerdon",
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _unwrapped(doc: str | None) -> str:
    """A docstring with each paragraph on one line, for the terminal to wrap."""
    paragraphs = inspect.cleandoc(doc or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)


for command in (score, diff, tree, validate, schema, new, check, serve, judge_server, doctor):
    alone = command in (doctor, schema)  # the others do nothing without an argument
    app.command(help=_unwrapped(command.__doc__), no_args_is_help=not alone)(command)


def _version(asked: bool) -> None:
    if asked:
        print(f"guerdon {guerdon.__version__}")
        raise typer.Exit


@app.callback(help=HELP)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command, and exit.

    0: done. 1: rows failed. 2: it could not be done. 130: ctrl-C. 141: the reader has left.
    """
    logging.getLogger("guerdon").addHandler(_Warnings(sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What comes from a file may hold what no encoding can: it is told as its escape.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(standalone_mode=True)
    except BrokenPipeError:
        _silence(sys.stdout)  # the reader has left, as `| head` does: nothing more to say
        sys.exit(141)
    except GuerdonError as error:
        _tell(error)
        sys.exit(2)
    except OSError as error:
        if error.errno is None or error.filename is not None:  # not of a stream
            _tell(ScoringError(f"{type(error).__name__}: {error}"))
            sys.exit(2)
        _tell(ScoringError(f"can't write to standard output: {error.strerror}"))
        _silence(sys.stdout)
        sys.exit(2)
    sys.exit(0)


class _Warnings(logging.StreamHandler[TextIO]):
    """Tells the warnings of reading a reward's file, where nothing else tells what is logged.

    Not the rest: failures that a reward deals with are counted in the summary.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        is_alone = logging.getLogger("guerdon").handlers == [self]
        return is_alone and record.name == "guerdon.config"

    def format(self, record: logging.LogRecord) -> str:
        return f"warning: {plain(record.getMessage())}"


def _silence(stream: TextIO) -> None:
    """Let what is still in a stream's buffer go nowhere, also at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tell(error: GuerdonError) -> None:
    err = console(stderr=True)
    if isinstance(error, LoadError) and error.traceback:
        err.print(_lines(error.traceback), markup=False, highlight=False, soft_wrap=True, end="")
    line = getattr(error, "line", None)
    where = f"line {line}: " if line is not None else ""
    text = f"[bold red]error:[/] {escape(_lines(where + str(error)))}"
    err.print(text, highlight=False, soft_wrap=True)
    if isinstance(error, SandboxUnavailableError):
        for each in error.missing:
            if each not in str(error):
                err.print(f"  {each}", markup=False, highlight=False, soft_wrap=True)
        err.print("`guerdon doctor` tells what this machine can hold", highlight=False)


def _lines(text: str) -> str:
    """Text that may come out of a sandbox, with what would steer a terminal told as its escape."""
    return "\n".join(map(plain, text.split("\n")))
