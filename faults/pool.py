"""Pools of environments that raise, hang, end their process and return nonsense."""

from __future__ import annotations

import asyncio
import gc
import os

from faults import worlds
from faults.backends import BACKENDS, Backend
from faults.counts import Ledger, tasks_left
from faults.player import Player, play_episodes

STEPS = 100_000
SLOTS = 16
# Steps between two pools, the last of which is closed while it steps.
POOL_STEPS = 2_500

WORLDS = {
    "World": [*worlds.ENVIRONMENT, *worlds.REWARD],
    "AsyncWorld": [*worlds.ENVIRONMENT, "gate raises", "gate returns nan", *worlds.JUDGE],
}


def run(ledger: Ledger, size: float) -> None:
    """Step pools of the backend that the ledger is named after, with each kind of environment."""
    worlds.taken.clear()
    file = ledger.folder / "taken"
    file.touch()
    os.environ["FAULTS_TAKEN"] = str(file)  # for other processes
    asyncio.run(_run(ledger, BACKENDS[ledger.name](ledger), int(STEPS * size)))
    ledger.take(worlds.taken)
    ledger.take(map(int, file.read_text().split()))
    gc.collect()
    alive = sum(isinstance(each, worlds.World) for each in gc.get_objects())
    ledger.left += [f"{alive} environments"] * (alive > 0)


async def _run(ledger: Ledger, backend: Backend, steps: int) -> None:
    pools, first = max(1, steps // len(WORLDS) // POOL_STEPS), 0
    for world, faults in WORLDS.items():
        async with backend.running(world):
            for _ in range(pools):
                await _play(ledger, backend, world, faults, steps // len(WORLDS) // pools, first)
                first += SLOTS
    async with backend.running("Episodes"):
        for number in range(pools):
            async with backend.pool("Episodes", SLOTS) as pool:
                await play_episodes(ledger, pool, number)
    ledger.left += tasks_left()


async def _play(
    ledger: Ledger, backend: Backend, world: str, faults: list[str], steps: int, first: int
) -> None:
    weights = {"": 60.0} | dict.fromkeys(faults, 30 / len(faults))
    weights |= {each: 0.2 if each in worlds.LEAKS else 2.0 for each in backend.harmless}
    async with backend.pool(world, SLOTS) as pool:
        player = Player(
            ledger, pool, weights, first=first, rare=backend.rare, shared=backend.shared,
            disturb=backend.disturb if backend.is_disturbed else None,
        )  # fmt: skip
        await player.play(steps)
        await player.close_while_stepping()
