"""The ``guerdon`` command: its subcommands, and how exceptions become messages and exit codes."""

from __future__ import annotations

import importlib
import inspect
import io
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from rich.markup import escape
from typer.core import TyperGroup

import guerdon
from guerdon._logging import plain
from guerdon.cli.console import console
from guerdon.cli.options import ExitCode
from guerdon.errors import GuerdonError, LoadError, SandboxUnavailableError, ScoringError

HELP = Path(__file__).with_name("help.txt").read_text(encoding="utf-8")

COMMANDS = (
    *("score", "diff", "view", "tree", "validate", "schema", "new", "check", "serve"),
    *("judge-server", "arena", "doctor"),
)
"""The subcommands, in the order of the help; the module and the function have its name."""


class _Group(TyperGroup):
    """The subcommands; each is imported when it is used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"guerdon.cli.{name}"), name)
        single = typer.Typer(rich_markup_mode="rich", add_completion=False)
        help, is_bare = _unwrapped(command.__doc__), name in ("arena", "doctor", "schema")
        single.command(cmd_name, help=help, no_args_is_help=not is_bare)(command)
        return typer.main.get_command(single)


app = typer.Typer(
    name="guerdon",
    cls=_Group,
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


def _version(requested: bool) -> None:
    if requested:
        print(f"guerdon {guerdon.__version__}")
        raise typer.Exit


@app.callback(help=HELP)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command, and exit with an `ExitCode`."""
    logging.getLogger("guerdon").addHandler(_Warnings(sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Text from a file may have characters that no encoding has: they are escaped.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(standalone_mode=True)
    except BrokenPipeError:
        _silence(sys.stdout)  # the reader left, as `| head` does
        sys.exit(ExitCode.BROKEN_PIPE)
    except GuerdonError as error:
        _print_error(error)
        sys.exit(ExitCode.ERROR)
    except OSError as error:
        if error.errno is None or error.filename is not None:  # not an error of a stream
            _print_error(ScoringError(f"{type(error).__name__}: {error}"))
        else:
            _print_error(ScoringError(f"can't write to standard output: {error.strerror}"))
            _silence(sys.stdout)
        sys.exit(ExitCode.ERROR)
    sys.exit(ExitCode.OK)


class _Warnings(logging.StreamHandler[TextIO]):
    """Prints the warnings of reading a reward file, unless another handler does.

    Failures that a reward handles are logged too, and are in the summary instead.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        is_only = logging.getLogger("guerdon").handlers == [self]
        return is_only and record.name == "guerdon.config"

    def format(self, record: logging.LogRecord) -> str:
        return f"warning: {plain(record.getMessage())}"


def _silence(stream: TextIO) -> None:
    """Discard what is left in the buffer of a stream, also at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print_error(error: GuerdonError) -> None:
    err = console(stderr=True)
    if isinstance(error, LoadError) and error.traceback:
        text = _escaped(error.traceback.rstrip("\n"))
        err.print(text, markup=False, highlight=False, soft_wrap=True)
    line = getattr(error, "line", None)
    where = f"line {line}: " if line is not None else ""
    text = f"[bold red]error:[/] {escape(_escaped(where + str(error)))}"
    err.print(text, highlight=False, soft_wrap=True)
    if isinstance(error, SandboxUnavailableError):
        for each in error.missing:
            if each not in str(error):
                err.print(f"  {each}", markup=False, highlight=False, soft_wrap=True)
        err.print("run `guerdon doctor` to see what works on this machine", highlight=False)


def _escaped(text: str) -> str:
    """Lines of text, which may come out of a sandbox, with control characters escaped."""
    return "\n".join(map(plain, text.split("\n")))
