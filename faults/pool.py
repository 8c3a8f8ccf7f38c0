"""Pools of environments that raise, hang, end their process and return nonsense."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

from faults import worlds
from faults.backends import BACKENDS, Backend
from faults.counts import SETTLE_S, Ledger, tasks_left
from faults.player import Player, play_episodes
from faults.server import ROOT

STEPS = 100_000
SLOTS = 16
# Steps between two pools, the last of which is closed while it steps.
POOL_STEPS = 2_500
PARENTS = 8  # which are killed, of backends with processes of their own

WORLDS = {
    "World": [*worlds.ENVIRONMENT, *worlds.REWARD],
    "AsyncWorld": [*worlds.ENVIRONMENT, "gate raises", "gate returns nan", *worlds.JUDGE],
}


def surroundings(name: str) -> AbstractContextManager[None]:
    """Run what a backend needs outside of this process."""
    return BACKENDS[name].surroundings()


def run(ledger: Ledger, size: float) -> None:
    """Step pools of the backend that the ledger is named after, with each kind of environment."""
    worlds.taken.clear()
    file = ledger.folder / "taken"
    file.touch()
    backend = BACKENDS[ledger.name](ledger)
    if backend.has_children:
        for _ in range(max(1, round(PARENTS * size))):
            asyncio.run(_kill_parent(ledger))
    asyncio.run(_run(ledger, backend, int(STEPS * size)))
    ledger.take(worlds.taken)
    ledger.take(map(int, file.read_text().split()))
    deadline = time.monotonic() + SETTLE_S  # a thread that is ending still has its environment
    while (alive := _environments()) and time.monotonic() < deadline:
        time.sleep(0.05)
    ledger.left += [f"{alive} environments"] * (alive > 0)


def _environments() -> int:
    gc.collect()
    return sum(isinstance(thing, worlds.World) for thing in gc.get_objects())


async def _run(ledger: Ledger, backend: Backend, steps: int) -> None:
    pools, first = max(1, steps // len(WORLDS) // POOL_STEPS), 0
    for world, faults in WORLDS.items():
        async with backend.running(world):
            for _ in range(pools):
                await _play(ledger, backend, world, faults, steps // len(WORLDS) // pools, first)
                first += SLOTS
    async with backend.running("Episodes"):
        for number in range(pools):
            async with await backend.pool("Episodes", SLOTS) as pool:
                await play_episodes(ledger, pool, number)
    ledger.left += tasks_left()


async def _play(
    ledger: Ledger, backend: Backend, world: str, faults: list[str], steps: int, first: int
) -> None:
    weights = {"": 60.0} | dict.fromkeys(faults, 30 / len(faults))
    weights |= {each: 0.2 if each in worlds.LEAKS else 2.0 for each in backend.harmless}
    async with await backend.pool(world, SLOTS) as pool:
        player = Player(
            ledger, pool, weights, first=first, rare=backend.rare, shared=backend.shared,
            disturb=backend.disturb if backend.is_disturbed else None, noticed_s=backend.noticed_s,
        )  # fmt: skip
        await player.play(steps)
        await player.close_while_stepping()


async def _kill_parent(ledger: Ledger) -> None:
    """Kill a process whose pool steps: nothing of it may be left."""
    command = [sys.executable, "-m", "faults.pool", ledger.name]
    variables = {name: value for name, value in os.environ.items() if name != "FAULTS_TAKEN"}
    parent = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=variables, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    try:
        await parent.stdout.readline()
        await asyncio.sleep(0.1 * ledger.random.random())
    finally:
        parent.kill()
        await parent.wait()
    ledger.injected["parent killed"] += 1


async def _play_until_killed(name: str) -> None:
    ledger = Ledger(name, 0, Path())
    faults = {"": 1.0, "slow": 1.0, worlds.LARGE: 1.0}
    async with await BACKENDS[name](ledger).pool("World", SLOTS) as pool:
        player = Player(ledger, pool, faults, first=0)
        await player.reset()
        print("ready", flush=True)
        while True:
            await player.play(POOL_STEPS)


if __name__ == "__main__":
    asyncio.run(_play_until_killed(sys.argv[1]))
