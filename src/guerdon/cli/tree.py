"""``guerdon tree``: what a reward is made of."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from guerdon.cli.consoles import console
from guerdon.config.pipeline import is_pipeline_file, open_reward
from guerdon.config.schema import RewardConfig
from guerdon.rubrics.description import describe
from guerdon.rubrics.function import as_rubric
from guerdon.rubrics.rubric import Rubric

__all__ = ["tree"]


def tree(
    reward: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            show_default=False,
            help="The reward, as [bold]reward.yaml[/bold], [bold]file.py:name[/bold] or "
            "[bold]module:name[/bold].",
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
    with open_reward(reward, check=False) as found:
        _print(as_rubric(found), _moving(reward), as_json)


def _moving(reward: str) -> dict[str, Any]:
    """The schedules of a pipeline by the names of entries, and its curriculum."""
    if not is_pipeline_file(reward):
        return {}
    config = RewardConfig.from_file(reward)
    moving: dict[str, Any] = {
        each.name: each.schedule.to_spec() for each in config.entries if each.schedule is not None
    }
    stages = [stage.name for stage in config.curriculum or ()]
    return {"schedules": moving, **({"stages": stages} if stages else {})}


def _print(rubric: Rubric, moving: dict[str, Any], as_json: bool) -> None:
    nodes = list(describe(rubric))
    if as_json:
        print(json.dumps({"fingerprint": rubric.fingerprint(), "tree": nodes} | moving, indent=2))
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
    for name, spec in moving.get("schedules", {}).items():
        by = spec["by"].replace("_", " ")
        [(kind, points)] = [item for item in spec.items() if item[0] != "by"]
        line = f"weight of {name} moves by {by}: {kind} {json.dumps(points)}"
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if "stages" in moving:
        line = f"weights go by stages: {', '.join(moving['stages'])}"
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    out.print(f"reward {rubric.fingerprint()}", highlight=False)
