"""Serves the environment, plays its tasks in a pool of sessions, and prints the results."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import fmean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from examples.coding_env.candidates import candidates
from examples.coding_env.environment import CodingEnvironment
from examples.coding_env.tasks import load_tasks
from guerdon import EnvPool, GenericEnvClient, HTTPEnvClient, Limits, Observation

__all__ = ["main", "quick"]

KINDS = ("right", "half", "wrong", "broken", "endless")
SESSIONS = 16
SPEC = "examples/coding_env/demo.py:quick"

Game = tuple[int, str, str]  # the number of the task, the kind of the program, the program
Played = tuple[str, Observation]  # the kind of the program, and the last observation


def quick() -> CodingEnvironment:
    """Return an environment that stops endless programs after half a second."""
    return CodingEnvironment(limits=Limits(seconds=0.5))


def games() -> Iterator[Game]:
    """Yield every task with a program of each kind."""
    for number, task in enumerate(load_tasks()):
        programs = candidates(task)
        for kind in KINDS:
            yield number, kind, programs[kind]


async def play(url: str) -> list[Played]:
    """Play all games in a pool; each slot begins the next game as soon as it is free."""
    remaining = list(reversed(list(games())))
    playing: dict[int, Game] = {}
    played: list[Played] = []

    async with EnvPool(url, n=SESSIONS) as pool:

        async def begin(slots: list[int]) -> list[dict[str, str] | None]:
            actions: list[dict[str, str] | None] = [None] * SESSIONS
            slots = slots[: len(remaining)]
            for slot in slots:
                playing[slot] = remaining.pop()
            tasks = [{"task": playing[slot][0]} for slot in slots]
            await pool.reset_batch(slots=slots, options=tasks)
            for slot in slots:
                actions[slot] = {"program": playing[slot][2]}
            return actions

        async for slot, observation in pool.as_completed(await begin(list(range(SESSIONS)))):
            played.append((playing[slot][1], observation))
            if remaining:
                action = (await begin([slot]))[slot]
                assert action is not None
                pool.send(slot, action)
    return played


def gates_of(tree: list[dict[str, Any]]) -> dict[str, str]:
    """Return the gates of a reward by path, named after their child, from ``/config``."""
    titles = {node["path"]: node["rubric"] for node in tree}
    return {path: titles[f"{path}.rubric"] for path, title in titles.items() if title == "Gate"}


def stopped_by(observation: Observation, gates: dict[str, str]) -> str:
    """Return the name of the gate that stopped the evaluation, or an empty text."""
    components = observation.metadata["reward_components"]
    return next((name for path, name in gates.items() if components.get(path) == 0.0), "")


def table(played: list[Played], tree: list[dict[str, Any]]) -> Table:
    """Return a table of the results by kind of program."""
    gates = gates_of(tree)
    leaves = {node["path"]: node["rubric"] for node in tree if not _has_children(node, tree)}
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    out.add_column("program")
    for heading in (
        "played",
        "reward",
        *leaves.values(),
        *(f"stopped by {gates[g]}" for g in gates),
    ):
        out.add_column(heading, justify="right")
    out.add_column("failed", justify="right")
    for kind in KINDS:
        observations = [observation for each, observation in played if each == kind]
        stops = Counter(stopped_by(observation, gates) for observation in observations)
        out.add_row(
            kind,
            str(len(observations)),
            _mean(observation.reward for observation in observations),
            *(
                _mean(_component(observation, path) for observation in observations)
                for path in leaves
            ),
            *(str(stops[name]) for name in gates.values()),
            str(sum(observation.reward is None for observation in observations)),
        )
    return out


def _has_children(node: dict[str, Any], tree: list[dict[str, Any]]) -> bool:
    prefix = f"{node['path']}." if node["path"] else ""
    return any(each is not node and each["path"].startswith(prefix) for each in tree)


def _component(observation: Observation, path: str) -> float | None:
    score: float | None = observation.metadata["reward_components"].get(path)
    return score


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):.3f}" if known else "–"


async def run() -> int:
    """Serve the environment, play all games, and print the results."""
    start = time.perf_counter()
    print(f"$ guerdon serve {SPEC} --port 0", flush=True)
    async with GenericEnvClient.from_module(SPEC) as client:
        ready = time.perf_counter()
        print(f"{client.environment_id} at {client.base_url}, after {ready - start:.1f} s")
        played = await play(client.base_url)
        seconds = time.perf_counter() - ready
        async with HTTPEnvClient(client.base_url) as server:
            tree = (await server.get("/config"))["tree"]
    Console(width=None if sys.stdout.isatty() else 110).print(table(played, tree))
    print(
        f"{len(played)} programs in {SESSIONS} sessions over the wire: {seconds:.1f} s, "
        f"{len(played) / seconds:.0f} a second"
    )
    example = next(observation for kind, observation in played if kind == "half")
    print(f"\nMetadata of a half-right program:\n{json.dumps(example.metadata, indent=2)}")
    return 1 if any(observation.reward is None for _, observation in played) else 0


def main() -> int:
    """Run the demo; return 1 if a program could not be scored."""
    return asyncio.run(run())


if __name__ == "__main__":
    sys.exit(main())
