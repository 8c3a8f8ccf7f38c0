"""``guerdon check``: check that an environment is fit for training."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from guerdon.cli import options
from guerdon.cli.console import print_json, print_parts, table
from guerdon.errors import RolloutError
from guerdon.rollouts.scoring.reading import decode_line, open_file, read_lines

MARKS = {"ok": "[green]ok[/]", "problem": "[bold red]problem[/]", "note": "[yellow]note[/]"}


def check(
    target: options.Environment,
    reward: options.RewardFile = None,
    services: options.Services = None,
    actions: Annotated[
        Path | None,
        typer.Option(
            metavar="F.jsonl",
            help="Actions to play, one per line; by default they are made from the action class.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of each reset.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="The maximum number of steps.")] = 20,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds for each call.")] = 60.0,
    as_json: options.AsJson = False,
) -> None:
    """Look for what makes an environment unfit for training.

    A missing rubric; a reward outside its declared range; a seed that doesn't make it repeatable;
    an observation that doesn't survive JSON; state that two instances share; a reset that keeps
    the old trajectory; a step after the end that is neither rejected nor documented.

    With --reward, the rubric of the file scores the steps, with its weights at the start of its
    schedules.

    [bold]Exit codes[/bold]: 0, no problems. 1, there are problems. 2, there is no such
    environment.
    """  # fmt: skip
    from guerdon.envs.checking import check_environment
    from guerdon.envs.registry import find_environment

    given = _read(actions) if actions is not None else None
    with contextlib.redirect_stdout(sys.stderr):  # what the environment prints isn't the report
        factory = find_environment(target)
        with _configured(factory, reward, services) as configured:
            report = check_environment(
                configured, actions=given, seed=seed, steps=steps, timeout_s=timeout
            )
    if as_json:
        lines = [
            {"check": line.name, "status": line.status, "detail": line.detail}
            for line in report.lines
        ]
        print_json({"ok": report.ok, "checks": lines})
    else:
        found = table("", "", "", header=False)
        for line in report.lines:
            found.add_row(MARKS[line.status], escape(line.name), escape(line.detail))
        print_parts([found])
    if not report.ok:
        raise typer.Exit(options.ExitCode.FAILED)


@contextlib.contextmanager
def _configured(
    factory: Callable[[], Any], reward: str | None, services: str | None
) -> Iterator[Callable[[], Any]]:
    """A factory of environments with the reward of a file; episodes don't advance its schedules."""
    from guerdon.config.pipeline import RewardPipeline, open_services
    from guerdon.config.runtime import RewardRuntime
    from guerdon.envs.configured import ServicesFactory, with_pipeline
    from guerdon.envs.environment import Environment

    if reward is None:
        with open_services(services) as mcp:
            if mcp is not None:
                mcp.check()
            yield ServicesFactory(factory, mcp)
        return
    with open_services(services) as mcp, RewardPipeline.of(reward, mcp=mcp) as pipeline:
        pipeline.make()  # raises what is wrong in the file, before what is not available
        pipeline.check_services()
        make = with_pipeline(factory, pipeline)

        def configured() -> Any:
            environment = make()
            if isinstance(environment, Environment):  # else the report has it
                RewardRuntime(pipeline.make(), config=pipeline.config).apply(environment.rubric)
            return environment

        yield configured


def _read(path: Path) -> list[dict[str, Any]]:
    """The actions of a file, one object per line."""
    actions = []
    with open_file(str(path)) as file:
        for number, line in read_lines(file):
            try:
                action = decode_line(number, line)
            except RolloutError as error:
                raise RolloutError(f"{path}, line {number}: {error}") from None
            if not isinstance(action, dict):
                raise RolloutError(f"{path}, line {number}: an action must be an object")
            actions.append(action)
    return actions
