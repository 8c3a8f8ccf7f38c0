"""``guerdon validate``: report every mistake in a reward's file."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from guerdon._logging import plain
from guerdon.cli import options
from guerdon.cli.console import print_json
from guerdon.errors import RewardConfigError


def validate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="REWARD.yaml",
            show_default=False,
            help="The reward's file: JSON if its name ends in .json, YAML otherwise.",
        ),
    ],
    services: options.Services = None,
    as_json: options.AsJson = False,
) -> None:
    """Report every mistake in a reward's file.

    Each with its line, what is wrong, and what is accepted. Every rubric is imported and built as
    for an environment. Services are not called.

    [bold]Exit codes[/bold]: 0, the file is valid. 1, it has mistakes. 2, it can't be read.
    """
    with contextlib.redirect_stdout(sys.stderr):  # what a rubric's module prints is not the report
        problems, fingerprint = _check(file, services)
    if as_json:
        result = {"ok": not problems, "problems": problems, "fingerprint": fingerprint}
        print_json(result)
    else:
        for each in problems:
            print("\n".join(map(plain, each.split("\n"))))
        if not problems:
            print(f"{plain(str(file))}: OK\nreward {fingerprint}")
    if problems:
        raise typer.Exit(options.ExitCode.FAILED)


def _check(file: Path, services: str | None) -> tuple[list[str], str | None]:
    """The mistakes of a file, or the fingerprint of its reward."""
    from guerdon.config.builder import check_document
    from guerdon.config.loader import read_document
    from guerdon.config.pipeline import RewardPipeline, open_services
    from guerdon.config.schema import RewardConfig

    with open_services(services) as mcp:
        try:
            document = read_document(file)
            problems = check_document(document, mcp=mcp)
            if problems:
                raise document.error(problems)
            with RewardPipeline(RewardConfig.from_document(document), mcp=mcp) as pipeline:
                return [], pipeline.make().fingerprint()
        except RewardConfigError as error:
            if isinstance(error.__cause__, OSError):
                raise
            return list(error.problems), None
