"""A player, which steps a pool of any backend and records each answer."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from faults import worlds
from faults.counts import EITHER, HEALS, Ledger, choose
from guerdon import EnvPool

SHORT_S = 1.0  # the time limit of steps with some that hang
LIMIT_S = 60.0  # a time limit that only exceeds what hangs for ever
CLOSE_S = 8.0  # less than the limit of what closes an environment
HANGING = 3  # environments at the same time
# Rounds from one fault of a process, or one disturbance from outside, to the next.
RARE = 80
RESETS = 3  # of a slot, by which it has to heal


class Disturbance(NamedTuple):
    """Something that is done to a pool from outside while it steps.

    Attributes:
        name: What it is.
        slots: The slots whose calls it may fail; they are reset afterwards.
        strike: Does it.
        repair: Undoes it, once the calls have ended.
        moves: Whether slots may be elsewhere after a reset, so that it may fail any reset.
    """

    name: str
    slots: Collection[int]
    strike: Callable[[], Awaitable[object]]
    repair: Callable[[], Awaitable[object]] = partial(asyncio.sleep, 0)
    moves: bool = False


class Player:
    """Steps a pool, and records each answer.

    Args:
        ledger: The ledger.
        pool: The pool.
        faults: The faults of its environments, with their weights.
        first: The name of the first slot, unique among all pools.
        rare: Faults that are injected seldom, one after the other.
        shared: Those of them that all slots of the same process may notice.
        disturb: Returns what is done next to the pool from outside.
        noticed_s: Seconds in which the end of a process is noticed.

    Attributes:
        processes: The process of each slot's environment, as of its last reset.
    """

    def __init__(
        self,
        ledger: Ledger,
        pool: EnvPool,
        faults: dict[str, float],
        *,
        first: int,
        rare: deque[str] | None = None,
        shared: Sequence[str] = (),
        disturb: Callable[[Player], Awaitable[Disturbance]] | None = None,
        noticed_s: float = 0.0,
    ) -> None:
        self.ledger, self.pool, self.first = ledger, pool, first
        self.faults = faults
        self.episodes, self.steps = [0] * pool.n, [0] * pool.n
        self.processes = [0] * pool.n
        self.must_reset = set(range(pool.n))
        self._shared = set(shared)
        self._rare, self._disturb, self.noticed_s = rare, disturb, noticed_s
        self._frames: list[tuple[int, Any]] = []

    async def play(self, steps: int) -> None:
        """Take steps, in batches, one by one, with rare faults, and with cancelled batches."""
        ways = {self.batch: 80.0, self.stream: 10.0, self.cancelled: 8.0}
        for number in range(steps // self.pool.n):
            await self.reset()
            way = self.ledger.random.choices(list(ways), list(ways.values()))[0]
            if self._rare and number % RARE == 1:
                way = self.rare
            elif self._disturb is not None and number % RARE == RARE // 2:
                way = self.disturbed
            await way()
        await self.heal()

    # Resets --------------------------------------------------------------------------------------

    async def reset(self) -> None:
        """Begin an episode in each slot that needs one, some of which fail at first."""
        faults = {"": 60.0} | dict.fromkeys(worlds.RAISED, 2.0 / len(worlds.RAISED))
        for _ in range(RESETS):
            if self.must_reset:
                await self._reset(sorted(self.must_reset), faults)
            faults = {"": 1.0}
        self.must_reset.clear()

    async def _reset(
        self, slots: Sequence[int], faults: dict[str, float], unsure: Collection[int] = ()
    ) -> None:
        options, tickets = [], []
        for slot in slots:
            self.episodes[slot] += 1
            self.steps[slot] = 0
            place = (self.first + slot, self.episodes[slot], 0)
            fault = choose(self.ledger, faults)
            outcomes = EITHER if slot in unsure else "failure" if fault else HEALS
            ticket = self.ledger.issue(place, fault, outcomes, score=0.0)
            tickets.append(ticket)
            names = {"slot": place[0], "episode": place[1]}
            options.append(names | {"fault": fault, "ticket": ticket} if fault else names)
        observations = await self.pool.reset_batch(slots=slots, options=options)
        for slot, ticket, seen in zip(slots, tickets, observations, strict=True):
            self.ledger.take([ticket])
            error = seen.metadata.get("error", "")
            self.ledger.answer(ticket, None if error else 0.0, place=place_of(seen), error=error)
            if not error:
                self.must_reset.discard(slot)
                self.processes[slot] = getattr(seen, "process", 0)

    async def heal(self) -> None:
        """Reset all slots, and take a step in each: now there are no more faults."""
        self.must_reset = set(range(self.pool.n))
        await self.reset()
        await self.step([self.action(slot, "", HEALS) for slot in range(self.pool.n)])

    # Steps ---------------------------------------------------------------------------------------

    def action(self, slot: int, fault: str | None = None, outcomes: str = "") -> dict[str, Any]:
        """Return the next action of a slot."""
        fault = choose(self.ledger, self.faults) if fault is None else fault
        self.steps[slot] += 1
        harmless = fault in worlds.NOT_FAILURES
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
        place, ticket = place_of(seen), action["ticket"]
        if (frame := getattr(seen, "frame", None)) is not None:
            self._frames.append((ticket, frame))
            place = place if is_of(frame, ticket) else ("array of another step",)
        self.ledger.answer(ticket, seen.reward, place=place, error=reported)
        if seen.done or error:
            self.must_reset.add(slot)

    def _check_frames(self) -> None:
        """Look at earlier arrays again: nothing else may be written to their memory."""
        for ticket, frame in self._frames:
            if not is_of(frame, ticket):
                self.ledger.answer(ticket, None, place=("array was overwritten",))
        del self._frames[:-8]

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
        self._check_frames()

    async def stream(self) -> None:
        """Step all slots, and each again as soon as it has answered."""
        await self._stream([self.action(slot) for slot in range(self.pool.n)], again=0.8)

    async def _stream(self, actions: list[Any], *, again: float) -> None:
        async for slot, seen in self.pool.as_completed(list(actions)):
            self.answered(actions[slot], slot, seen)
            if slot not in self.must_reset and self.ledger.random.random() < again:
                actions[slot] = self.action(slot)
                self.pool.send(slot, actions[slot])

    async def cancelled(self) -> None:
        """Cancel a batch at some point; all its slots are reset."""
        outcomes = f"{EITHER} or nothing"
        actions = [self.action(slot, outcomes=outcomes) for slot in range(self.pool.n)]
        self.ledger.injected["batch cancelled"] += 1
        task = asyncio.ensure_future(self.step(actions))
        for _ in range(self.ledger.random.randrange(8)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        self.must_reset = set(range(self.pool.n))

    # Rare faults ---------------------------------------------------------------------------------

    def sharing(self, slots: Collection[int]) -> set[int]:
        """Return the slots whose environments are in the processes of some slots."""
        processes = {self.processes[slot] for slot in slots}
        return {slot for slot in range(self.pool.n) if self.processes[slot] in processes}

    async def rare(self) -> None:
        """Step all slots, some of which hang, or end their process."""
        assert self._rare is not None
        fault = self._rare[0]
        self._rare.rotate()
        count = HANGING if fault == worlds.HANG else 1
        victims = set(self.ledger.random.sample(range(self.pool.n), count))
        unsure = self.sharing(victims) if fault in self._shared else set(victims)
        if fault not in worlds.ANSWERED:
            unsure -= victims
        worlds.released.clear()
        actions = [
            self.action(slot, fault * (slot in victims), EITHER if slot in unsure else "")
            for slot in range(self.pool.n)
        ]
        await self.step(actions, timeout_s=SHORT_S)
        worlds.released.set()
        self.must_reset |= victims | unsure
        if fault in (worlds.STOPS, worlds.CLOSES):
            await asyncio.sleep(self.noticed_s)

    async def disturbed(self) -> None:
        """Reset or step all slots, while something is done to the pool from outside."""
        assert self._disturb is not None
        name, slots, strike, repair, moves = await self._disturb(self)
        self.ledger.injected[name] += 1
        everyone = range(self.pool.n)
        if self.ledger.random.random() < 0.3:
            work = self._reset(everyone, {"": 1.0}, unsure=everyone if moves else slots)
        else:
            fault = self.ledger.random.choice(["slow", ""])
            actions = [
                self.action(slot, fault, EITHER if slot in slots else "") for slot in everyone
            ]
            streams = self.ledger.random.random() < 0.3
            work = self._stream(actions, again=0.0) if streams else self.step(actions)
        task = asyncio.ensure_future(work)
        await asyncio.sleep(worlds.SLOW_S * self.ledger.random.random())
        await strike()
        await task
        self.must_reset |= set(slots)
        await repair()

    async def close_while_stepping(self) -> None:
        """Close the pool during a batch: each step has its answer, or fails."""
        await self.reset()
        actions = [self.action(slot, "slow", EITHER) for slot in range(self.pool.n)]
        self.ledger.injected["pool closed during a batch"] += 1
        task = asyncio.ensure_future(self.step(actions))
        await asyncio.sleep(worlds.SLOW_S * self.ledger.random.random())
        began = time.monotonic()
        await self.pool.close()
        if (seconds := time.monotonic() - began) > CLOSE_S:
            self.ledger.left.append(f"pool: closing took {seconds:.0f} s")
        async with asyncio.timeout(LIMIT_S):
            await task


def place_of(seen: Any) -> tuple[int, int, int] | None:
    """Return where an observation was made; None if its environment failed."""
    place = getattr(seen, "place", None)
    return None if place is None else tuple(place)


def is_of(frame: Any, ticket: int) -> bool:
    """Whether an observation's array was made for a ticket."""
    array = np.asarray(frame)
    return array.shape == worlds.FRAME and bool((array == ticket % 251).all())


async def play_episodes(ledger: Ledger, pool: EnvPool, number: int) -> None:
    """Play episodes with a delayed reward: after a failed step, no step of it has a reward."""
    faults = {"": 4.0, "gate raises": 1.0, "gate returns nan": 1.0}
    for episode in range(8):
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
