"""``guerdon validate``: whether a reward's file can be meant, and a rubric made of each entry."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from guerdon.cli.consoles import plain
from guerdon.errors import RewardConfigError

if TYPE_CHECKING:
    from guerdon.config.documents import Document
    from guerdon.services.client import MCPClient

__all__ = ["validate"]


def validate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="REWARD.yaml",
            show_default=False,
            help="The reward's file: JSON where it ends in .json, YAML otherwise.",
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was found as JSON, for scripts.")
    ] = False,
) -> None:
    """Look for mistakes in a reward's file, and tell them all.

    Each with its line, what was wrong, and what would be accepted. Every rubric is imported and
    made, as it would be for an environment. Services aren't called.

    [bold]Exit codes[/bold]: 0, the file is fine. 1, there are mistakes. 2, it can't be read.
    """
    with contextlib.redirect_stdout(sys.stderr):  # what a rubric's module prints is no report
        problems, fingerprint = _checked(file)
    if as_json:
        told = {"ok": not problems, "problems": problems, "fingerprint": fingerprint}
        print(json.dumps(told, indent=2))
    else:
        for each in problems:
            print("\n".join(map(plain, each.split("\n"))))
        if not problems:
            print(f"{plain(str(file))}: OK\nreward {fingerprint}")
    if problems:
        raise typer.Exit(1)


def _checked(file: Path) -> tuple[list[str], str | None]:
    """The mistakes of a file, or the fingerprint of the reward that it describes."""
    from guerdon.config.checking import problems_of_document
    from guerdon.config.config import RewardConfig
    from guerdon.config.pipeline import RewardPipeline
    from guerdon.config.reading import read_document

    try:
        document = read_document(file)
        mcp = _services(document)
        try:
            problems = problems_of_document(document, mcp=mcp)
        finally:
            if mcp is not None:
                mcp.close()
        if problems:
            raise document.error(problems)
        with RewardPipeline(RewardConfig.from_document(document)) as pipeline:
            return [], pipeline.make().fingerprint()
    except RewardConfigError as error:
        if isinstance(error.__cause__, OSError):  # there is nothing to have mistakes
            raise
        return list(error.problems), None


def _services(document: Document) -> MCPClient | None:
    """The services of a file, as far as they can be meant."""
    from pydantic import TypeAdapter, ValidationError

    from guerdon.services.client import MCPClient
    from guerdon.services.config import ServiceConfig

    adapter: TypeAdapter[Any] = TypeAdapter(ServiceConfig)
    said = document.data.get("mcp_services") if isinstance(document.data, dict) else None
    services = {}
    for name, each in said.items() if isinstance(said, dict) else ():
        with contextlib.suppress(ValidationError):  # which is told with the file's other mistakes
            services[name] = adapter.validate_python(each)
    return MCPClient(services) if services else None
