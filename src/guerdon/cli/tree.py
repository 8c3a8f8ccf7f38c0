"""``guerdon tree``: what a reward is made of."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from guerdon.cli.consoles import console
from guerdon.functions.loading import load_reward
from guerdon.rubrics.rubric import Rubric

__all__ = ["describe", "tree"]


def tree(
    reward: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            show_default=False,
            help="The reward, as [bold]file.py:name[/bold] or [bold]module:name[/bold].",
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the tree as JSON, for scripts.")
    ] = False,
) -> None:
    """Print the tree of a reward.

    What each rubric measures, the range of its score, its weight, and what it depends on: what
    has to hold before it is evaluated, and what it reads beside the action.
    """  # fmt: skip
    rubric = load_reward(reward)
    nodes = list(describe(rubric))
    if as_json:
        print(json.dumps({"fingerprint": rubric.fingerprint(), "tree": nodes}, indent=2))
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("rubric", "measures", "range", "weight", "depends on"):
        table.add_column(heading, justify="right" if heading in ("range", "weight") else "left")
    for node in nodes:
        depth = node["path"].count(".") + 1 if node["path"] else 0
        name = node["path"].rpartition(".")[2] or "reward"
        table.add_row(
            "  " * depth + f"{escape(name)}  [dim]{escape(node['rubric'])}[/]",
            escape(node["measures"] or "–"),
            "–" if node["range"] is None else "[{:g}, {:g}]".format(*node["range"]),
            "" if node["weight"] is None else f"{node['weight']:g}",
            escape("; ".join(node["depends_on"])),
        )
    out = console()
    out.print(table)
    out.print(f"reward {rubric.fingerprint()}", highlight=False)


def describe(
    rubric: Rubric, path: str = "", parent: Rubric | None = None
) -> Iterator[dict[str, Any]]:
    """What there is to say of each rubric of a tree, depth first."""
    name = path.rpartition(".")[2]
    needs = [parent._needs(name)] if parent is not None else []
    if rubric._is_trajectory:
        needs.append("the whole episode")
    if parent is not None and parent._dispatches:
        needs.append(f"its parent choosing {name!r}")
    declared = rubric._range()
    yield {
        "path": path,
        "rubric": rubric._title(),
        "measures": _first_line(rubric._described()),
        "range": list(declared) if declared is not None else None,
        "weight": parent._weight_of(name) if parent is not None else None,
        "depends_on": [need for need in (*needs, *rubric.reads) if need],
        "async": rubric._look().is_async,
    }
    for child_name, child in rubric.named_children():
        yield from describe(child, f"{path}.{child_name}" if path else child_name, rubric)


def _first_line(thing: object) -> str | None:
    doc = getattr(thing, "__doc__", None)
    return inspect.cleandoc(doc).partition("\n")[0] if doc else None
