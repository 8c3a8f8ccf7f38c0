"""The demo: serve the environment, play its tasks over the wire in a pool, and tell what came."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import fmean

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.coding_env.candidates import candidates
from examples.coding_env.environment import CodingEnvironment
from examples.coding_env.tasks import load_tasks
from examples.coding_env.verdict import Limits
from guerdon import EnvPool, GenericEnvClient, Observation

__all__ = ["main", "quick"]

KINDS = ("right", "half", "wrong", "broken", "endless")
SESSIONS = 16

Game = tuple[int, str, str]  # a task's number, the kind of the program, and the program
Played = tuple[str, Observation, str]  # the kind, what came of it, and what stopped it


def quick() -> CodingEnvironment:
    """The environment, for programs that never end: they are stopped after half a second."""
    return CodingEnvironment(limits=Limits(seconds=0.5))


def games() -> Iterator[Game]:
    """Every task with programs of every kind."""
    for number, task in enumerate(load_tasks()):
        programs = candidates(task)
        for kind in KINDS:
            yield number, kind, programs[kind]


async def play(url: str) -> list[Played]:
    """Play every game, a pool of sessions at a time, each slot going on when it is done."""
    left = list(reversed(list(games())))
    playing: dict[int, Game] = {}
    played: list[Played] = []

    async with EnvPool(url, n=SESSIONS) as pool:

        async def begin(slots: list[int]) -> list[dict[str, str] | None]:
            actions: list[dict[str, str] | None] = [None] * SESSIONS
            slots = slots[: len(left)]
            for slot in slots:
                playing[slot] = left.pop()
            tasks = [{"task": playing[slot][0]} for slot in slots]
            await pool.reset_batch(slots=slots, options=tasks)
            for slot in slots:
                actions[slot] = {"program": playing[slot][2]}
            return actions

        async for slot, observation in pool.as_completed(await begin(list(range(SESSIONS)))):
            played.append((playing[slot][1], observation, stopped_by(observation)))
            if left:
                action = (await begin([slot]))[slot]
                assert action is not None
                pool.send(slot, action)
    return played


def stopped_by(observation: Observation) -> str:
    """Which gate stopped the evaluation, by what it was told to let through."""
    components = observation.metadata.get("reward_components", {})
    for gate, name in (("rubric_0", "Compiles"), ("rubric_1", "PassesTests ≥ 0.5")):
        if components.get(gate) == 0.0:
            return name
    return ""


def tables(played: list[Played]) -> Iterator[Table]:
    """What came of the programs, by kind."""
    by_kind: dict[str, list[Played]] = defaultdict(list)
    for each in played:
        by_kind[each[0]].append(each)
    names = sorted({name for _, seen, _ in played for name in _components(seen)})
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("program", "played", "mean reward", *names, "stopped by", "failed"):
        right = heading not in ("program", "stopped by")
        table.add_column(escape(heading), justify="right" if right else "left", overflow="fold")
    for kind in KINDS:
        seen = [observation for _, observation, _ in by_kind[kind]]
        stops = Counter(stop for _, _, stop in by_kind[kind] if stop)
        table.add_row(
            kind,
            str(len(seen)),
            _mean([each.reward for each in seen if each.reward is not None]),
            *(_mean([_components(each)[n] for each in seen if n in _components(each)])
              for n in names),
            ", ".join(f"{gate} ({count})" for gate, count in stops.items()),
            str(sum(each.reward is None for each in seen)),
        )  # fmt: skip
    yield table


def _components(observation: Observation) -> dict[str, float]:
    components: dict[str, float] = observation.metadata.get("reward_components", {})
    return components


def _mean(values: list[float]) -> str:
    return f"{fmean(values):.3f}" if values else "–"


async def run() -> int:
    """Serve, play, and print."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    start = time.perf_counter()
    print("$ guerdon serve examples/coding_env/demo.py:quick --port 0", flush=True)
    async with GenericEnvClient.from_module("examples/coding_env/demo.py:quick") as client:
        print(f"{client.environment_id} is served at {client.base_url}")
        ready = time.perf_counter()
        played = await play(client.base_url)
        seconds = time.perf_counter() - ready
    for table in tables(played):
        console.print(table)
    print(
        f"{len(played)} programs in {SESSIONS} sessions over the wire: {seconds:.1f} s "
        f"({len(played) / seconds:.0f} a second); the server was there after "
        f"{ready - start:.1f} s"
    )
    failed = sum(observation.reward is None for _, observation, _ in played)
    return 1 if failed else 0


def main() -> int:
    """Run the demo; 1 where something could not be scored."""
    return asyncio.run(run())


if __name__ == "__main__":
    sys.exit(main())
