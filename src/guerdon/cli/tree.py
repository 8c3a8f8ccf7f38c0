"""``guerdon tree``: what a reward is made of."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.markup import escape

from guerdon.cli import options
from guerdon.cli.console import one_line, print_json, print_parts, table
from guerdon.config.pipeline import is_pipeline_file, open_reward
from guerdon.config.schema import RewardConfig
from guerdon.rubrics.function import as_rubric
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import describe


def tree(
    reward: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="The reward, as [bold]reward.yaml[/bold], [bold]file.py:name[/bold] or "
            "[bold]module:name[/bold].",
        ),
    ],
    services: options.Services = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the tree of a reward.

    What each rubric measures, the range of its score, its weight, and what it depends on: what
    must pass before it is evaluated, and what it reads besides the action.
    """  # fmt: skip
    with open_reward(reward, check=False, services=services) as found:
        rubric, moving = as_rubric(found), _moving(reward)
        if as_json:
            data = {"fingerprint": rubric.fingerprint(), "tree": list(describe(rubric))} | moving
            print_json(data)
        else:
            _print(rubric, moving)


def _moving(reward: str) -> dict[str, Any]:
    """The schedules of a reward file by the names of entries, and the stages of its curriculum."""
    if not is_pipeline_file(reward):
        return {}
    config = RewardConfig.from_file(reward)
    moving: dict[str, Any] = {
        "schedules": {
            each.name: each.schedule.to_spec()
            for each in config.entries
            if each.schedule is not None
        }
    }
    stages = [stage.name for stage in config.curriculum or ()]
    return moving | ({"stages": stages} if stages else {})


def _print(rubric: Rubric, moving: dict[str, Any]) -> None:
    found = table("rubric", "measures", "range", "weight", "depends on")
    found.columns[2].justify = found.columns[3].justify = "right"
    for node in describe(rubric):
        depth = node["path"].count(".") + 1 if node["path"] else 0
        name = node["path"].rpartition(".")[2] or "reward"
        found.add_row(
            "  " * depth + f"{escape(name)}  [dim]{escape(node['rubric'])}[/]",
            escape(node["measures"] or "–"),
            "–" if node["range"] is None else "[{:g}, {:g}]".format(*node["range"]),
            "" if node["weight"] is None else f"{node['weight']:g}",
            escape("; ".join(node["depends_on"])),
        )
    print_parts([found])
    for name, spec in moving.get("schedules", {}).items():
        by = spec["by"].replace("_", " ")
        [(kind, points)] = [item for item in spec.items() if item[0] != "by"]
        one_line(f"weight of {name} moves by {by}: {kind} {json.dumps(points)}")
    if "stages" in moving:
        one_line(f"weights go by stages: {', '.join(moving['stages'])}")
    one_line(f"reward {rubric.fingerprint()}")
