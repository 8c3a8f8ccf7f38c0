"""A pool of environments that raise, hang and return nonsense."""

from __future__ import annotations

import asyncio
from typing import Any

from faults import worlds
from faults.counts import Ledger, choose, tasks_left
from guerdon import EnvPool

STEPS = 30_000
SLOTS = 16
# Steps between two pools, the last of which is closed while it steps.
POOL_STEPS = 2_000
LIMIT_S = 60.0  # a time limit that only exceeds what hangs for ever
SHORT_S = 1.0  # the time limit of steps with some that hang

WORLDS = {
    worlds.World: [*worlds.ENVIRONMENT, *worlds.REWARD],
    worlds.AsyncWorld: [*worlds.ENVIRONMENT, "gate raises", "gate returns nan", *worlds.JUDGE],
}


def run(ledger: Ledger, size: float) -> None:
    """Step pools of each kind of environment."""
    worlds.taken.clear()
    asyncio.run(_run(ledger, int(STEPS * size)))
    ledger.take(worlds.taken)


async def _run(ledger: Ledger, steps: int) -> None:
    pools = max(2, steps // POOL_STEPS)
    for number in range(pools):
        world = list(WORLDS)[number % len(WORLDS)]
        async with EnvPool(world, n=SLOTS, timeout_s=LIMIT_S) as pool:
            player = Player(ledger, pool, WORLDS[world], first=number * SLOTS)
            await player.play(min(steps // 2, POOL_STEPS))
            await player.close_while_stepping()
    for number in range(max(1, pools // 2)):
        async with EnvPool(worlds.Episodes, n=SLOTS, timeout_s=LIMIT_S) as pool:
            await play_episodes(ledger, pool, number)
    ledger.left += tasks_left()


def place_of(seen: Any) -> tuple[int, int, int] | None:
    """Return where an observation was made; None if its environment failed."""
    place = getattr(seen, "place", None)
    return None if place is None else tuple(place)


class Player:
    """Steps a pool, and records each answer.

    Args:
        ledger: The ledger.
        pool: The pool.
        faults: The faults of its environments.
        first: The name of the first slot, unique among all pools.
    """

    def __init__(self, ledger: Ledger, pool: EnvPool, faults: list[str], *, first: int) -> None:
        self.ledger, self.pool, self.first = ledger, pool, first
        self.faults = {"": 60.0} | dict.fromkeys(faults, 30 / len(faults))
        self.faults |= dict.fromkeys(worlds.HARMLESS, 4.0)
        self.episodes, self.steps = [0] * pool.n, [0] * pool.n
        self.must_reset = set(range(pool.n))

    async def play(self, steps: int, *, hangs: bool = True) -> None:
        """Take steps, in batches, one by one, with some that hang, and with cancelled batches."""
        ways = {self.batch: 80.0, self.stream: 10.0, self.cancelled: 8.0}
        for number in range(steps // self.pool.n):
            await self.reset()
            way = self.ledger.random.choices(list(ways), list(ways.values()))[0]
            await (self.hanging if hangs and number == 1 else way)()

    async def reset(self) -> None:
        """Begin an episode in each slot that needs one."""
        slots = sorted(self.must_reset)
        for slot in slots:
            self.episodes[slot] += 1
            self.steps[slot] = 0
        options = [{"slot": self.first + slot, "episode": self.episodes[slot]} for slot in slots]
        observations = await self.pool.reset_batch(slots=slots, options=options)
        for given, seen in zip(options, observations, strict=True):
            place = (given["slot"], given["episode"], 0)
            ticket = self.ledger.issue(place, score=0.0)
            self.ledger.take([ticket])
            failed = "error" in seen.metadata
            self.ledger.answer(ticket, None if failed else 0.0, place=place_of(seen))
        self.must_reset.clear()

    def action(self, slot: int, fault: str | None = None, outcomes: str = "") -> dict[str, Any]:
        """Return the next action of a slot."""
        fault = choose(self.ledger, self.faults) if fault is None else fault
        self.steps[slot] += 1
        harmless = fault in worlds.HARMLESS
        ticket = self.ledger.issue(
            (self.first + slot, self.episodes[slot], self.steps[slot]),
            fault,
            outcomes or ("number" if harmless else ""),
            score=0.0 if fault == "gate closes" else None,
        )
        return {"ticket": ticket, "fault": fault}

    def answered(self, action: dict[str, Any], slot: int, seen: Any) -> None:
        """Record an observation."""
        error = seen.metadata.get("error", "")
        reported = error or seen.metadata.get("reward_error", "")
        self.ledger.answer(action["ticket"], seen.reward, place=place_of(seen), error=reported)
        if seen.done or error:
            self.must_reset.add(slot)

    async def batch(self) -> None:
        """Step all slots but some."""
        skipped = {slot for slot in range(self.pool.n) if self.ledger.random.random() < 0.05}
        actions = [None if slot in skipped else self.action(slot) for slot in range(self.pool.n)]
        await self.step(actions)

    async def step(self, actions: list[Any], timeout_s: float | None = None) -> None:
        """Step, and record the answers."""
        seen = await self.pool.step_batch(actions, timeout_s=timeout_s)
        for slot, action in enumerate(actions):
            if action is not None and seen[slot] is not None:
                self.answered(action, slot, seen[slot])
            elif seen[slot] is not None:  # an answer for a slot that was skipped
                self.ledger.answer(
                    self.ledger.issue(("skipped", slot, id(seen))), seen[slot].reward
                )

    async def stream(self) -> None:
        """Step all slots, and each again as soon as it has answered."""
        actions = [self.action(slot) for slot in range(self.pool.n)]
        async for slot, seen in self.pool.as_completed(list(actions)):
            self.answered(actions[slot], slot, seen)
            if slot not in self.must_reset and self.ledger.random.random() < 0.8:
                actions[slot] = self.action(slot)
                self.pool.send(slot, actions[slot])

    async def cancelled(self) -> None:
        """Cancel a batch at some point; all its slots are reset."""
        outcomes = "number, failure or nothing"
        actions = [self.action(slot, outcomes=outcomes) for slot in range(self.pool.n)]
        self.ledger.injected["batch cancelled"] += 1
        task = asyncio.ensure_future(self.step(actions))
        for _ in range(self.ledger.random.randrange(8)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        self.must_reset = set(range(self.pool.n))

    async def hanging(self) -> None:
        """Step all slots, some of which hang."""
        worlds.released.clear()
        hang = set(self.ledger.random.sample(range(self.pool.n), 3))
        faults = [worlds.HANG if slot in hang else "" for slot in range(self.pool.n)]
        await self.step(
            [self.action(slot, fault) for slot, fault in enumerate(faults)], timeout_s=SHORT_S
        )
        worlds.released.set()

    async def close_while_stepping(self) -> None:
        """Close the pool during a batch: each step has its answer, or fails."""
        await self.reset()
        actions = [self.action(slot, "slow", "number or failure") for slot in range(self.pool.n)]
        self.ledger.injected["pool closed during a batch"] += 1
        task = asyncio.ensure_future(self.step(actions))
        await asyncio.sleep(worlds.SLOW_S * self.ledger.random.random())
        await self.pool.close()
        async with asyncio.timeout(LIMIT_S):
            await task


async def play_episodes(ledger: Ledger, pool: EnvPool, number: int) -> None:
    """Play episodes with a delayed reward: after a failed step, no step of it has a reward."""
    faults = {"": 4.0, "gate raises": 1.0, "gate returns nan": 1.0}
    for episode in range(20):
        await pool.reset_batch()
        actions: list[list[Any]] = [[] for _ in range(worlds.STEPS)]
        for slot in range(pool.n):
            chosen = [choose(ledger, faults) for _ in actions]
            outcome = "failure" if any(chosen) else "number"
            for step, fault in enumerate(chosen):
                place = ("episodes", number, slot, episode, step)
                ticket = ledger.issue(place, fault, outcome)
                actions[step].append({"ticket": ticket, "fault": fault})
        for batch in actions:
            seen = await pool.step_batch(batch)
        for slot, observation in enumerate(seen):
            assert observation is not None
            rewards = observation.metadata.get("step_rewards") or [None] * worlds.STEPS
            for batch, reward in zip(actions, rewards, strict=True):
                ledger.answer(batch[slot]["ticket"], reward)
